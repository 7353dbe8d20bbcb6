#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/remote.h"

/* Two readable pages between two that are not, filled with a pattern. */
static unsigned char *pages;
static size_t page_size;

static unsigned char pattern(size_t i)
{
    return (unsigned char)(i * 7 + i / 256);
}

static int map_pages(void **state UNUSED)
{
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *p =
        mmap(NULL, 4 * page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || munmap(p, page_size) || munmap(p + 3 * page_size, page_size))
        return -1;
    pages = p + page_size;
    for (size_t i = 0; i < 2 * page_size; i++)
        pages[i] = pattern(i);
    return 0;
}

static int unmap_pages(void **state UNUSED)
{
    return munmap(pages, 2 * page_size);
}

static struct remote_item item(const unsigned char *at, void *dst, uint32_t len)
{
    return (struct remote_item){.addr = (uintptr_t)at, .dst = dst, .len = len, .got = 12345};
}

static void check_pattern(const unsigned char *dst, size_t from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(dst[i], pattern(from + i));
}

static void test_one(void **state UNUSED)
{
    unsigned char dst[100] = {0};
    struct remote_item it = item(pages + 5, dst, sizeof(dst));

    assert_int_equal(remote_read(getpid(), &it, 1), 1);
    assert_int_equal(it.got, sizeof(dst));
    check_pattern(dst, 5, sizeof(dst));
}

static void test_none(void **state UNUSED)
{
    assert_int_equal(remote_read(getpid(), NULL, 0), 0);
}

/* Bad items first, in the middle, two in a row and last. */
static void test_bad_items(void **state UNUSED)
{
    enum { N = 7 };
    unsigned char dst[N][8];
    struct remote_item it[N];
    static const bool good[N] = {false, true, false, false, true, true, false};

    for (size_t i = 0; i < N; i++) {
        it[i] = item(pages + 16 * i, dst[i], sizeof(dst[i]));
        if (!good[i])
            it[i].addr = i == 0 ? 0 : i == 2 ? UINT64_MAX - 3 : (uintptr_t)pages - 64;
    }
    assert_int_equal(remote_read(getpid(), it, N), 3);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(it[i].got, good[i] ? sizeof(dst[i]) : 0);
        check_pattern(dst[i], 16 * i, it[i].got);
    }
}

static void test_all_bad(void **state UNUSED)
{
    unsigned char dst[4];
    struct remote_item it[3] = {item(NULL, dst, 4), item(NULL, dst, 4), item(NULL, dst, 4)};

    assert_int_equal(remote_read(getpid(), it, 3), 0);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(it[i].got, 0);
}

/* An item that runs into an unmapped page comes back in part, and the next ones whole. */
static void test_partial(void **state UNUSED)
{
    unsigned char before[4], cut[64], after[4];
    struct remote_item it[3] = {item(pages, before, 4), item(pages + 2 * page_size - 24, cut, 64),
                                item(pages + 40, after, 4)};

    assert_int_equal(remote_read(getpid(), it, 3), 2);
    assert_int_equal(it[0].got, 4);
    assert_int_equal(it[1].got, 24);
    check_pattern(cut, 2 * page_size - 24, 24);
    assert_int_equal(it[2].got, 4);
    check_pattern(after, 40, 4);
}

static void test_crosses_pages(void **state UNUSED)
{
    unsigned char dst[64];
    struct remote_item it = item(pages + page_size - 30, dst, sizeof(dst));

    assert_int_equal(remote_read(getpid(), &it, 1), 1);
    check_pattern(dst, page_size - 30, sizeof(dst));
}

static void test_empty_item(void **state UNUSED)
{
    unsigned char dst[4];
    struct remote_item it[3] = {item(pages, dst, 0), item(NULL, dst, 4), item(pages, dst, 0)};

    assert_int_equal(remote_read(getpid(), it, 3), 2);
    assert_int_equal(it[0].got, 0);
    assert_int_equal(it[1].got, 0);
}

/* More than one call takes, with bad ones at both sides of the seam. */
static void test_many(void **state UNUSED)
{
    enum { N = 3000 };
    struct remote_item *it = calloc(N, sizeof(*it));
    uint32_t *dst = calloc(N, sizeof(*dst));
    static const size_t bad[] = {0, 511, 1023, 1024, 1025, 2047, 2999};

    for (size_t i = 0; i < N; i++)
        it[i] = item(pages + i, &dst[i], 4);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        it[bad[i]].addr = 8;
    assert_int_equal(remote_read(getpid(), it, N), N - ARRAY_SIZE(bad));
    for (size_t i = 0, b = 0; i < N; i++) {
        bool is_bad = b < ARRAY_SIZE(bad) && bad[b] == i;
        b += is_bad;
        assert_int_equal(it[i].got, is_bad ? 0 : 4);
        check_pattern((const unsigned char *)&dst[i], i, it[i].got);
    }
    free(it);
    free(dst);
}

static pid_t dead_pid(void)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
    return pid;
}

static void test_gone(void **state UNUSED)
{
    unsigned char dst[4];
    struct remote_item it[2] = {item(pages, dst, 4), item(pages, dst, 4)};

    assert_int_equal(remote_read(dead_pid(), it, 2), -ESRCH);
    assert_int_equal(it[0].got, 0);
    assert_int_equal(it[1].got, 0);
}

/* Another process, and its memory, not ours. */
static void test_other_process(void **state UNUSED)
{
    unsigned char dst[4] = {0};
    struct remote_item it = item(pages + 100, dst, 4);
    int ready[2];
    char c;

    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        memset(pages + 100, 0x5a, 4);
        if (write(ready[1], "x", 1) == 1)
            pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    int whole = remote_read(pid, &it, 1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(whole, 1);
    assert_memory_equal(dst, "\x5a\x5a\x5a\x5a", 4);
}

/* The status of a child without rights that tries to read process 1: minus the result. */
static int refused_status(void)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        unsigned char dst[4];
        struct remote_item it = item(pages, dst, 4);

        if (geteuid() == 0 && (setgid(65534) || setuid(65534)))
            _exit(255);
        int got = remote_read(1, &it, 1);
        _exit(it.got == 0 ? -got : 254);
    }
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

static void test_refused(void **state UNUSED)
{
    int status = refused_status();

    if (status == 255) {
        print_message("no way to give up rights here\n");
        skip();
    }
    assert_int_equal(status, EPERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one),        cmocka_unit_test(test_none),
        cmocka_unit_test(test_bad_items),  cmocka_unit_test(test_all_bad),
        cmocka_unit_test(test_partial),    cmocka_unit_test(test_crosses_pages),
        cmocka_unit_test(test_empty_item), cmocka_unit_test(test_many),
        cmocka_unit_test(test_gone),       cmocka_unit_test(test_other_process),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, map_pages, unmap_pages);
}

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/procfs.h"
#include "proc_fixture.h"
#include "proc_tree.h"

/* Files ---------------------------------------------------------------------- */

static void test_open(void **state UNUSED)
{
    int root = procfs_open_root("/proc");

    assert_true(root >= 0);
    assert_int_equal(fcntl(root, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    int self = procfs_open_pid(root, getpid());
    assert_true(self >= 0);
    assert_int_equal(fcntl(self, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(procfs_open_pid(root, 999999999), -ENOENT);
    assert_int_equal(procfs_open_pid(root, 0), -ENOENT);
    assert_int_equal(procfs_open_pid(root, -1), -ENOENT);
    assert_int_equal(procfs_open_root("/proc/self/status"), -ENOTDIR);
    assert_int_equal(procfs_open_root("/does/not/exist"), -ENOENT);
    close(self);
    close(root);
}

static void test_slurp(void **state UNUSED)
{
    char buf[64] = "old", tiny[4] = "old";
    int dir = open_fixture("proc-threads", 8326);

    assert_int_equal(procfs_slurp(dir, "task/8333/schedstat", buf, sizeof(buf)), 10);
    assert_string_equal(buf, "52238 0 1\n");
    assert_int_equal(procfs_slurp(dir, "task/8333/schedstat", tiny, sizeof(tiny)), 3);
    assert_string_equal(tiny, "522");
    assert_int_equal(procfs_slurp(dir, "task/8333/schedstat", tiny, 1), 0);
    assert_string_equal(tiny, "");
    assert_int_equal(procfs_slurp(dir, "task/8333/schedstat", tiny, 0), -EINVAL);
    strcpy(buf, "old");
    assert_int_equal(procfs_slurp(dir, "task/1/schedstat", buf, sizeof(buf)), -ENOENT);
    assert_string_equal(buf, "");
    assert_int_equal(procfs_slurp(dir, "task", buf, sizeof(buf)), -EISDIR);
    assert_string_equal(buf, "");
    close(dir);
}

static void test_reread(void **state UNUSED)
{
    char buf[64];
    int dir = open_fixture("proc-threads", 8326);
    int fd = openat(dir, "task/8333/schedstat", O_RDONLY | O_CLOEXEC);

    for (int i = 0; i < 3; i++) {
        assert_int_equal(procfs_reread(fd, buf, sizeof(buf)), 10);
        assert_string_equal(buf, "52238 0 1\n");
    }
    assert_int_equal(procfs_reread(fd, buf, 3), 2);
    assert_string_equal(buf, "52");
    close(fd);
    assert_int_equal(procfs_reread(fd, buf, sizeof(buf)), -EBADF);
    assert_string_equal(buf, "");
    close(dir);
}

/* A user in many groups: NSpid stands far behind them. */
static void test_read_status(void **state UNUSED)
{
    struct procfs_status s;
    struct tree t;
    char *groups = calloc(60000, 9);

    for (int i = 0; i < 60000; i++)
        sprintf(groups + i * 8, "%d ", 1000000 + i);
    tree_new(&t);
    tree_put(&t, "status", "Tgid:\t5\nGroups:\t%s\nNSpid:\t7\t2\n", groups);
    tree_put(&t, "none", "%s", "");
    int dir = open(t.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(procfs_read_status(dir, "status", &s), 0);
    assert_int_equal(s.tgid, 5);
    assert_int_equal(s.ns_levels, 2);
    assert_int_equal(s.ns_pid[1], 2);
    assert_int_equal(procfs_read_status(dir, "none", &s), -EINVAL);
    assert_int_equal(procfs_read_status(dir, "status2", &s), -ENOENT);
    close(dir);
    tree_free(&t);
    free(groups);
}

static void test_read_stat(void **state UNUSED)
{
    struct procfs_stat s;
    int dir = open_fixture("proc-threads", 8326);

    assert_int_equal(procfs_read_stat(dir, "task/8334/stat", &s), 0);
    assert_int_equal(s.pid, 8334);
    assert_int_equal(procfs_read_stat(dir, "task/1/stat", &s), -ENOENT);
    assert_int_equal(procfs_read_stat(dir, "status", &s), -EINVAL);
    close(dir);
}

static void test_slurp_alloc(void **state UNUSED)
{
    char *text = NULL, small[8];
    int self = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int dir = open_fixture("proc-threads", 8326);

    assert_int_equal(procfs_slurp_alloc(dir, "maps", &text, 1 << 20), 2815);
    assert_int_equal(strlen(text), 2815);
    free(text);
    assert_int_equal(procfs_slurp_alloc(dir, "maps", &text, 101), 100);
    assert_int_equal(strlen(text), 100);
    free(text);
    assert_int_equal(procfs_slurp_alloc(dir, "maps", &text, 1), 0);
    free(text);
    assert_int_equal(procfs_slurp_alloc(dir, "maps", &text, 0), -EINVAL);
    assert_int_equal(procfs_slurp_alloc(dir, "nothing", &text, 100), -ENOENT);
    assert_null(text);
    assert_int_equal(procfs_slurp_alloc(dir, "task", &text, 100), -EISDIR);
    assert_null(text);
    assert_true(procfs_slurp_alloc(self, "smaps", &text, 1 << 20) > (ssize_t)sizeof(small));
    free(text);
    close(dir);
    close(self);
}

/* A file that outgrows the first buffer several times comes whole. */
static void test_slurp_alloc_grows(void **state UNUSED)
{
    enum { SIZE = 100001 };
    char name[] = "/tmp/unit_procfs.XXXXXX", *text, *want = malloc(SIZE);
    int fd = mkstemp(name);

    assert_true(fd >= 0);
    for (int i = 0; i < SIZE; i++)
        want[i] = (char)('a' + i % 23);
    assert_int_equal(write(fd, want, SIZE), SIZE);
    assert_int_equal(procfs_slurp_alloc(AT_FDCWD, name, &text, 1 << 20), SIZE);
    assert_memory_equal(text, want, SIZE);
    assert_int_equal(text[SIZE], 0);
    free(text);
    assert_int_equal(procfs_slurp_alloc(AT_FDCWD, name, &text, 50000), 49999);
    assert_memory_equal(text, want, 49999);
    free(text);
    free(want);
    close(fd);
    unlink(name);
}

static void test_readlink(void **state UNUSED)
{
    char exe[256], cut[5];
    int self = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ssize_t n = procfs_readlink(self, "exe", exe, sizeof(exe));

    assert_true(n > 4);
    assert_int_equal(strlen(exe), n);
    assert_int_equal(exe[0], '/');
    assert_int_equal(procfs_readlink(self, "exe", cut, sizeof(cut)), 4);
    assert_memory_equal(cut, exe, 4);
    assert_int_equal(cut[4], 0);
    assert_int_equal(procfs_readlink(self, "status", exe, sizeof(exe)), -EINVAL);
    assert_string_equal(exe, "");
    assert_int_equal(procfs_readlink(self, "fd/99999", exe, sizeof(exe)), -ENOENT);
    assert_int_equal(procfs_readlink(self, "exe", exe, 0), -EINVAL);
    close(self);
}

static int compare_ids(const void *a, const void *b)
{
    return *(const pid_t *)a - *(const pid_t *)b;
}

static void test_list_ids(void **state UNUSED)
{
    pid_t *ids = NULL;
    size_t cap = 0;
    int dir = open_fixture("proc-threads", 8326);

    assert_int_equal(procfs_list_ids(dir, "task", &ids, &cap), 3);
    qsort(ids, 3, sizeof(*ids), compare_ids);
    assert_int_equal(ids[0], 8326);
    assert_int_equal(ids[1], 8333);
    assert_int_equal(ids[2], 8334);
    assert_int_equal(procfs_list_ids(dir, "task/8326", &ids, &cap), 0); /* no numbers in there */
    assert_int_equal(procfs_list_ids(dir, "maps", &ids, &cap), -ENOTDIR);
    assert_int_equal(procfs_list_ids(dir, "fd", &ids, &cap), -ENOENT);
    free(ids);
    close(dir);
}

/* More entries than one call to the kernel brings, and names that only begin like numbers. */
static void test_list_many(void **state UNUSED)
{
    enum { N = 3000 };
    char dir[] = "/tmp/unit_procfs.XXXXXX";
    static const char *const odd[] = {"12a",        "a12", "-5", "99999999999999999999",
                                      "4294967297", "+3"};
    pid_t *ids = NULL;
    size_t cap = 0;

    assert_non_null(mkdtemp(dir));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < ARRAY_SIZE(odd); i++)
        assert_int_equal(mkdirat(fd, odd[i], 0700), 0);
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        assert_int_equal(mkdirat(fd, name, 0700), 0);
    }
    assert_int_equal(procfs_list_ids(fd, ".", &ids, &cap), N);
    qsort(ids, N, sizeof(*ids), compare_ids);
    for (int i = 0; i < N; i++) {
        char name[16];
        assert_int_equal(ids[i], i);
        snprintf(name, sizeof(name), "%d", i);
        unlinkat(fd, name, AT_REMOVEDIR);
    }
    for (size_t i = 0; i < ARRAY_SIZE(odd); i++)
        unlinkat(fd, odd[i], AT_REMOVEDIR);
    free(ids);
    close(fd);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_slurp),
        cmocka_unit_test(test_reread),
        cmocka_unit_test(test_read_status),
        cmocka_unit_test(test_read_stat),
        cmocka_unit_test(test_slurp_alloc),
        cmocka_unit_test(test_slurp_alloc_grows),
        cmocka_unit_test(test_readlink),
        cmocka_unit_test(test_list_ids),
        cmocka_unit_test(test_list_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

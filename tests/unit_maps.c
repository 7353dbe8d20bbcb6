#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include <cmocka.h>

#include "../src/maps.h"
#include "proc_fixture.h"
#include "proc_tree.h"

/* Captured ----------------------------------------------------------------------------------- */

static void load_fixture(struct maps *m)
{
    int dir = open_fixture("proc-threads", 8326);

    *m = (struct maps){0};
    assert_int_equal(maps_load(m, dir, 8326), 0);
    close(dir);
}

static void test_find(void **state UNUSED)
{
    struct maps m;

    load_fixture(&m);
    for (size_t i = 0; i < m.n; i++) {
        const struct map_entry *e = &m.entries[i];
        assert_true(e->start < e->end);
        assert_true(i == 0 || e->start >= m.entries[i - 1].end);
        assert_ptr_equal(maps_find(&m, e->start), e);
        assert_ptr_equal(maps_find(&m, e->end - 1), e);
        if (i + 1 == m.n || m.entries[i + 1].start > e->end)
            assert_null(maps_find(&m, e->end));
    }
    assert_null(maps_find(&m, 0));
    assert_null(maps_find(&m, m.entries[0].start - 1));
    assert_null(maps_find(&m, UINT64_MAX));
    maps_release(&m);
}

static void test_fields(void **state UNUSED)
{
    struct maps m;

    load_fixture(&m);
    const struct map_entry *e = maps_find(&m, 0x5584a9eb40e0);
    assert_int_equal(e->start, 0x5584a9eb4000);
    assert_int_equal(e->offset, 0x3000);
    assert_int_equal(e->inode, 1066220);
    assert_int_equal(e->dev, makedev(0xfe, 0));
    assert_true(e->write && !e->exec && !e->shared);
    assert_string_equal(e->path, "/srv/shop/shopd");
    assert_string_equal(e->module, e->path);
    e = maps_find(&m, 0x5584ca13d000);
    assert_string_equal(e->path, "[heap]");
    /* .bss of libc: anonymous memory right behind its data. */
    e = maps_find(&m, 0x7fbf1145a000);
    assert_string_equal(e->path, "");
    assert_string_equal(e->module, "/usr/lib/x86_64-linux-gnu/libc.so.6");
    /* Behind a gap, or behind other anonymous memory, it is nobody's. */
    e = maps_find(&m, 0x7fbf11281000);
    assert_string_equal(e->module, "");
    maps_release(&m);
}

static void test_odd_names(void **state UNUSED)
{
    struct maps m;

    load_fixture(&m);
    const struct map_entry *e = maps_find(&m, 0x7fbf11469000);
    assert_string_equal(e->path, "/dev/shm/gone (deleted)");
    assert_true(e->shared && e->inode == 2 && e->dev == makedev(0, 0x1b));
    e = maps_find(&m, 0x7fbf1146f000);
    assert_string_equal(e->path, "/srv/shop/price list  1.dat (deleted)");
    e = maps_find(&m, 0x7fbf1146d000);
    assert_string_equal(e->path, "/srv/shop/a\\012b");
    maps_release(&m);
}

/* Written ------------------------------------------------------------------------------------ */

static int dir_of(const struct tree *t)
{
    char path[96];

    snprintf(path, sizeof(path), "%s/1", t->root);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void load_text(struct maps *m, const char *text)
{
    struct tree t;

    tree_new(&t);
    tree_put(&t, "1/task/1/maps", "%s", text);
    int dir = dir_of(&t);
    *m = (struct maps){0};
    assert_int_equal(maps_load(m, dir, 1), 0);
    close(dir);
    tree_free(&t);
}

static void test_bss(void **state UNUSED)
{
    struct maps m;

    load_text(&m, "1000-2000 r--p 00001000 08:01 7 /x\n"  /* not writable: no .data */
                  "2000-3000 rw-p 00000000 00:00 0\n"
                  "4000-5000 rw-s 00000000 08:01 8 /shared\n" /* shared: no module */
                  "5000-6000 rw-p 00000000 00:00 0 \n"
                  "7000-8000 rw-p 00000000 08:01 7 /x\n"
                  "8000-9000 ---p 00000000 00:00 0\n" /* a guard: not .bss */
                  "a000-b000 rw-p 00000000 08:01 7 /x\n"
                  "b000-c000 rw-p 00000000 00:00 0\n"
                  "c000-d000 rw-p 00000000 00:00 0\n" /* one follows, not two */
                  "e000-f000 rw-p 00000000 08:01 7 /x (deleted)\n"
                  "f000-10000 rw-p 00000000 00:00 0\n");
    assert_int_equal(m.n, 11);
    static const char *const modules[] = {"/x", "",   "/shared", "", "/x", "",
                                          "/x", "/x", "",        "/x (deleted)", "/x (deleted)"};
    for (size_t i = 0; i < m.n; i++)
        assert_string_equal(m.entries[i].module, modules[i]);
    maps_release(&m);
}

static void test_bad_lines(void **state UNUSED)
{
    struct maps m;

    load_text(&m, "garbage\n"
                  "1000-2000 rw-p 00000000 00:00 0\n"
                  "\n"
                  "3000-2000 rw-p 00000000 00:00 0\n"
                  "5000-6000 rw-p 00000000 00:00 0 [heap]\n"
                  "7000-8000 rw-p 0000"); /* cut off */
    assert_int_equal(m.n, 2);
    assert_null(maps_find(&m, 0x7000));
    assert_string_equal(maps_find(&m, 0x5fff)->path, "[heap]");
    maps_release(&m);
}

static void test_errors_keep(void **state UNUSED)
{
    struct tree t;
    struct maps m = {0};

    tree_new(&t);
    tree_put(&t, "1/task/1/maps", "1000-2000 rw-p 00000000 00:00 0 [heap]\n");
    tree_put(&t, "1/task/2/maps", "%s", "");
    int dir = dir_of(&t);
    assert_int_equal(maps_load(&m, dir, 3), -ENOENT);
    assert_int_equal(m.n, 0);
    assert_null(maps_find(&m, 0x1000));
    assert_int_equal(maps_load(&m, dir, 1), 0);
    assert_int_equal(maps_load(&m, dir, 3), -ENOENT);
    assert_int_equal(maps_load(&m, dir, 2), -ESRCH); /* a thread without memory has exited */
    assert_string_equal(maps_find(&m, 0x1000)->path, "[heap]");
    tree_put(&t, "1/task/1/maps", "4000-5000 rw-p 00000000 00:00 0\n");
    assert_int_equal(maps_load(&m, dir, 1), 0);
    assert_null(maps_find(&m, 0x1000));
    assert_int_equal(m.n, 1);
    close(dir);
    tree_free(&t);
    maps_release(&m);
    maps_release(&m);
    assert_int_equal(m.n, 0);
}

#define MANY 100000

static void test_many(void **state UNUSED)
{
    struct tree t;
    struct maps m = {0};
    char path[96];

    tree_new(&t);
    tree_put(&t, "1/task/1/maps", "%s", "");
    snprintf(path, sizeof(path), "%s/1/task/1/maps", t.root);
    FILE *f = fopen(path, "w");
    for (unsigned i = 0; i < MANY; i++)
        fprintf(f, "%x000-%x000 rw-p 00000000 08:01 %u%27s/srv/file %u\n", 2 * i + 2, 2 * i + 3,
                i + 1, "", i / 1000);
    fclose(f);
    int dir = dir_of(&t);
    assert_int_equal(maps_load(&m, dir, 1), 0);
    assert_int_equal(m.n, MANY);
    for (unsigned i = 0; i < MANY; i++) {
        uint64_t start = (uint64_t)(2 * i + 2) << 12;
        const struct map_entry *e = maps_find(&m, start + 0xfff);
        assert_non_null(e);
        assert_int_equal(e->inode, i + 1);
        assert_null(maps_find(&m, start + 0x1000));
    }
    snprintf(path, sizeof(path), "/srv/file %u", MANY / 1000 - 1);
    assert_string_equal(m.entries[MANY - 1].path, path);
    maps_release(&m);
    close(dir);
    tree_free(&t);
}

/* This process ------------------------------------------------------------------------------- */

static void test_self(void **state UNUSED)
{
    struct maps m = {0};
    int dir = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_int_equal(maps_load(&m, dir, getpid()), 0);
    assert_string_equal(maps_find(&m, (uintptr_t)__builtin_frame_address(0))->path, "[stack]");
    assert_true(maps_path_is_glibc(maps_find(&m, (uintptr_t)&gnu_get_libc_version)->path));
    assert_true(maps_find(&m, (uintptr_t)&gnu_get_libc_version)->exec);
    assert_true(maps_find(&m, (uintptr_t)page)->shared);
    assert_true(maps_find(&m, (uintptr_t)page)->inode > 0); /* /dev/zero: its own for each */
    maps_release(&m);
    munmap(page, 4096);
    close(dir);
}

static void test_libraries(void **state UNUSED)
{
    static const char *const glibc[] = {
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/libc-2.17.so",
        "/lib64/libpthread-2.28.so",
        "/lib/x86_64-linux-gnu/libpthread.so.0",
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/ld-linux-aarch64.so.1",
        "/lib64/ld-2.17.so",
        "/usr/lib/libc.so.6 (deleted)",
        "/lib64/libc-2.17.so (deleted)",
    };
    static const char *const musl[] = {
        "/lib/ld-musl-x86_64.so.1",
        "/lib/libc.musl-x86_64.so.1",
        "/usr/lib/x86_64-linux-musl/libc.so", /* Debian: the loader's name is a link to it */
        "/usr/local/musl/lib/libc.so",
        "/lib/ld-musl-aarch64.so.1 (deleted)",
    };
    static const char *const neither[] = {
        "", "[heap]", "[vdso]", "/usr/lib/libcap.so.2", "/srv/libc.so.6/shopd",
        "/usr/lib/libc++.so.1",
        "/opt/libc.so.60", "/usr/lib/libcrypto.so.3", "/usr/lib/libpthread_workqueue.so.0",
    };

    for (size_t i = 0; i < ARRAY_SIZE(glibc); i++)
        assert_true(maps_path_is_glibc(glibc[i]) && !maps_path_is_musl(glibc[i]));
    for (size_t i = 0; i < ARRAY_SIZE(musl); i++)
        assert_true(maps_path_is_musl(musl[i]) && !maps_path_is_glibc(musl[i]));
    for (size_t i = 0; i < ARRAY_SIZE(neither); i++)
        assert_false(maps_path_is_glibc(neither[i]) || maps_path_is_musl(neither[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_odd_names),   cmocka_unit_test(test_bss),
        cmocka_unit_test(test_bad_lines),   cmocka_unit_test(test_errors_keep),
        cmocka_unit_test(test_many),        cmocka_unit_test(test_self),
        cmocka_unit_test(test_libraries),
    };

    return cmocka_run_group_tests_name("maps", tests, NULL, NULL);
}

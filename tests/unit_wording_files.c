/*
 * unit_wording_files - who must act for the waiters for a file's lock, where no thread can be
 * named; in which lock of the kernel a thread sleeps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/filetab.h"
#include "../src/kernelwait.h"
#include "../src/lockkey.h"
#include "../src/wording_files.h"

#define FILE_ID                                                                                    \
    {                                                                                              \
        .dev = 0x2a, .inode = 77                                                                   \
    }

static struct arena arena;

static int release(void **state UNUSED)
{
    arena_release(&arena);
    return 0;
}

/* A row that process PID waits in, for an exclusive flock. */
static struct lock_row row(pid_t pid)
{
    struct lock_row r = {
        .kind = KIND_FLOCK,
        .pids = {pid},
        .npids = 1,
        .inode = 77,
        .file = {.kind = FILELOCK_FLOCK, .exclusive = true, .file = FILE_ID, .end = FILE_END},
    };

    r.key = lockkey_file(&r.file);
    return r;
}

/* What is said of R when just FILE and HOLDERS are known. */
static const char *told(const struct lock_row *r, const struct file_fact *file,
                        const struct file_holder *holders, size_t n)
{
    struct proctab procs = {
        .files = {.files = file, .nfiles = file != NULL, .holders = holders, .nholders = n}};
    struct owner o = owner_of_file(&procs, r);

    assert_null(o.thread);
    return wording_file_owner(&arena, &procs, r, &o);
}

static void test_file_of_a_server(void **state UNUSED)
{
    struct lock_row r = row(100);
    struct file_fact f = {.file = FILE_ID, .fs = FS_NFS, .server = "10.0.0.5:/x", .searched = true};

    assert_string_equal(told(&r, &f, NULL, 0),
                        "waits for NFS server (lockd) 10.0.0.5:/x: its holder is on another "
                        "machine, or the server has no lock manager");
    f.fs = FS_REMOTE;
    f.server = "//files/x";
    assert_non_null(strstr(told(&r, &f, NULL, 0), "//files/x"));
}

static void test_fuse_daemon(void **state UNUSED)
{
    struct lock_row r = row(7368);
    struct file_fact f = {.file = FILE_ID, .fs = FS_FUSE, .server = "/mnt", .fuse_daemon = 7368};

    assert_string_equal(told(&r, &f, NULL, 0),
                        "waits for FUSE daemon 7368 (the same process!), which serves /mnt");
    r.pids[0] = 9;
    assert_string_equal(told(&r, &f, NULL, 0), "waits for FUSE daemon 7368, which serves /mnt");
}

static void test_nobody_found(void **state UNUSED)
{
    struct lock_row r = row(100);
    struct file_fact f = {.file = FILE_ID};

    assert_null(told(&r, NULL, NULL, 0)); /* nothing is known yet, and nothing is said */
    assert_null(told(&r, &f, NULL, 0));
    f.searched = true;
    assert_non_null(strstr(told(&r, &f, NULL, 0), "cannot be seen"));
}

static void test_taker_that_has_exited(void **state UNUSED)
{
    struct lock_row r = row(100);
    struct file_holder h = {.lock = r.file, .pid = 0, .fd = -1, .taker = 11739, .taker_gone = true};
    struct file_fact f = {.file = FILE_ID, .searched = true};

    assert_string_equal(told(&r, &f, &h, 1), "its original locker 11739 has exited; who got the "
                                             "descriptor from it was not found");
    h.pid = 11740; /* a process of which nothing else is known */
    h.fd = 3;
    assert_string_equal(told(&r, &f, &h, 1),
                        "held by process 11740; by a descriptor shared with the original locker "
                        "11739, which has exited");
}

/* A shared lock is in nobody's way who wants to share; nor is one on other bytes. */
static void test_only_who_is_in_the_way(void **state UNUSED)
{
    struct lock_row r = row(100);
    struct file_fact f = {.file = FILE_ID, .searched = true};
    struct file_holder h = {.lock = r.file, .pid = 5, .fd = 3, .taker = 5, .now = true};

    h.lock.exclusive = false;
    assert_non_null(strstr(told(&r, &f, &h, 1), "held by process 5"));
    r.file.exclusive = false;
    assert_non_null(strstr(told(&r, &f, &h, 1), "cannot be seen"));
    r.file = (struct file_lock){
        .kind = FILELOCK_POSIX, .exclusive = true, .file = FILE_ID, .start = 10, .end = 19};
    h.lock = r.file;
    assert_non_null(strstr(told(&r, &f, &h, 1), "held by process 5"));
    h.lock.start = h.lock.end = 20;
    assert_non_null(strstr(told(&r, &f, &h, 1), "cannot be seen"));
    h.lock = r.file;
    h.lock.kind = FILELOCK_OFD; /* knows POSIX locks */
    assert_non_null(strstr(told(&r, &f, &h, 1), "held by process 5"));
    h.lock.kind = FILELOCK_FLOCK; /* does not */
    assert_non_null(strstr(told(&r, &f, &h, 1), "cannot be seen"));
}

static void assert_lock(struct lock_row *r, const char *path, uint64_t start, uint64_t end,
                        const char *want)
{
    r->path = (char *)path;
    r->file.start = start;
    r->file.end = end;
    assert_string_equal(wording_file_lock(&arena, r), want);
}

static void test_names(void **state UNUSED)
{
    struct lock_row r = row(100);

    assert_lock(&r, NULL, 0, FILE_END, "flock on inode 77");
    assert_lock(&r, "/run/a", 0, FILE_END, "flock on /run/a");
    r.deleted = true;
    assert_lock(&r, "/run/a", 0, FILE_END, "flock on /run/a (deleted)");
    r.deleted = false;
    r.kind = KIND_POSIX;
    r.file.kind = FILELOCK_POSIX;
    assert_lock(&r, "/d", 0, 9, "posix lock on /d bytes 0-9");
    assert_lock(&r, "/d", 5, 5, "posix lock on /d byte 5");
    assert_lock(&r, "/d", 5, FILE_END, "posix lock on /d from byte 5 on");
    assert_lock(&r, "/srv/a.db", 0x40000000, 0x40000000, "posix lock a.db PENDING");
    assert_lock(&r, "/srv/a.db", 0x40000001, 0x40000001, "posix lock a.db RESERVED");
    assert_lock(&r, "/srv/a.db", 0x40000002, 0x400001ff, "posix lock a.db SHARED");
    assert_lock(&r, "/srv/a.db-shm", 120, 120, "posix lock a.db-shm WAL write");
    assert_lock(&r, "/srv/a.db-shm", 123, 123, "posix lock a.db-shm WAL read 0");
}

static const char *family(const char *wchan, enum seen seen)
{
    const struct thread_fact f = {.seen = seen, .wchan = wchan};
    const struct kernel_family *k = kernelwait_of(&f);

    return k ? k->name : "none";
}

static void test_families_of_the_kernel(void **state UNUSED)
{
    assert_string_equal(family("nlmclnt_lock", SEEN_CALL), "NFS server");
    assert_string_equal(family("request_wait_answer", SEEN_CALL), "FUSE daemon");
    assert_string_equal(family("fuse_lock_inode", SEEN_CALL), "FUSE daemon");
    assert_string_equal(family("ext4_buffered_write_iter", SEEN_CALL), "inode lock");
    assert_string_equal(family("jbd2_log_wait_commit", SEEN_CALL), "journal");
    assert_string_equal(family("lock_mm_and_find_vma", SEEN_FAULT), "mmap_lock");
    assert_string_equal(family("folio_wait_bit", SEEN_CALL), "none"); /* a device, no lock */
    assert_string_equal(family("jbd2_log_wait_commit", SEEN_ACTIVE), "none");
    assert_string_equal(family(NULL, SEEN_CALL), "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_file_of_a_server, release),
        cmocka_unit_test_teardown(test_fuse_daemon, release),
        cmocka_unit_test_teardown(test_nobody_found, release),
        cmocka_unit_test_teardown(test_taker_that_has_exited, release),
        cmocka_unit_test_teardown(test_only_who_is_in_the_way, release),
        cmocka_unit_test_teardown(test_names, release),
        cmocka_unit_test(test_families_of_the_kernel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

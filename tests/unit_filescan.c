#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "proc_tree.h"
#include "scan_look.h"

#define DEV makedev(254, 0)

static void put_process(const struct tree *t, int pid, int ppid)
{
    char rel[64];

    snprintf(rel, sizeof(rel), "%d/stat", pid);
    tree_put(t, rel,
             "%d (shopd) S %d 1 1 0 -1 4194560 11 0 7 0 250 50 0 0 20 0 2 0 9 2000000 100 "
             "18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n",
             pid, ppid);
    snprintf(rel, sizeof(rel), "%d/mountinfo", pid);
    tree_put(t, rel, "%s",
             "27 1 254:0 / / rw - ext4 /dev/vda rw\n"
             "28 27 0:50 / /nfs rw - nfs4 10.0.0.5:/export rw\n"
             "29 27 0:51 / /home/me/there rw - fuse.sshfs me@there: rw\n"
             "30 27 0:52 / /win rw - cifs //srv/share rw\n");
}

static void put_fd(const struct tree *t, int pid, int fd, const char *link, const char *info)
{
    char rel[64], path[160];

    snprintf(rel, sizeof(rel), "%d/fdinfo/%d", pid, fd);
    tree_put(t, rel, "%s", info);
    snprintf(rel, sizeof(rel), "%d/fd/x", pid); /* makes the directory */
    tree_put(t, rel, "%s", "");
    snprintf(path, sizeof(path), "%s/%d/fd/%d", t->root, pid, fd);
    assert_int_equal(symlink(link, path), 0);
}

static void test_path_and_server(void **state UNUSED)
{
    const struct file_id files[] = {
        {DEV, 7}, {makedev(0, 50), 7}, {makedev(0, 51), 8}, {makedev(0, 52), 9}, {DEV, 99},
    };
    const struct scan_wish wish = {.files = files, .nfiles = 5, .everybody = true};
    struct tree t;
    struct scan_result r;

    tree_new(&t);
    tree_put(&t, "locks", "%s", "");
    put_process(&t, 10, 1);
    put_fd(&t, 10, 3, "/var/lib/sess_x (deleted)",
           "pos:\t0\nmnt_id:\t27\nino:\t7\nlock:\t1: FLOCK  ADVISORY  WRITE 9 fe:00:7 0 EOF\n");
    put_fd(&t, 10, 4, "/nfs/a", "pos:\t0\nmnt_id:\t28\nino:\t7\n");
    put_fd(&t, 10, 5, "/home/me/there/b", "mnt_id:\t29\nino:\t8\n");
    put_fd(&t, 10, 6, "/win/c", "mnt_id:\t30\nino:\t9\n");
    put_fd(&t, 10, 7, "socket:[7]", "mnt_id:\t27\nino:\t7\n");
    put_process(&t, 11, 1);
    put_fd(&t, 11, 9, "/dev/fuse", "mnt_id:\t27\nino:\t90\nfuse_connection:\t40\n");
    put_process(&t, 12, 1);
    put_fd(&t, 12, 9, "/dev/fuse", "mnt_id:\t27\nino:\t90\nfuse_connection:\t51\n");
    look(t.root, &wish, &r);
    assert_true(r.searched);
    assert_int_equal(r.nfiles, 5);

    const struct file_fact *f = file_in(&r, files[0]);
    assert_string_equal(f->path, "/var/lib/sess_x");
    assert_true(f->deleted && f->searched && !f->open_elsewhere);
    assert_int_equal(f->fs, FS_LOCAL);
    assert_null(f->server);
    f = file_in(&r, files[1]);
    assert_string_equal(f->path, "/nfs/a");
    assert_false(f->deleted);
    assert_int_equal(f->fs, FS_NFS);
    assert_string_equal(f->server, "10.0.0.5:/export");
    assert_int_equal(f->fuse_daemon, 0);
    f = file_in(&r, files[2]);
    assert_int_equal(f->fs, FS_FUSE);
    assert_string_equal(f->server, "/home/me/there");
    assert_int_equal(f->fuse_daemon, 12);
    f = file_in(&r, files[3]);
    assert_int_equal(f->fs, FS_REMOTE);
    assert_string_equal(f->server, "//srv/share");
    assert_null(file_in(&r, files[4])->path); /* nobody has it open */

    /* Nobody is watched: only the descriptor that holds a lock is told. */
    assert_int_equal(r.nfds, 1);
    assert_true(r.fds[0].pid == 10 && r.fds[0].fd == 3 && r.fds[0].holds && r.fds[0].taker == 9);
    filescan_release(&r);
    tree_free(&t);
}

static void test_lines(void **state UNUSED)
{
    const struct file_id files[] = {{DEV, 7}, {DEV, 8}};
    const struct scan_wish wish = {.files = files, .nfiles = 2};
    struct tree t;
    struct scan_result r;

    tree_new(&t);
    tree_put(&t, "locks", "%s",
             "1: POSIX  ADVISORY  WRITE 10 fe:00:7 0 9\n"
             "1: -> POSIX  ADVISORY  WRITE 11 fe:00:7 0 0\n"
             "1:  -> POSIX  ADVISORY  WRITE 12 fe:00:7 0 0\n"
             "1:   -> POSIX  ADVISORY  WRITE 13 fe:00:7 0 0\n"
             "1:  -> POSIX  ADVISORY  READ 14 fe:00:7 0 0\n"
             "1: -> POSIX  ADVISORY  READ 15 fe:00:7 5 9\n"
             "2: POSIX  ADVISORY  WRITE 10 fe:00:7 zz 29\n"
             "2: -> POSIX  ADVISORY  WRITE 16 fe:00:7 20 29\n"
             "3: FLOCK  ADVISORY  WRITE 10 fe:00:9 0 EOF\n"
             "3: -> FLOCK  ADVISORY  WRITE 17 fe:00:9 0 EOF\n"
             "4: LEASE  BREAKING  UNLCK 10 fe:00:8 0 EOF\n"
             "4: -> LEASE  BREAKER   WRITE 18 <none>:0 0 EOF\n");
    look(t.root, &wish, &r);
    assert_int_equal(r.malformed, 1);
    assert_int_equal(r.nheld, 2);
    assert_true(r.held[0].nr == 1 && r.held[1].nr == 4 && r.held[1].breaking);
    assert_false(r.searched);

    static const struct {
        pid_t pid;
        int level, behind;
    } want[] = {{11, 1, -1}, {12, 2, 0}, {13, 3, 1}, {14, 2, 0}, {15, 1, -1}, {18, 1, -1}};
    assert_int_equal(r.nwaiters, ARRAY_SIZE(want));
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        assert_int_equal(r.waiters[i].pid, want[i].pid);
        assert_int_equal(r.waiters[i].level, want[i].level);
        assert_int_equal(r.waiters[i].behind, want[i].behind);
    }
    assert_true(r.waiters[4].held.start == 0 && r.waiters[4].held.end == 9);
    assert_true(r.waiters[4].lock.start == 5 && !r.waiters[4].lock.exclusive);
    assert_true(r.waiters[5].lock.file.inode == 8 && r.waiters[5].lock.file.dev == DEV);
    filescan_release(&r);
    tree_free(&t);
}

/* A descriptor with more locks than one reading takes at first. */
static void test_many_locks_of_one(void **state UNUSED)
{
    enum { LOCKS = 500 };
    const struct file_id file = {DEV, 7};
    static const pid_t pid = 10;
    const struct scan_wish wish = {.files = &file, .nfiles = 1, .pids = &pid, .npids = 1};
    char *info = malloc(LOCKS * 80 + 80), *at = info;
    struct tree t;
    struct scan_result r;

    at += sprintf(at, "mnt_id:\t27\nino:\t7\n");
    for (int i = 0; i < LOCKS; i++)
        at += sprintf(at, "lock:\t%d: POSIX  ADVISORY  READ 10 fe:00:7 %d %d\n", i, i * 2, i * 2);
    tree_new(&t);
    tree_put(&t, "locks", "%s", "");
    put_process(&t, 10, 1);
    put_fd(&t, 10, 3, "/a", info);
    look(t.root, &wish, &r);
    assert_int_equal(r.nfds, LOCKS);
    assert_true(r.fds[LOCKS - 1].lock.start == (LOCKS - 1) * 2 && r.fds[LOCKS - 1].holds);
    filescan_release(&r);
    tree_free(&t);
    free(info);
}

/* Linux before 5.14 tells no inode. */
static void test_no_inode_told(void **state UNUSED)
{
    struct tree t;
    struct scan_result r;
    struct stat st;
    char path[96];

    tree_new(&t);
    tree_put(&t, "locks", "%s", "");
    tree_put(&t, "file", "%s", "x");
    snprintf(path, sizeof(path), "%s/file", t.root);
    assert_int_equal(stat(path, &st), 0);
    put_process(&t, 10, 1);
    put_fd(&t, 10, 3, path, "pos:\t0\nflags:\t02\nmnt_id:\t27\n");
    put_fd(&t, 10, 4, path, "pos:\t0\nflags:\t02\nmnt_id:\t4711\n");
    put_fd(&t, 10, 5, "/no/such/file", "pos:\t0\nflags:\t02\nmnt_id:\t27\n");

    static const pid_t pid = 10;
    const struct file_id files[] = {{DEV, st.st_ino}, {st.st_dev, st.st_ino}};
    const struct scan_wish wish = {.files = files, .nfiles = 2, .pids = &pid, .npids = 1};
    look(t.root, &wish, &r);
    assert_int_equal(r.nfds, 2);
    assert_true(fd_in(&r, 10, 3)->file.dev == DEV); /* as its mount says */
    assert_true(fd_in(&r, 10, 4)->file.dev == st.st_dev);
    filescan_release(&r);
    tree_free(&t);
}

/* Takers, watched processes and the children of both, when not everybody is asked. */
static void test_who_is_looked_through(void **state UNUSED)
{
    static const char info[] = "mnt_id:\t27\nino:\t7\n"
                               "lock:\t1: FLOCK  ADVISORY  WRITE 10 fe:00:7 0 EOF\n";
    const struct file_id file = {DEV, 7};
    static const pid_t pid = 20;
    static const struct {
        int pid, ppid;
        bool found;
    } all[] = {{10, 1, true}, {11, 10, true}, {20, 1, true}, {21, 20, true}, {30, 1, false}};
    struct scan_wish wish = {.files = &file, .nfiles = 1, .pids = &pid, .npids = 1};
    struct tree t;
    struct scan_result r;

    tree_new(&t);
    tree_put(&t, "locks", "%s", "1: FLOCK  ADVISORY  WRITE 10 fe:00:7 0 EOF\n");
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        put_process(&t, all[i].pid, all[i].ppid);
        put_fd(&t, all[i].pid, 3, "/a", info);
    }
    look(t.root, &wish, &r);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        assert_int_equal(fd_in(&r, all[i].pid, 3) != NULL, all[i].found);
    assert_false(r.files[0].searched);
    filescan_release(&r);
    wish.everybody = true;
    look(t.root, &wish, &r);
    assert_int_equal(r.nfds, ARRAY_SIZE(all));
    assert_true(r.files[0].searched);
    filescan_release(&r);
    tree_free(&t);
}

/* Files 1 to 6 are open in the watched process; only of the first somebody could poll. */
static void test_held_elsewhere(void **state UNUSED)
{
    static const pid_t pid = 20;
    const struct scan_wish wish = {.pids = &pid, .npids = 1, .held_elsewhere = true};
    struct tree t;
    struct scan_result r;
    char info[256];

    tree_new(&t);
    tree_put(&t, "locks", "%s",
             "1: FLOCK  ADVISORY  WRITE 10 fe:00:1 0 EOF\n"
             "2: FLOCK  ADVISORY  READ 10 fe:00:2 0 EOF\n"  /* shared */
             "3: LEASE  ACTIVE    WRITE 10 fe:00:3 0 EOF\n" /* a lease */
             "4: FLOCK  ADVISORY  WRITE 10 fe:00:4 0 EOF\n" /* somebody waits */
             "4: -> FLOCK  ADVISORY  WRITE 11 fe:00:4 0 EOF\n"
             "5: FLOCK  ADVISORY  WRITE 10 fe:00:5 0 EOF\n" /* taken over from 10 */
             "6: POSIX  ADVISORY  WRITE 20 fe:00:6 0 EOF\n" /* its own */
             "7: FLOCK  ADVISORY  WRITE 10 fe:00:7 0 EOF\n");
    put_process(&t, 10, 1);
    put_process(&t, 20, 1);
    for (int i = 1; i <= 6; i++) {
        snprintf(info, sizeof(info), "mnt_id:\t27\nino:\t%d\n%s", i,
                 i == 5   ? "lock:\t1: FLOCK  ADVISORY  WRITE 10 fe:00:5 0 EOF\n"
                 : i == 6 ? "lock:\t1: POSIX  ADVISORY  WRITE 20 fe:00:6 0 EOF\n"
                          : "");
        put_fd(&t, 20, i, "/open", info);
    }
    put_fd(&t, 20, 50, "/open", "mnt_id:\t27\nino:\t5\n"); /* holds it through another one */
    put_fd(&t, 10, 3, "/open",
           "mnt_id:\t27\nino:\t1\nlock:\t1: FLOCK  ADVISORY  WRITE 10 fe:00:1 0 EOF\n");
    look(t.root, &wish, &r);
    assert_int_equal(r.nfiles, 1);
    assert_true(r.files[0].file.inode == 1 && r.files[0].open_elsewhere);
    assert_string_equal(r.files[0].path, "/open");
    assert_int_equal(r.nheld, 1);
    assert_int_equal(r.nfds, 2);
    assert_false(fd_in(&r, 20, 1)->holds);
    assert_true(fd_in(&r, 10, 3)->holds);
    assert_int_equal(r.nwaiters, 0);
    filescan_release(&r);
    tree_free(&t);
}

static void test_no_locks_to_read(void **state UNUSED)
{
    const struct file_id file = {DEV, 7};
    const struct scan_wish wish = {.files = &file, .nfiles = 1, .everybody = true};
    struct tree t;
    struct scan_result r;

    tree_new(&t);
    int root = procfs_open_root(t.root);
    assert_int_equal(filescan_look(root, &wish, &r), -ENOENT);
    assert_true(r.nfiles == 0 && r.nfds == 0 && r.nheld == 0 && r.nwaiters == 0);
    assert_false(r.searched);
    filescan_release(&r);
    close(root);
    tree_free(&t);
}

/* Descriptors of our own that are lacking are not taken for a search that found nothing. */
static void test_too_few_descriptors(void **state UNUSED)
{
    const struct file_id file = {DEV, 7};
    const struct scan_wish wish = {.files = &file, .nfiles = 1, .everybody = true};
    struct rlimit before, few;
    struct tree t;
    struct scan_result r;

    tree_new(&t);
    tree_put(&t, "locks", "%s", "");
    put_process(&t, 10, 1);
    put_fd(&t, 10, 3, "/a", "mnt_id:\t27\nino:\t7\n");
    int root = procfs_open_root(t.root);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)root + 2; /* one more: for the directory of the process alone */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int rc = filescan_look(root, &wish, &r);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(rc, 0);
    assert_false(r.searched || r.files[0].searched);
    filescan_release(&r);
    close(root);
    tree_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_path_and_server),       cmocka_unit_test(test_lines),
        cmocka_unit_test(test_many_locks_of_one),     cmocka_unit_test(test_no_inode_told),
        cmocka_unit_test(test_who_is_looked_through), cmocka_unit_test(test_held_elsewhere),
        cmocka_unit_test(test_no_locks_to_read),      cmocka_unit_test(test_too_few_descriptors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

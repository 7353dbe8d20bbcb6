/* unit_inspect_files - who holds a lock on a file, and what a socket is connected to, as the
 * inspector answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "source_child.h"

#include "../src/inspect_files.h"
#include "../src/mounts.h"
#include "../src/procfs.h"

static int rootfd = -1;

static int open_root(void **state)
{
    rootfd = procfs_open_root("/proc");
    return rootfd < 0 ? -1 : fds_before(state);
}

static int close_root(void **state)
{
    int rc = fds_after(state);

    close(rootfd);
    return rc;
}

#define rooted_test(f) cmocka_unit_test_setup_teardown(f, open_root, close_root)

static int lock_path(struct room *r)
{
    int fd = open(r->path, O_RDWR);

    atomic_store(&r->addr, (uint64_t)fd);
    if (fd < 0 || flock(fd, LOCK_EX) != 0)
        return 97;
    return be_ready(r);
}

static struct file_id id_of(int fd)
{
    char rel[32], text[4096];
    struct fdinfo info;
    struct mount m;

    snprintf(rel, sizeof(rel), "self/fdinfo/%d", fd);
    assert_true(procfs_slurp(rootfd, rel, text, sizeof(text)) > 0);
    filelocks_fdinfo(text, &info);
    int dirfd = procfs_open_pid(rootfd, getpid());
    assert_true(mounts_find(dirfd, info.mount, 0, &m));
    close(dirfd);
    return (struct file_id){.dev = m.dev, .inode = info.inode};
}

static void test_files(void **state)
{
    (void)state;
    struct room *r = room_new();
    snprintf(r->path, sizeof(r->path), "/tmp/lock-top-unit.XXXXXX");
    int fd = mkstemp(r->path);
    pid_t pid = child_start(r, lock_path);
    await_value(&r->ready);
    struct file_id id = id_of(fd);
    struct scan_wish wish = {.files = &id, .nfiles = 1, .everybody = true};

    struct inspection *i = inspect_files(rootfd, &(struct inspect_job){.wish = &wish});
    assert_int_equal(i->kind, INSPECT_FILES);
    assert_true(i->files.searched);
    assert_int_equal(i->files.nfds, 1);
    assert_int_equal(i->files.fds[0].pid, pid);
    assert_int_equal(i->files.fds[0].fd, (int)r->addr);
    assert_true(i->files.fds[0].holds);
    inspection_free(i);
    close(fd);
    unlink(r->path);
    child_kill(pid);
    room_free(r);
}

static int listen_anywhere(struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof(*at);

    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(fd, (struct sockaddr *)at, sizeof(*at)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)at, &len), 0);
    return fd;
}

static void test_socket(void **state)
{
    (void)state;
    struct sockaddr_in at;
    struct stat st;
    char peer[64];
    int server = listen_anywhere(&at), fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(fstat(fd, &st), 0);
    const struct inspect_job job = {.pid = getpid(), .addr = st.st_ino};
    struct inspection *i = inspect_socket(rootfd, &job);
    snprintf(peer, sizeof(peer), "tcp 127.0.0.1:%d", ntohs(at.sin_port));
    assert_int_equal(i->kind, INSPECT_SOCKET);
    assert_int_equal(i->socket.pid, getpid());
    assert_int_equal(i->socket.inode, st.st_ino);
    assert_string_equal(i->socket.text, peer);
    inspection_free(i);
    close(fd);
    close(server);
}

/* The answer says that nothing was found: else it would be asked for again and again. */
static void test_no_such_socket(void **state)
{
    (void)state;
    const struct inspect_job none = {.pid = getpid(), .addr = 1}, gone = {.pid = 0, .addr = 1};
    const struct inspect_job *jobs[] = {&none, &gone};

    for (size_t k = 0; k < ARRAY_SIZE(jobs); k++) {
        struct inspection *i = inspect_socket(rootfd, jobs[k]);
        assert_non_null(i);
        assert_int_equal(i->socket.inode, 1);
        assert_null(i->socket.text);
        inspection_free(i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rooted_test(test_files),
        rooted_test(test_socket),
        rooted_test(test_no_such_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

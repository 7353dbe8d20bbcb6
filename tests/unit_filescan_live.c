#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/mounts.h"
#include "scan_look.h"

#define PATIENCE (20 * NSEC_PER_SEC) /* before a condition counts as never coming true */

struct scene {
    char path[64];
    int fd;
    struct file_id file;
};

/* By mount, as /proc/locks names it: on some file systems stat() tells another device. */
static struct file_id file_of(int fd)
{
    char rel[64], text[4096];
    struct fdinfo info;
    struct mount m;
    struct stat st;
    int root = procfs_open_root("/proc"), dir = procfs_open_pid(root, getpid());

    snprintf(rel, sizeof(rel), "fdinfo/%d", fd);
    assert_true(procfs_slurp(dir, rel, text, sizeof(text)) > 0);
    filelocks_fdinfo(text, &info);
    assert_int_equal(fstat(fd, &st), 0);
    uint64_t dev = mounts_find(dir, info.mount, 0, &m) ? m.dev : st.st_dev;
    close(dir);
    close(root);
    return (struct file_id){dev, st.st_ino};
}

static int scene_setup(void **state)
{
    static struct scene s;

    strcpy(s.path, "/tmp/lock-top-scan.XXXXXX");
    s.fd = mkostemp(s.path, O_CLOEXEC);
    s.file = file_of(s.fd);
    *state = &s;
    return s.fd < 0;
}

static int scene_teardown(void **state)
{
    struct scene *s = *state;

    close(s->fd);
    return unlink(s->path) != 0 && errno != ENOENT;
}

/* A child that does BODY with the file and then sleeps until it is killed. */
static pid_t start(const struct scene *s, void (*body)(const struct scene *, int ready), int ready)
{
    pid_t parent = getpid(), pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(99);
        close(s->fd);
        body(s, ready);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static int lock_range(int fd, int cmd, short type, off_t from, off_t len)
{
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = len};

    return fcntl(fd, cmd, &l);
}

/* Tells the test a number: that of a descriptor, or a PID. */
static void tell(int ready, int number)
{
    if (write(ready, &number, sizeof(number)) != sizeof(number))
        _exit(98);
}

static int told(int fd)
{
    int number = -1;

    assert_int_equal(read(fd, &number, sizeof(number)), sizeof(number));
    return number;
}

static void lock_posix_and_fork(const struct scene *s, int ready)
{
    int taken = open(s->path, O_RDWR), copy = dup(taken), other = open(s->path, O_RDWR);

    if (lock_range(taken, F_SETLK, F_WRLCK, 10, 20) != 0)
        _exit(97);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    tell(ready, taken);
    tell(ready, copy);
    tell(ready, other);
    tell(ready, child);
}

/* It shows in the descriptors of the open file through which it was taken; but not in a child that
 * has got these. */
static void test_posix_lock_is_of_the_process(void **state)
{
    const struct scene *s = *state;
    struct scan_result r;
    pid_t pids[2];
    int p[2], fd[3];

    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pids[0] = start(s, lock_posix_and_fork, p[1]);
    for (int i = 0; i < 3; i++)
        fd[i] = told(p[0]);
    pids[1] = told(p[0]);
    const struct scan_wish wish = {.files = &s->file, .nfiles = 1, .pids = pids, .npids = 2};
    look("/proc", &wish, &r);
    assert_string_equal(r.files[0].path, s->path);
    assert_int_equal(r.nheld, 1);
    assert_int_equal(r.held[0].pid, pids[0]);
    assert_int_equal(r.nfds, 6);
    for (int i = 0; i < 3; i++) {
        const struct scan_fd *own = fd_in(&r, pids[0], fd[i]);
        assert_int_equal(own->holds, i < 2);
        assert_false(fd_in(&r, pids[1], fd[i])->holds);
        if (!own->holds)
            continue;
        assert_true(own->lock.kind == FILELOCK_POSIX && own->lock.exclusive);
        assert_true(own->lock.start == 10 && own->lock.end == 29);
        assert_int_equal(own->taker, pids[0]);
    }
    filescan_release(&r);
    end(pids[0]);
    close(p[0]);
    close(p[1]);
}

static void flock_and_leave(const struct scene *s, int ready)
{
    int fd = open(s->path, O_RDWR);

    if (flock(fd, LOCK_EX) != 0)
        _exit(97);
    pid_t child = fork();
    if (child == 0) {
        alarm(60); /* at the latest: nobody else's end is its own */
        return;
    }
    tell(ready, fd);
    tell(ready, child);
    _exit(0);
}

static void test_flock_of_a_dead_taker(void **state)
{
    const struct scene *s = *state;
    struct scan_result r;
    int p[2];

    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t taker = start(s, flock_and_leave, p[1]);
    int fd = told(p[0]);
    pid_t heir = told(p[0]);
    assert_int_equal(waitpid(taker, NULL, 0), taker);
    const struct scan_wish wish = {.files = &s->file, .nfiles = 1, .everybody = true};
    look("/proc", &wish, &r);
    kill(heir, SIGKILL);
    assert_int_equal(r.nfds, 1);
    assert_true(fd_in(&r, heir, fd)->holds);
    assert_int_equal(r.fds[0].lock.kind, FILELOCK_FLOCK);
    /* In a PID namespace of its own the kernel has no number for the dead. */
    assert_true(r.fds[0].taker == taker || r.fds[0].taker == 0);
    assert_true(r.files[0].searched);
    filescan_release(&r);
    close(p[0]);
    close(p[1]);
}

static void lock_ofd(const struct scene *s, int ready)
{
    int fd = open(s->path, O_RDWR);

    if (lock_range(fd, F_OFD_SETLK, F_WRLCK, 5, 1) != 0)
        _exit(97);
    unlink(s->path);
    tell(ready, fd);
}

static void test_ofd_holder_is_found(void **state)
{
    const struct scene *s = *state;
    struct scan_result r;
    int p[2];

    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = start(s, lock_ofd, p[1]);
    int fd = told(p[0]);
    const struct scan_wish wish = {.files = &s->file, .nfiles = 1, .everybody = true};
    look("/proc", &wish, &r);
    assert_int_equal(r.nheld, 1);
    assert_int_equal(r.held[0].pid, -1);
    assert_true(fd_in(&r, pid, fd)->holds);
    assert_int_equal(fd_in(&r, pid, fd)->taker, -1);
    assert_string_equal(r.files[0].path, s->path);
    assert_true(r.files[0].deleted);
    filescan_release(&r);
    end(pid);
    close(p[0]);
    close(p[1]);
}

static void hold_range(const struct scene *s, int ready)
{
    int fd = open(s->path, O_RDWR);

    if (lock_range(fd, F_SETLK, F_WRLCK, 0, 10) != 0)
        _exit(97);
    tell(ready, fd);
}

static void want_range(const struct scene *s, int ready)
{
    int fd = open(s->path, O_RDWR);

    tell(ready, fd);
    lock_range(fd, F_SETLKW, F_WRLCK, 0, 10);
}

/* Looks until there are so many waiters. */
static void look_for_waiters(const struct scan_wish *wish, size_t n, struct scan_result *r)
{
    const struct timespec nap = {.tv_nsec = 2 * NSEC_PER_MSEC};

    for (nsec_t end_at = clock_mono() + PATIENCE;;) {
        look("/proc", wish, r);
        if (r->nwaiters == n)
            return;
        filescan_release(r);
        if (clock_mono() > end_at)
            fail_msg("never saw %zu waiters", n);
        nanosleep(&nap, NULL);
    }
}

static void test_queue_of_three(void **state)
{
    const struct scene *s = *state;
    const struct scan_wish wish = {.files = &s->file, .nfiles = 1};
    struct scan_result r;
    pid_t holder, waiter[3];
    int p[2];

    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    holder = start(s, hold_range, p[1]);
    told(p[0]);
    for (size_t i = 0; i < 3; i++) {
        waiter[i] = start(s, want_range, p[1]);
        told(p[0]);
        look_for_waiters(&wish, i + 1, &r);
        if (i < 2)
            filescan_release(&r);
    }
    assert_int_equal(r.nheld, 1);
    assert_int_equal(r.held[0].pid, holder);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(r.waiters[i].pid, waiter[i]);
        assert_int_equal(r.waiters[i].level, i + 1);
        assert_int_equal(r.waiters[i].behind, (int)i - 1);
        assert_true(filelock_conflict(&r.waiters[i].lock, &r.waiters[i].held));
    }
    filescan_release(&r);
    for (size_t i = 0; i < 3; i++)
        end(waiter[i]);
    end(holder);
    close(p[0]);
    close(p[1]);
}

static void only_open(const struct scene *s, int ready)
{
    tell(ready, open(s->path, O_RDWR));
}

static void test_open_while_another_holds(void **state)
{
    const struct scene *s = *state;
    struct scan_result r;
    int p[2];

    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t holder = start(s, hold_range, p[1]);
    int held = told(p[0]);
    pid_t other = start(s, only_open, p[1]);
    told(p[0]);
    struct scan_wish wish = {.pids = &other, .npids = 1, .held_elsewhere = true};
    look("/proc", &wish, &r);
    assert_non_null(file_in(&r, s->file));
    assert_true(file_in(&r, s->file)->open_elsewhere);
    assert_true(fd_in(&r, holder, held)->holds);
    filescan_release(&r);
    wish.pids = &holder;
    look("/proc", &wish, &r);
    assert_null(file_in(&r, s->file));
    filescan_release(&r);
    end(other);
    end(holder);
    close(p[0]);
    close(p[1]);
}

#define scene_test(f) cmocka_unit_test_setup_teardown(f, scene_setup, scene_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        scene_test(test_posix_lock_is_of_the_process), scene_test(test_flock_of_a_dead_taker),
        scene_test(test_ofd_holder_is_found),          scene_test(test_queue_of_three),
        scene_test(test_open_while_another_holds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

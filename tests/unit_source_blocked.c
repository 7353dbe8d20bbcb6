/* Real threads that are blocked for locks on files, and inside the kernel. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <sys/file.h>

#include "../src/procfs.h"
#include "../src/source_process.h"
#include "source_child.h"

#ifndef F_OFD_SETLKW
#define F_OFD_SETLKW 38
#endif

static int open_room_file(struct room *r)
{
    return open(r->path, O_RDWR | O_CLOEXEC);
}

static void want_flock(struct room *r)
{
    flock(open_room_file(r), LOCK_SH);
}

static void want_range(struct room *r)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_start = 10, .l_len = 20};
    int fd = open_room_file(r);

    lseek(fd, 90, SEEK_SET);
    fcntl(fd, F_SETLKW, &l);
}

static void want_ofd(struct room *r)
{
    struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_END, .l_start = -1000, .l_len = 0};

    fcntl(open_room_file(r), F_OFD_SETLKW, &l);
}

static int lockers(struct room *r)
{
    room_thread(r, 0, want_flock);
    room_thread(r, 1, want_range);
    room_thread(r, 2, want_ofd);
    return be_ready(r);
}

/* Whether /proc/locks has somebody wait for just this. */
static bool kernel_agrees(const struct file_lock *l)
{
    char *all;
    struct lock_line line;
    enum line_result rc;
    bool found = false;

    assert_true(procfs_slurp_alloc(AT_FDCWD, "/proc/locks", &all, 1 << 24) >= 0);
    const char *text = all;
    while ((rc = filelocks_next(&text, &line)) != LINE_END) {
        const struct file_lock *k = &line.lock;
        found |= rc == LINE_TAKEN && line.level > 0 && k->kind == l->kind &&
                 k->exclusive == l->exclusive && k->file.dev == l->file.dev &&
                 k->file.inode == l->file.inode && k->start == l->start && k->end == l->end;
    }
    free(all);
    return found;
}

static void test_file_locks(void **state UNUSED)
{
    struct room *r = room_new();
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct watch w;
    char gone[96];

    strcpy(r->path, "/tmp/lock-top-blocked.XXXXXX");
    int fd = mkstemp(r->path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 4000), 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(fcntl(fd, F_SETLK, &all), 0);
    pid_t pid = child_start(r, lockers);
    await_value(&r->ready);
    watch_pid(&w, &pid);

    const struct thread_fact *f = await_call(&w, r->tid[0], CALL_flock);
    assert_int_equal(f->wants.kind, FILELOCK_FLOCK);
    assert_false(f->wants.exclusive);
    assert_true(kernel_agrees(&f->wants));
    assert_string_equal(f->fd_path, r->path);
    f = await_call(&w, r->tid[1], CALL_fcntl);
    assert_int_equal(f->wants.kind, FILELOCK_POSIX);
    assert_true(f->wants.exclusive);
    assert_true(f->wants.start == 100 && f->wants.end == 119);
    assert_true(kernel_agrees(&f->wants));
    assert_string_equal(f->fd_path, r->path);
    f = await_call(&w, r->tid[2], CALL_fcntl);
    assert_int_equal(f->wants.kind, FILELOCK_OFD);
    assert_false(f->wants.exclusive);
    assert_true(f->wants.start == 3000 && f->wants.end == FILE_END);
    assert_true(kernel_agrees(&f->wants));
    child_kill(pid);
    watch_end(&w);

    /* Who comes when the file has been deleted. */
    struct room *late = room_new();
    snprintf(late->path, sizeof(late->path), "/proc/%d/fd/%d", getpid(), fd);
    snprintf(gone, sizeof(gone), "%s (deleted)", r->path);
    unlink(r->path);
    pid = child_start(late, lockers);
    await_value(&late->ready);
    watch_pid(&w, &pid);
    f = await_call(&w, late->tid[0], CALL_flock);
    assert_string_equal(f->fd_path, gone);
    assert_true(kernel_agrees(&f->wants));
    child_kill(pid);
    watch_end(&w);
    close(fd);
    room_free(late);
    room_free(r);
}

static pid_t forker;

static int stay(void *arg UNUSED)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == forker) /* it may have been killed before that */
        pause();
    return 0;
}

/* As in vfork(2), the parent is in state D until its child is another program or ends. */
static void fork_and_wait(struct room *r UNUSED)
{
    static _Alignas(16) char stack[65536];

    forker = getpid();
    clone(stay, stack + sizeof(stack), CLONE_VFORK | SIGCHLD, NULL);
}

static int vforker(struct room *r)
{
    room_thread(r, 0, fork_and_wait);
    return be_ready(r);
}

static bool is_in_d(const struct thread_fact *f)
{
    return f && f->wchan && f->uninterruptible;
}

static void test_uninterruptible(void **state UNUSED)
{
    struct room *r = room_new();
    pid_t pid = child_start(r, vforker);
    struct watch w;
    char text[32], rel[64];

    await_value(&r->ready);
    watch_pid(&w, &pid);
    const struct thread_fact *f = await(&w, r->tid[0], is_in_d);
    assert_int_equal(f->call, CALL_clone);
    snprintf(rel, sizeof(rel), "/proc/%d/task/%d/wchan", pid, r->tid[0]);
    assert_true(procfs_slurp(AT_FDCWD, rel, text, sizeof(text)) > 0);
    assert_string_equal(f->wchan, text);
    assert_null(thread_in(&w.s, pid)->wchan); /* it pauses */
    child_kill(pid);
    watch_end(&w);
    room_free(r);
}

static void sleep_on(struct room *r UNUSED)
{
    while (pause() != 0)
        continue;
}

static int sleepers(struct room *r)
{
    for (int i = 0; i < 3; i++)
        room_thread(r, i, sleep_on);
    return be_ready(r);
}

/* Of a process that is not watched only the threads asked for stand there; how many there are is
 * said all the same. */
static void test_threads_of_an_outsider(void **state UNUSED)
{
    struct room *r = room_new();
    pid_t pid = child_start(r, sleepers);
    struct commons c = {.read_memory = remote_read, .fds_left = 100};
    nsec_t now = clock_mono();
    char tasks[32];

    await_value(&r->ready);
    int root = procfs_open_root("/proc");
    c.rootfd = root;
    struct process *p = process_open(&c, root, pid, true);
    assert_non_null(p);
    process_want_thread(p, &c, pid, now);
    process_sweep(p, &c, now);
    assert_false(p->fact.ended);
    assert_int_equal(p->threads.n, 1);
    snprintf(tasks, sizeof(tasks), "/proc/%d/task", pid);
    assert_true(p->fact.nthreads_all >= 4); /* a sanitizer adds one */
    assert_int_equal(p->fact.nthreads_all, count_entries(tasks) - 2);
    process_free(p, &c);
    slots_release(&c.slots);
    close(root);
    child_kill(pid);
    room_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(test_file_locks),
        leak_test(test_uninterruptible),
        leak_test(test_threads_of_an_outsider),
    };

    return cmocka_run_group_tests_name("source_blocked", tests, NULL, NULL);
}

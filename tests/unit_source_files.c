/* unit_source_files - who holds the locks on files that threads of real children wait for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "source_child.h"

#include "../src/inspector.h"
#include "../src/procfs.h"

/* A look with an inspector, at children that lock files below DIR. */
struct scene {
    char dir[64];
    struct room *room;
    struct inspector *inspector;
    struct watch w;
    pid_t watched[4];
    int pair[2]; /* sockets, if the test needs them */
};

static struct scene scene; /* children take it over with fork */

/* The file N, opened anew. For children, too: then a failure is an exit status. */
static int open_file(int n)
{
    char path[96];

    snprintf(path, sizeof(path), "%s/%d", scene.dir, n);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        _exit(97);
    return fd;
}

static int set_up(void **state)
{
    scene = (struct scene){.dir = "/tmp/lock-top-files.XXXXXX", .room = room_new()};
    assert_non_null(mkdtemp(scene.dir));
    return fds_before(state);
}

static int tear_down(void **state)
{
    char path[96];

    for (int n = 0; n < 4; n++) {
        snprintf(path, sizeof(path), "%s/%d", scene.dir, n);
        unlink(path);
    }
    rmdir(scene.dir);
    room_free(scene.room);
    return fds_after(state);
}

#define scene_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

/* Starts BODY and waits until it says that it is ready. */
static pid_t actor(int (*body)(struct room *))
{
    atomic_store(&scene.room->ready, 0);
    pid_t pid = child_start(scene.room, body);
    await_value(&scene.room->ready);
    return pid;
}

static void begin(const pid_t *pids, size_t n)
{
    const struct inspector_config cfg = {
        .root = "/proc",
        .read_memory = remote_read,
        .cpu_share = 1,
        .stops = TRACER_LIMITS_DEFAULT,
    };
    int err = 0;

    memcpy(scene.watched, pids, n * sizeof(*pids));
    scene.inspector = inspector_new(&cfg, &err);
    assert_non_null(scene.inspector);
    const struct source_proc_config source = {
        .root = "/proc",
        .pids = scene.watched,
        .npids = n,
        .read_memory = remote_read,
        .inspector = scene.inspector,
    };
    scene.w.source = source_proc_new(&source, &err);
    assert_non_null(scene.w.source);
}

static void end(void)
{
    watch_end(&scene.w);
    assert_true(inspector_free(scene.inspector));
}

/* Sweeps until IS says yes. */
#define AWAIT(is)                                                                                  \
    do {                                                                                           \
        nsec_t until_ = clock_mono() + PATIENCE;                                                   \
        do {                                                                                       \
            if (clock_mono() > until_)                                                             \
                fail_msg("never came true: %s", #is);                                              \
            nap();                                                                                 \
            sweep(&scene.w);                                                                       \
        } while (!(is));                                                                           \
    } while (0)

static ino_t inode_of(int n)
{
    char path[96];
    struct stat st;

    snprintf(path, sizeof(path), "%s/%d", scene.dir, n);
    assert_int_equal(stat(path, &st), 0);
    return st.st_ino;
}

static size_t count_holders(int n)
{
    size_t count = 0;

    for (size_t i = 0; i < scene.w.s.nfile_holders; i++)
        count += scene.w.s.file_holders[i].lock.file.inode == inode_of(n);
    return count;
}

/* Of file N; PID 0: one of which no process was found. */
static const struct file_holder *holder(int n, pid_t pid)
{
    for (size_t i = 0; i < scene.w.s.nfile_holders; i++) {
        const struct file_holder *h = &scene.w.s.file_holders[i];
        if (h->lock.file.inode == inode_of(n) && h->pid == pid)
            return h;
    }
    return NULL;
}

/* As many as are told to be expected; shows them when they are others. */
static void assert_holders(int n, size_t expected)
{
    if (count_holders(n) == expected)
        return;
    for (size_t i = 0; i < scene.w.s.nfile_holders; i++) {
        const struct file_holder *h = &scene.w.s.file_holders[i];
        print_error("%s %d-%d of inode %lu: process %d fd %d, taken by %d\n",
                    filelock_kind_name(h->lock.kind), (int)h->lock.start, (int)h->lock.end,
                    (unsigned long)h->lock.file.inode, h->pid, h->fd, h->taker);
    }
    assert_int_equal(count_holders(n), expected);
}

static const struct file_fact *fact_of(int n)
{
    for (size_t i = 0; i < scene.w.s.nfiles; i++) {
        if (scene.w.s.files[i].file.inode == inode_of(n))
            return &scene.w.s.files[i];
    }
    return NULL;
}

/* Actors --------------------------------------------------------------------------------- */

static int hold_0(struct room *r)
{
    scene.room->addr = (uint64_t)open_file(0);
    flock((int)r->addr, LOCK_EX);
    return be_ready(r);
}

static int hold_1(struct room *r)
{
    flock(open_file(1), LOCK_EX);
    return be_ready(r);
}

static int want_0(struct room *r)
{
    int fd = open_file(0);

    if (scene.pair[0]) {
        close(scene.pair[0]);
        close(scene.pair[1]);
    }
    atomic_store(&r->ready, 1);
    flock(fd, LOCK_EX);
    return be_ready(r);
}

static int hold_0_want_1(struct room *r)
{
    int held = open_file(0), wanted = open_file(1);

    flock(held, LOCK_EX);
    atomic_store(&r->ready, 1);
    flock(wanted, LOCK_EX);
    return be_ready(r);
}

/* Takes the lock, leaves its descriptor to a child and waits to be killed; the child lives on. */
static int leave_0_to_child(struct room *r)
{
    int fd = open_file(0);

    flock(fd, LOCK_EX);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, 0);
        atomic_store(&r->tid[1], getpid());
        while (!atomic_load(&r->go))
            usleep(2000);
        _exit(0);
    }
    while (!atomic_load(&r->tid[1]))
        usleep(2000);
    return be_ready(r);
}

static void lock_bytes(int fd, int type, off_t start, off_t len, int cmd)
{
    struct flock l = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};

    if (fcntl(fd, cmd, &l) != 0)
        _exit(96);
}

/* Two ranges, two descriptors: each of the locks shows in both of them. */
static int hold_ranges(struct room *r)
{
    int a = open_file(0), b = open_file(0);

    lock_bytes(a, F_WRLCK, 10, 5, F_SETLK);
    lock_bytes(b, F_RDLCK, 20, 5, F_SETLK);
    return be_ready(r);
}

static int want_range(struct room *r)
{
    int fd = open_file(0);

    atomic_store(&r->ready, 1);
    lock_bytes(fd, F_WRLCK, 0, 30, F_SETLKW);
    return be_ready(r);
}

static int hold_ofd(struct room *r)
{
    lock_bytes(open_file(0), F_WRLCK, 0, 0, F_OFD_SETLK);
    return be_ready(r);
}

static int have_0_open(struct room *r)
{
    open_file(0);
    return be_ready(r);
}

/* Tests ---------------------------------------------------------------------------------- */

static void test_outsider_holds(void **state)
{
    (void)state;
    pid_t h = actor(hold_0), w = actor(want_0);
    begin(&w, 1);

    AWAIT(holder(0, h) && process_in(&scene.w.s, h) && fact_of(0)->searched &&
          scene.w.s.nfile_waiters);
    const struct file_holder *f = holder(0, h);
    assert_holders(0, 1);
    assert_true(f->now);
    assert_int_equal(f->fd, (int)scene.room->addr);
    assert_int_equal(f->taker, h);
    assert_false(f->taker_gone);
    assert_int_equal(f->lock.kind, FILELOCK_FLOCK);
    assert_true(f->lock.exclusive);

    const struct file_fact *file = fact_of(0);
    assert_non_null(file->path);
    assert_memory_equal(file->path, scene.dir, strlen(scene.dir));
    assert_false(file->open_elsewhere);
    assert_false(file->deleted);
    assert_int_equal(scene.w.s.nfile_waiters, 1);
    assert_int_equal(scene.w.s.file_waiters[0].pid, w);
    assert_int_equal(scene.w.s.file_waiters[0].level, 1);
    assert_true(scene.w.s.file_waiters_at > 0);

    const struct process_fact *p = process_in(&scene.w.s, h);
    assert_true(p->outsider);
    assert_true(p->nthreads > 0); /* a sanitizer may have added one of its own */
    assert_int_equal(p->nthreads_all, p->nthreads);
    assert_int_equal(thread_in(&scene.w.s, h)->call, CALL_pause);

    nsec_t since = f->since, before = scene.w.s.mono;
    assert_true(since > 0 && since <= before);
    AWAIT(scene.w.s.mono > before + 700 * NSEC_PER_MSEC);
    assert_int_equal(holder(0, h)->since, since);
    end();
    child_kill(h);
    child_kill(w);
}

/* Who gets the lock is told at once, by the descriptor through which it waited. */
static void test_lock_moves_on(void **state)
{
    (void)state;
    pid_t h = actor(hold_0), pids[2] = {actor(want_0), actor(want_0)};
    begin(pids, 2);

    AWAIT(holder(0, h));
    nsec_t since = holder(0, h)->since;
    child_kill(h);
    AWAIT(!holder(0, h));
    AWAIT(count_holders(0));
    const struct file_holder *f = &scene.w.s.file_holders[0];
    assert_holders(0, 1);
    assert_true(f->pid == pids[0] || f->pid == pids[1]);
    assert_true(f->now);
    assert_true(f->since > since);
    /* In the very sweep that sees it go on. */
    assert_int_equal(thread_in(&scene.w.s, f->pid)->call, CALL_pause);
    end();
    child_kill(pids[0]);
    child_kill(pids[1]);
}

static void test_inherited(void **state)
{
    (void)state;
    pid_t h = actor(leave_0_to_child), child = scene.room->tid[1], w = actor(want_0);
    begin(&w, 1);

    AWAIT(count_holders(0) == 2);
    assert_non_null(holder(0, h));
    assert_non_null(holder(0, child));
    /* Killed, but nobody has reaped it yet. */
    kill(h, SIGKILL);
    AWAIT(!holder(0, h) && holder(0, child) && holder(0, child)->taker_gone);
    assert_int_equal(waitpid(h, NULL, 0), h);
    AWAIT(scene.w.s.mono > 0);
    const struct file_holder *f = holder(0, child);
    assert_non_null(f);
    assert_holders(0, 1);
    assert_int_equal(f->taker, h);
    assert_true(f->taker_gone);
    assert_true(f->now);
    assert_true(f->fd >= 0);
    assert_true(process_in(&scene.w.s, child)->outsider);

    atomic_store(&scene.room->go, 1);
    AWAIT(holder(0, w));
    assert_holders(0, 1);
    end();
    child_kill(w);
}

static void test_posix_ranges_once(void **state)
{
    (void)state;
    pid_t h = actor(hold_ranges), w = actor(want_range);
    begin(&w, 1);

    AWAIT(count_holders(0) > 0);
    AWAIT(scene.w.s.nfile_waiters > 0);
    assert_holders(0, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct file_holder *f = &scene.w.s.file_holders[i];
        assert_int_equal(f->pid, h);
        assert_int_equal(f->taker, h);
        assert_int_equal(f->lock.kind, FILELOCK_POSIX);
        assert_int_equal(f->lock.start, f->lock.exclusive ? 10 : 20);
        assert_int_equal(f->lock.end, f->lock.exclusive ? 14 : 24);
        assert_true(f->now);
    }
    end();
    child_kill(h);
    child_kill(w);
}

static void test_ofd(void **state)
{
    (void)state;
    pid_t h = actor(hold_ofd), w = actor(want_range);
    begin(&w, 1);

    AWAIT(holder(0, h));
    assert_int_equal(holder(0, h)->lock.kind, FILELOCK_OFD);
    assert_int_equal(holder(0, h)->taker, -1);
    assert_false(holder(0, h)->taker_gone);
    assert_holders(0, 1);
    end();
    child_kill(h);
    child_kill(w);
}

/* What an outsider waits for is looked into, too. */
static void test_chain(void **state)
{
    (void)state;
    pid_t last = actor(hold_1), middle = actor(hold_0_want_1), w = actor(want_0);
    begin(&w, 1);

    AWAIT(holder(0, middle) && holder(1, last) && process_in(&scene.w.s, last));
    assert_true(process_in(&scene.w.s, middle)->outsider);
    assert_true(process_in(&scene.w.s, last)->outsider);
    const struct thread_fact *f = thread_in(&scene.w.s, middle);
    assert_int_equal(f->wants.kind, FILELOCK_FLOCK);
    assert_int_equal(f->wants.file.inode, inode_of(1));
    /* Let go of, it is looked at no more. */
    child_kill(w);
    AWAIT(!process_in(&scene.w.s, last) && !process_in(&scene.w.s, middle));
    end();
    child_kill(middle);
    child_kill(last);
}

/* A lock whose only descriptor lies in a socket's queue: held, and no process has it. */
static int send_0(struct room *r)
{
    int fd = open_file(0);
    char room[CMSG_SPACE(sizeof(fd))] = {0}, byte = 0;
    struct iovec io = {.iov_base = &byte, .iov_len = 1};
    struct msghdr m = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    *c = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(fd))};
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    flock(fd, LOCK_EX);
    if (sendmsg(scene.pair[1], &m, 0) != 1)
        return 95;
    close(fd);
    return be_ready(r);
}

static void test_no_descriptor(void **state)
{
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, scene.pair), 0);
    pid_t h = actor(send_0), w = actor(want_0);
    close(scene.pair[1]);
    begin(&w, 1);

    AWAIT(holder(0, h));
    assert_int_equal(holder(0, h)->fd, -1);
    assert_false(holder(0, h)->now);
    assert_false(holder(0, h)->taker_gone);
    child_kill(h);
    AWAIT(holder(0, 0));
    assert_int_equal(holder(0, 0)->taker, h);
    assert_true(holder(0, 0)->taker_gone);
    assert_holders(0, 1);
    close(scene.pair[0]);
    AWAIT(holder(0, w));
    end();
    child_kill(w);
}

static void test_polled(void **state)
{
    (void)state;
    pid_t h = actor(hold_0), w = actor(have_0_open);
    begin(&w, 1);

    AWAIT(fact_of(0) && holder(0, h));
    assert_true(fact_of(0)->open_elsewhere);
    assert_non_null(fact_of(0)->path);
    assert_holders(0, 1);
    /* It is looked at now and then, and stays told in between. */
    bool seen_anew = false, told_again = false;
    for (nsec_t until = clock_mono() + 2500 * NSEC_PER_MSEC; clock_mono() < until; nap()) {
        sweep(&scene.w);
        assert_non_null(holder(0, h));
        seen_anew |= holder(0, h)->now;
        told_again |= !holder(0, h)->now;
    }
    assert_true(seen_anew && told_again);
    child_kill(h);
    AWAIT(!holder(0, h));
    end();
    child_kill(w);
}

static void test_without_inspector(void **state)
{
    (void)state;
    pid_t h = actor(hold_0), pids[2] = {h, actor(want_0)};
    watch_tree(&scene.w, "/proc", remote_read, pids, 2);

    AWAIT(fact_of(0));
    assert_false(fact_of(0)->searched);
    assert_holders(0, 0);
    child_kill(h);
    /* A descriptor that somebody waited through needs no search. */
    atomic_store(&scene.room->ready, 0);
    AWAIT(holder(0, pids[1]));
    watch_end(&scene.w);
    child_kill(pids[1]);
}

/* Semaphores ------------------------------------------------------------------------------ */

static int want_sem(struct room *r)
{
    struct sembuf take = {.sem_num = 0, .sem_op = -1};

    atomic_store(&r->ready, 1);
    semop((int)r->addr, &take, 1);
    return be_ready(r);
}

static int operate_sem(struct room *r)
{
    struct sembuf ops[] = {{.sem_num = 0, .sem_op = 1}, {.sem_num = 0, .sem_op = -1}};

    semop((int)r->addr, ops, 1);
    semop((int)r->addr, ops + 1, 1);
    return be_ready(r);
}

static void test_who_operated_last(void **state)
{
    (void)state;
    int id = semget(IPC_PRIVATE, 1, 0600);
    assert_true(id >= 0);
    scene.room->addr = (uint64_t)id;
    pid_t last = actor(operate_sem), w = actor(want_sem);
    begin(&w, 1);

    AWAIT(scene.w.s.nsems && process_in(&scene.w.s, last));
    assert_int_equal(scene.w.s.sems[0].id, id);
    assert_int_equal(scene.w.s.sems[0].last_pid, last);
    assert_true(process_in(&scene.w.s, last)->outsider);
    end();
    child_kill(w);
    child_kill(last);
    semctl(id, 0, IPC_RMID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scene_test(test_outsider_holds),    scene_test(test_lock_moves_on),
        scene_test(test_inherited),         scene_test(test_posix_ranges_once),
        scene_test(test_ofd),               scene_test(test_chain),
        scene_test(test_no_descriptor),     scene_test(test_polled),
        scene_test(test_without_inspector), scene_test(test_who_operated_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

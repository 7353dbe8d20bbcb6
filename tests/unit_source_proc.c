#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "source_child.h"

/* What threads wait in ---------------------------------------------------------------- */

static void wait_futex(struct room *r)
{
    futex(&r->word, FUTEX_WAIT, 0, NULL);
}

static void wait_sleep(struct room *r UNUSED)
{
    nanosleep(&(struct timespec){.tv_sec = 1000}, NULL);
}

static void wait_pipe(struct room *r UNUSED)
{
    int fd[2];
    char c;

    if (pipe(fd) == 0 && read(fd[0], &c, 1) >= 0)
        pause();
}

static void wait_socket(struct room *r UNUSED)
{
    int fd[2];
    char c;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0 && recv(fd[0], &c, 1, 0) >= 0)
        pause();
}

static void wait_flock(struct room *r)
{
    int fd = open(r->path, O_RDWR | O_CLOEXEC);

    flock(fd, LOCK_EX);
    pause();
}

static void wait_poll(struct room *r UNUSED)
{
    poll(NULL, 0, 1000 * 1000);
}

/* Both ends of a FIFO, which has a path as a file has. */
static void wait_fifo(struct room *r)
{
    char path[sizeof(r->path) + 8], c;

    snprintf(path, sizeof(path), "%s.fifo", r->path);
    int fd = mkfifo(path, 0600) == 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
    unlink(path);
    if (read(fd, &c, 1) >= 0)
        pause();
}

static void set_odd_name(struct room *r)
{
    prctl(PR_SET_NAME, ") R 1 1 (\n\033\xff");
    wait_sleep(r);
}

static int many_waits(struct room *r)
{
    static void (*const waits[])(struct room *) = {
        wait_futex, wait_sleep, wait_pipe, wait_socket, wait_flock, wait_poll, set_odd_name,
        wait_fifo,
    };
    int fd = open(r->path, O_RDWR | O_CLOEXEC);

    if (fd < 0 || flock(fd, LOCK_EX) != 0)
        return 1;
    for (size_t i = 0; i < ARRAY_SIZE(waits); i++)
        room_thread(r, (int)i, waits[i]);
    return be_ready(r);
}

static pid_t start_many_waits(struct room *r)
{
    strcpy(r->path, "/tmp/lock-top-unit.XXXXXX");
    int fd = mkstemp(r->path);

    assert_true(fd >= 0);
    close(fd);
    pid_t pid = child_start(r, many_waits);
    await_value(&r->ready);
    return pid;
}

static void test_calls(void **state UNUSED)
{
    struct room *r = room_new();
    pid_t pid = start_many_waits(r);
    struct watch w;

    watch_pid(&w, &pid);
    const struct thread_fact *f = await_call(&w, r->tid[0], CALL_futex);
    assert_int_equal(f->futex.addr, (uintptr_t)&r->word);
    assert_int_equal(f->futex.cmd, FUTEX_WAIT);
    assert_false(f->futex.is_private);
    assert_int_equal(f->fd, -1);
    assert_int_equal(f->ns_tid, f->tid);

    f = await_call(&w, r->tid[1], CALL_clock_nanosleep);
    assert_int_equal(f->futex.addr, 0);
    assert_int_equal(f->word, -1);
    assert_int_equal(f->fd, -1);
    assert_null(f->fd_path);

    f = await_call(&w, r->tid[2], CALL_read);
    assert_int_equal(f->fd_kind, FD_PIPE);
    assert_true(strncmp(f->fd_path, "pipe:[", 6) == 0);
    f = await_call(&w, r->tid[3], CALL_recvfrom);
    assert_int_equal(f->fd_kind, FD_SOCKET);
    f = await_call(&w, r->tid[4], CALL_flock);
    assert_int_equal(f->fd_kind, FD_FILE);
    assert_string_equal(f->fd_path, r->path);
    await_call(&w, r->tid[5], CALL_poll);
    f = await_call(&w, r->tid[7], CALL_read);
    assert_int_equal(f->fd_kind, FD_PIPE);
    assert_non_null(strstr(f->fd_path, ".fifo"));

    /* A file that is deleted while it is locked keeps its name with a mark. */
    assert_int_equal(unlink(r->path), 0);
    watch_end(&w);
    watch_pid(&w, &pid);
    f = await_call(&w, r->tid[4], CALL_flock);
    assert_int_equal(f->fd_kind, FD_FILE);
    assert_non_null(strstr(f->fd_path, " (deleted)"));

    const struct process_fact *p = process_in(&w.s, pid);
    assert_int_equal(p->nthreads, 9);
    assert_int_equal(p->abi, ABI_NATIVE);
    assert_false(p->ended || p->outsider || p->nested_pidns);
    assert_true(p->rss_kb > 0 && p->cpus_allowed > 0 && p->start_ticks > 0);
    assert_int_equal(w.s.self.unreadable, 0);
    assert_int_equal(w.s.self.denied_errno, 0);
    assert_false(w.s.self.fds_short || w.s.self.no_memory);
    watch_end(&w);
    child_kill(pid);
    room_free(r);
}

static bool has_odd_name(const struct thread_fact *f)
{
    return f && strcmp(f->comm, ") R 1 1 (\n\033\xff") == 0;
}

static void test_names(void **state UNUSED)
{
    struct room *r = room_new();
    pid_t pid = start_many_waits(r);
    struct watch w;

    watch_pid(&w, &pid);
    await(&w, r->tid[6], has_odd_name);
    assert_int_equal(w.s.self.unreadable, 0);
    watch_end(&w);
    child_kill(pid);
    unlink(r->path);
    room_free(r);
}

/* The run-count gate -------------------------------------------------------------------- */

static void wait_twice(struct room *r)
{
    for (;;) {
        futex(&r->word, FUTEX_WAIT, 0, NULL);
        atomic_fetch_add(&r->go, 1);
    }
}

static int gate_body(struct room *r)
{
    room_thread(r, 0, wait_twice);
    return be_ready(r);
}

static void test_run_count_gate(void **state UNUSED)
{
    struct room *r = room_new();
    pid_t pid = child_start(r, gate_body);
    struct watch w;

    await_value(&r->ready);
    watch_pid(&w, &pid);
    const struct thread_fact *f = await_call(&w, r->tid[0], CALL_futex);
    assert_true(f->fresh);
    uint64_t runs = f->runs;
    nsec_t since = f->since;
    assert_true(since > 0 && since == w.s.mono);
    for (int i = 0; i < 5; i++) {
        sweep(&w);
        f = thread_in(&w.s, r->tid[0]);
        assert_false(f->fresh);
        assert_int_equal(f->seen, SEEN_CALL);
        assert_int_equal(f->since, since);
        assert_int_equal(f->runs, runs);
        assert_int_equal(f->futex.addr, (uintptr_t)&r->word);
        if (i == 0) /* once more; but no lock is waited for */
            assert_false(word_of(&w.s, f)->maybe_lock);
        else
            assert_int_equal(f->word, -1);
        assert_int_equal(w.s.nwords, i == 0);
    }
    assert_int_equal(syscall(SYS_futex, &r->word, FUTEX_WAKE, 1, NULL, NULL, 0), 1);
    await_value(&r->go);
    f = await_call(&w, r->tid[0], CALL_futex);
    assert_true(f->fresh);
    assert_true(f->runs > runs && f->since > since);
    watch_end(&w);
    child_kill(pid);
    room_free(r);
}

/* Words ------------------------------------------------------------------------------------ */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void wait_mutex(struct room *r UNUSED)
{
    pthread_mutex_lock(&mutex);
}

static int mutex_body(struct room *r)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < 3; i++)
        room_thread(r, i, wait_mutex);
    return be_ready(r);
}

static void assert_held(const struct word_view *v, pid_t owner)
{
    uint32_t word, tid, kind;

    assert_true(word_u32(v, 0, &word));
    assert_true(word_u32(v, 8, &tid));
    assert_true(word_u32(v, 16, &kind));
    assert_int_equal(word, 2);
    assert_int_equal(tid, owner);
    assert_int_equal(kind, 0);
}

static void test_words(void **state UNUSED)
{
    struct room *r = room_new();
    pid_t pid = child_start(r, mutex_body);
    struct watch w;
    struct sample probe;

    await_value(&r->ready);
    watch_pid(&w, &pid);
    assert_false(w.source->ops->wants_probe(w.source));
    for (int i = 0; i < 3; i++)
        await_call(&w, r->tid[i], CALL_futex);
    const struct thread_fact *f = thread_in(&w.s, r->tid[0]);
    assert_int_equal(f->futex.val, 2);
    assert_true(f->futex.is_private);
    assert_int_equal(f->word, thread_in(&w.s, r->tid[2])->word);
    sweep(&w);
    const struct word_fact *word = word_of(&w.s, thread_in(&w.s, r->tid[0]));
    assert_held(&word->early, pid);
    assert_held(&word->late, pid);
    assert_int_equal(word->region, REGION_FILE); /* .data, or .bss behind it */
    assert_non_null(strstr(word->path, "unit_source_proc"));
    assert_int_equal(process_in(&w.s, pid)->libc, LIBC_GLIBC);

    assert_true(w.source->ops->wants_probe(w.source));
    w.source->ops->probe(w.source, &probe);
    assert_int_equal(probe.kind, SAMPLE_PROBE);
    assert_int_equal(probe.nprocesses, 1);
    assert_int_equal(probe.processes[0].nthreads, 0);
    assert_int_equal(probe.nwords, 1);
    assert_held(&probe.words[0].early, pid);
    assert_int_equal(probe.self.probes, 1);
    /* What the sweep gave still stands. */
    assert_int_equal(thread_in(&w.s, r->tid[0])->tid, r->tid[0]);
    assert_ptr_equal(word, word_of(&w.s, thread_in(&w.s, r->tid[0])));
    assert_held(&word->late, pid);
    watch_end(&w);
    child_kill(pid);
    room_free(r);
}

/* A file is mapped long after the map was read, and a thread falls asleep in it at once. */
static void wait_mapped(struct room *r)
{
    await_value(&r->go);
    int fd = open(r->path, O_RDWR | O_CLOEXEC);
    char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096);

    atomic_store(&r->addr, (uintptr_t)(p + 64));
    futex(p + 64, FUTEX_WAIT, 0, NULL);
}

static int mapping_body(struct room *r)
{
    room_thread(r, 0, wait_futex);
    room_thread(r, 1, wait_mapped);
    return be_ready(r);
}

static bool is_located(const struct thread_fact *f)
{
    return f && f->seen == SEEN_CALL && f->futex.addr && f->word >= 0;
}

static void test_late_mapping(void **state UNUSED)
{
    struct room *r = room_new();
    struct watch w;

    strcpy(r->path, "/tmp/lock-top-unit.XXXXXX");
    int fd = mkstemp(r->path);
    assert_true(fd >= 0 && ftruncate(fd, 12288) == 0);
    close(fd);
    pid_t pid = child_start(r, mapping_body);
    await_value(&r->ready);
    watch_pid(&w, &pid);
    await_call(&w, r->tid[0], CALL_futex);
    atomic_store(&r->go, 1);
    const struct word_fact *word;
    nsec_t end = clock_mono() + PATIENCE;
    do {
        const struct thread_fact *f = await(&w, r->tid[1], is_located);
        word = word_of(&w.s, f);
        if (clock_mono() > end)
            fail_msg("the word in the new mapping was never found there");
    } while (word->region == REGION_UNKNOWN);
    assert_int_equal(word->region, REGION_SHARED);
    assert_int_equal(word->addr, r->addr);
    assert_int_equal(word->offset, 4096 + 64);
    assert_string_equal(word->path, r->path);
    const struct process_fact *p = process_in(&w.s, pid);
    bool known = false;
    for (size_t i = 0; i < p->nshared; i++)
        known |= p->shared[i].inode == word->inode && p->shared[i].dev == word->dev;
    assert_true(known);
    watch_end(&w);
    child_kill(pid);
    unlink(r->path);
    room_free(r);
}

/* Restarted calls ---------------------------------------------------------------------------- */

static void timed_futex(struct room *r)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    ts.tv_sec += 1000;
    futex(&r->word, FUTEX_WAIT_BITSET, 0, &ts);
}

static int restart_body(struct room *r)
{
    room_thread(r, 0, timed_futex);
    room_thread(r, 1, wait_sleep);
    room_thread(r, 2, wait_poll);
    return be_ready(r);
}

static bool is_stopped(const struct thread_fact *f)
{
    return f && f->seen == SEEN_STOPPED;
}

static bool is_restarted(const struct thread_fact *f)
{
    return f && f->seen == SEEN_CALL && f->nr == SYS_restart_syscall;
}

static void assert_restarted(struct watch *w, const struct room *r)
{
    const struct thread_fact *f = await(w, r->tid[0], is_restarted);

    assert_int_equal(f->call, CALL_futex);
    assert_int_equal(f->futex.addr, (uintptr_t)&r->word);
    assert_int_equal(f->futex.cmd, FUTEX_WAIT_BITSET);
    assert_true(f->futex.timed);
    f = await(w, r->tid[2], is_restarted);
    assert_int_equal(f->call, CALL_poll);
}

static void test_stop_and_go_on(void **state UNUSED)
{
    struct room *r = room_new();
    pid_t pid = child_start(r, restart_body);
    struct watch w, later;

    await_value(&r->ready);
    watch_pid(&w, &pid);
    await_call(&w, r->tid[0], CALL_futex);
    await_call(&w, r->tid[1], CALL_clock_nanosleep);
    await_call(&w, r->tid[2], CALL_poll);
    kill(pid, SIGSTOP);
    for (int i = 0; i < 3; i++)
        await(&w, r->tid[i], is_stopped);
    assert_false(process_in(&w.s, pid)->ended);
    kill(pid, SIGCONT);
    assert_restarted(&w, r);
    assert_int_equal(await(&w, r->tid[1], is_restarted)->call, CALL_clock_nanosleep);
    /* Who comes later has only the kernel's function to go by, which for a sleep says nothing on
     * some kernels: then it is not known, but never a futex. */
    watch_pid(&later, &pid);
    assert_restarted(&later, r);
    const struct thread_fact *f = await(&later, r->tid[1], is_restarted);
    assert_true(f->call == CALL_nanosleep || f->call == CALL_restart_syscall);
    assert_int_equal(f->futex.addr, 0);
    watch_end(&later);
    watch_end(&w);
    child_kill(pid);
    room_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(test_calls),
        leak_test(test_names),
        leak_test(test_run_count_gate),
        leak_test(test_words),
        leak_test(test_late_mapping),
        leak_test(test_stop_and_go_on),
    };

    return cmocka_run_group_tests_name("source_proc", tests, NULL, NULL);
}

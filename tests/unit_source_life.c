/* Processes and threads that come, go, and become others while they are looked at. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "source_child.h"

static void wait_word(struct room *r)
{
    futex(&r->word, FUTEX_WAIT, 0, NULL);
}

/* Threads ------------------------------------------------------------------------------------ */

static int three_threads(struct room *r)
{
    for (int i = 0; i < 3; i++)
        room_thread(r, i, wait_word);
    return be_ready(r);
}

static bool is_not_there(const struct thread_fact *f)
{
    return f == NULL;
}

static void test_thread_ends(void **state UNUSED)
{
    struct room *r = room_new();
    pid_t pid = child_start(r, three_threads);
    struct watch w;

    await_value(&r->ready);
    watch_pid(&w, &pid);
    for (int i = 0; i < 3; i++)
        await_call(&w, r->tid[i], CALL_futex);
    assert_int_equal(w.s.self.vanished, 0);
    assert_int_equal(syscall(SYS_futex, &r->word, FUTEX_WAKE, 3, NULL, NULL, 0), 3);
    for (int i = 0; i < 3; i++)
        await(&w, r->tid[i], is_not_there);
    assert_int_equal(w.s.self.vanished, 3);
    assert_int_equal(w.s.self.unreadable, 0);
    assert_int_equal(w.alive, 1);
    assert_int_equal(process_in(&w.s, pid)->nthreads, 1);
    assert_non_null(thread_in(&w.s, pid));
    watch_end(&w);
    child_kill(pid);
    room_free(r);
}

static void end_at_once(struct room *r)
{
    atomic_fetch_add(&r->go, 1);
}

static int churn(struct room *r)
{
    room_thread(r, 1, wait_word);
    atomic_store(&r->ready, 1);
    for (;;) {
        atomic_store(&r->tid[0], 0);
        room_thread(r, 0, end_at_once);
    }
    return 0;
}

static void test_churn(void **state UNUSED)
{
    struct room *r = room_new();
    pid_t pid = child_start(r, churn);
    struct watch w;
    nsec_t end = clock_mono() + PATIENCE;
    uint32_t top = 0;

    await_value(&r->ready);
    watch_pid(&w, &pid);
    while (w.s.self.sweeps < 300 || w.s.self.vanished < 20 || atomic_load(&r->go) < 300) {
        sweep(&w);
        assert_int_equal(w.alive, 1);
        const struct process_fact *p = process_in(&w.s, pid);
        for (size_t t = 0; t < p->nthreads; t++)
            top = MAX(top, p->threads[t].slot);
        if (clock_mono() > end)
            fail_msg("threads that end at once were not seen to vanish");
    }
    assert_true(top < 50); /* slots are used again */
    const struct thread_fact *f = await_call(&w, r->tid[1], CALL_futex);
    assert_int_equal(f->futex.addr, (uintptr_t)&r->word);
    watch_end(&w);
    child_kill(pid);
    room_free(r);
}

/* A thread ends and another gets its TID, as far as the kernel lets that be arranged. */
static int reuse(struct room *r)
{
    char text[16];
    pid_t want;

    room_thread(r, 0, wait_word);
    want = atomic_load(&r->tid[0]);
    atomic_store(&r->ready, 1);
    await_value(&r->go);
    int fd = open("/proc/sys/kernel/ns_last_pid", O_RDWR | O_CLOEXEC);
    snprintf(text, sizeof(text), "%d", want - 1);
    atomic_store(&r->word, 0);
    for (int i = 1; i < ROOM_TIDS; i++) {
        if (pwrite(fd, text, strlen(text), 0) < 0)
            break;
        room_thread(r, i, wait_word);
        if (atomic_load(&r->tid[i]) == want)
            return be_ready(r);
    }
    atomic_store(&r->ready, 2);
    return be_ready(r);
}

static bool was_told_to_run(struct room *r)
{
    atomic_store(&r->word, 1);
    return syscall(SYS_futex, &r->word, FUTEX_WAKE, 1, NULL, NULL, 0) == 1;
}

static void check_reuse(struct room *r, pid_t pid, struct watch *w)
{
    nsec_t end = clock_mono() + PATIENCE;
    const struct thread_fact *f = await_call(w, r->tid[0], CALL_futex);
    uint32_t slot = f->slot;
    char task[64];

    assert_true(was_told_to_run(r));
    snprintf(task, sizeof(task), "/proc/%d/task/%d", pid, r->tid[0]);
    while (access(task, F_OK) == 0)
        nap();
    atomic_store(&r->ready, 0);
    atomic_store(&r->go, 1);
    if (await_value(&r->ready) != 1)
        return; /* the TID did not come back: nothing to see */
    do {
        f = await_call(w, r->tid[0], CALL_futex);
        if (clock_mono() > end)
            fail_msg("the TID's new owner was taken for the old one");
    } while (f->slot == slot && w->s.self.vanished == 0);
    assert_int_equal(f->futex.addr, (uintptr_t)&r->word);
}

static void test_tid_reused(void **state UNUSED)
{
    if (access("/proc/sys/kernel/ns_last_pid", W_OK) != 0 || getuid() != 0)
        skip(); /* cannot choose TIDs here */
    struct room *r = room_new();
    pid_t pid = child_start(r, reuse);
    struct watch w;

    await_value(&r->ready);
    watch_pid(&w, &pid);
    check_reuse(r, pid, &w);
    watch_end(&w);
    child_kill(pid);
    room_free(r);
}

/* Processes ---------------------------------------------------------------------------------- */

static void test_no_process(void **state UNUSED)
{
    pid_t pids[] = {999999999, 0, -1};
    struct watch w;

    watch_tree(&w, "/proc", remote_read, pids, ARRAY_SIZE(pids));
    sweep(&w);
    assert_int_equal(w.alive, 0);
    assert_int_equal(w.s.nprocesses, 0);
    assert_int_equal(w.s.nwords, 0);
    assert_false(w.source->ops->wants_probe(w.source));
    watch_end(&w);
}

/* Sweeps until the process is no more; it must be shown once as ended. */
static void await_end(struct watch *w, pid_t pid)
{
    const struct process_fact *p;
    nsec_t end = clock_mono() + PATIENCE;

    do {
        sweep(w);
        p = process_in(&w->s, pid);
        assert_non_null(p);
        assert_true(clock_mono() < end);
    } while (!p->ended);
    assert_int_equal(w->alive, 0);
    assert_int_equal(p->nthreads, 0);
    for (int i = 0; i < 3; i++) {
        sweep(w);
        assert_int_equal(w->alive, 0);
        assert_int_equal(w->s.nprocesses, 0);
        assert_int_equal(w->s.nwords, 0);
    }
}

static void test_killed(void **state UNUSED)
{
    for (int reap = 0; reap < 2; reap++) {
        struct room *r = room_new();
        pid_t pid = child_start(r, three_threads);
        struct watch w;

        await_value(&r->ready);
        watch_pid(&w, &pid);
        await_call(&w, r->tid[0], CALL_futex);
        kill(pid, SIGKILL);
        if (reap)
            waitpid(pid, NULL, 0);
        else
            waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT);
        await_end(&w, pid);
        assert_int_equal(w.s.self.unreadable, 0);
        watch_end(&w);
        if (!reap)
            waitpid(pid, NULL, 0);
        room_free(r);
    }
}

static void test_zombie_from_the_start(void **state UNUSED)
{
    struct watch w;
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT);
    watch_pid(&w, &pid);
    await_end(&w, pid);
    watch_end(&w);
    waitpid(pid, NULL, 0);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void wait_mutex(struct room *r UNUSED)
{
    pthread_mutex_lock(&mutex);
}

static int leader_leaves(struct room *r)
{
    pthread_mutex_lock(&mutex);
    room_thread(r, 0, wait_mutex);
    room_thread(r, 1, wait_word);
    atomic_store(&r->ready, 1);
    pthread_exit(NULL);
    return 0;
}

static bool is_dead(const struct thread_fact *f)
{
    return f && f->seen == SEEN_DEAD;
}

static void test_zombie_leader(void **state UNUSED)
{
    struct room *r = room_new();
    pid_t pid = child_start(r, leader_leaves);
    char task[64], line[256];
    struct watch w;
    FILE *f;

    await_value(&r->ready);
    snprintf(task, sizeof(task), "/proc/%d/stat", pid);
    do { /* until the leader is a zombie before anybody looks */
        nap();
        f = fopen(task, "r");
        assert_non_null(fgets(line, sizeof(line), f));
        fclose(f);
    } while (!strstr(line, ") Z "));
    watch_pid(&w, &pid);
    assert_true(source_proc_permitted(w.source, line, sizeof(line)));
    await(&w, pid, is_dead);
    const struct thread_fact *t = await_call(&w, r->tid[0], CALL_futex);
    sweep(&w);
    t = thread_in(&w.s, r->tid[0]);
    const struct word_fact *word = word_of(&w.s, t);
    uint32_t owner;
    assert_int_equal(word->region, REGION_FILE);
    assert_true(word_u32(&word->early, 8, &owner));
    assert_true(word_u32(&word->late, 8, &owner));
    assert_int_equal(owner, pid);
    assert_int_equal(process_in(&w.s, pid)->libc, LIBC_GLIBC);
    assert_int_equal(process_in(&w.s, pid)->rss_kb, -1);
    assert_int_equal(process_in(&w.s, pid)->nthreads, 3);
    assert_int_equal(w.alive, 1);
    assert_int_equal(w.s.self.unreadable, 0);
    assert_false(w.s.self.no_memory);
    kill(pid, SIGKILL);
    await_end(&w, pid);
    watch_end(&w);
    waitpid(pid, NULL, 0);
    room_free(r);
}

/* Exec --------------------------------------------------------------------------------------- */

static void become_sleep(struct room *r)
{
    await_value(&r->go);
    execl("/bin/sleep", "sleep", "1000", (char *)NULL);
    _exit(97);
}

static int exec_by_thread(struct room *r)
{
    room_thread(r, 0, become_sleep);
    room_thread(r, 1, wait_mutex);
    return be_ready(r);
}

static int exec_by_leader(struct room *r)
{
    room_thread(r, 1, wait_mutex);
    atomic_store(&r->ready, 1);
    become_sleep(r);
    return 0;
}

static void check_exec(int (*body)(struct room *))
{
    struct room *r = room_new();
    pid_t pid = child_start(r, body);
    struct watch w;
    const struct process_fact *p;
    nsec_t end = clock_mono() + PATIENCE;

    await_value(&r->ready);
    watch_pid(&w, &pid);
    for (int i = 0; i < 5; i++) {
        sweep(&w);
        assert_int_equal(process_in(&w.s, pid)->execs, 0);
    }
    atomic_store(&r->go, 1);
    do {
        sweep(&w);
        p = process_in(&w.s, pid);
        assert_true(p && !p->ended && w.alive == 1);
        if (clock_mono() > end)
            fail_msg("the new program was not noticed");
        nap();
    } while (p->execs == 0 || strcmp(p->comm, "sleep") != 0);
    assert_int_equal(p->execs, 1);
    const struct thread_fact *f = await_call(&w, pid, CALL_clock_nanosleep);
    p = process_in(&w.s, pid);
    assert_int_equal(p->nthreads, 1);
    assert_int_equal(w.s.nwords, 0);
    assert_int_equal(f->futex.addr, 0);
    assert_int_equal(w.s.self.unreadable, 0);
    watch_end(&w);
    child_kill(pid);
    room_free(r);
}

static int leader_waits_and_a_thread_execs(struct room *r)
{
    pthread_mutex_lock(&mutex);
    return exec_by_thread(r);
}

static void test_exec(void **state UNUSED)
{
    check_exec(exec_by_leader);
    check_exec(leader_waits_and_a_thread_execs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(test_thread_ends),
        leak_test(test_churn),
        leak_test(test_tid_reused),
        leak_test(test_no_process),
        leak_test(test_killed),
        leak_test(test_zombie_from_the_start),
        leak_test(test_zombie_leader),
        leak_test(test_exec),
    };

    return cmocka_run_group_tests_name("source_life", tests, NULL, NULL);
}

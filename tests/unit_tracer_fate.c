#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sched.h>
#include <sys/ptrace.h>

#include <cmocka.h>

#include "tracer_scene.h"

/* Stopped, traced, dying ------------------------------------------------------------------ */

static void test_sigstopped(void **state UNUSED)
{
    struct scene s;

    begin(&s, spinning, &unlimited);
    kill(s.pid, SIGSTOP);
    await_state(s.pid, s.room->tid[0], 'T');
    uint64_t before = shared->progress;
    for (int i = 0; i < 50; i++)
        assert_int_equal(look_at(&s, s.room->tid[0]), TRACER_UNSAFE);
    assert_int_equal(state_of(s.pid, s.room->tid[0]), 'T');
    assert_int_equal(shared->progress, before);
    kill(s.pid, SIGCONT);
    await_more(&shared->progress);
    finish(&s);
}

static void *stop_soon(void *arg)
{
    const struct scene *s = arg;

    for (unsigned i = 0; i < (unsigned)rand() % 2000; i++)
        sched_yield();
    kill(s->pid, SIGSTOP);
    return NULL;
}

/* SIGSTOP comes at any moment of a look: the thread must be stopped afterwards, and stay so. */
static void test_sigstop_meanwhile(void **state UNUSED)
{
    struct scene s;
    pthread_t other;

    begin(&s, spinning, &unlimited);
    for (int i = 0; i < 100; i++) {
        pthread_create(&other, NULL, stop_soon, &s);
        do
            look_at(&s, s.room->tid[0]);
        while (state_of(s.pid, s.pid) != 'T');
        pthread_join(other, NULL);
        await_state(s.pid, s.room->tid[0], 'T');
        await_state(s.pid, s.pid, 'T');
        uint64_t before = shared->progress;
        sched_yield();
        assert_int_equal(shared->progress, before);
        kill(s.pid, SIGCONT);
        await_more(&shared->progress);
    }
    finish(&s);
}

static void on_signal(int sig UNUSED)
{
    shared->handled++;
}

/* The thread sanitizer keeps signals back, and only one of a kind. */
#ifdef __SANITIZE_THREAD__
#define DEFERS_SIGNALS 1
#elif defined(__has_feature)
#define DEFERS_SIGNALS __has_feature(thread_sanitizer)
#else
#define DEFERS_SIGNALS 0
#endif

static void send_to_itself(struct room *r)
{
    while (!atomic_load(&r->go)) {
        shared->progress++;
        raise(SIGRTMIN);
    }
    atomic_store(&r->word, 1);
    pause();
}

static int handling(struct room *r)
{
    struct sigaction act = {.sa_handler = on_signal};

    sigaction(SIGRTMIN, &act, NULL);
    room_thread(r, 0, send_to_itself);
    return be_ready(r);
}

/* Signals come at any moment of a look, and the thread may stop for one before it stops for us. */
static void test_signals_are_not_lost(void **state UNUSED)
{
    struct scene s;

    if (DEFERS_SIGNALS)
        skip();
    begin(&s, handling, &unlimited);
    /* A signal that comes between the attaching and the stop makes the thread look unsafe; without a
     * pause between the looks there are some in which none does. */
    int stopped = 0;
    nsec_t end = clock_mono() + PATIENCE;
    while (stopped < 5 && clock_mono() < end) {
        enum tracer_result r = look_at(&s, s.room->tid[0]);
        assert_true(r == TRACER_OK || r == TRACER_UNSAFE || r == TRACER_NOT_NOW);
        stopped += r == TRACER_OK;
    }
    assert_true(stopped > 0);
    atomic_store(&s.room->go, 1);
    await_value(&s.room->word);
    assert_in_range(shared->progress, 500, UINT32_MAX);
    assert_int_equal(shared->handled, shared->progress);
    finish(&s);
}

static void test_traced(void **state UNUSED)
{
    struct scene s;
    char c = 0;
    int ready[2];

    begin(&s, spinning, &unlimited);
    assert_int_equal(pipe(ready), 0);
    pid_t other = fork();
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        c = ptrace(PTRACE_SEIZE, s.room->tid[0], 0, 0) == 0 ? 'y' : 'n';
        if (write(ready[1], &c, 1) == 1)
            pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    if (c == 'y') {
        assert_int_equal(look_at(&s, s.room->tid[0]), TRACER_TRACED);
        assert_int_equal(s.look->tracer_pid, other);
    }
    child_kill(other);
    close(ready[0]);
    close(ready[1]);
    if (c == 'y')
        look_at_running(&s, s.room->tid[0]);
    await_more(&shared->progress);
    finish(&s);
    if (c != 'y') {
        print_message("a sibling may not be traced here\n");
        skip();
    }
}

static void *kill_soon(void *arg)
{
    const struct scene *s = arg;

    for (unsigned i = 0; i < (unsigned)rand() % 2000; i++)
        sched_yield();
    kill(s->pid, SIGKILL);
    return NULL;
}

/* finish() checks that its end is still told to its parent, which is this very process. */
static void test_dying(void **state UNUSED)
{
    for (int i = 0; i < 50; i++) {
        struct scene s;
        pthread_t other;

        begin(&s, spinning, &unlimited);
        pid_t tid = i % 2 ? s.pid : s.room->tid[0];
        pthread_create(&other, NULL, kill_soon, &s);
        await_result(&s, tid, TRACER_GONE);
        pthread_join(other, NULL);
        finish(&s);
    }
}

/* Not in time ----------------------------------------------------------------------------- */

static void await_untraced(const struct scene *s)
{
    nsec_t end = clock_mono() + PATIENCE;
    char rel[32], buf[4096];

    snprintf(rel, sizeof(rel), "task/%d/status", (int)s->room->tid[0]);
    do
        assert_true(procfs_slurp(s->dirfd, rel, buf, sizeof(buf)) > 0 && clock_mono() < end);
    while (!strstr(buf, "\nTracerPid:\t0\n"));
}

/* Nobody waits for the stop; it comes, and the thread goes on. */
static void test_late(void **state UNUSED)
{
    struct tracer_limits l = {1000, NSEC_PER_SEC, 0, false};
    struct scene s;
    uint64_t late = 0;

    begin(&s, spinning, &l);
    nsec_t end = clock_mono() + PATIENCE;
    while (late < 10 && clock_mono() < end) {
        enum tracer_result r = look_at(&s, s.room->tid[0]);
        assert_true(r != TRACER_GONE && r != TRACER_DENIED && r != TRACER_TRACED);
        late += r == TRACER_TIMEOUT;
        await_untraced(&s);
    }
    assert_int_equal(tracer_stats(s.tracer).timeouts, late);
    await_more(&shared->progress);
    finish(&s);
    if (late == 0) /* the worker was given the CPU each time, and was done before anybody waited */
        skip();
}

static bool set_policy(int policy, int priority)
{
    cpu_set_t first;

    CPU_ZERO(&first);
    CPU_SET(0, &first);
    return sched_setaffinity(0, sizeof(first), &first) == 0 &&
           sched_setscheduler(0, policy, &(struct sched_param){priority}) == 0;
}

/* Runs only when nobody else wants the first CPU. */
static int starving(struct room *r)
{
    if (!set_policy(SCHED_IDLE, 0))
        return 97;
    return spinning(r);
}

/* Wants the first CPU, for ever. 0: that is not permitted. */
static pid_t start_hog(void)
{
    atomic_int *ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        atomic_store(ready, set_policy(SCHED_FIFO, 2) ? 1 : 2);
        while (atomic_load(ready) == 1)
            continue;
        _exit(0);
    }
    bool hogs = await_value(ready) == 1;
    munmap(ready, 4096);
    if (!hogs)
        waitpid(pid, NULL, 0);
    return hogs ? pid : 0;
}

/* The thread gets no CPU to stop on. The tracer can be ended all the same. */
static void test_never_stops(void **state UNUSED)
{
    struct tracer_limits l = {1000, NSEC_PER_SEC, 10 * NSEC_PER_MSEC, false};
    struct scene s;
    enum tracer_result r = TRACER_OK;

    begin(&s, starving, &l);
    pid_t hog = start_hog();
    nsec_t end = clock_mono() + PATIENCE;
    while (hog && r != TRACER_TIMEOUT && clock_mono() < end)
        r = look_at(&s, s.room->tid[0]);
    enum tracer_result again = look_at(&s, s.room->tid[0]);
    tracer_free(s.tracer);
    s.tracer = NULL;
    if (hog)
        child_kill(hog);
    await_untraced(&s);
    await_more(&shared->progress);
    finish(&s);
    if (!hog) {
        print_message("real-time priority is not permitted here\n");
        skip();
    }
    assert_int_equal(r, TRACER_TIMEOUT);
    assert_true(again == TRACER_NOT_NOW || again == TRACER_OK); /* the hog is throttled at times */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(test_sigstopped),
        leak_test(test_sigstop_meanwhile),
        leak_test(test_signals_are_not_lost),
        leak_test(test_traced),
        leak_test(test_dying),
        leak_test(test_late),
        leak_test(test_never_stops),
    };

    return cmocka_run_group_tests(tests, map_shared, unmap_shared);
}

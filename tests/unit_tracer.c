#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/msg.h>
#include <sys/select.h>

#include <cmocka.h>

#include "tracer_scene.h"

/* Children -------------------------------------------------------------------------------- */

/* For calls that never return by themselves. */
static void note_return(long result)
{
    if (result < 0 && errno == EINTR)
        shared->eintr++;
    else
        shared->returned++;
    nap();
}

static const struct timespec long_time = {1000000, 0};
static int queue;

static void sit_futex(struct room *r)
{
    for (;;)
        note_return(futex(&r->word, FUTEX_WAIT, 0, NULL));
}

static void sit_futex_timed(struct room *r)
{
    for (;;)
        note_return(futex(&r->word, FUTEX_WAIT, 0, &long_time));
}

static void sit_pi(struct room *r)
{
    for (;;)
        note_return(futex(&r->go, FUTEX_LOCK_PI, 0, NULL));
}

static void sit_poll(struct room *r UNUSED)
{
    for (;;)
        note_return(poll(NULL, 0, 1000000));
}

static void sit_ppoll(struct room *r UNUSED)
{
    for (;;)
        note_return(ppoll(NULL, 0, NULL, NULL));
}

static void sit_select(struct room *r UNUSED)
{
    for (;;)
        note_return(select(0, NULL, NULL, NULL, NULL));
}

static void sit_nanosleep(struct room *r UNUSED)
{
    for (;;)
        note_return(syscall(SYS_nanosleep, &long_time, NULL));
}

static void sit_clock_nanosleep(struct room *r UNUSED)
{
    for (;;)
        note_return(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &long_time, NULL));
}

static void sit_pause(struct room *r UNUSED)
{
    for (;;)
        note_return(pause());
}

static void sit_sigsuspend(struct room *r UNUSED)
{
    sigset_t none;

    sigemptyset(&none);
    for (;;)
        note_return(sigsuspend(&none));
}

static void sit_msgrcv(struct room *r UNUSED)
{
    struct {
        long type;
        char text[8];
    } m;

    for (;;)
        note_return(msgrcv(queue, &m, sizeof(m.text), 0, 0));
}

static pid_t grandchild;

static void sit_waitpid(struct room *r UNUSED)
{
    for (;;)
        note_return(waitpid(grandchild, NULL, 0));
}

static void (*const sitters[])(struct room *) = {
    sit_futex,           sit_futex_timed, sit_pi,     sit_poll,
    sit_ppoll,           sit_select,      sit_pause,  sit_nanosleep,
    sit_clock_nanosleep, sit_sigsuspend,  sit_msgrcv, sit_waitpid,
};

static int sitting(struct room *r)
{
    pid_t parent = getpid();

    grandchild = fork();
    if (grandchild == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent)
            nap();
        _exit(0);
    }
    futex(&r->go, FUTEX_LOCK_PI, 0, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(sitters); i++)
        room_thread(r, (int)i, sitters[i]);
    return be_ready(r);
}

static void sit_epoll(struct room *r UNUSED)
{
    struct epoll_event e;
    int fd = epoll_create1(0);

    for (;;)
        note_return(epoll_wait(fd, &e, 1, -1));
}

static void sit_write(struct room *r UNUSED)
{
    static char bytes[1 << 20];
    int p[2];

    if (pipe(p) == 0) {
        ssize_t n = write(p[1], bytes, sizeof(bytes));
        shared->cut += n > 0;
    }
    pause();
}

static int sitting_unsafely(struct room *r)
{
    room_thread(r, 0, sit_epoll);
    room_thread(r, 1, sit_write);
    return be_ready(r);
}

static void compute_and_wait(struct room *r UNUSED)
{
    const struct timespec soon = {0, 50 * NSEC_PER_USEC};
    sigset_t none;

    sigemptyset(&none);
    for (;;) {
        nsec_t end = clock_mono() + 600 * NSEC_PER_USEC;
        while (clock_mono() < end)
            shared->progress++;
        if (sigtimedwait(&none, NULL, &soon) < 0 && errno == EINTR)
            shared->eintr++;
    }
}

static int alternating(struct room *r)
{
    room_thread(r, 0, compute_and_wait);
    return be_ready(r);
}

/* Running threads ------------------------------------------------------------------------- */

static bool copy_has(const struct stack_copy *c, uint64_t value)
{
    for (size_t i = 0; i + sizeof(value) <= c->len; i += sizeof(value)) {
        if (memcmp(c->bytes + i, &value, sizeof(value)) == 0)
            return true;
    }
    return false;
}

static void test_running(void **state UNUSED)
{
    struct scene s;

    begin(&s, spinning, &unlimited);
    const struct tracer_look *l = s.look;
    nsec_t end = clock_mono() + PATIENCE;
    do /* again: it may not have written there yet */
        look_at_running(&s, s.room->tid[0]);
    while (!copy_has(&l->copy, MAGIC) && clock_mono() < end);
    assert_false(l->was_blocked);
    assert_true(l->regs.full);
    assert_in_range(l->regs.pc, (uintptr_t)__start_spin_code, (uintptr_t)__stop_spin_code);
    assert_int_equal(l->copy.base, l->regs.sp - STACK_RED_ZONE);
    assert_ptr_equal(l->copy.bytes, l->bytes);
    assert_in_range(l->copy.len, STACK_RED_ZONE + 256, TRACER_STACK);
    assert_true(copy_has(&l->copy, MAGIC));
    assert_true(l->stopped_ns > 0 && l->stopped_ns <= l->asked_ns);
    finish(&s);
}

static void test_stopped_1000_times(void **state UNUSED)
{
    struct scene s;
    nsec_t total = 0;

    begin(&s, spinning, &unlimited);
    for (int i = 0; i < 1000; i++) {
        look_at_running(&s, s.room->tid[0]);
        total += s.look->stopped_ns;
        if (i % 100 == 0)
            await_more(&shared->progress);
    }
    await_more(&shared->progress);
    struct tracer_stats st = tracer_stats(s.tracer);
    assert_int_equal(st.stops, 1000);
    assert_int_equal(st.stopped_ns, total);
    assert_true(st.stopped_max > 0 && st.stopped_max < total);
    finish(&s);
}

/* Blocked threads ------------------------------------------------------------------------- */

static void test_restarting_calls(void **state UNUSED)
{
    struct scene s;
    uint64_t stops = 0;

    queue = msgget(IPC_PRIVATE, 0600);
    begin(&s, sitting, &unlimited);
    for (int i = 0; i < 100; i++) {
        for (size_t t = 0; t < ARRAY_SIZE(sitters); t++) {
            enum tracer_result r;
            nsec_t end = clock_mono() + PATIENCE;

            while ((r = look_at(&s, s.room->tid[t])) == TRACER_UNSAFE && clock_mono() < end)
                nap(); /* not there yet */
            if (r != TRACER_OK)
                fail_msg("thread %zu: %s", t, tracer_result_text(r));
            stops++;
        }
    }
    assert_true(s.look->was_blocked);
    assert_int_equal(s.look->regs.sp, s.look->call.sp);
    assert_int_equal(tracer_stats(s.tracer).stops, stops);
    assert_int_equal(tracer_stats(s.tracer).repaired, 0);
    assert_int_equal(shared->eintr, 0);
    assert_int_equal(shared->returned, 0);
    finish(&s);
    msgctl(queue, IPC_RMID, NULL);
}

static void test_unsafe_calls(void **state UNUSED)
{
    struct scene s;

    begin(&s, sitting_unsafely, &unlimited);
    for (int t = 0; t < 2; t++)
        await_state(s.pid, s.room->tid[t], 'S');
    for (int i = 0; i < 200; i++)
        assert_int_equal(look_at(&s, s.room->tid[i % 2]), TRACER_UNSAFE);
    assert_int_equal(tracer_stats(s.tracer).stops, 0);
    assert_int_equal(tracer_stats(s.tracer).refused, 200);
    assert_int_equal(shared->eintr + shared->returned + shared->cut, 0);
    finish(&s);
}

/* The stop that was meant for a running thread reaches it in a call that would end with EINTR. */
static void test_repaired_calls(void **state UNUSED)
{
    struct scene s;
    nsec_t end = clock_mono() + 2 * PATIENCE;

    begin(&s, alternating, &unlimited);
    while (tracer_stats(s.tracer).repaired < 5 && clock_mono() < end) {
        enum tracer_result r = look_at(&s, s.room->tid[0]);
        if (r != TRACER_OK && r != TRACER_UNSAFE && r != TRACER_NOT_NOW)
            fail_msg("%s", tracer_result_text(r));
    }
    await_more(&shared->progress);
    assert_in_range(tracer_stats(s.tracer).repaired, 1, UINT32_MAX);
    assert_int_equal(shared->eintr, 0);
    finish(&s);
}

/* Budget ---------------------------------------------------------------------------------- */

static void test_21st_stop(void **state UNUSED)
{
    struct tracer_limits l = {20, NSEC_PER_SEC, 5 * NSEC_PER_SEC, false};
    struct scene s;

    begin(&s, spinning, &l);
    nsec_t start = clock_mono();
    for (int i = 0; i < 20; i++)
        look_at_running(&s, s.room->tid[0]);
    enum tracer_result r = look_at(&s, s.room->tid[0]);
    bool in_time = clock_mono() - start < NSEC_PER_SEC;
    assert_true(r == TRACER_NOT_NOW || !in_time);
    while (r != TRACER_OK && clock_mono() < start + PATIENCE) {
        nap();
        r = look_at(&s, s.room->tid[0]);
    }
    assert_int_equal(r, TRACER_OK);
    assert_true(clock_mono() - start >= NSEC_PER_SEC);
    finish(&s);
}

static void test_no_stops_at_all(void **state UNUSED)
{
    struct tracer_limits l = {0, NSEC_PER_SEC, NSEC_PER_SEC, false};
    struct scene s;

    begin(&s, spinning, &l);
    assert_int_equal(look_at(&s, s.room->tid[0]), TRACER_NOT_NOW);
    assert_int_equal(tracer_stats(s.tracer).refused, 1);
    assert_int_equal(tracer_stats(s.tracer).stops, 0);
    finish(&s);
}

/* Not to be had --------------------------------------------------------------------------- */

static void test_no_such_thread(void **state UNUSED)
{
    struct scene s;

    begin(&s, spinning, &unlimited);
    assert_int_equal(look_at(&s, getpid()), TRACER_GONE);
    finish(&s);
}

/* 100 + the result; 255: no way to give up rights. */
static int look_as_nobody(struct scene *s)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        if (geteuid() != 0 || setgid(65534) || setuid(65534))
            _exit(255);
        _exit(100 + (int)look_at(s, s->room->tid[0]));
    }
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

static void test_denied(void **state UNUSED)
{
    struct scene s;

    begin(&s, spinning, &unlimited);
    int status = look_as_nobody(&s);
    await_more(&shared->progress);
    finish(&s);
    if (status == 255) {
        print_message("no way to give up rights here\n");
        skip();
    }
    assert_int_equal(status, 100 + TRACER_DENIED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(test_running),          leak_test(test_stopped_1000_times),
        leak_test(test_restarting_calls), leak_test(test_unsafe_calls),
        leak_test(test_repaired_calls),   leak_test(test_21st_stop),
        leak_test(test_no_stops_at_all),  leak_test(test_no_such_thread),
        leak_test(test_denied),
    };

    return cmocka_run_group_tests(tests, map_shared, unmap_shared);
}

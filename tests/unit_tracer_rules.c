#include <fcntl.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/tracer.h"
#include "../src/tracer_budget.h"

/* Calls ----------------------------------------------------------------------------------- */

static struct procfs_syscall call_of(long nr)
{
    return (struct procfs_syscall){.kind = SYSCALL_BLOCKED, .nr = nr};
}

static bool may_stop(long nr)
{
    struct procfs_syscall c = call_of(nr);

    return tracer_may_stop(ABI_NATIVE, &c);
}

static void test_may_stop(void **state UNUSED)
{
    static const long yes[] = {
        SYS_restart_syscall, SYS_nanosleep, SYS_clock_nanosleep, SYS_rt_sigsuspend, SYS_msgrcv,
        SYS_mq_timedreceive, SYS_wait4,     SYS_waitid,          SYS_ppoll,         SYS_pselect6};

    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        assert_true(may_stop(yes[i]));
}

/* Those that fail, those that end early, and those of which the arguments do not tell. */
static void test_may_not_stop(void **state UNUSED)
{
    static const long no[] = {
        SYS_epoll_pwait,
        SYS_semtimedop,
        SYS_rt_sigtimedwait,
        SYS_io_getevents,
        SYS_write,
        SYS_writev,
        SYS_sendto,
        SYS_sendmsg,
        SYS_read,
        SYS_recvfrom,
        SYS_recvmsg,
        SYS_accept,
        SYS_accept4,
        SYS_connect,
        SYS_openat,
        SYS_flock,
        SYS_fcntl,
        SYS_fsync,
        SYS_mmap,
        SYS_clone,
        SYS_execve,
        SYS_exit,
        SYS_ioctl,
        SYS_msgsnd,
        SYS_mq_timedsend,
        SYS_close,
        SYS_gettid,
        -1,
        100000,
    };

    for (size_t i = 0; i < ARRAY_SIZE(no); i++)
        assert_false(may_stop(no[i]));
}

static bool may_stop_futex(uint64_t op)
{
    struct procfs_syscall c = call_of(SYS_futex);

    c.arg[1] = op;
    return tracer_may_stop(ABI_NATIVE, &c);
}

static void test_futex_ops(void **state UNUSED)
{
    assert_true(may_stop_futex(FUTEX_WAIT));
    assert_true(may_stop_futex(FUTEX_WAIT_PRIVATE));
    assert_true(may_stop_futex(FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME));
    assert_true(may_stop_futex(FUTEX_LOCK_PI_PRIVATE));
    assert_true(may_stop_futex(UINT64_C(0xffffffff00000080))); /* the upper half means nothing */
    assert_false(may_stop_futex(FUTEX_WAIT_REQUEUE_PI_PRIVATE));
    assert_false(may_stop_futex(FUTEX_WAKE));
}

/* A time-out that has to be written back. */
static void test_timeouts(void **state UNUSED)
{
    struct procfs_syscall p = call_of(SYS_ppoll), s = call_of(SYS_pselect6);

    p.arg[2] = 0x7fff0000;
    s.arg[4] = 0x7fff0000;
    assert_false(tracer_may_stop(ABI_NATIVE, &p));
    assert_false(tracer_may_stop(ABI_NATIVE, &s));
}

static void test_only_blocked_and_known(void **state UNUSED)
{
    struct procfs_syscall c = call_of(SYS_nanosleep);

    assert_false(tracer_may_stop(ABI_UNKNOWN, &c));
    c.kind = SYSCALL_RUNNING;
    assert_false(tracer_may_stop(ABI_NATIVE, &c));
    c.kind = SYSCALL_NONE;
    assert_false(tracer_may_stop(ABI_NATIVE, &c));
}

#if defined(__x86_64__) && defined(__LP64__)
/* The same number is another call: 240 is futex there and mq_open here, 0 restart_syscall and
 * read. */
static void test_compat(void **state UNUSED)
{
    struct procfs_syscall futex = call_of(240), restart = call_of(0);

    assert_true(tracer_may_stop(ABI_COMPAT, &futex));
    assert_false(tracer_may_stop(ABI_NATIVE, &futex));
    assert_true(tracer_may_stop(ABI_COMPAT, &restart));
    assert_false(tracer_may_stop(ABI_NATIVE, &restart));
}
#endif

static bool cuts_short(long nr, int arg, uint64_t value)
{
    struct procfs_syscall c = call_of(nr);

    c.arg[arg] = value;
    return tracer_cuts_short(ABI_NATIVE, &c);
}

static void test_cuts_short(void **state UNUSED)
{
    assert_true(cuts_short(SYS_write, 2, 100000));
    assert_true(cuts_short(SYS_sendto, 2, 100000));
    assert_true(cuts_short(SYS_sendfile, 3, 100000));
    assert_true(cuts_short(SYS_recvfrom, 3, MSG_WAITALL));
    assert_true(cuts_short(SYS_recvmsg, 2, MSG_WAITALL));
    assert_true(cuts_short(SYS_io_getevents, 1, 2));
    assert_false(cuts_short(SYS_recvfrom, 3, 0));
    assert_false(cuts_short(SYS_recvmsg, 2, 0));
    assert_false(cuts_short(SYS_io_getevents, 1, 1));
    assert_false(cuts_short(SYS_read, 2, 100000));
    assert_false(cuts_short(SYS_futex, 1, 0));
    assert_false(cuts_short(SYS_epoll_pwait, 1, 0));
}

static void test_not_while_running(void **state UNUSED)
{
    struct procfs_syscall c = call_of(SYS_write);

    c.kind = SYSCALL_RUNNING;
    assert_false(tracer_cuts_short(ABI_NATIVE, &c));
}

static void test_can_restart(void **state UNUSED)
{
    static const enum call yes[] = {CALL_epoll_wait,    CALL_epoll_pwait,  CALL_semop,
                                    CALL_semtimedop,    CALL_recvfrom,     CALL_accept,
                                    CALL_read,          CALL_io_getevents, CALL_rt_sigtimedwait,
                                    CALL_io_uring_enter};
    static const enum call no[] = {CALL_close, CALL_openat, CALL_clone,     CALL_OTHER,
                                   CALL_ioctl, CALL_mkdir,  CALL_nanosleep, CALL_execve};

    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        assert_true(tracer_can_restart(yes[i]));
    for (size_t i = 0; i < ARRAY_SIZE(no); i++)
        assert_false(tracer_can_restart(no[i]));
}

/* Budget ---------------------------------------------------------------------------------- */

static const struct tracer_limits limits = TRACER_LIMITS_DEFAULT;
#define START (1000 * NSEC_PER_SEC)

static int new_budget(void **state)
{
    *state = tracer_budget_new(&limits);
    return 0;
}

static int free_budget(void **state)
{
    tracer_budget_free(*state);
    return 0;
}

static void test_20_in_any_second(void **state)
{
    struct tracer_budget *b = *state;

    for (int i = 0; i < 20; i++) {
        assert_true(tracer_budget_allows(b, START + i * NSEC_PER_MSEC));
        tracer_budget_charge(b, START + i * NSEC_PER_MSEC, 30 * NSEC_PER_USEC);
    }
    assert_false(tracer_budget_allows(b, START + 20 * NSEC_PER_MSEC));
    assert_false(tracer_budget_allows(b, START + NSEC_PER_SEC - 1));
    /* One place gets free for each that is a second old, not all at once. */
    assert_true(tracer_budget_allows(b, START + NSEC_PER_SEC));
    tracer_budget_charge(b, START + NSEC_PER_SEC, 30 * NSEC_PER_USEC);
    assert_false(tracer_budget_allows(b, START + NSEC_PER_SEC));
    assert_true(tracer_budget_allows(b, START + NSEC_PER_SEC + NSEC_PER_MSEC));
}

static void test_2_ms_in_any_second(void **state)
{
    struct tracer_budget *b = *state;

    tracer_budget_charge(b, START, NSEC_PER_MSEC);
    assert_true(tracer_budget_allows(b, START + 1));
    tracer_budget_charge(b, START + NSEC_PER_MSEC, NSEC_PER_MSEC);
    assert_false(tracer_budget_allows(b, START + 2 * NSEC_PER_MSEC));
    assert_true(tracer_budget_allows(b, START + NSEC_PER_SEC));
}

static void test_long_stop_is_made_up_for(void **state)
{
    struct tracer_budget *b = *state;

    tracer_budget_charge(b, START, 10 * NSEC_PER_MSEC);
    assert_false(tracer_budget_allows(b, START + 5 * NSEC_PER_SEC - 1));
    assert_true(tracer_budget_allows(b, START + 5 * NSEC_PER_SEC));
}

static void test_nothing_allowed(void **state UNUSED)
{
    const struct tracer_limits none = {0, 2 * NSEC_PER_MSEC, NSEC_PER_MSEC, false},
                               no_time = {20, 0, NSEC_PER_MSEC, false};
    struct tracer_budget *a = tracer_budget_new(&none), *b = tracer_budget_new(&no_time);

    tracer_budget_charge(a, START, INT64_MAX);
    assert_false(tracer_budget_allows(a, START));
    assert_false(tracer_budget_allows(b, START));
    tracer_budget_charge(b, START, INT64_MAX);
    assert_false(tracer_budget_allows(b, START + NSEC_PER_SEC));
    tracer_budget_free(a);
    tracer_budget_free(b);
    tracer_budget_free(NULL);
}

static void test_spared(void **state)
{
    struct tracer_budget *b = *state;

    assert_false(tracer_budget_spares(b, 100, START));
    tracer_budget_spare(b, 100, START + 10);
    tracer_budget_spare(b, 200, START + 10);
    assert_true(tracer_budget_spares(b, 100, START));
    assert_false(tracer_budget_spares(b, 101, START));
    assert_false(tracer_budget_spares(b, 100, START + 10));
    tracer_budget_spare(b, 100, START + 20);
    assert_true(tracer_budget_spares(b, 100, START + 10));
    for (pid_t tid = 1000; tid < 3000; tid++)
        tracer_budget_spare(b, tid, START + 100);
    assert_true(tracer_budget_spares(b, 2999, START));
    assert_false(tracer_budget_spares(b, 100, START)); /* forgotten for the latest */
}

#define budget_test(f) cmocka_unit_test_setup_teardown(f, new_budget, free_budget)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_may_stop),
        cmocka_unit_test(test_may_not_stop),
        cmocka_unit_test(test_futex_ops),
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_only_blocked_and_known),
#if defined(__x86_64__) && defined(__LP64__)
        cmocka_unit_test(test_compat),
#endif
        cmocka_unit_test(test_cuts_short),
        cmocka_unit_test(test_not_while_running),
        cmocka_unit_test(test_can_restart),
        budget_test(test_20_in_any_second),
        budget_test(test_2_ms_in_any_second),
        budget_test(test_long_stop_is_made_up_for),
        cmocka_unit_test(test_nothing_allowed),
        budget_test(test_spared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

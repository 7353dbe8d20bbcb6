/* unit_diagnose - the verdict: both sides of every threshold, and what must never be an alarm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../src/diagnose.h"
#include "snap_build.h"

/* A process of N threads, all in STATE. */
static struct snap_process process(int n, enum thread_state state)
{
    struct snap_process p = healthy_process(16147, "shop");

    memset(p.states, 0, sizeof(p.states));
    p.threads = n;
    p.states[state] = n;
    return p;
}

static void expect_of(const struct snap_process *p, size_t np, const struct snap_lock *l, size_t nl,
                      enum severity severity, const char *part)
{
    struct snapshot s = snapshot_of(p, np, l, nl);

    diagnose_verdict(&s);
    if (!strstr(s.verdict, part))
        fail_msg("\"%s\" instead of \"...%s...\"", s.verdict, part);
    assert_int_equal(s.severity, severity);
    assert_null(strchr(s.verdict, '\n'));
    arena_release(&s.arena);
}

static void expect(const struct snap_process *p, const struct snap_lock *l, enum severity severity,
                   const char *part)
{
    expect_of(p, 1, l, l ? 1 : 0, severity, part);
}

static void test_idle_pool(void **state)
{
    (void)state;
    struct snap_process p = process(200, THREAD_SYNC);
    struct snap_lock l = waited_lock("16147:0x1000", KIND_COND, 200);

    l.wait_share = 1;
    expect(&p, &l, SEVERITY_INFO, "no contention (200 threads: 200 sync)");
}

static void test_no_sync_kind_is_contention(void **state)
{
    (void)state;
    struct snap_process p = process(100, THREAD_SYNC);

    for (enum lock_kind k = 0; k < LOCK_KINDS; k++) {
        struct snap_lock l = waited_lock("16147:0x1000", k, 100);
        l.wait_share = 1;
        if (l.class == CLASS_SYNC)
            expect(&p, &l, SEVERITY_INFO, "no contention");
        else
            expect(&p, &l, SEVERITY_WARNING, "100.0 threads wait");
    }
}

static void test_one_thread_waiting_all_the_time(void **state)
{
    (void)state;
    struct snap_process p = process(1000, THREAD_SLEEP);
    struct snap_lock l = waited_lock("16147:0x1000", KIND_MUTEX, 1);

    l.wait_share = 0.001;
    expect(&p, &l, SEVERITY_WARNING, "1.0 threads wait (0 % of thread-time) for mutex");
    l.waiters_avg_10s = 0.99;
    expect(&p, &l, SEVERITY_INFO, "no contention");
}

static void test_share_of_thread_time(void **state)
{
    (void)state;
    struct snap_process p = process(10, THREAD_SLEEP);
    struct snap_lock l = waited_lock("16147:0x1000", KIND_MUTEX, 1);

    l.waiters_avg_10s = 0.3;
    l.wait_share = 0.03;
    expect(&p, &l, SEVERITY_WARNING, "0.3 threads wait (3 % of thread-time)");
    l.wait_share = 0.0299;
    expect(&p, &l, SEVERITY_INFO, "no contention");
    l.wait_share = NAN;
    expect(&p, &l, SEVERITY_INFO, "no contention");
    l.waiters_avg_10s = NAN;
    expect(&p, &l, SEVERITY_INFO, "no contention");
}

static void test_unreadable_threads(void **state)
{
    (void)state;
    struct snap_process p = process(100, THREAD_OTHER);

    p.unreadable = 5;
    expect(&p, NULL, SEVERITY_INFO, "no contention");
    p.unreadable = 6;
    expect(&p, NULL, SEVERITY_WARNING, "cannot tell: 6 of 100 threads may not be read");
    /* but what is seen is seen */
    struct snap_lock l = waited_lock("16147:0x1000", KIND_MUTEX, 5);
    expect(&p, &l, SEVERITY_WARNING, "5.0 threads wait");
}

static void test_file_locks_without_a_row(void **state)
{
    (void)state;
    struct snap_process p = process(100, THREAD_SLEEP);

    p.states[THREAD_FILELOCK] = 1;
    expect(&p, NULL, SEVERITY_WARNING, "1.0 threads wait for file locks");
    p.states[THREAD_FILELOCK] = 0.99;
    expect(&p, NULL, SEVERITY_INFO, "no contention");
    p.threads = 10;
    p.states[THREAD_FILELOCK] = 0.3;
    expect(&p, NULL, SEVERITY_WARNING, "0.3 threads wait for file locks");
    p.states[THREAD_FILELOCK] = 0.29;
    expect(&p, NULL, SEVERITY_INFO, "no contention");
    p.threads = 0; /* nothing is not a share of nothing */
    p.states[THREAD_FILELOCK] = 0;
    expect(&p, NULL, SEVERITY_WARNING, "cannot tell: no thread could be looked at");
}

static void test_nothing_left(void **state)
{
    (void)state;
    struct snap_process p = process(0, THREAD_SLEEP);
    struct snap_lock l = waited_lock("16147:0x1000", KIND_MUTEX, 5);

    p.ended = true;
    expect(&p, &l, SEVERITY_INFO, "nothing is left to watch");
    expect_of(NULL, 0, NULL, 0, SEVERITY_INFO, "nothing is left to watch");
}

static void test_worst_comes_first(void **state)
{
    (void)state;
    struct snap_process p = process(100, THREAD_LOCK);
    struct snap_lock l[3] = {waited_lock("1:0x1", KIND_COND, 50),
                             waited_lock("1:0x2", KIND_MUTEX, 9),
                             waited_lock("1:0x3", KIND_RWLOCK, 4)};

    expect_of(&p, 1, l, 3, SEVERITY_WARNING, "9.0 threads wait for mutex");
}

static void test_names(void **state)
{
    (void)state;
    struct snap_process p = process(10, THREAD_LOCK);
    struct snap_lock l = waited_lock("1:0x2", KIND_MUTEX, 9);

    l.address = 0x7f3200000040;
    expect(&p, &l, SEVERITY_WARNING, "for mutex 0x7f3200000040; holder unknown");
    l.path = "/dev/shm/pool";
    expect(&p, &l, SEVERITY_WARNING, "for mutex in /dev/shm/pool");
    l.name = "buf_pool+0x40";
    expect(&p, &l, SEVERITY_WARNING, "for buf_pool+0x40; holder");
    l.site = "take_page";
    expect(&p, &l, SEVERITY_WARNING, "for buf_pool+0x40 (in take_page); holder");
    l.name = l.path = NULL;
    expect(&p, &l, SEVERITY_WARNING, "for mutex 0x7f3200000040 (in take_page); holder");
}

static void test_holders(void **state)
{
    (void)state;
    struct snap_process p = process(10, THREAD_LOCK);
    struct snap_lock l = waited_lock("1:0x2", KIND_MUTEX, 9);
    struct snap_holder h = {.pid = 1,
                            .tid = 77,
                            .comm = "io",
                            .state = THREAD_DISK,
                            .state_known = true,
                            .detail = "fsync fd 12 /data/f",
                            .confidence = CONF_CONFIRMED};

    l.holders = &h;
    l.nholders = 1;
    expect(&p, &l, SEVERITY_WARNING, "held by io[77]: disk, fsync fd 12 /data/f");
    h.confidence = CONF_LIKELY;
    expect(&p, &l, SEVERITY_WARNING, "held by io[77] (at this moment): disk");
    h.state_known = false;
    h.detail = NULL;
    expect(&p, &l, SEVERITY_WARNING, "held by io[77] (at this moment): state unknown");
    h.gone = true;
    h.detail = "its owner died while holding it";
    expect(&p, &l, SEVERITY_WARNING, "holder: its owner died while holding it");
    h = (struct snap_holder){.pid = -1, .tid = -1};
    expect(&p, &l, SEVERITY_WARNING, "holder: unknown");
}

static void test_states_of_several_processes(void **state)
{
    (void)state;
    struct snap_process p[3] = {process(4, THREAD_NET), process(1, THREAD_NET),
                                process(200, THREAD_SYNC)};

    p[1].states[THREAD_NET] = 0.4;
    p[1].states[THREAD_RUNNING] = 0.6;
    expect_of(p, 3, NULL, 0, SEVERITY_INFO,
              "no contention (205 threads: 200 sync, 4.4 net, 0.6 running)");
    for (enum thread_state s = 0; s < THREAD_STATES; s++)
        p[0].states[s] = NAN; /* no sweep yet */
    expect_of(p, 1, NULL, 0, SEVERITY_INFO, "no contention (4 threads)");
}

/* A word that only its value makes look like a lock is named, but never a warning; and it never
 * hides a lock that is proven. */
static void test_unproven_lock(void **state)
{
    (void)state;
    struct snap_process p = process(20, THREAD_LOCK);
    struct snap_lock l[2] = {waited_lock("16147:0x1000", KIND_FUTEX_LOCK, 12),
                             waited_lock("16147:0x2000", KIND_MUTEX, 5)};

    l[0].confidence = CONF_UNKNOWN;
    l[0].wait_share = 0.6;
    expect(&p, &l[0], SEVERITY_INFO, "no proven contention; 12.0 threads sleep on 0x");
    expect_of(&p, 1, l, 2, SEVERITY_WARNING, "5.0 threads wait");
    l[0].confidence = CONF_LIKELY;
    expect_of(&p, 1, l, 2, SEVERITY_WARNING, "12.0 threads wait");
}

/* On a handful of looks, or of sightings, nothing is alarmed. */
static void test_few_looks(void **state)
{
    (void)state;
    struct snap_process p = process(7, THREAD_NET);
    struct snap_lock l = waited_lock("16147:0x1000", KIND_MUTEX, 5);
    struct snapshot s = snapshot_of(&p, 1, &l, 1);

    l.wait_share = 0.7;
    s.looks = ALARM_MIN_LOOKS - 1;
    diagnose_verdict(&s);
    assert_int_equal(s.severity, SEVERITY_INFO);
    assert_string_equal(s.verdict, "no contention in 9 looks so far (7 threads: 7.0 net)");
    s.looks = ALARM_MIN_LOOKS;
    diagnose_verdict(&s);
    assert_int_equal(s.severity, SEVERITY_WARNING);
    l.waiters_avg_10s = 0.29; /* 2.9 sightings in 10 looks */
    diagnose_verdict(&s);
    assert_int_equal(s.severity, SEVERITY_INFO);
    arena_release(&s.arena);
}

static void test_stopped_process(void **state)
{
    (void)state;
    struct snap_process p = process(7, THREAD_STOPPED);
    struct snap_lock l = waited_lock("16147:0x1000", KIND_MUTEX, 5);

    expect(&p, &l, SEVERITY_WARNING, "7 of 7 threads are stopped");
    p.states[THREAD_STOPPED] = 3;
    expect(&p, &l, SEVERITY_WARNING, "5.0 threads wait");
}

/* Many locks with a little waiting each: together they are the trouble. */
static void test_striped_locks(void **state)
{
    (void)state;
    struct snap_process p = process(200, THREAD_SLEEP);
    struct snap_lock l[50];

    for (int i = 0; i < 50; i++) {
        l[i] = waited_lock("16147:0x1000", KIND_MUTEX, 1);
        l[i].waiters_avg_10s = 0.5;
        l[i].wait_share = 0.0025;
    }
    expect_of(&p, 1, l, 50, SEVERITY_WARNING,
              "25.0 threads wait (12 % of thread-time), spread over 50 locks");
    expect_of(&p, 1, l, 1, SEVERITY_INFO, "no contention");
    for (int i = 0; i < 50; i++)
        l[i].waiters_avg_10s = 0.01;
    expect_of(&p, 1, l, 50, SEVERITY_INFO, "no contention");
}

/* A lock between two holders, one that nobody waits for now, one whose memory is not known. */
static void test_lock_without_a_holder(void **state)
{
    (void)state;
    struct snap_process p = process(7, THREAD_LOCK);
    struct snap_lock l = waited_lock("16147:0x1000", KIND_MUTEX, 5);

    l.held = 0;
    expect(&p, &l, SEVERITY_WARNING, "; free at this moment");
    l.held = 1;
    expect(&p, &l, SEVERITY_WARNING, "; holder unknown");
    l.waiters = 0;
    expect(&p, &l, SEVERITY_WARNING, "5.0 threads waited in the last 10 s");
    expect(&p, &l, SEVERITY_WARNING, "; nobody waits at this moment");
    struct snapshot s = snapshot_of(&p, 1, &l, 1);
    s.elapsed = 9 * NSEC_PER_SEC;
    diagnose_verdict(&s);
    assert_non_null(strstr(s.verdict, "5.0 threads waited so far"));
    arena_release(&s.arena);
    l.held = 0;
    expect(&p, &l, SEVERITY_WARNING, "5.0 threads waited in the last 10 s");
    l.held = 1;
    l.confidence = CONF_UNKNOWN;
    expect(&p, &l, SEVERITY_INFO, "no proven contention");
}

static void test_words_of_unknown_kind(void **state)
{
    (void)state;
    struct snap_process p = process(20, THREAD_SYNC);
    struct snap_lock l = waited_lock("16147:0x1000", KIND_FUTEX, 2);

    l.confidence = CONF_UNKNOWN;
    expect(&p, &l, SEVERITY_INFO, "no contention (20 threads: 20 sync; 2 on words of unknown kind)");
    l.waiters = 1;
    expect(&p, &l, SEVERITY_INFO, "no contention (20 threads: 20 sync)");
}

/* A snapshot with these chains; the texts are the model's. */
static void expect_chains(const struct snap_chain *c, size_t n, enum severity severity,
                          const char *verdict)
{
    struct snap_process p[2] = {process(20, THREAD_LOCK), process(3, THREAD_SLEEP)};
    struct snap_lock l = waited_lock("16147:0x1000", KIND_MUTEX, 5);
    struct snapshot s = snapshot_of(p, 1, &l, 1);

    s.chains = c;
    s.nchains = n;
    s.looks = 3; /* proved things need no more */
    diagnose_verdict(&s);
    if (severity != SEVERITY_INFO)
        assert_string_equal(s.verdict, verdict);
    else
        assert_null(strstr(s.verdict, verdict));
    assert_int_equal(s.severity, severity);
    arena_release(&s.arena);
}

static void test_deadlocks_and_orphans(void **state)
{
    (void)state;
    struct snap_chain c[3] = {
        {.end = CHAIN_CYCLE,
         .cycle = true,
         .confidence = CONF_CONFIRMED,
         .text = "DEADLOCK 2 threads: a, b"},
        {.end = CHAIN_GONE,
         .confidence = CONF_CONFIRMED,
         .text = "3 wait for A; its owner is gone"},
        {.end = CHAIN_OUTSIDE, .confidence = CONF_CONFIRMED, .text = "9 wait for B"},
    };

    expect_chains(&c[0], 1, SEVERITY_CRITICAL, "DEADLOCK 2 threads: a, b");
    expect_chains(&c[0], 3, SEVERITY_CRITICAL, "DEADLOCK 2 threads: a, b; and 1 more such");
    expect_chains(&c[1], 2, SEVERITY_CRITICAL, "3 wait for A; its owner is gone");
    for (enum chain_end end = CHAIN_RUNS; end <= CHAIN_UNNAMED; end++) {
        c[2].end = end;
        expect_chains(&c[2], 1, SEVERITY_INFO, "9 wait for B");
    }
    struct snap_chain turned[2] = {c[1], c[0]};
    expect_chains(turned, 2, SEVERITY_CRITICAL, "DEADLOCK 2 threads: a, b; and 1 more such");
}

/* What is only likely, or ends by itself, is no more than a warning; and stands behind the rest. */
static void test_likely_deadlocks_and_orphans(void **state)
{
    (void)state;
    struct snap_chain c[5] = {
        {.end = CHAIN_CYCLE_TIMED, .confidence = CONF_CONFIRMED, .text = "a circle"},
        {.end = CHAIN_GONE, .confidence = CONF_LIKELY, .text = "an orphan, likely"},
        {.end = CHAIN_CYCLE, .confidence = CONF_LIKELY, .text = "a deadlock, likely"},
        {.end = CHAIN_GONE, .confidence = CONF_CONFIRMED, .text = "an orphan"},
        {.end = CHAIN_CYCLE, .cycle = true, .confidence = CONF_CONFIRMED, .text = "a deadlock"},
    };

    expect_chains(c, 1, SEVERITY_WARNING, "a circle");
    expect_chains(c, 2, SEVERITY_WARNING, "an orphan, likely; and 1 more such");
    expect_chains(c, 3, SEVERITY_WARNING, "a deadlock, likely; and 2 more such");
    expect_chains(c, 4, SEVERITY_CRITICAL, "an orphan");
    expect_chains(c, 5, SEVERITY_CRITICAL, "a deadlock; and 1 more such");
}

/* Which process, where there are several. */
static void test_deadlock_of_one_process(void **state)
{
    (void)state;
    struct snap_process p[2] = {process(20, THREAD_LOCK), process(3, THREAD_SLEEP)};
    struct snap_chain c = {.end = CHAIN_CYCLE,
                           .cycle = true,
                           .confidence = CONF_CONFIRMED,
                           .text = "DEADLOCK 2 threads"};
    struct snapshot s = snapshot_of(p, 2, NULL, 0);

    p[1].pid = c.root.pid = 300;
    s.chains = &c;
    s.nchains = 1;
    diagnose_verdict(&s);
    assert_string_equal(s.verdict, "DEADLOCK 2 threads of shop[300]");
    arena_release(&s.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle_pool),
        cmocka_unit_test(test_no_sync_kind_is_contention),
        cmocka_unit_test(test_one_thread_waiting_all_the_time),
        cmocka_unit_test(test_share_of_thread_time),
        cmocka_unit_test(test_unproven_lock),
        cmocka_unit_test(test_few_looks),
        cmocka_unit_test(test_stopped_process),
        cmocka_unit_test(test_striped_locks),
        cmocka_unit_test(test_lock_without_a_holder),
        cmocka_unit_test(test_words_of_unknown_kind),
        cmocka_unit_test(test_unreadable_threads),
        cmocka_unit_test(test_file_locks_without_a_row),
        cmocka_unit_test(test_nothing_left),
        cmocka_unit_test(test_worst_comes_first),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_holders),
        cmocka_unit_test(test_states_of_several_processes),
        cmocka_unit_test(test_deadlocks_and_orphans),
        cmocka_unit_test(test_likely_deadlocks_and_orphans),
        cmocka_unit_test(test_deadlock_of_one_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

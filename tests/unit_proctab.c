/* unit_proctab - processes and threads: who is in which state, and sums that come out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../src/proctab.h"
#include "model_build.h"

#define START       (1000 * NSEC_PER_SEC)
#define MAX_THREADS 64

struct table {
    struct proctab t;
    struct process_fact p;
    struct thread_fact threads[MAX_THREADS];
    enum thread_state states[MAX_THREADS]; /* that the next sweep counts them in */
    size_t n;
    nsec_t mono;
};

static struct table table_of(size_t n)
{
    struct table b = {.n = n, .mono = START};

    b.p = (struct process_fact){.pid = 100, .start_ticks = 7, .comm = "shop", .rss_kb = 100};
    for (size_t i = 0; i < n; i++) {
        b.threads[i] = (struct thread_fact){.tid = 100 + (pid_t)i,
                                            .ns_tid = 100 + (pid_t)i,
                                            .start_ticks = 7,
                                            .slot = (uint32_t)i,
                                            .seen = SEEN_CALL,
                                            .runs = 1};
        b.states[i] = THREAD_SLEEP;
    }
    return b;
}

static void states_of(struct proctab *t, struct proc *p, double out[THREAD_STATES])
{
    proctab_fold(t);
    proctab_states(p, out);
}

static struct proc *count_sweep(struct table *b, nsec_t after)
{
    b->mono += after;
    struct sample s = {.kind = SAMPLE_SWEEP, .mono = b->mono};
    proctab_begin_sweep(&b->t, &s, START);
    struct proc *p = proctab_proc(&b->t, &b->p);
    for (size_t i = 0; i < b->n; i++)
        proctab_count(&b->t, proctab_thread(&b->t, p, &b->threads[i]), b->states[i]);
    proctab_end_sweep(&b->t);
    return p;
}

static double sum(const double states[THREAD_STATES])
{
    double total = 0;

    for (int s = 0; s < THREAD_STATES; s++)
        total += states[s];
    return total;
}

static void test_states_sum_to_the_threads(void **state)
{
    (void)state;
    struct table b = table_of(12);
    struct proc *p = NULL;
    double out[THREAD_STATES];

    for (size_t i = 0; i < b.n; i++)
        b.states[i] = (enum thread_state)i;
    for (int i = 0; i < 10; i++) {
        b.threads[THREAD_RUNNING].run_ns += (uint64_t)TICK;
        p = count_sweep(&b, TICK);
    }
    states_of(&b.t, p, out);
    assert_float_equal(sum(out), 12, 1e-9);
    for (int s = 0; s < THREAD_STATES; s++)
        assert_float_equal(out[s], 1, 1e-9);
    proctab_release(&b.t);
}

/* Whatever threads do and whether they come or go. */
static void test_states_sum_in_every_case(void **state)
{
    (void)state;
    struct table b = table_of(MAX_THREADS);
    unsigned random = 5;
    double out[THREAD_STATES];

    for (int round = 0; round < 300; round++) {
        struct proc *p = NULL;
        for (int k = 0; k < 7; k++) {
            random = random * 1103515245u + 12345u;
            b.n = 1 + random / 65536 % MAX_THREADS;
            for (size_t i = 0; i < b.n; i++) {
                random = random * 1103515245u + 12345u;
                b.states[i] = (enum thread_state)(random / 65536 % THREAD_STATES);
                b.threads[i].seen = b.states[i] == THREAD_RUNNING ? SEEN_ACTIVE : SEEN_CALL;
                b.threads[i].run_ns +=
                    random / 65536 % 1000 * 30000; /* at times more than passed */
                b.threads[i].runq_ns += random / 65536 % 7 * 3000000;
                b.threads[i].start_ticks += random / 65536 % 50 == 0;
            }
            p = count_sweep(&b, TICK);
        }
        states_of(&b.t, p, out);
        assert_int_equal(p->threads, b.n);
        assert_float_equal(sum(out), (double)b.n, 1e-6);
        for (int s = 0; s < THREAD_STATES; s++)
            assert_true(out[s] >= -1e-9);
    }
    proctab_release(&b.t);
}

/* The kernel's clocks decide how much of its time a thread ran; samples only split the rest. */
static void test_clocks_before_samples(void **state)
{
    (void)state;
    struct table b = table_of(1);
    struct proc *p = count_sweep(&b, 0);
    double out[THREAD_STATES];

    states_of(&b.t, p, out);
    for (int i = 0; i < 100; i++) {
        /* runs 5 ms and queues 1 ms of every 20, but is never caught doing so */
        b.threads[0].run_ns += (uint64_t)TICK / 4;
        b.threads[0].runq_ns += (uint64_t)TICK / 20;
        b.threads[0].runs++;
        b.states[0] = i % 2 ? THREAD_NET : THREAD_LOCK;
        count_sweep(&b, TICK);
    }
    states_of(&b.t, p, out);
    assert_float_equal(out[THREAD_RUNNING], 0.25, 1e-9);
    assert_float_equal(out[THREAD_RUNQ], 0.05, 1e-9);
    assert_float_equal(out[THREAD_NET], 0.35, 1e-9);
    assert_float_equal(out[THREAD_LOCK], 0.35, 1e-9);
    proctab_release(&b.t);
}

static void test_without_schedstat_samples_count(void **state)
{
    (void)state;
    struct table b = table_of(1);
    struct proc *p = NULL;
    double out[THREAD_STATES];

    b.threads[0].runs = 0;
    for (int i = 0; i < 100; i++) {
        b.states[0] = i % 4 ? THREAD_SLEEP : THREAD_RUNNING;
        p = count_sweep(&b, TICK);
    }
    states_of(&b.t, p, out);
    assert_float_equal(out[THREAD_RUNNING], 0.25, 1e-9);
    assert_float_equal(out[THREAD_RUNQ], 0, 1e-9);
    proctab_release(&b.t);
}

/* Runs or queues? --------------------------------------------------------------------------- */

/* State of a runnable thread after clocks moved by RAN and QUEUED in the SPAN since the last look,
 * at which it was in WAS. */
static enum thread_state runnable(enum thread_state was, uint64_t ran, uint64_t queued, nsec_t span)
{
    struct table b = table_of(1);
    struct proc *p;

    b.states[0] = was;
    count_sweep(&b, TICK);
    b.states[0] = THREAD_RUNNING;
    b.threads[0].run_ns += ran;
    b.threads[0].runq_ns += queued;
    p = count_sweep(&b, span);
    enum thread_state is = proctab_find(&b.t, p->pid, 100)->state;
    proctab_release(&b.t);
    return is;
}

static void test_run_queue(void **state)
{
    (void)state;
    /* the clock that moved more */
    assert_int_equal(runnable(THREAD_SLEEP, 1000, 10, TICK), THREAD_RUNNING);
    assert_int_equal(runnable(THREAD_SLEEP, 10, 1000, TICK), THREAD_RUNQ);
    assert_int_equal(runnable(THREAD_RUNNING, 0, 1000, TICK), THREAD_RUNQ);
    assert_int_equal(runnable(THREAD_RUNQ, 1000, 0, TICK), THREAD_RUNNING);
    /* both stand still: for longer than a tick it is not on a CPU */
    assert_int_equal(runnable(THREAD_RUNNING, 0, 0, 11 * NSEC_PER_MSEC), THREAD_RUNQ);
    assert_int_equal(runnable(THREAD_RUNNING, 0, 0, 9 * NSEC_PER_MSEC), THREAD_RUNNING);
    assert_int_equal(runnable(THREAD_RUNQ, 0, 0, NSEC_PER_MSEC), THREAD_RUNQ);
    /* it has only just woken */
    assert_int_equal(runnable(THREAD_SLEEP, 0, 0, 11 * NSEC_PER_MSEC), THREAD_RUNNING);
}

/* Spans -------------------------------------------------------------------------------------- */

static void test_spans(void **state)
{
    (void)state;
    struct table b = table_of(2);
    double out[THREAD_STATES];
    struct proc *p = count_sweep(&b, TICK);

    states_of(&b.t, p, out);
    assert_float_equal(out[THREAD_SLEEP], 2, 1e-9);
    b.states[0] = b.states[1] = THREAD_LOCK;
    count_sweep(&b, TICK);
    states_of(&b.t, p, out); /* what was before is not counted again */
    assert_float_equal(out[THREAD_LOCK], 2, 1e-9);
    states_of(&b.t, p, out); /* no sweep in between: it stands */
    assert_float_equal(out[THREAD_LOCK], 2, 1e-9);
    assert_float_equal(sum(out), 2, 1e-9);
    proctab_release(&b.t);
}

static void test_dead_leader_and_unreadable(void **state)
{
    (void)state;
    struct table b = table_of(4);
    double out[THREAD_STATES];

    b.threads[0].seen = SEEN_DEAD;
    b.threads[1].seen = b.threads[2].seen = SEEN_UNREADABLE;
    b.states[0] = b.states[1] = b.states[2] = THREAD_OTHER;
    struct proc *p = count_sweep(&b, TICK);
    states_of(&b.t, p, out);
    assert_int_equal(p->threads, 3);
    assert_int_equal(p->unreadable, 2);
    assert_float_equal(sum(out), 3, 1e-9);
    assert_float_equal(out[THREAD_OTHER], 2, 1e-9);
    assert_null(proctab_find(&b.t, 100, 100)); /* no thread any more */
    assert_non_null(proctab_find(&b.t, 100, 101));
    proctab_release(&b.t);
}

static void test_ended(void **state)
{
    (void)state;
    for (int swept = 0; swept < 2; swept++) {
        struct table b = table_of(4);
        double out[THREAD_STATES];
        b.threads[0].seen = SEEN_UNREADABLE;
        struct proc *p = count_sweep(&b, TICK);
        states_of(&b.t, p, out);
        if (swept)
            count_sweep(&b, TICK);
        b.p.ended = true;
        b.n = 0;
        count_sweep(&b, TICK);
        states_of(&b.t, p, out);
        assert_true(p->ended);
        assert_int_equal(p->threads, 0);
        assert_int_equal(p->unreadable, 0);
        assert_float_equal(sum(out), 0, 1e-9);
        proctab_drop_ended(&b.t);
        assert_null(b.t.procs);
        proctab_release(&b.t);
    }
}

/* Names -------------------------------------------------------------------------------------- */

static void test_find_by_inner_name(void **state)
{
    (void)state;
    struct table b = table_of(3);

    for (int i = 0; i < 3; i++)
        b.threads[i].ns_tid = 1 + i;
    count_sweep(&b, TICK);
    assert_int_equal(proctab_find(&b.t, 100, 2)->tid, 101);
    assert_null(proctab_find(&b.t, 100, 101));
    assert_null(proctab_find(&b.t, 99, 2));
    assert_null(proctab_find(&b.t, 100, 4));
    b.n = 1;
    count_sweep(&b, TICK);
    assert_null(proctab_find(&b.t, 100, 2));
    proctab_release(&b.t);
}

/* Names inside that could not be read: each stays itself, and nothing finds them. */
static void test_unknown_inner_names(void **state)
{
    (void)state;
    struct table b = table_of(5);

    for (int i = 0; i < 5; i++)
        b.threads[i].ns_tid = 0;
    count_sweep(&b, TICK);
    struct thread *first = b.t.by_slot[0];
    struct proc *p = count_sweep(&b, TICK);
    assert_int_equal(p->threads, 5);
    assert_int_equal(HASH_COUNT(b.t.by_tid), 5);
    assert_ptr_equal(b.t.by_slot[0], first);
    assert_int_equal(first->state_since, TICK);
    assert_null(proctab_find(&b.t, 100, 0));
    proctab_release(&b.t);
}

static void test_tid_used_again(void **state)
{
    (void)state;
    struct table b = table_of(3);

    count_sweep(&b, TICK);
    /* in its slot, and in another one */
    b.threads[1].start_ticks = 99;
    b.threads[2].slot = 7;
    b.threads[2].start_ticks = 99;
    struct proc *p = count_sweep(&b, TICK);
    assert_int_equal(p->threads, 3);
    assert_int_equal(HASH_COUNT(b.t.by_tid), 3);
    assert_null(b.t.by_slot[2]);
    assert_int_equal(proctab_find(&b.t, 100, 101)->state_since, 2 * TICK);
    assert_int_equal(proctab_find(&b.t, 100, 102)->start_ticks, 99);
    proctab_release(&b.t);
}

static void test_state_since(void **state)
{
    (void)state;
    struct table b = table_of(1);
    struct thread *th;

    count_sweep(&b, TICK);
    th = proctab_find(&b.t, 100, 100);
    count_sweep(&b, TICK);
    assert_int_equal(th->state_since, TICK);
    b.threads[0].fresh = true; /* it has run and sleeps again */
    count_sweep(&b, TICK);
    assert_int_equal(th->state_since, 3 * TICK);
    b.states[0] = THREAD_RUNNING;
    b.threads[0].run_ns += 1000;
    count_sweep(&b, TICK);
    b.threads[0].run_ns += 1000;
    count_sweep(&b, TICK); /* runs on, though every look at it is a fresh one */
    assert_int_equal(th->state_since, 4 * TICK);
    proctab_release(&b.t);
}

/* Counters ----------------------------------------------------------------------------------- */

static void read_counters(struct table *b, uint64_t cpu_ns, uint64_t minflt, int64_t voluntary)
{
    b->p.read_at = b->mono + NSEC_PER_SEC;
    b->p.cpu_ns = cpu_ns;
    b->p.minflt = minflt;
    b->p.voluntary = voluntary;
    b->p.involuntary = -1;
}

static void test_rates(void **state)
{
    (void)state;
    struct table b = table_of(1);
    struct proc *p;

    read_counters(&b, 5000, 10, 1);
    p = count_sweep(&b, NSEC_PER_SEC);
    assert_true(isnan(p->rates.cpu_cores));
    assert_true(isnan(p->rates.minflt));
    count_sweep(&b, TICK); /* the same reading */
    assert_true(isnan(p->rates.cpu_cores));
    b.mono += NSEC_PER_SEC - TICK;
    read_counters(&b, 5000 + 3000000000u, 110, 41);
    b.p.rss_kb = 350;
    count_sweep(&b, NSEC_PER_SEC);
    assert_float_equal(p->rates.cpu_cores, 1.5, 1e-9);
    assert_float_equal(p->rates.minflt, 50, 1e-9);
    assert_float_equal(p->rates.voluntary, 20, 1e-9);
    assert_true(isnan(p->rates.involuntary));
    assert_int_equal(p->first_rss_kb, 100);
    read_counters(&b, 17, 120, 50); /* a counter that falls tells nothing */
    count_sweep(&b, NSEC_PER_SEC);
    assert_true(isnan(p->rates.cpu_cores));
    proctab_release(&b.t);
}

static void test_pid_used_again(void **state)
{
    (void)state;
    struct table b = table_of(1);
    struct proc *p;

    read_counters(&b, 5000, 10, 1);
    count_sweep(&b, NSEC_PER_SEC);
    read_counters(&b, 500000, 1000, 100);
    count_sweep(&b, NSEC_PER_SEC);
    b.p.start_ticks++;
    b.p.rss_kb = 40;
    read_counters(&b, 900000, 2000, 200);
    p = count_sweep(&b, NSEC_PER_SEC);
    assert_true(isnan(p->rates.minflt));
    assert_int_equal(p->first_rss_kb, 40);
    proctab_release(&b.t);
}

static void test_unread_counters(void **state)
{
    (void)state;
    struct table b = table_of(1);
    struct proc *p = count_sweep(&b, TICK);

    assert_int_equal(p->last_read.rss_kb, -1);
    assert_true(isnan(p->rates.cpu_cores));
    proctab_release(&b.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_sum_to_the_threads),
        cmocka_unit_test(test_states_sum_in_every_case),
        cmocka_unit_test(test_clocks_before_samples),
        cmocka_unit_test(test_without_schedstat_samples_count),
        cmocka_unit_test(test_run_queue),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_dead_leader_and_unreadable),
        cmocka_unit_test(test_ended),
        cmocka_unit_test(test_find_by_inner_name),
        cmocka_unit_test(test_unknown_inner_names),
        cmocka_unit_test(test_tid_used_again),
        cmocka_unit_test(test_state_since),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_pid_used_again),
        cmocka_unit_test(test_unread_counters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

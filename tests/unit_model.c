/* unit_model - from samples to snapshots, sweep after sweep: merging, identity, states that sum,
 * verdicts, and the same answer for the same samples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model_build.h"

#define PID  100
#define ADDR UINT64_C(0x7f0000001000)

static void expect_sums(const struct snapshot *s)
{
    for (size_t i = 0; i < s->nprocesses; i++) {
        double total = 0;
        for (int k = 0; k < THREAD_STATES; k++)
            total += s->processes[i].states[k];
        assert_float_equal(total, s->processes[i].threads, 1e-6);
    }
}

static void test_nothing_before_the_first_sweep(void **state)
{
    (void)state;
    struct world *w = world_new();

    assert_null(model_snapshot(w->model));
    add_busy_process(w, PID, 2);
    probe(w, TICK);
    assert_null(model_snapshot(w->model));
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->elapsed, TICK);
    assert_string_equal(s->host, "db1");
    expect_sums(s);
    snapshot_free(s);
    world_free(w);
    model_free(NULL);
}

/* A stream of samples may begin at time 0. */
static void test_time_zero(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    w->mono = 0;
    mutex_convoy(p, ADDR, 103, 104, 2);
    sweep(w, 0);
    sweeps(w, 200, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->elapsed, 200 * TICK);
    assert_float_equal(only_lock(s)->waiters_avg_10s, 2, 1e-9);
    snapshot_free(s);
    world_free(w);
}

static void test_figures_of_a_convoy(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 10);

    mutex_convoy(p, ADDR, 103, 104, 5);
    for (int i = 0; i < 150; i++) {
        sweep(w, TICK / 2);
        probe(w, TICK / 4);
        probe(w, TICK / 4);
    }
    struct snapshot *s = snapshot_now(w);
    const struct snap_lock *l = only_lock(s);
    assert_int_equal(l->kind, KIND_MUTEX);
    assert_int_equal(l->confidence, CONF_CONFIRMED);
    assert_int_equal(l->waiters, 5);
    assert_int_equal(l->waiters_max, 5);
    assert_float_equal(l->waiters_avg_1s, 5, 1e-9);
    assert_float_equal(l->wait_share, 0.5, 1e-9);
    assert_float_equal(l->busy, 1, 1e-9);
    assert_int_equal(l->nwaiter_threads, 5);
    assert_int_equal(l->waiter_threads[0].tid, 104);
    assert_float_equal(l->waiter_threads[0].age_ms, 2990, 0.001);
    assert_int_equal(l->nhistory, 2);
    assert_int_equal(l->history[SNAP_HISTORY - 1], 5);
    assert_float_equal(s->processes[0].states[THREAD_LOCK], 5, 1e-9);
    assert_float_equal(s->self.sweep_hz, 50, 0.5);
    assert_float_equal(s->self.probe_hz, 100, 1);
    assert_int_equal(s->severity, SEVERITY_WARNING);
    assert_non_null(strstr(s->verdict, "5.0 threads wait (50 % of thread-time) for mutex"));
    expect_sums(s);
    snapshot_free(s);
    world_free(w);
}

/* Identity ------------------------------------------------------------------------------------ */

static void test_words_of_one_object_merge(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 12);

    waits(p, 101, ADDR + 8, 0x189, 3);
    waits(p, 102, ADDR + 8, 0x189, 3);
    waits(p, 103, ADDR + 12, 0x189, 3);
    put_rwlock(&word_at(p, ADDR + 8)->memory, -8, 2 << 3 | 3, 110);
    put_rwlock(&word_at(p, ADDR + 12)->memory, -12, 2 << 3 | 3, 110);
    waits(p, 104, ADDR + 64 + 40, 0x189, 0);
    waits(p, 105, ADDR + 64 + 44, 0x189, 0);
    put_cond(&word_at(p, ADDR + 64 + 40)->memory, -40, 1, 0);
    put_cond(&word_at(p, ADDR + 64 + 44)->memory, -44, 1, 1);
    sweeps(w, 3, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nlocks, 2);
    const struct snap_lock *l = only_lock(s);
    assert_int_equal(l->kind, KIND_RWLOCK);
    assert_int_equal(l->waiters, 3);
    assert_int_equal(l->address, ADDR);
    assert_int_equal(l->holders[0].tid, 110);
    assert_int_equal(l->holders[0].confidence, CONF_CONFIRMED);
    int exclusive = 0;
    for (size_t i = 0; i < 3; i++)
        exclusive += l->waiter_threads[i].mode == MODE_EXCLUSIVE;
    assert_int_equal(exclusive, 1);
    assert_int_equal(s->locks[1].kind, KIND_COND);
    assert_int_equal(s->locks[1].waiters, 2);
    snapshot_free(s);
    world_free(w);
}

static void test_one_shared_lock_of_two_processes(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p[2] = {add_busy_process(w, PID, 4), add_busy_process(w, 300, 4)};

    for (int i = 0; i < 2; i++) {
        uint64_t addr = ADDR + (uint64_t)i * 0x10000;
        waits(p[i], p[i]->fact.pid + 1, addr, FUTEX_WAIT, 2);
        put_mutex(&shared_word(p[i], addr, 77, 0x40)->memory, 2, 303, 128);
    }
    sweeps(w, 60, TICK);
    struct snapshot *s = snapshot_now(w);
    const struct snap_lock *l = only_lock(s);
    assert_int_equal(l->waiters, 2);
    assert_int_equal(l->pid, -1);
    assert_string_equal(l->path, "/dev/shm/pool");
    assert_int_equal(l->holders[0].tid, 303);
    assert_int_equal(l->holders[0].pid, 300);
    assert_float_equal(l->wait_share, 0.25, 1e-9);
    snapshot_free(s);
    world_free(w);
}

/* The map was not read yet when the first waiters came: they belong to the shared lock all the
 * same, though they sleep on. */
static void test_region_that_becomes_known(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    mutex_convoy(p, ADDR, 103, 104, 2);
    word_at(p, ADDR)->fact.region = REGION_UNKNOWN;
    sweeps(w, 5, TICK);
    shared_word(p, ADDR, 77, 0x40);
    sweeps(w, 2, TICK);
    struct snapshot *s = snapshot_now(w);
    for (size_t i = 0; i < s->nlocks; i++)
        assert_int_equal(s->locks[i].waiters, strncmp(s->locks[i].id, "shm:", 4) == 0 ? 2 : 0);
    snapshot_free(s);
    world_free(w);
}

/* Another program has other locks at the same address, even while less is known about them; those
 * of the former are gone with it. */
static void test_exec(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    mutex_convoy(p, ADDR, 103, 104, 2);
    sweeps(w, 5, TICK);
    p->fact.execs++;
    waits(p, 104, ADDR, 0x89, 7); /* a condition of another library */
    wakes(p, 105);
    word_at(p, ADDR)->memory = blank_view();
    sweeps(w, 5, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nlocks, 1);
    assert_null(snapshot_lock(s, "100:0x7f0000001000"));
    const struct snap_lock *new = snapshot_lock(s, "100.1:0x7f0000001000");
    assert_int_equal(new->waiters, 1);
    assert_int_equal(new->class, CLASS_SYNC);
    assert_float_equal(s->processes[0].states[THREAD_LOCK], 1, 1e-6); /* before the exec */
    snapshot_free(s);
    world_free(w);
}

/* A lock seen in the moment of a hand-over stays what it is known to be. */
static void test_known_kinds_stand(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);
    struct built_word *word = word_at(p, ADDR + 8);

    waits(p, 104, ADDR + 8, 0x189, 3);
    put_rwlock(&word->memory, -8, 1 << 3 | 3, 103);
    sweeps(w, 3, TICK);
    put_rwlock(&word->memory, -8, 1 << 3 | 1, 0);
    waits(p, 104, ADDR + 8, 0x189, 3);
    waits(p, 105, ADDR + 8, 0x189, 2);
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    const struct snap_lock *l = only_lock(s);
    assert_int_equal(s->nlocks, 1);
    assert_int_equal(l->kind, KIND_RWLOCK);
    assert_int_equal(l->waiters, 2);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(l->waiter_threads[i].mode,
                         l->waiter_threads[i].tid == 105 ? MODE_EXCLUSIVE : MODE_SHARED);
    snapshot_free(s);
    world_free(w);
}

/* Time ---------------------------------------------------------------------------------------- */

static void test_locks_leave_the_list_after_a_minute(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    mutex_convoy(p, ADDR, 103, 104, 2);
    sweeps(w, 50, TICK);
    wakes(p, 104);
    wakes(p, 105);
    for (int second = 1; second < 70; second++) {
        sweeps(w, 50, TICK);
        struct snapshot *s = snapshot_now(w);
        if (second < 60)
            assert_int_equal(only_lock(s)->waiters, 0);
        if (second == 11)
            assert_non_null(strstr(s->verdict, "no contention"));
        if (second > 62)
            assert_int_equal(s->nlocks, 0);
        snapshot_free(s);
    }
    world_free(w);
}

static void test_lock_top_was_stopped(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    mutex_convoy(p, ADDR, 103, 104, 2);
    sweeps(w, 63, TICK);
    sweep(w, 300 * NSEC_PER_SEC);
    struct snapshot *s = snapshot_now(w);
    const struct snap_lock *l = only_lock(s);
    assert_int_equal(l->waiters, 2);
    assert_float_equal(l->waiters_avg_60s, 2, 1e-9);
    assert_int_equal(l->holders[0].tid, 103);
    assert_int_equal(l->waiter_threads[0].tid, 104);
    assert_true(l->waiter_threads[0].age_ms > 300000);
    expect_sums(s);
    snapshot_free(s);
    world_free(w);
}

/* Only a probe came since: what the windows do not hold is not known, and no alarm. */
static void test_figures_without_a_sweep(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    mutex_convoy(p, ADDR, 103, 104, 1);
    mutex_convoy(p, ADDR + 64, 103, 105, 1);
    sweeps(w, 5, TICK);
    snapshot_free(snapshot_now(w));
    probe(w, 20 * NSEC_PER_SEC);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nlocks, 2);
    assert_true(strcmp(s->locks[0].id, s->locks[1].id) < 0);
    for (size_t i = 0; i < 2; i++) {
        assert_true(isnan(s->locks[i].waiters_avg_10s));
        assert_true(isnan(s->locks[i].wait_share));
        assert_float_equal(s->locks[i].waiters_avg_60s, 1, 1e-9);
    }
    expect_sums(s); /* as last told */
    snapshot_free(s);
    world_free(w);
}

/* Threads and processes ----------------------------------------------------------------------- */

static void test_states_sum_while_threads_come_and_go(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 20);
    pid_t next = 1000;
    unsigned random = 3;

    for (int i = 0; i < 400; i++) {
        for (int k = 0; k < 5; k++) {
            random = random * 1103515245u + 12345u;
            unsigned pick = random / 65536;
            pid_t tid = p->threads[pick % p->n].fact.tid;
            switch (pick / 64 % 7) {
            case 0:
                add_thread(w, p, next++);
                break;
            case 1:
                if (p->n > 2)
                    end_thread(p, tid);
                break;
            case 2:
                waits(p, tid, ADDR, 0x80, 2);
                break;
            case 3:
                calls(p, tid, CALL_epoll_wait);
                break;
            case 4:
                wakes(p, tid)->fact.seen = SEEN_UNREADABLE;
                break;
            case 5:
                wakes(p, tid)->fact.seen = SEEN_STOPPED;
                break;
            default:
                wakes(p, tid)->fact.run_ns += 5000000;
            }
        }
        p->threads[0].fact.seen = i % 3 ? SEEN_DEAD : SEEN_ACTIVE;
        sweep(w, TICK);
        if (i % 7 == 0) {
            struct snapshot *s = snapshot_now(w);
            expect_sums(s);
            snapshot_free(s);
        }
    }
    world_free(w);
}

/* A process ends: told once, whichever sweeps come before the snapshot, and its facts are not
 * looked at when they are gone. */
static void test_process_that_ends(void **state)
{
    (void)state;
    for (int later = 0; later < 3; later++) {
        struct world *w = world_new();
        add_busy_process(w, PID, 3);
        struct built_process *p = add_busy_process(w, 300, 3);
        mutex_convoy(p, ADDR, 300, 301, 2);
        sweeps(w, 5, TICK);
        snapshot_free(snapshot_now(w));
        p->fact.ended = true;
        sweep(w, TICK);
        p->absent = true;
        sweeps(w, later, TICK);
        struct snapshot *s = snapshot_now(w);
        assert_int_equal(s->nprocesses, 2);
        assert_true(s->processes[1].ended);
        assert_int_equal(s->processes[1].threads, 0);
        expect_sums(s);
        snapshot_free(s);
        sweep(w, TICK);
        s = snapshot_now(w);
        assert_int_equal(s->nprocesses, 1);
        expect_sums(s);
        snapshot_free(s);
        world_free(w);
    }
}

static void test_last_process_ends(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 3);

    sweeps(w, 5, TICK);
    p->fact.ended = true;
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_string_equal(s->verdict, "nothing is left to watch");
    snapshot_free(s);
    world_free(w);
}

/* One that holds a lock from outside is not among the watched, and its own waits are no share of
 * their time. */
static void test_outsiders_do_not_count(void **state)
{
    (void)state;
    struct world *w = world_new();
    add_busy_process(w, PID, 3);
    struct built_process *b = add_busy_process(w, 300, 1);

    b->fact.outsider = true;
    mutex_convoy(b, ADDR, 4711, 300, 1);
    sweeps(w, 5, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nprocesses, 1);
    assert_int_equal(s->processes[0].pid, PID);
    assert_true(isnan(only_lock(s)->wait_share));
    snapshot_free(s);
    world_free(w);
}

/* Verdicts ------------------------------------------------------------------------------------ */

static void test_idle_pool_is_no_contention(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 270);

    for (int i = 0; i < 200; i++)
        waits(p, PID + i, ADDR + 40, 0x189, 0);
    put_cond(&word_at(p, ADDR + 40)->memory, -40, 200, 0);
    for (int i = 200; i < 270; i++)
        calls(p, PID + i, i < 250 ? CALL_nanosleep : CALL_recvfrom);
    sweeps(w, 60, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nlocks, 1);
    assert_int_equal(s->locks[0].class, CLASS_SYNC);
    assert_float_equal(s->processes[0].states[THREAD_SYNC], 200, 1e-6);
    assert_int_equal(s->severity, SEVERITY_INFO);
    assert_string_equal(s->verdict, "no contention (270 threads: 200 sync, 50 sleep, 20 net)");
    snapshot_free(s);
    world_free(w);
}

static void test_unreadable_majority(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 10);

    for (int i = 0; i < 6; i++)
        wakes(p, PID + i)->fact.seen = SEEN_UNREADABLE;
    sweeps(w, 60, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->processes[0].unreadable, 6);
    assert_string_equal(s->verdict, "cannot tell: 6 of 10 threads may not be read");
    snapshot_free(s);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_before_the_first_sweep),
        cmocka_unit_test(test_time_zero),
        cmocka_unit_test(test_figures_of_a_convoy),
        cmocka_unit_test(test_words_of_one_object_merge),
        cmocka_unit_test(test_one_shared_lock_of_two_processes),
        cmocka_unit_test(test_region_that_becomes_known),
        cmocka_unit_test(test_exec),
        cmocka_unit_test(test_known_kinds_stand),
        cmocka_unit_test(test_locks_leave_the_list_after_a_minute),
        cmocka_unit_test(test_lock_top_was_stopped),
        cmocka_unit_test(test_figures_without_a_sweep),
        cmocka_unit_test(test_states_sum_while_threads_come_and_go),
        cmocka_unit_test(test_process_that_ends),
        cmocka_unit_test(test_last_process_ends),
        cmocka_unit_test(test_outsiders_do_not_count),
        cmocka_unit_test(test_idle_pool_is_no_contention),
        cmocka_unit_test(test_unreadable_majority),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

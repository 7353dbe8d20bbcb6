/* unit_chain - who waits for whom, to the root, and what stands there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "chain_build.h"

/* Ends ---------------------------------------------------------------------------------- */

static void test_one_behind_a_runner(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    wants(p, 104, A, 103);
    for (int i = 0; i < 3; i++) {
        thread_of(p, 103)->fact.run_ns += 1000;
        sweep(w, TICK);
    }
    struct snapshot *s = snapshot_now(w);
    const struct snap_chain *c = only_chain(s);
    assert_string_equal(c->text,
                        "t104[104] waits for mutex 0x7f0000001000 held by t103[103], which runs");
    assert_int_equal(c->end, CHAIN_RUNS);
    assert_int_equal(c->root.tid, 103);
    assert_null(c->root.lock);
    assert_int_equal(c->npath, 2);
    assert_int_equal(c->path[0].tid, 104);
    assert_string_equal(c->path[0].lock, "100:0x7f0000001000");
    assert_int_equal(c->path[1].tid, 103);
    assert_null(c->detail);
    snapshot_free(s);
    world_free(w);
}

/* The last link is mostly the answer. */
static void test_chain_ends_outside(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 12);

    mutex_convoy(p, A, 101, 104, 2);
    wants(p, 101, B, 102);
    calls(p, 102, CALL_nanosleep);
    sweeps(w, 3, TICK);
    expect_text(w, CHAIN_OUTSIDE, 3, 2,
                "2 wait for mutex 0x7f0000001000 held by t101[101], which waits for mutex "
                "0x7f0000001100 held by t102[102], sleeping in nanosleep");
    mutex_convoy(p, B, 102, 107, 3); /* more of them at the second lock */
    struct built_thread *t = wakes(p, 102);
    t->fact.seen = SEEN_CALL;
    t->fact.call = CALL_write;
    t->fact.fd = 1;
    t->fact.fd_kind = FD_PIPE;
    t->fact.fd_path = "pipe:[77]";
    sweeps(w, 3, TICK);
    struct snapshot *s = snapshot_now(w);
    const struct snap_chain *c = only_chain(s);
    assert_string_equal(c->text,
                        "2 wait for mutex 0x7f0000001000 held by t101[101], which waits for mutex "
                        "0x7f0000001100 (as do 3 more) held by t102[102], blocked in write fd 1 "
                        "pipe:[77] (reader is not draining)");
    assert_string_equal(c->detail, "write fd 1 pipe:[77] (reader is not draining)");
    assert_int_equal(c->blocked, 6);
    assert_int_equal(c->root.state, THREAD_PIPE);
    snapshot_free(s);
    world_free(w);
}

/* Several branches behind one root: the longest is told, and how many there are in all. */
static void test_branches(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 12);

    wants(p, 104, A, 101);
    wants(p, 101, B, 102);
    mutex_convoy(p, C, 102, 105, 4);
    calls(p, 102, CALL_pause);
    sweeps(w, 3, TICK);
    expect_text(w, CHAIN_OUTSIDE, 6, 2,
                "t104[104] waits for mutex 0x7f0000001000 held by t101[101], which waits for mutex "
                "0x7f0000001100 held by t102[102], sleeping in pause; 6 blocked in all");
    world_free(w);
}

/* The holder joins a thread that sleeps in a condition variable: no deadlock, nobody holds that. */
static void test_chain_through_a_join(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 12);

    mutex_convoy(p, A, PID, 104, 4);
    waits(p, PID, C, 0x109, 103);
    put32(&word_at(p, C)->memory, 0, 103);
    waits(p, 103, B + 40, 0x189, 0);
    put_cond(&word_at(p, B + 40)->memory, -40, 1, 0);
    sweeps(w, 20, TICK);
    struct snapshot *s = snapshot_now(w);
    const struct snap_chain *c = only_chain(s);
    assert_string_equal(c->text,
                        "4 wait for mutex 0x7f0000001000 held by t100[100], which waits for "
                        "t103[103] to end (join), which sleeps in a condition variable (nobody "
                        "holds it)");
    assert_int_equal(c->end, CHAIN_HAND_OFF);
    assert_int_equal(c->blocked, 5);
    assert_int_equal(c->depth, 2);
    assert_int_equal(s->severity, SEVERITY_WARNING);
    assert_non_null(strstr(s->verdict, "which sleeps in a condition variable"));
    snapshot_free(s);
    world_free(w);
}

/* A join is no lock: it stands behind all others, and is never contention. */
static void test_join_alone(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 12);

    waits(p, PID, C, 0x109, 103);
    put32(&word_at(p, C)->memory, 0, 103);
    calls(p, 103, CALL_pause);
    sweeps(w, 20, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_string_equal(only_chain(s)->text,
                        "t100[100] waits for t103[103] to end (join), sleeping in pause");
    assert_int_equal(s->severity, SEVERITY_INFO);
    assert_non_null(strstr(s->verdict, "no contention"));
    snapshot_free(s);
    waits(p, 105, C + 64, 0x109, 104); /* two more joins on the way to one root */
    put32(&word_at(p, C + 64)->memory, 0, 104);
    waits(p, 104, C + 128, 0x109, 106);
    put32(&word_at(p, C + 128)->memory, 0, 106);
    wants(p, 108, A, 107);
    sweeps(w, 3, TICK);
    s = snapshot_now(w);
    assert_int_equal(s->nchains, 3);
    assert_int_equal(s->chains[0].root.tid, 107);
    assert_int_equal(s->chains[1].root.tid, 106);
    assert_int_equal(s->chains[2].root.tid, 103);
    snapshot_free(s);
    world_free(w);
}

/* Idle threads wait for nobody. */
static void test_no_chains(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    for (pid_t tid = 101; tid < 105; tid++)
        waits(p, tid, B + 40, 0x189, 0);
    put_cond(&word_at(p, B + 40)->memory, -40, 4, 0);
    sweeps(w, 3, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nchains, 0);
    snapshot_free(s);
    mutex_convoy(p, A, 0, 101, 2); /* a hand-over */
    put_mutex(&word_at(p, A)->memory, 0, 0, 0);
    sweeps(w, 3, TICK);
    s = snapshot_now(w);
    assert_int_equal(s->nchains, 0);
    snapshot_free(s);
    world_free(w);
}

static void test_unnamed_ends(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 12);

    word_at(p, B)->fact.region = REGION_LIBC; /* bare: no owner */
    put32(&word_at(p, B)->memory, 0, 2);
    waits(p, 101, B, PRIVATE_WAIT, 2);
    waits(p, 102, B, PRIVATE_WAIT, 2);
    sweeps(w, 3, TICK);
    expect_text(w, CHAIN_UNNAMED, 2, 1,
                "2 wait for libc 0x7f0000001100; its holder is not recorded by this lock");
    mutex_convoy(p, A, 101, 104, 2); /* who waits there holds a mutex */
    sweeps(w, 3, TICK);
    struct snapshot *s = snapshot_now(w);
    const struct snap_chain *c = only_chain(s);
    assert_string_equal(c->text,
                        "2 wait for mutex 0x7f0000001000 held by t101[101], which waits for libc "
                        "0x7f0000001100; not recorded by this lock");
    assert_int_equal(c->blocked, 4);
    assert_int_equal(c->depth, 2);
    assert_int_equal(c->root.tid, 101);
    assert_string_equal(c->root.lock, "100:0x7f0000001100");
    assert_int_equal(c->npath, 2);
    snapshot_free(s);
    world_free(w);
}

/* A word that only its value makes look like a lock is no chain of its own. */
static void test_unproven_lock_is_no_chain(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 12);

    put32(&word_at(p, B)->memory, 0, 2);
    waits(p, 101, B, PRIVATE_WAIT, 2);
    sweeps(w, 3, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nchains, 0);
    snapshot_free(s);
    wants(p, 104, A, 101);
    sweeps(w, 3, TICK);
    expect_part(w, CHAIN_UNNAMED, "held by t101[101], which waits for futex-lock 0x7f0000001100");
    world_free(w);
}

/* Owners that are gone ------------------------------------------------------------------ */

/* The source answers what it was asked, as long as it is asked. */
static void answer_owner(struct world *w, const struct owner_fact *fact)
{
    struct request r[8];
    size_t n = model_requests(w->model, r, ARRAY_SIZE(r));

    for (size_t i = 0; i < n; i++) {
        if (r[i].kind != REQUEST_OWNER)
            continue;
        assert_int_equal(r[i].tid, fact->tid);
        assert_int_equal(r[i].pid, fact->pid);
        w->owners[w->nowners++] = *fact;
    }
}

static void sweep_and_answer(struct world *w, int n, const struct owner_fact *fact)
{
    for (int i = 0; i < n; i++) {
        sweep(w, TICK);
        answer_owner(w, fact);
    }
}

static void test_orphan(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 12);
    struct owner_fact gone = {.pid = PID, .tid = 9120};

    mutex_convoy(p, A, 9120, 104, 3);
    sweep_and_answer(w, 20, &gone);
    expect_part(w, CHAIN_UNNAMED, "owner TID 9120 is not among the threads that can be seen");
    sweep_and_answer(w, 20, &gone);
    struct snapshot *s = snapshot_now(w);
    const struct snap_chain *c = only_chain(s);
    assert_string_equal(c->text, "3 wait for mutex 0x7f0000001000; its owner TID 9120 no longer "
                                 "exists (ended holding it): never released");
    assert_int_equal(c->end, CHAIN_GONE);
    assert_int_equal(c->blocked, 3);
    assert_string_equal(c->root.lock, "100:0x7f0000001000");
    assert_int_equal(s->severity, SEVERITY_CRITICAL);
    assert_string_equal(s->verdict, c->text);
    snapshot_free(s);
    world_free(w);
}

static void test_held_across_fork(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 2);
    struct owner_fact parent = {
        .pid = PID, .tid = 10891, .tgid = 10889, .start_ticks = 700, .comm = "srv", .parent = true};

    wants(p, 101, A, 10891);
    sweep_and_answer(w, 40, &parent);
    expect_text(w, CHAIN_GONE, 1, 1,
                "t101[101] waits for mutex 0x7f0000001000; owner TID 10891 is a thread of another "
                "process (parent 10889 srv): the lock was held across fork()");
    /* One that is younger than the process cannot have been copied: the number is used again. */
    parent.start_ticks = 900;
    sweep_and_answer(w, 40, &parent);
    expect_part(w, CHAIN_GONE, "TID 10891 no longer exists (ended holding it; srv has that number");
    parent.tgid = PID; /* it is one of us, and not listed yet */
    sweep_and_answer(w, 40, &parent);
    expect_part(w, CHAIN_UNNAMED, "owner TID 10891 is not among the threads that can be seen");
    world_free(w);
}

/* A robust mutex's mark: whoever comes next is told, so only one that stays is worth a word. */
static void test_owner_died(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    waits(p, 104, A, FUTEX_WAIT, 103 | WORD_WAITERS);
    put_mutex(&word_at(p, A)->memory, 103 | WORD_WAITERS, 103, 16);
    sweeps(w, 3, TICK);
    put_mutex(&word_at(p, A)->memory, WORD_OWNER_DIED | WORD_WAITERS, 103, 16);
    sweeps(w, 3, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nchains, 0);
    snapshot_free(s);
    sweeps(w, 40, TICK);
    expect_text(w, CHAIN_GONE, 1, 1,
                "t104[104] waits for mutex-robust 0x7f0000001000; its owner "
                "died while holding it");
    world_free(w);
}

/* A free word with a sleeper: a hand-over, unless it lasts. */
static void test_missed_wake_up(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    wants(p, 104, A, 103);
    sweeps(w, 3, TICK);
    put_mutex(&word_at(p, A)->memory, 0, 0, 0);
    sweeps(w, 90, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nchains, 0);
    snapshot_free(s);
    sweeps(w, 210, TICK);
    expect_part(w, CHAIN_UNNAMED,
                "t104[104] waits for mutex 0x7f0000001000; word says free but TID "
                "104 has slept on it for 6 s: missed wake-up?");
    s = snapshot_now(w);
    assert_non_null(strstr(only_lock(s)->holders->detail, "missed wake-up?"));
    assert_int_equal(only_lock(s)->holders->tid, -1);
    snapshot_free(s);
    waits(p, 104, A, PRIVATE_WAIT, 2); /* it has run */
    sweeps(w, 3, TICK);
    s = snapshot_now(w);
    assert_int_equal(s->nchains, 0);
    snapshot_free(s);
    world_free(w);
}

/* Others take it meanwhile, as a probe sees: then who sleeps on is only unlucky. */
static void test_no_missed_wake_up_when_it_is_taken(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);
    struct built_word *word;

    wants(p, 104, A, 103);
    sweeps(w, 3, TICK);
    for (int i = 0; i < 200; i++) {
        word = word_at(p, A);
        put_mutex(&word->memory, 0, 0, 0);
        sweep(w, TICK / 2);
        put_mutex(&word->memory, 1, 103, 0);
        probe(w, TICK / 2);
    }
    put_mutex(&word_at(p, A)->memory, 0, 0, 0);
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nchains, 0);
    snapshot_free(s);
    world_free(w);
}

/* Rwlocks ------------------------------------------------------------------------------- */

static void test_rwlock_behind_a_writer(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    waits(p, 104, A + 8, 0x189, 3);
    put_rwlock(&word_at(p, A + 8)->memory, -8, 3, 103);
    calls(p, 103, CALL_pause);
    sweeps(w, 3, TICK);
    expect_text(w, CHAIN_OUTSIDE, 1, 1,
                "t104[104] waits for rwlock 0x7f0000001000 held by t103[103], sleeping in pause");
    struct snapshot *s = snapshot_now(w);
    assert_string_equal(only_lock(s)->waiter_threads[0].blocked_by, "hard");
    snapshot_free(s);
    world_free(w);
}

static const struct snap_waiter *waiter(const struct snapshot *s, pid_t tid)
{
    const struct snap_lock *l = only_lock(s);

    for (size_t i = 0; i < l->nwaiter_threads; i++) {
        if (l->waiter_threads[i].tid == tid)
            return &l->waiter_threads[i];
    }
    fail_msg("no waiter %d", tid);
    return NULL;
}

/* A reader asks again behind a queued writer. Where a mutex has its owner stands a 2: kthreadd. */
static void test_recursive_read(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    waits(p, 103, A + 8, 0x189, 2);
    put_rwlock(&word_at(p, A + 8)->memory, -8, 1 << 3 | 4 | 2, 0);
    waits(p, 101, A, 0x189, 14);
    put_rwlock(&word_at(p, A)->memory, 0, 1 << 3 | 4 | 2, 0);
    sweeps(w, 3, TICK);
    expect_part(w, CHAIN_UNNAMED, "1 reader holds it (not recorded)");
    sweeps(w, 40, TICK);
    expect_part(w, CHAIN_UNNAMED,
                "2 wait for rwlock 0x7f0000001000; 1 reader holds it (not recorded), a writer is "
                "queued, and t101[101] asks to read again: if that is the reader, it waits for "
                "itself");
    struct snapshot *s = snapshot_now(w);
    assert_string_equal(waiter(s, 101)->blocked_by, "soft");
    assert_string_equal(waiter(s, 103)->blocked_by, "hard");
    char *json = json_of(s);
    assert_null(strstr(json, "kthreadd"));
    assert_null(strstr(json, "\"tid\":2,"));
    free(json);
    snapshot_free(s);
    world_free(w);
}

/* Cost ---------------------------------------------------------------------------------- */

static double cpu_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

/* A long chain, and many waiters, are resolved in one pass: twice as many take about twice as long,
 * never four times. */
static double cost_of_list(int n)
{
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, n + 1);
    double best = 1e9;

    for (pid_t i = 0; i < n; i++)
        wants(p, PID + i, A + 64 * (uint64_t)i, PID + i + 1);
    sweeps(w, 3, TICK);
    for (int i = 0; i < 5; i++) {
        double began = cpu_us();
        struct snapshot *s = snapshot_now(w);
        best = MIN(best, cpu_us() - began);
        assert_int_equal(s->nchains, 1);
        assert_int_equal(s->chains[0].depth, n);
        assert_int_equal(s->chains[0].blocked, n);
        assert_true(strlen(s->chains[0].text) < 1000);
        snapshot_free(s);
    }
    world_free(w);
    return best;
}

static void test_long_chain(void **state)
{
    (void)state;
    double small = cost_of_list(500), large = cost_of_list(2000);

    print_message("snapshot of a chain of 500: %.0f us, of 2000: %.0f us\n", small, large);
    assert_true(large < small * 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_behind_a_runner),
        cmocka_unit_test(test_chain_ends_outside),
        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_chain_through_a_join),
        cmocka_unit_test(test_join_alone),
        cmocka_unit_test(test_no_chains),
        cmocka_unit_test(test_unnamed_ends),
        cmocka_unit_test(test_unproven_lock_is_no_chain),
        cmocka_unit_test(test_orphan),
        cmocka_unit_test(test_held_across_fork),
        cmocka_unit_test(test_owner_died),
        cmocka_unit_test(test_missed_wake_up),
        cmocka_unit_test(test_no_missed_wake_up_when_it_is_taken),
        cmocka_unit_test(test_rwlock_behind_a_writer),
        cmocka_unit_test(test_recursive_read),
        cmocka_unit_test(test_long_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

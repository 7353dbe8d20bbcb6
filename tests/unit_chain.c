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

#include "../src/signature.h"
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

/* How surely each link is known ---------------------------------------------------------- */

/* The second lock is seen to change hands between the two reads. */
static void test_link_of_the_moment(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 12);

    mutex_convoy(p, A, 101, 104, 2);
    wants(p, 101, B, 103);
    calls(p, 102, CALL_nanosleep);
    sweeps(w, 3, TICK);
    struct built_word *word = word_at(p, B);
    word->changes = true;
    word->later = word->memory;
    put_mutex(&word->later, 2, 102, 0);
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    const struct snap_chain *c = only_chain(s);
    assert_string_equal(c->text,
                        "2 wait for mutex 0x7f0000001000 held by t101[101], which waits for mutex "
                        "0x7f0000001100 held by t102[102] (at this moment), sleeping in nanosleep");
    assert_int_equal(c->confidence, CONF_LIKELY);
    assert_int_equal(c->path[0].confidence, CONF_CONFIRMED);
    assert_int_equal(c->path[1].confidence, CONF_LIKELY);
    assert_int_equal(c->path[2].confidence, CONF_UNKNOWN);
    snapshot_free(s);
    sweep(w, TICK); /* the same at both reads */
    s = snapshot_now(w);
    c = only_chain(s);
    assert_null(strstr(c->text, "(at this moment)"));
    assert_int_equal(c->confidence, CONF_CONFIRMED);
    assert_int_equal(c->path[1].confidence, CONF_CONFIRMED);
    snapshot_free(s);
    world_free(w);
}

static void test_first_link_of_the_moment(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 12);

    wants(p, 104, A, 103);
    calls(p, 103, CALL_pause);
    sweep(w, TICK); /* a new word has been read once only */
    expect_text(w, CHAIN_OUTSIDE, 1, 1,
                "t104[104] waits for mutex 0x7f0000001000 held by t103[103] (at this moment), "
                "sleeping in pause");
    sweep(w, TICK);
    expect_text(w, CHAIN_OUTSIDE, 1, 1,
                "t104[104] waits for mutex 0x7f0000001000 held by t103[103], sleeping in pause");
    world_free(w);
}

/* The next sweep tells that ADDR is called NAME in P's symbols. */
static void name_comes(struct world *w, const struct built_process *p, uint64_t addr,
                       const char *name)
{
    w->names[w->nnames++] = (struct name_fact){
        .pid = p->fact.pid,
        .addr = addr,
        .start_ticks = p->fact.start_ticks,
        .execs = p->fact.execs,
        .name = name,
    };
}

/* What the user calls a lock, it is called everywhere. */
static void test_given_names(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 12);
    char err[64];
    struct name_rules *rules = name_rules_new("jobs+* the queue\n", err, sizeof(err));

    assert_non_null(rules);
    model_configure(w->model, &(struct model_config){.names = rules});
    wants(p, 104, A, 101);
    wants(p, 101, B, 102);
    calls(p, 102, CALL_pause);
    sweep(w, TICK);
    name_comes(w, p, A, "log_lock");
    name_comes(w, p, B, "jobs+0x40");
    sweeps(w, 20, TICK);
    expect_text(w, CHAIN_OUTSIDE, 2, 2,
                "t104[104] waits for mutex log_lock held by t101[101], which waits for the queue "
                "held by t102[102], sleeping in pause");
    struct snapshot *s = snapshot_now(w);
    assert_string_equal(snapshot_lock(s, "100:0x7f0000001100")->name, "the queue");
    assert_string_equal(snapshot_lock(s, "100:0x7f0000001000")->name, "log_lock");
    assert_string_equal(snapshot_lock(s, "100:0x7f0000001000")->holders->detail,
                        "waits for the queue held by t102[102], sleeping in pause");
    snapshot_free(s);
    world_free(w);
    name_rules_free(rules);
}

/* Their places in the file tell them apart. */
static void test_two_locks_in_one_file(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    for (int i = 0; i < 2; i++) {
        struct built_word *word = shared_word(p, A + 64 * (uint64_t)i, 77, 64 * (uint64_t)i);
        waits(p, 103 + i, A + 64 * (uint64_t)i, FUTEX_WAIT, 2);
        put_mutex(&word->memory, 2, (uint32_t)(102 + i), 128);
        word->fact.path = "/dev/shm/pool";
    }
    calls(p, 102, CALL_pause);
    sweeps(w, 3, TICK);
    expect_text(w, CHAIN_OUTSIDE, 2, 2,
                "t104[104] waits for mutex /dev/shm/pool+0x40 held by t103[103], which waits for "
                "mutex /dev/shm/pool+0x0 held by t102[102], sleeping in pause");
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
        cmocka_unit_test(test_link_of_the_moment),
        cmocka_unit_test(test_first_link_of_the_moment),
        cmocka_unit_test(test_given_names),
        cmocka_unit_test(test_two_locks_in_one_file),
        cmocka_unit_test(test_rwlock_behind_a_writer),
        cmocka_unit_test(test_recursive_read),
        cmocka_unit_test(test_long_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* unit_deadlock - what is a deadlock, and what only looks like one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "chain_build.h"

/* Deadlocks ----------------------------------------------------------------------------- */

static void test_abba_needs_its_time(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 4);

    abba(p);
    sweeps(w, 2, TICK); /* two sweeps, 20 ms apart */
    expect_cycles(w, 0);
    sweep(w, 29 * NSEC_PER_MSEC);
    expect_cycles(w, 0);
    sweep(w, NSEC_PER_MSEC);
    expect_cycles(w, 1);
    world_free(w);
}

static void test_abba(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 8);

    abba(p);
    mutex_convoy(p, A, 101, 104, 3); /* queued behind */
    sweep(w, TICK);
    sweep(w, 60 * NSEC_PER_MSEC);
    struct snapshot *s = snapshot_now(w);
    const struct snap_chain *c = only_chain(s);
    assert_string_equal(c->text,
                        "DEADLOCK 2 threads: t101[101] holds mutex 0x7f0000001000, wants mutex "
                        "0x7f0000001100 <- t102[102] holds mutex 0x7f0000001100, wants mutex "
                        "0x7f0000001000; 3 more queued behind");
    assert_int_equal(c->end, CHAIN_CYCLE);
    assert_int_equal(c->blocked, 5);
    assert_int_equal(c->depth, 2);
    assert_int_equal(c->npath, 2);
    assert_int_equal(c->root.tid, 101);
    assert_int_equal(c->path[1].tid, 102);
    assert_string_equal(c->path[0].lock, "100:0x7f0000001100");
    assert_string_equal(s->verdict, c->text);
    assert_int_equal(s->severity, SEVERITY_CRITICAL);
    /* Whoever is named as a holder on the way leads into it. */
    const struct snap_lock *a = snapshot_lock(s, "100:0x7f0000001000");
    assert_string_equal(a->holders->detail,
                        "waits for mutex 0x7f0000001100 held by t102[102], which waits for mutex "
                        "0x7f0000001000 (as do 3 more) held by t101[101], and so on");
    snapshot_free(s);
    world_free(w);
}

static void test_four_hundred_scans_of_a_deadlock(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 4);

    abba(p);
    sweeps(w, 4, TICK);
    for (int i = 0; i < 400; i++) {
        sweep(w, TICK);
        expect_cycles(w, 1);
    }
    world_free(w);
}

/* One of them ran in between: it may have let go and come back. */
static void test_a_run_breaks_the_proof(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 4);

    abba(p);
    for (int i = 0; i < 50; i++) {
        sweeps(w, 2, TICK);
        waits(p, 102, A, PRIVATE_WAIT, 2); /* the same call again, and another run count */
        sweep(w, TICK);
        expect_cycles(w, 0);
    }
    sweeps(w, 2, TICK);
    expect_cycles(w, 0);
    sweep(w, TICK);
    expect_cycles(w, 1);
    world_free(w);
}

/* A word that changes its mind between the two reads proves nothing at this sweep. */
static void test_reads_must_agree(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 4);
    struct built_word *word;

    abba(p);
    sweeps(w, 6, TICK);
    expect_cycles(w, 1);
    word = word_at(p, A);
    word->changes = true;
    word->later = word->memory;
    put_mutex(&word->memory, 2, 103, 0);
    sweep(w, TICK);
    expect_cycles(w, 0);
    world_free(w);
}

static void test_no_memory_no_claim(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 4);

    abba(p);
    word_at(p, A)->hidden = word_at(p, B)->hidden = true;
    sweeps(w, 10, TICK);
    expect_cycles(w, 0);
    world_free(w);
}

static void test_three_and_those_behind(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 12);

    wants(p, 103, A, 101);
    wants(p, 101, B, 102);
    wants(p, 102, C, 103);
    wants(p, 105, C + 64, 104); /* behind one that is queued itself */
    wants(p, 104, A, 101);
    sweeps(w, 5, TICK);
    struct snapshot *s = snapshot_now(w);
    const struct snap_chain *c = only_chain(s);
    assert_int_equal(c->depth, 3);
    assert_int_equal(c->blocked, 5);
    assert_int_equal(c->path[0].tid, 101);
    assert_int_equal(c->path[1].tid, 102);
    assert_int_equal(c->path[2].tid, 103);
    assert_non_null(strstr(c->text, "DEADLOCK 3 threads: "));
    assert_non_null(strstr(c->text, "; 2 more queued behind"));
    snapshot_free(s);
    world_free(w);
}

static void test_two_deadlocks(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 12);

    abba(p);
    wants(p, 103, C, 104);
    wants(p, 104, C + 64, 103);
    sweeps(w, 5, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(cycles(s), 2);
    assert_non_null(strstr(s->verdict, "; and 1 more such"));
    snapshot_free(s);
    world_free(w);
}

static void test_large_cycle_is_cut_short(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 100);

    for (pid_t i = 0; i < 100; i++)
        wants(p, PID + i, A + 64 * (uint64_t)i, PID + (i + 1) % 100);
    sweeps(w, 5, TICK);
    struct snapshot *s = snapshot_now(w);
    const struct snap_chain *c = only_chain(s);
    assert_int_equal(c->depth, 100);
    assert_int_equal(c->npath, 100);
    assert_non_null(strstr(c->text, "DEADLOCK 100 threads: t100[100]"));
    assert_non_null(strstr(c->text, " <- ... (92 more)"));
    assert_true(strlen(c->text) < 1000);
    snapshot_free(s);
    world_free(w);
}

static void test_timed_wait_in_a_cycle(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 4);

    abba(p);
    thread_of(p, 102)->fact.futex.timed = true;
    sweeps(w, 90, TICK); /* 102 may have been woken, and wait for a CPU */
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nchains, 0);
    snapshot_free(s);
    sweeps(w, 20, TICK);
    expect_text(w, CHAIN_CYCLE_TIMED, 2, 2,
                "2 threads wait in a circle, until a timeout: t101[101] holds mutex "
                "0x7f0000001000, wants mutex 0x7f0000001100 <- t102[102] holds mutex "
                "0x7f0000001100, wants mutex 0x7f0000001000 until its timeout");
    s = snapshot_now(w);
    assert_string_equal(s->verdict, only_chain(s)->text);
    assert_int_equal(s->severity, SEVERITY_WARNING);
    char *json = json_of(s);
    assert_non_null(strstr(json, "\"end\":\"cycle-timed\""));
    assert_non_null(strstr(json, "\"cycle\":false"));
    free(json);
    snapshot_free(s);
    world_free(w);
}

/* Deadlocks stand first, then circles that time out. */
static void test_deadlock_beside_a_timed_circle(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 20);

    abba(p);
    mutex_convoy(p, A, 101, 110, 5); /* more behind it than behind the other */
    thread_of(p, 102)->fact.futex.timed = true;
    wants(p, 103, C, 104);
    wants(p, 104, C + 64, 103);
    sweeps(w, 120, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nchains, 2);
    assert_true(s->chains[0].cycle);
    assert_int_equal(s->chains[1].end, CHAIN_CYCLE_TIMED);
    assert_string_equal(s->verdict, s->chains[0].text);
    assert_int_equal(s->severity, SEVERITY_CRITICAL);
    snapshot_free(s);
    world_free(w);
}

/* 101 holds A and joins 102, which wants A. */
static void test_join_in_a_cycle(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 4);

    waits(p, 101, C, 0x109, 102);
    put32(&word_at(p, C)->memory, 0, 102);
    wants(p, 102, A, 101);
    sweeps(w, 5, TICK);
    expect_text(w, CHAIN_CYCLE, 2, 2,
                "DEADLOCK 2 threads: t101[101] holds mutex 0x7f0000001000, waits for t102[102] to "
                "end (join) <- t102[102] wants mutex 0x7f0000001000");
    world_free(w);
}

static struct built_word *shared_mutex(struct built_process *p, uint64_t addr, uint64_t offset,
                                       pid_t owner, pid_t waiter)
{
    struct built_word *word = shared_word(p, addr, 77, offset);

    waits(p, waiter, addr, FUTEX_WAIT, 2);
    put_mutex(&word->memory, 2, (uint32_t)owner, 128);
    return word;
}

static void test_across_processes(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *a = add_busy_process(w, PID, 4), *b = add_busy_process(w, 300, 4);

    shared_mutex(a, A, 0x40, 301, 101);
    shared_mutex(b, 0x9000, 0x80, 101, 301);
    sweeps(w, 5, TICK);
    struct snapshot *s = snapshot_now(w);
    const struct snap_chain *c = only_chain(s);
    assert_true(c->cycle);
    assert_int_equal(c->path[0].pid, PID);
    assert_int_equal(c->path[1].pid, 300);
    snapshot_free(s);
    world_free(w);
}

/* 101 prints with A held; 102 holds the stream and wants A. */
static void test_cycle_through_a_stdio_lock(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 4);
    struct built_word *word = word_at(p, B);

    word->fact.region = REGION_LIBC;
    word->fact.early_owner = word->fact.late_owner = 102;
    PUT_WORDS(&word->memory, 0, 2, 1, 0x1700, 0x7f00);
    waits(p, 101, B, PRIVATE_WAIT, 2);
    wants(p, 102, A, 101);
    sweeps(w, 5, TICK);
    expect_text(
        w, CHAIN_CYCLE, 2, 2,
        "DEADLOCK 2 threads: t101[101] holds mutex 0x7f0000001000, wants libc "
        "0x7f0000001100 <- t102[102] holds libc 0x7f0000001100, wants mutex 0x7f0000001000");
    world_free(w);
}

/* Without run counts -------------------------------------------------------------------- */

static void uncount(struct built_process *p)
{
    for (size_t i = 0; i < p->n; i++) {
        p->threads[i].fact.runs = p->threads[i].fact.run_ns = 0;
        p->threads[i].changed = true;
    }
    p->fact.no_schedstat = true;
}

static void test_uncounted(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 4);

    abba(p);
    for (int i = 0; i < 50; i++) {
        uncount(p);
        sweep(w, TICK);
        expect_cycles(w, 0);
    }
    for (int i = 0; i < 3; i++) {
        uncount(p);
        sweep(w, TICK);
    }
    expect_cycles(w, 1);
    thread_of(p, 101)->fact.sp = 0x1234; /* it is somewhere else now: it has run */
    uncount(p);
    sweep(w, TICK);
    expect_cycles(w, 0);
    world_free(w);
}

/* A program without deadlocks ----------------------------------------------------------- */

#define WORKERS 63
#define MUTEXES 16

/* Threads that take up to two of MUTEXES in ascending order, hold them for a while and let go. */
struct worker {
    int held[2], nheld; /* mutexes */
    int wanted;         /* -1: none */
    int rest;           /* steps until it goes on */
    bool ran;           /* since it was last told */
};

struct program {
    struct worker workers[WORKERS];
    int owner[MUTEXES]; /* worker, -1 free */
    unsigned seed;
};

static unsigned dice(struct program *g, unsigned n)
{
    g->seed = g->seed * 1103515245u + 12345u;
    return (g->seed >> 16) % n;
}

static void release_all(struct program *g, struct worker *k)
{
    while (k->nheld > 0)
        g->owner[k->held[--k->nheld]] = -1;
}

static void step(struct program *g, int i)
{
    struct worker *k = &g->workers[i];

    if (k->wanted >= 0 && g->owner[k->wanted] >= 0)
        return;
    k->ran = true;
    if (k->wanted >= 0) {
        g->owner[k->wanted] = i;
        k->held[k->nheld++] = k->wanted;
        k->wanted = -1;
        k->rest = (int)dice(g, 4);
        return;
    }
    if (k->rest-- > 0)
        return;
    if (k->nheld == 2 || (k->nheld == 1 && (k->held[0] == MUTEXES - 1 || dice(g, 2) == 0))) {
        release_all(g, k);
        k->rest = (int)dice(g, 2);
        return;
    }
    k->wanted = k->nheld == 0 ? (int)dice(g, MUTEXES)
                              : k->held[0] + 1 + (int)dice(g, (unsigned)(MUTEXES - 1 - k->held[0]));
}

/* A sweep sees worker I as it is now. */
static void tell_worker(struct program *g, struct built_process *p, int i)
{
    struct worker *k = &g->workers[i];
    pid_t tid = PID + 1 + i;

    if (k->wanted >= 0 && g->owner[k->wanted] >= 0) {
        if (k->ran || thread_of(p, tid)->fact.seen != SEEN_CALL)
            waits(p, tid, A + 64 * (uint64_t)k->wanted, PRIVATE_WAIT, 2);
    } else {
        wakes(p, tid);
    }
    k->ran = false;
}

static void tell_owner(struct program *g, struct built_process *p, int m)
{
    struct built_word *word = word_at(p, A + 64 * (uint64_t)m);
    int owner = g->owner[m];

    put_mutex(&word->memory, owner >= 0 ? 2 : 0, owner >= 0 ? (uint32_t)(PID + 1 + owner) : 0, 0);
}

/* One sweep: while it goes through the threads and then reads the words, they go on. */
static void scan(struct program *g, struct world *w, struct built_process *p)
{
    for (int i = 0; i < WORKERS; i++) {
        for (int k = 0; k < 3; k++)
            step(g, (int)dice(g, WORKERS));
        tell_worker(g, p, i);
    }
    for (int k = 0; k < 2 * WORKERS; k++)
        step(g, (int)dice(g, WORKERS));
    for (int m = 0; m < MUTEXES; m++)
        tell_owner(g, p, m);
    sweep(w, TICK);
}

/* Whether the edges of one sweep alone make a circle: what a monitor without a second look says. */
static bool draws_a_circle(const struct snapshot *s)
{
    int to[WORKERS + 1]; /* by TID - PID */

    for (int i = 0; i <= WORKERS; i++)
        to[i] = -1;
    for (size_t i = 0; i < s->nlocks; i++) {
        const struct snap_lock *l = &s->locks[i];
        for (size_t k = 0; l->nholders && l->holders->tid > 0 && k < l->nwaiter_threads; k++)
            to[l->waiter_threads[k].tid - PID] = l->holders->tid - PID;
    }
    for (int i = 0; i <= WORKERS; i++) {
        int at = to[i];
        for (int steps = 0; at >= 0 && at != i && steps <= WORKERS; steps++)
            at = to[at];
        if (at == i)
            return true;
    }
    return false;
}

static void test_no_deadlock_in_a_program_without(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, WORKERS + 1);
    struct program g = {.seed = 7};
    size_t chains = 0, circles = 0;

    for (int m = 0; m < MUTEXES; m++)
        g.owner[m] = -1;
    for (int i = 0; i < WORKERS; i++)
        g.workers[i].wanted = -1;
    for (int look = 0; look < 400; look++) {
        scan(&g, w, p);
        struct snapshot *s = snapshot_now(w);
        assert_int_equal(cycles(s), 0);
        assert_int_not_equal(s->severity, SEVERITY_CRITICAL);
        chains += s->nchains;
        circles += draws_a_circle(s);
        snapshot_free(s);
    }
    assert_true(chains > 400);
    assert_true(circles > 10); /* there was something to be wrong about */
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abba_needs_its_time),
        cmocka_unit_test(test_abba),
        cmocka_unit_test(test_four_hundred_scans_of_a_deadlock),
        cmocka_unit_test(test_a_run_breaks_the_proof),
        cmocka_unit_test(test_reads_must_agree),
        cmocka_unit_test(test_no_memory_no_claim),
        cmocka_unit_test(test_three_and_those_behind),
        cmocka_unit_test(test_two_deadlocks),
        cmocka_unit_test(test_large_cycle_is_cut_short),
        cmocka_unit_test(test_timed_wait_in_a_cycle),
        cmocka_unit_test(test_deadlock_beside_a_timed_circle),
        cmocka_unit_test(test_join_in_a_cycle),
        cmocka_unit_test(test_across_processes),
        cmocka_unit_test(test_cycle_through_a_stdio_lock),
        cmocka_unit_test(test_uncounted),
        cmocka_unit_test(test_no_deadlock_in_a_program_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

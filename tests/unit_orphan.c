/* unit_orphan - chains that end at a lock whose owner is gone, or that is free for long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "chain_build.h"

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
    sweep_and_answer(w, 2, &gone);
    mutex_stack_comes(w, p, 104);
    sweep_and_answer(w, 18, &gone);
    expect_part(w, CHAIN_UNNAMED, "owner TID 9120 is not among the threads that can be seen");
    sweep_and_answer(w, 20, &gone);
    struct snapshot *s = snapshot_now(w);
    const struct snap_chain *c = only_chain(s);
    assert_string_equal(c->text, "3 wait for mutex 0x7f0000001000; its owner TID 9120 no longer "
                                 "exists (ended holding it): never released");
    assert_int_equal(c->end, CHAIN_GONE);
    assert_int_equal(c->confidence, CONF_CONFIRMED);
    assert_int_equal(c->blocked, 3);
    assert_string_equal(c->root.lock, "100:0x7f0000001000");
    assert_int_equal(s->severity, SEVERITY_CRITICAL);
    assert_string_equal(s->verdict, c->text);
    snapshot_free(s);
    world_free(w);
}

/* Memory alone: another library's lock may have a number of its own where a mutex has its owner. */
static void test_orphan_that_may_be_another_lock(void **state)
{
    (void)state;
    const struct owner_fact facts[] = {
        {.pid = PID, .tid = 700001},
        {.pid = PID, .tid = 700001, .tgid = 1, .comm = "init"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(facts); i++) {
        struct world *w = world_new();
        struct built_process *p = add_busy_process(w, PID, 12);

        mutex_convoy(p, A, 700001, 104, 3);
        /* lock, head, size, cap, flags */
        PUT_WORDS(&word_at(p, A)->memory, 0, 2, 0, 700001, 64, 0);
        sweep_and_answer(w, 100, &facts[i]);
        expect_part(w, CHAIN_UNNAMED,
                    "3 wait for mutex 0x7f0000001000; where a mutex names its owner stands "
                    "700001, which is no thread: it ended holding the lock, or this is another "
                    "kind of lock");
        struct snapshot *s = snapshot_now(w);
        assert_int_equal(s->severity, SEVERITY_WARNING);
        assert_int_equal(s->chains->confidence, CONF_LIKELY);
        assert_null(strstr(s->verdict, "never released"));
        assert_false(only_lock(s)->holders->gone);
        assert_int_equal(only_lock(s)->holders->confidence, CONF_UNKNOWN);
        snapshot_free(s);
        world_free(w);
    }
}

/* Nobody could tell what the number belongs to: there are too many, or the look was refused. */
static void test_missing_owner_that_nobody_looked_up(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 12);

    mutex_convoy(p, A, 9120, 104, 3);
    sweeps(w, 2, TICK);
    mutex_stack_comes(w, p, 104);
    sweeps(w, 200, TICK);
    expect_part(w, CHAIN_UNNAMED, "owner TID 9120 is not among the threads that can be seen");
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
    sweep_and_answer(w, 2, &parent);
    mutex_stack_comes(w, p, 101);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orphan),
        cmocka_unit_test(test_orphan_that_may_be_another_lock),
        cmocka_unit_test(test_missing_owner_that_nobody_looked_up),
        cmocka_unit_test(test_held_across_fork),
        cmocka_unit_test(test_owner_died),
        cmocka_unit_test(test_missed_wake_up),
        cmocka_unit_test(test_no_missed_wake_up_when_it_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* unit_deadlock_self - a thread that waits for what it holds itself, and one whose signal handler
 * does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "chain_build.h"

/* A thread that waits for what it holds ------------------------------------------------- */

static void test_self_deadlock(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    wants(p, 101, A, 101);
    sweeps(w, 2, TICK);
    expect_cycles(w, 0);
    sweeps(w, 3, TICK);
    expect_text(w, CHAIN_CYCLE, 1, 1,
                "SELF-DEADLOCK tid 101 (t101) waits for a mutex it already owns: mutex "
                "0x7f0000001000");
    mutex_convoy(p, A, 101, 103, 2);
    sweeps(w, 2, TICK);
    expect_part(w, CHAIN_CYCLE, "; 2 more queued behind");
    world_free(w);
}

static void test_timed_wait_for_itself(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    wants(p, 101, A, 101);
    thread_of(p, 101)->fact.futex.timed = true;
    sweeps(w, 120, TICK);
    expect_text(w, CHAIN_CYCLE_TIMED, 1, 1,
                "tid 101 (t101) waits until its timeout for a mutex it already owns: mutex "
                "0x7f0000001000");
    expect_cycles(w, 0);
    world_free(w);
}

/* These kinds are granted again, or refused: whoever sleeps there does not wait for itself. And a
 * timed wait ends. */
static void test_no_self_deadlock(void **state)
{
    (void)state;
    static const struct {
        uint32_t kind_field;
        bool timed;
        size_t claims;
    } cases[] = {{1, false, 0}, {2, false, 0}, {3, false, 1}, {0, true, 0}, {3, true, 0}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct world *w = world_new();
        struct built_process *p = add_busy_process(w, PID, 4);
        wants(p, 101, A, 101);
        put_mutex(&word_at(p, A)->memory, 2, 101, cases[i].kind_field);
        thread_of(p, 101)->fact.futex.timed = cases[i].timed;
        sweeps(w, 20, TICK);
        expect_cycles(w, cases[i].claims);
        world_free(w);
    }
}

/* A waiter that has got the lock since it was seen: that is a hand-over. */
static void test_has_just_got_it(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    mutex_convoy(p, A, 101, 102, 3);
    sweeps(w, 4, TICK);
    for (int i = 0; i < 10; i++) {
        waits(p, 102, A, PRIVATE_WAIT, 2);
        put_mutex(&word_at(p, A)->memory, 2, 102, 0);
        sweep(w, TICK);
        expect_text(w, CHAIN_RUNS, 2, 1,
                    "3 wait for mutex 0x7f0000001000 held by t102[102], which has just got it");
        struct snapshot *s = snapshot_now(w);
        assert_int_equal(only_chain(s)->path[0].confidence, CONF_LIKELY);
        assert_int_equal(only_chain(s)->confidence, CONF_LIKELY);
        snapshot_free(s);
    }
    world_free(w);
}

/* A handler that interrupted malloc ----------------------------------------------------- */

static void test_wanted_by_its_own_handler(void **state)
{
    (void)state;
    struct world *w = world_new();
    const struct model_config cfg = {.stacks = STACKS_AUTO};
    struct built_process *p = add_busy_process(w, PID, 6);
    const struct frame_fact frames[] = {
        frame("__lll_lock_wait_private", MODULE_GLIBC),
        frame("malloc", MODULE_GLIBC),
        frame("on_signal", MODULE_OTHER),
        {.pc = 1, .n = {.name = "<signal handler called>"}},
        frame("free", MODULE_GLIBC),
        frame("main", MODULE_OTHER),
    };

    model_configure(w->model, &cfg);
    word_at(p, B)->fact.region = REGION_LIBC;
    put32(&word_at(p, B)->memory, 0, 2);
    thread_of(p, 101)->fact.sp = 0x7000;
    waits(p, 101, B, PRIVATE_WAIT, 2);
    waits(p, 102, B, PRIVATE_WAIT, 2);
    sweeps(w, 3, TICK);
    stack_comes(w, p, 101, frames, ARRAY_SIZE(frames));
    sweeps(w, 3, TICK);
    expect_cycles(w, 0); /* it may wait for another arena than the one it was interrupted in */
    sweeps(w, 50, TICK);
    struct snapshot *s = snapshot_now(w);
    const struct snap_chain *c = only_chain(s);
    assert_false(c->cycle); /* that is proved; this is inferred */
    assert_int_equal(c->end, CHAIN_CYCLE);
    assert_int_equal(c->confidence, CONF_LIKELY);
    assert_non_null(strstr(c->text, "SELF-DEADLOCK (likely) tid 101 (t101): its signal handler "
                                    "wants "));
    assert_non_null(strstr(c->text, "(inferred from its stack); 1 more queued behind"));
    assert_string_equal(s->verdict, c->text);
    assert_int_equal(s->severity, SEVERITY_WARNING);
    snapshot_free(s);
    mutex_convoy(p, A, PID, 103, 3); /* more wait there, but not for ever */
    sweeps(w, 3, TICK);
    s = snapshot_now(w);
    assert_int_equal(s->nchains, 2);
    assert_int_equal(s->chains[0].end, CHAIN_CYCLE);
    snapshot_free(s);
    waits(p, 101, B, PRIVATE_WAIT, 2); /* the handler has run: it gets on */
    sweeps(w, 3, TICK);
    expect_cycles(w, 0);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_self_deadlock),
        cmocka_unit_test(test_timed_wait_for_itself),
        cmocka_unit_test(test_no_self_deadlock),
        cmocka_unit_test(test_has_just_got_it),
        cmocka_unit_test(test_wanted_by_its_own_handler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* unit_holder_lookup - owners that are no thread of the process: those of shared memory, and what
 * is asked and told of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "holder_build.h"

/* A lock in memory that is mapped shared: the owner may be of any process that maps it. */
static struct built_word *shared_convoy(struct built_process *p, uint64_t addr, pid_t owner,
                                        pid_t waiter)
{
    struct built_word *word = shared_word(p, addr, 77, 0x40);

    waits(p, waiter, addr, FUTEX_WAIT, 2);
    put_mutex(&word->memory, 2, (uint32_t)owner, 128);
    return word;
}

static void test_holder_in_another_process(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *a = add_busy_process(w, PID, 4);
    struct built_process *b = add_busy_process(w, 300, 4);

    shared_convoy(a, ADDR, 302, 102);
    sweeps(w, 3, TICK); /* B is not known to map the file */
    expect_nobody(w, "is not among the threads that can be seen");
    shared_word(b, 0x9000, 77, 0x40);
    sweeps(w, 2, TICK);
    expect_holder(w, 302, CONF_CONFIRMED);
    b->shared[0].inode = 78;
    sweeps(w, 2, TICK);
    expect_nobody(w, "is not among the threads that can be seen");
    world_free(w);
}

/* The source is asked for an owner that is not watched, not too often, and as long as needed. */
static void test_unwatched_holder_is_asked_for(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *a = add_busy_process(w, PID, 4);
    struct request r[16];

    shared_convoy(a, ADDR, 302, 102);
    sweeps(w, 2, TICK);
    assert_int_equal(ask(w, REQUEST_HOLDER, r), 1);
    assert_int_equal(r[0].kind, REQUEST_HOLDER);
    assert_int_equal(r[0].tid, 302);
    assert_int_equal(r[0].file.inode, 77);
    assert_int_equal(ask(w, REQUEST_HOLDER, r), 0);
    struct built_process *b = add_process(w, 300);
    b->fact.outsider = true;
    add_thread(w, b, 302);
    shared_word(b, 0x9000, 77, 0x40);
    calls(b, 302, CALL_pause);
    sweeps(w, 26, TICK);
    expect_holder(w, 302, CONF_CONFIRMED);
    assert_int_equal(ask(w, REQUEST_HOLDER, r), 1); /* it is kept only while it is of interest */
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nprocesses, 1);
    assert_string_equal(holder_of(s)->detail, "pause");
    snapshot_free(s);
    b->fact.outsider = false; /* now it is watched for its own sake */
    sweeps(w, 60, TICK);
    assert_int_equal(ask(w, REQUEST_HOLDER, r), 0);
    wakes(a, 102);
    put_mutex(&word_at(a, ADDR)->memory, 0, 0, 128);
    sweeps(w, 60, TICK);
    assert_int_equal(ask(w, REQUEST_HOLDER, r), 0);
    world_free(w);
}

/* A TID that is no thread of the process is looked up now and then, once both reads name it. */
static void test_private_owner_is_looked_up(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 4);
    struct request r[16];

    mutex_convoy(p, ADDR, 4711, 102, 1);
    sweep(w, TICK);
    assert_int_equal(ask(w, REQUEST_OWNER, r), 0);
    sweep(w, TICK);
    assert_int_equal(ask(w, REQUEST_OWNER, r), 1);
    assert_int_equal(r[0].pid, PID);
    assert_int_equal(r[0].tid, 4711);
    assert_int_equal(ask(w, REQUEST_HOLDER, r), 0);
    sweeps(w, 24, TICK);
    assert_int_equal(ask(w, REQUEST_OWNER, r), 0);
    sweep(w, TICK);
    assert_int_equal(ask(w, REQUEST_OWNER, r), 1);
    put_mutex(&word_at(p, ADDR)->memory, 2, 103, 0); /* one of us */
    sweeps(w, 60, TICK);
    assert_int_equal(ask(w, REQUEST_OWNER, r), 0);
    world_free(w);
}

/* Its numbers mean nothing out here. */
static void test_nested_owner_is_not_looked_up(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 4);
    struct request r[16];

    p->fact.nested_pidns = true;
    mutex_convoy(p, ADDR, 4711, 102, 1);
    thread_of(p, 103)->fact.ns_tid = 0; /* not known: it may be that one */
    sweeps(w, 2, TICK);
    mutex_stack_comes(w, p, 102);
    for (int i = 0; i < 40; i++) {
        sweep(w, TICK);
        assert_int_equal(ask(w, REQUEST_OWNER, r), 0);
    }
    expect_nobody(w, "owner TID 4711 is not among the threads that can be seen");
    thread_of(p, 103)->fact.ns_tid = 103;
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_true(holder_of(s)->gone);
    assert_non_null(strstr(holder_of(s)->detail, "TID 4711 is no thread of this process"));
    snapshot_free(s);
    world_free(w);
}

/* A lock in shared memory, whose owner exists nowhere: its process was killed. */
static void test_shared_owner_gone(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 4);
    struct owner_fact fact = {.pid = PID, .tid = 302};

    shared_convoy(p, ADDR, 302, 102);
    sweeps(w, 2, TICK);
    mutex_stack_comes(w, p, 102);
    sweeps_and_answers(w, 40, &fact);
    struct snapshot *s = snapshot_now(w);
    assert_true(holder_of(s)->gone);
    assert_int_equal(holder_of(s)->confidence, CONF_LIKELY);
    assert_string_equal(holder_of(s)->detail,
                        "its owner TID 302 is not found: it ended holding the lock, which is then "
                        "never released, or lives in another PID namespace");
    assert_int_equal(s->chains->end, CHAIN_GONE);
    assert_int_equal(s->chains->confidence, CONF_LIKELY);
    assert_int_equal(s->severity, SEVERITY_WARNING);
    snapshot_free(s);
    fact.tgid = 300; /* it lives, in a process that is not watched */
    sweeps_and_answers(w, 60, &fact);
    expect_nobody(w, "owner TID 302 is not among the threads that can be seen");
    world_free(w);
}

/* What was told of an owner is not believed of another, and not for ever. */
static void test_answers_are_forgotten(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 4);
    struct owner_fact fact = {.pid = PID, .tid = 4711, .tgid = 55, .comm = "other"};

    mutex_convoy(p, ADDR, 4711, 102, 1);
    sweeps(w, 2, TICK);
    mutex_stack_comes(w, p, 102);
    sweeps_and_answers(w, 40, &fact);
    struct snapshot *s = snapshot_now(w);
    assert_non_null(strstr(holder_of(s)->detail, "another process (55 other)"));
    snapshot_free(s);
    put_mutex(&word_at(p, ADDR)->memory, 2, 103, 0);
    sweeps(w, 150, TICK);
    put_mutex(&word_at(p, ADDR)->memory, 2, 4711, 0);
    sweeps(w, 40, TICK); /* nobody answers now */
    expect_nobody(w, "owner TID 4711 is not among the threads that can be seen");
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holder_in_another_process),
        cmocka_unit_test(test_unwatched_holder_is_asked_for),
        cmocka_unit_test(test_private_owner_is_looked_up),
        cmocka_unit_test(test_nested_owner_is_not_looked_up),
        cmocka_unit_test(test_shared_owner_gone),
        cmocka_unit_test(test_answers_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

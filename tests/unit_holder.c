/* unit_holder - who holds a lock and what that thread does; and whom nobody may accuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "holder_build.h"

static void test_agreed_and_new(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    mutex_convoy(p, ADDR, 103, 104, 2);
    sweep(w, TICK); /* a new word has been read once only */
    expect_holder(w, 103, CONF_LIKELY);
    sweep(w, TICK);
    expect_holder(w, 103, CONF_CONFIRMED);
    world_free(w);
}

static void test_changes_between_the_reads(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);
    struct built_word *word = mutex_convoy(p, ADDR, 103, 104, 2);

    sweeps(w, 3, TICK);
    word->changes = true;
    word->later = word->memory;
    put_mutex(&word->later, 2, 102, 0);
    sweep(w, TICK);
    expect_holder(w, 102, CONF_LIKELY);
    sweep(w, TICK);
    expect_holder(w, 102, CONF_CONFIRMED);
    world_free(w);
}

/* A free word with sleepers: between unlock and wake-up. */
static void test_hand_over(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);
    struct built_word *word = mutex_convoy(p, ADDR, 103, 104, 2);

    sweeps(w, 12, TICK);
    put_mutex(&word->memory, 0, 0, 0);
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_null(holder_of(s));
    assert_int_equal(only_lock(s)->waiters, 2);
    assert_int_equal(only_lock(s)->kind, KIND_MUTEX);
    assert_non_null(strstr(s->verdict, "free at this moment"));
    snapshot_free(s);
    put_mutex(&word->memory, 2, 0, 0); /* taken, the name not yet written */
    sweep(w, TICK);
    expect_nobody(w, "not recorded at this moment");
    world_free(w);
}

/* What it does, for every way in which it was seen. */
static void test_what_it_does(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 8);
    static const struct {
        enum seen seen;
        enum call call;
        int fd;
        const char *path, *detail;
        enum thread_state state;
    } cases[] = {
        {SEEN_CALL, CALL_fsync, 12, "/data/ibdata1", "fsync fd 12 /data/ibdata1", THREAD_DISK},
        {SEEN_CALL, CALL_recvfrom, 7, NULL, "recvfrom fd 7", THREAD_NET},
        {SEEN_CALL, CALL_recvfrom, 7, "socket:[123]", "recvfrom fd 7 socket:[123]", THREAD_NET},
        {SEEN_CALL, CALL_nanosleep, -1, NULL, "nanosleep", THREAD_SLEEP},
        {SEEN_CALL, CALL_OTHER, -1, NULL, "syscall 333", THREAD_OTHER},
        {SEEN_FAULT, CALL_OTHER, -1, NULL, "blocked outside a system call (page fault)",
         THREAD_KERNEL},
        {SEEN_ACTIVE, CALL_OTHER, -1, NULL, NULL, THREAD_RUNNING},
        {SEEN_STOPPED, CALL_fsync, 12, NULL, NULL, THREAD_STOPPED},
    };

    mutex_convoy(p, ADDR, 103, 104, 2);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct built_thread *t = wakes(p, 103);
        t->fact.seen = cases[i].seen;
        t->fact.call = cases[i].call;
        t->fact.nr = 333;
        t->fact.fd = cases[i].fd;
        t->fact.fd_path = cases[i].path;
        for (int k = 0; k < 3; k++) {
            t->fact.run_ns += 1000;
            sweep(w, TICK);
        }
        struct snapshot *s = snapshot_now(w);
        const struct snap_holder *h = holder_of(s);
        assert_int_equal(h->tid, 103);
        assert_string_equal(h->comm, "t103");
        assert_int_equal(h->state, cases[i].state);
        assert_true(h->state_known);
        if (cases[i].detail)
            assert_string_equal(h->detail, cases[i].detail);
        else
            assert_null(h->detail);
        assert_float_equal(h->age_ms, 40, 0.001);
        snapshot_free(s);
    }
    world_free(w);
}

static void test_holder_waits_for_another_lock(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 8);

    mutex_convoy(p, ADDR, 103, 104, 3);
    mutex_convoy(p, ADDR + 64, 102, 103, 1);
    calls(p, 102, CALL_pause);
    sweeps(w, 3, TICK);
    struct snapshot *s = snapshot_now(w);
    const struct snap_lock *l = snapshot_lock(s, "100:0x7f0000001000");
    const struct snap_lock *next = snapshot_lock(s, l->holders->waits_for);
    assert_int_equal(l->holders->state, THREAD_LOCK);
    assert_non_null(next);
    assert_int_equal(next->address, ADDR + 64);
    assert_int_equal(next->holders->tid, 102);
    assert_string_equal(l->holders->detail,
                        "waits for mutex 0x7f0000001040 held by t102[102], sleeping in pause");
    snapshot_free(s);
    world_free(w);
}

/* Who is named as the owner after it was seen to wait for the same lock has got it since; only who
 * sleeps on while both reads name it waits for itself. */
static void test_waiter_becomes_holder(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);
    struct built_word *word = mutex_convoy(p, ADDR, 103, 104, 2);

    sweeps(w, 3, TICK);
    word->changes = true;
    word->later = word->memory;
    put_mutex(&word->later, 2, 104, 0);
    for (int both = 0; both < 2; both++) {
        if (both)
            put_mutex(&word->memory, 2, 104, 0);
        wakes(p, 104);
        waits(p, 104, ADDR, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 2);
        sweep(w, TICK);
        expect_holder(w, 104, CONF_LIKELY);
        struct snapshot *s = snapshot_now(w);
        assert_false(holder_of(s)->state_known);
        assert_null(holder_of(s)->waits_for);
        assert_string_equal(holder_of(s)->detail, "has just got it");
        snapshot_free(s);
    }
    sweeps(w, 2, TICK);
    expect_holder(w, 104, CONF_CONFIRMED);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(holder_of(s)->state, THREAD_LOCK);
    assert_string_equal(holder_of(s)->waits_for, only_lock(s)->id);
    snapshot_free(s);
    world_free(w);
}

static void test_unreadable_holder(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    mutex_convoy(p, ADDR, 103, 104, 2);
    thread_of(p, 103)->fact.seen = SEEN_UNREADABLE;
    sweeps(w, 3, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(holder_of(s)->tid, 103);
    assert_false(holder_of(s)->state_known);
    snapshot_free(s);
    world_free(w);
}

/* The owner ended and left it locked: first it may just be new to us, then it is gone. */
static void test_owner_gone(void **state)
{
    (void)state;
    for (int leader = 0; leader < 2; leader++) {
        struct world *w = world_new();
        struct built_process *p = add_busy_process(w, PID, 6);
        struct owner_fact fact = {.pid = PID, .tid = leader ? PID : 4711};
        mutex_convoy(p, ADDR, fact.tid, 104, 2);
        if (leader)
            thread_of(p, PID)->fact.seen = SEEN_DEAD; /* exited, others go on */
        sweeps_and_answers(w, 5, &fact);
        expect_nobody(w, "is not among the threads that can be seen");
        sweeps_and_answers(w, 30, &fact);
        expect_nobody(w, "which is no thread: it ended holding the lock, or this is another kind");
        mutex_stack_comes(w, p, 104); /* no other kind */
        sweep(w, TICK);
        struct snapshot *s = snapshot_now(w);
        const struct snap_holder *h = holder_of(s);
        assert_true(h->gone);
        assert_int_equal(h->tid, -1);
        assert_int_equal(h->confidence, CONF_LIKELY);
        assert_non_null(strstr(h->detail, leader ? "TID 100" : "TID 4711"));
        assert_int_equal(only_lock(s)->confidence, CONF_CONFIRMED);
        snapshot_free(s);
        world_free(w);
    }
}

static void test_owner_died_mark(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);
    struct built_word *word = word_at(p, ADDR);

    waits(p, 104, ADDR, FUTEX_WAIT, 103 | WORD_WAITERS);
    put_mutex(&word->memory, 103 | WORD_WAITERS, 103, 16);
    sweeps(w, 3, TICK);
    expect_holder(w, 103, CONF_CONFIRMED);
    end_thread(p, 103);
    put_mutex(&word->memory, WORD_OWNER_DIED | WORD_WAITERS, 103, 16);
    sweeps(w, 2, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(only_lock(s)->kind, KIND_MUTEX_ROBUST);
    assert_true(holder_of(s)->gone);
    assert_int_equal(holder_of(s)->confidence, CONF_CONFIRMED);
    assert_string_equal(holder_of(s)->detail, "its owner died while holding it");
    snapshot_free(s);
    put_mutex(&word->memory, 0, 0x7ffffffe, 16);
    sweeps(w, 2, TICK);
    s = snapshot_now(w);
    assert_non_null(strstr(holder_of(s)->detail, "not recoverable"));
    snapshot_free(s);
    world_free(w);
}

static void test_readers_are_counted_not_named(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    waits(p, 104, ADDR + 8, 0x189, 2);
    put_rwlock(&word_at(p, ADDR + 8)->memory, -8, 3 << 3 | 2, 0);
    sweeps(w, 3, TICK);
    struct snapshot *s = snapshot_now(w);
    const struct snap_holder *h = holder_of(s);
    assert_int_equal(h->tid, -1);
    assert_int_equal(h->mode, MODE_SHARED);
    assert_string_equal(h->detail, "3 readers hold it (not recorded)");
    snapshot_free(s);
    world_free(w);
}

/* A stdio lock names its owner through a thread descriptor, which the source has followed. */
static void test_owner_of_a_stdio_lock(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);
    struct built_word *word = word_at(p, ADDR);

    word->fact.region = REGION_LIBC;
    PUT_WORDS(&word->memory, 0, 2, 1, 0x1700, 0x7f00);
    word->fact.early_owner = word->fact.late_owner = 103;
    waits(p, 104, ADDR, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 2);
    sweeps(w, 3, TICK);
    expect_holder(w, 103, CONF_CONFIRMED);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(only_lock(s)->kind, KIND_LIBC);
    snapshot_free(s);
    word->fact.late_owner = 102; /* it changed hands between the reads */
    sweep(w, TICK);
    expect_holder(w, 102, CONF_LIKELY);
    word->fact.early_owner = word->fact.late_owner = 0;
    sweeps(w, 2, TICK);
    expect_nobody(w, "not recorded by this lock");
    word->fact.late_owner = 102; /* of a mutex that is no business of anybody */
    put_mutex(&word->memory, 2, 103, 0);
    wakes(p, 104);
    waits(p, 104, ADDR, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 2);
    sweeps(w, 3, TICK);
    expect_holder(w, 103, CONF_CONFIRMED);
    world_free(w);
}

static void test_bare_lock_and_no_memory(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    waits(p, 104, ADDR, 0x89, 2);
    put32(&word_at(p, ADDR)->memory, 0, 2);
    sweeps(w, 3, TICK);
    expect_nobody(w, "not recorded by this lock");
    word_at(p, ADDR)->hidden = true;
    sweeps(w, 2, TICK);
    expect_nobody(w, "could not be read");
    world_free(w);
}

/* A TID in a private lock word is one of this process or nobody. */
static void test_threads_of_others_are_not_accused(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    struct owner_fact fact = {.pid = PID, .tid = 302, .tgid = 300};
    add_busy_process(w, 300, 4);
    mutex_convoy(p, ADDR, 302, 104, 2); /* a lock taken before fork() */
    sweeps(w, 40, TICK);
    mutex_stack_comes(w, p, 104);
    sweeps(w, 40, TICK);
    expect_nobody(w, "owner TID 302 is not among the threads that can be seen");
    sweeps_and_answers(w, 30, &fact);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(holder_of(s)->tid, -1);
    assert_true(holder_of(s)->gone);
    assert_non_null(strstr(holder_of(s)->detail, "a thread of another process"));
    snapshot_free(s);
    world_free(w);
}

static void test_nested_pid_namespace(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, 19926, 6);

    p->fact.nested_pidns = true;
    for (size_t i = 0; i < p->n; i++)
        p->threads[i].fact.ns_tid = 1 + (pid_t)i;
    mutex_convoy(p, ADDR, 1, 19928, 3); /* the words hold the names inside */
    sweeps(w, 3, TICK);
    expect_holder(w, 19926, CONF_CONFIRMED);
    world_free(w);
}

/* Joins -------------------------------------------------------------------------------------- */

static void test_join(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 4);

    waits(p, PID, ADDR, 0x109, 103);
    put32(&word_at(p, ADDR)->memory, 0, 103);
    calls(p, 103, CALL_pause);
    sweeps(w, 3, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nlocks, 1);
    assert_int_equal(s->locks[0].kind, KIND_JOIN);
    assert_int_equal(s->locks[0].class, CLASS_SYNC);
    assert_int_equal(s->locks[0].nholders, 1);
    const struct snap_holder *h = s->locks[0].holders;
    assert_int_equal(h->tid, 103);
    assert_int_equal(h->mode, MODE_NONE);
    assert_int_equal(h->confidence, CONF_CONFIRMED);
    assert_string_equal(h->detail, "pause");
    assert_int_equal(s->severity, SEVERITY_INFO);
    snapshot_free(s);
    world_free(w);
}

static void test_sync_kinds_have_no_holder(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 4);

    waits(p, 101, ADDR + 40, 0x189, 0);
    put_cond(&word_at(p, ADDR + 40)->memory, -40, 1, 0);
    waits(p, 102, ADDR + 256, 0x189, 0);
    PUT_WORDS(&word_at(p, ADDR + 256)->memory, 0, 0, 1, 0);
    sweeps(w, 3, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nlocks, 2);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(s->locks[i].nholders, 0);
    snapshot_free(s);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agreed_and_new),
        cmocka_unit_test(test_changes_between_the_reads),
        cmocka_unit_test(test_hand_over),
        cmocka_unit_test(test_what_it_does),
        cmocka_unit_test(test_holder_waits_for_another_lock),
        cmocka_unit_test(test_waiter_becomes_holder),
        cmocka_unit_test(test_unreadable_holder),
        cmocka_unit_test(test_owner_gone),
        cmocka_unit_test(test_owner_died_mark),
        cmocka_unit_test(test_readers_are_counted_not_named),
        cmocka_unit_test(test_owner_of_a_stdio_lock),
        cmocka_unit_test(test_bare_lock_and_no_memory),
        cmocka_unit_test(test_threads_of_others_are_not_accused),
        cmocka_unit_test(test_nested_pid_namespace),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_sync_kinds_have_no_holder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

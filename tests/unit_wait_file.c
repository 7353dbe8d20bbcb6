/*
 * unit_wait_file - queues for locks on files, semaphores and what is told of who may have taken
 * them, frozen processes, locks that nobody is seen to wait for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "file_build.h"

/* Queue ----------------------------------------------------------------------------------- */

static void test_place_in_the_queue(void **state UNUSED)
{
    struct scene c = scene_new(1);
    struct built_process *third = add_busy_process(c.w, 300, 1);

    wants(third, 300, c.lock);
    holds(&c.f, 200, c.lock);
    c.f.waiters[0] = (struct file_waiter){.lock = c.lock, .pid = 100, .level = 1, .behind = -1};
    c.f.waiters[1] = (struct file_waiter){.lock = c.lock, .pid = 300, .level = 2, .behind = 0};
    c.f.nwaiters = 2;
    looks(c.w, &c.f, 5);
    struct snapshot *s = snapshot_now(c.w);
    const struct snap_lock *l = lock_named(s, ID);
    assert_int_equal(l->queue_depth, 2);
    assert_int_equal(l->nwaiter_threads, 2);
    const struct snap_waiter *one = &l->waiter_threads[0], *two = &l->waiter_threads[1];
    assert_int_equal(one->tid, 100);
    assert_int_equal(one->level, 1);
    assert_int_equal(one->behind, -1);
    assert_string_equal(one->blocked_by, "hard");
    assert_int_equal(two->level, 2);
    assert_int_equal(two->behind, 100);
    assert_string_equal(two->blocked_by, "soft");
    assert_int_equal(l->pid, -1); /* of several processes */
    snapshot_free(s);
    world_free(c.w);
}

/* Semaphores ------------------------------------------------------------------------------ */

static struct sem_fact *sem(struct facts *f, int value, pid_t last)
{
    struct sem_fact *out = &f->sems[f->nsems++];

    *out = (struct sem_fact){
        .id = 3, .num = 0, .known = true, .value = value, .last_pid = last, .nwait = 1, .nsems = 1};
    return out;
}

/* Who operated on it last may have taken it: a hint, never more, and nothing is built on it. */
static void test_semaphore_hint(void **state UNUSED)
{
    struct scene c = scene_new(1);

    wants_sem(c.waiter, 100, 3, true);
    sem(&c.f, 0, 200);
    looks(c.w, &c.f, 51);
    struct snapshot *s = snapshot_now(c.w);
    const struct snap_lock *l = lock_named(s, "sysv:3[0]");
    assert_int_equal(l->kind, KIND_SYSV_SEM);
    assert_int_equal(l->class, CLASS_LOCK);
    assert_int_equal(l->confidence, CONF_LIKELY);
    assert_string_equal(l->name, "set 3[0]");
    assert_int_equal(l->nholders, 1);
    assert_int_equal(l->holders[0].confidence, CONF_UNKNOWN);
    assert_int_equal(l->holders[0].tid, 200);
    expect_text(l->holders[0].detail,
                "value 0; who took it is not recorded (process 200 owner operated on it last: a "
                "hint)");
    assert_int_equal(s->nchains, 1);
    assert_int_equal(s->chains[0].end, CHAIN_UNNAMED);
    assert_int_equal(s->chains[0].root.tid, 100);
    expect_text(s->verdict, "semaphore set 3[0]; perhaps held by t200[200]: ");
    assert_true(s->processes[0].states[THREAD_LOCK] > 0.9);
    snapshot_free(s);
    world_free(c.w);
}

static void test_semaphore_hints_of_other_sorts(void **state UNUSED)
{
    struct scene c = scene_new(4);
    struct sem_fact *f;

    wants_sem(c.waiter, 100, 3, true);
    f = sem(&c.f, 0, 200); /* a process of several threads */
    looks(c.w, &c.f, 5);
    struct snapshot *s = snapshot_now(c.w);
    const struct snap_holder *h = lock_named(s, "sysv:3[0]")->holders;
    assert_int_equal(h->pid, 200);
    assert_int_equal(h->tid, -1);
    assert_int_equal(h->confidence, CONF_UNKNOWN);
    snapshot_free(s);
    f->last_pid = 0; /* nobody, or of another PID namespace */
    looks(c.w, &c.f, 5);
    s = snapshot_now(c.w);
    h = lock_named(s, "sysv:3[0]")->holders;
    assert_int_equal(h->pid, -1);
    assert_string_equal(h->detail, "value 0; who took it is not recorded");
    snapshot_free(s);
    f->known = false;
    looks(c.w, &c.f, 5);
    s = snapshot_now(c.w);
    h = lock_named(s, "sysv:3[0]")->holders;
    assert_int_equal(h->pid, -1);
    expect_text(h->detail, "the semaphore may not be read");
    snapshot_free(s);
    f->known = true;
    f->value = 1; /* given this moment: its waiter takes it now */
    looks(c.w, &c.f, 5);
    s = snapshot_now(c.w);
    assert_int_equal(lock_named(s, "sysv:3[0]")->nholders, 0);
    assert_int_equal(s->nchains, 0);
    snapshot_free(s);
    world_free(c.w);
}

/* Two that each operated last on what the other waits for: hints make no deadlock. */
static void test_hints_make_no_deadlock(void **state UNUSED)
{
    struct scene c = scene_new(1);

    wants_sem(c.waiter, 100, 3, true);
    wants_sem(c.other, 200, 4, true);
    sem(&c.f, 0, 200);
    *sem(&c.f, 0, 100) = (struct sem_fact){.id = 4, .known = true, .last_pid = 100, .nsems = 1};
    looks(c.w, &c.f, 100);
    assert_int_equal(cycles(c.w), 0);
    world_free(c.w);
}

/* Without SEM_UNDO it hands work on: nobody can be blamed, and that is no contention. */
static void test_semaphore_hand_off(void **state UNUSED)
{
    struct scene c = scene_new(1);

    wants_sem(c.waiter, 100, 3, false);
    sem(&c.f, 0, 200);
    looks(c.w, &c.f, 51);
    struct snapshot *s = snapshot_now(c.w);
    const struct snap_lock *l = lock_named(s, "sysv:3[0]");
    assert_int_equal(l->kind, KIND_SEM);
    assert_int_equal(l->class, CLASS_SYNC);
    assert_int_equal(l->nholders, 0);
    assert_int_equal(s->nchains, 0);
    assert_int_equal(s->severity, SEVERITY_INFO);
    expect_text(s->verdict, "no contention");
    snapshot_free(s);
    world_free(c.w);
}

/* One of many servers may accept, and has the semaphore: it waits for work, as do the others. */
static void test_accept_semaphore(void **state UNUSED)
{
    struct scene c = scene_new(1);

    wants_sem(c.waiter, 100, 3, true);
    calls(c.other, 200, CALL_accept4);
    thread_of(c.other, 200)->fact.fd = 4;
    thread_of(c.other, 200)->fact.fd_kind = FD_SOCKET;
    sem(&c.f, 0, 200);
    looks(c.w, &c.f, 51);
    struct snapshot *s = snapshot_now(c.w);
    assert_int_equal(s->severity, SEVERITY_INFO);
    expect_text(s->verdict, "no contention");
    snapshot_free(s);
    world_free(c.w);
}

/* Frozen, polled -------------------------------------------------------------------------- */

/* Whatever it was blocked in when its cgroup was frozen. */
static void test_frozen_holder(void **state UNUSED)
{
    struct scene c = scene_new(1);

    calls(c.other, 200, CALL_recvfrom);
    c.other->fact.frozen = true;
    holds(&c.f, 200, c.lock);
    looks(c.w, &c.f, 51);
    struct snapshot *s = snapshot_now(c.w);
    assert_int_equal(only_holder(s)->state, THREAD_STOPPED);
    assert_true(s->processes[1].frozen);
    assert_false(s->processes[0].frozen);
    assert_true(s->processes[1].states[THREAD_STOPPED] > 0.99);
    expect_text(s->chains[0].text, "which is frozen (its cgroup is)");
    assert_int_equal(s->severity, SEVERITY_WARNING);
    expect_text(s->verdict, "the cgroup of owner[200] is frozen: none of its 1 threads runs");
    snapshot_free(s);
    c.other->fact.frozen = false; /* thawed */
    looks(c.w, &c.f, 5);
    s = snapshot_now(c.w);
    assert_false(s->processes[1].frozen);
    assert_null(strstr(s->verdict, "frozen"));
    snapshot_free(s);
    world_free(c.w);
}

/* Who tries again and again is never seen blocked. */
static void test_pollers(void **state UNUSED)
{
    struct scene c = scene_new(1);

    gives_up(c.waiter, 100);
    holds(&c.f, 200, c.lock);
    c.f.files[0].open_elsewhere = true;
    looks(c.w, &c.f, 51);
    struct snapshot *s = snapshot_now(c.w);
    const struct snap_lock *l = lock_named(s, ID);
    assert_true(l->only_held);
    assert_int_equal(l->waiters, 0);
    assert_true(l->pid <= 0); /* nobody has waited for it */
    assert_int_equal(only_holder(s)->tid, 200);
    assert_int_equal(s->nchains, 0);
    assert_int_equal(s->severity, SEVERITY_INFO);
    expect_text(s->verdict, "no contention");
    expect_text(s->verdict,
                "; flock on /run/app.lock is held by t200[200], and nobody is blocked in it: who "
                "retries (LOCK_NB, F_SETLK) cannot be seen without --events");
    snapshot_free(s);
    c.f.files[0].open_elsewhere = false; /* nobody else has it open: nothing to say */
    looks(c.w, &c.f, 5);
    s = snapshot_now(c.w);
    assert_null(snapshot_lock(s, ID));
    assert_null(strstr(s->verdict, "nobody is blocked in it"));
    snapshot_free(s);
    world_free(c.w);
}

/* A shared lock that nobody waits for has holders as well. */
static void test_pollers_beside_readers(void **state UNUSED)
{
    struct scene c = scene_new(1);
    struct file_lock shared = c.lock;

    shared.exclusive = false;
    gives_up(c.waiter, 100);
    holds(&c.f, 200, shared);
    holds(&c.f, 400, shared);
    c.f.files[0].open_elsewhere = true;
    looks(c.w, &c.f, 10);
    struct snapshot *s = snapshot_now(c.w);
    assert_int_equal(lock_named(s, ID)->nholders, 2);
    assert_int_equal(lock_named(s, ID)->holders[0].mode, MODE_SHARED);
    snapshot_free(s);
    world_free(c.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_place_in_the_queue),
        cmocka_unit_test(test_semaphore_hint),
        cmocka_unit_test(test_semaphore_hints_of_other_sorts),
        cmocka_unit_test(test_hints_make_no_deadlock),
        cmocka_unit_test(test_semaphore_hand_off),
        cmocka_unit_test(test_accept_semaphore),
        cmocka_unit_test(test_frozen_holder),
        cmocka_unit_test(test_pollers),
        cmocka_unit_test(test_pollers_beside_readers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* unit_deadlock_file - circles of waits for locks on files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "file_build.h"

/* A second opening of the same file, locked by whom the first one has locked out. */
static void test_flock_self_deadlock(void **state UNUSED)
{
    struct scene c = scene_new(1);

    holds(&c.f, 100, c.lock);
    look(c.w, &c.f, TICK);
    for (int ms = 10; ms <= 60; ms += 10) { /* the first look knows only that it comes for it */
        look(c.w, &c.f, 10 * NSEC_PER_MSEC);
        assert_int_equal(cycles(c.w), ms == 60);
    }
    struct snapshot *s = snapshot_now(c.w);
    assert_string_equal(s->verdict,
                        "SELF-DEADLOCK tid 100 (t100) waits for a file lock that it holds through "
                        "another descriptor: flock on /run/app.lock of service[100]");
    assert_int_equal(s->chains[0].depth, 1);
    assert_string_equal(only_holder(s)->detail, "waits for this very lock, which it holds already");
    snapshot_free(s);
    world_free(c.w);
}

/* With several threads it is not known that who waits is who holds. */
static void test_flock_of_its_own_process(void **state UNUSED)
{
    struct scene c = scene_new(1);

    add_thread(c.w, c.waiter, 101);
    holds(&c.f, 100, c.lock);
    looks(c.w, &c.f, 20);
    assert_int_equal(cycles(c.w), 0);
    struct snapshot *s = snapshot_now(c.w);
    expect_text(only_holder(s)->detail, "held by process service[100] (2 threads");
    snapshot_free(s);
    world_free(c.w);
}

/* 100 holds 7 and wants 8, 200 holds 8 and wants 7. */
static struct scene abba(enum filelock_kind kind)
{
    struct scene c = scene_new(1);
    struct file_lock seven = lock_of(kind, true, 7), eight = lock_of(kind, true, 8);

    file(&c.f, 8, "/run/other.lock");
    holds(&c.f, 100, seven);
    holds(&c.f, 200, eight);
    wants(c.waiter, 100, eight);
    wants(c.other, 200, seven);
    return c;
}

static void test_abba_needs_its_time(void **state UNUSED)
{
    struct scene c = abba(FILELOCK_FLOCK);

    look(c.w, &c.f, TICK);
    for (int i = 0; i < 4; i++) {
        look(c.w, &c.f, 10 * NSEC_PER_MSEC);
        assert_int_equal(cycles(c.w), 0);
    }
    look(c.w, &c.f, 9 * NSEC_PER_MSEC); /* 49 ms */
    assert_int_equal(cycles(c.w), 0);
    look(c.w, &c.f, NSEC_PER_MSEC);
    assert_int_equal(cycles(c.w), 1);
    struct snapshot *s = snapshot_now(c.w);
    assert_string_equal(s->chains[0].text,
                        "DEADLOCK 2 threads: t100[100] holds flock on /run/app.lock, wants flock "
                        "on /run/other.lock <- t200[200] holds flock on /run/other.lock, wants "
                        "flock on /run/app.lock");
    assert_int_equal(s->chains[0].depth, 2);
    assert_int_equal(s->chains[0].blocked, 2);
    assert_int_equal(s->chains[0].confidence, CONF_CONFIRMED);
    snapshot_free(s);
    world_free(c.w);
}

static void test_a_run_breaks_the_proof(void **state UNUSED)
{
    struct scene c = abba(FILELOCK_OFD);

    for (int i = 0; i < 20; i++) {
        looks(c.w, &c.f, 2);
        wants(c.other, 200, lock_of(FILELOCK_OFD, true, 7)); /* the same call, another run */
        look(c.w, &c.f, TICK);
        assert_int_equal(cycles(c.w), 0);
    }
    looks(c.w, &c.f, 3);
    assert_int_equal(cycles(c.w), 1);
    world_free(c.w);
}

/* What /proc/locks said a second ago is no proof. */
static void test_old_holders_prove_nothing(void **state UNUSED)
{
    struct scene c = abba(FILELOCK_FLOCK);

    c.f.holders[1].now = false;
    looks(c.w, &c.f, 30);
    assert_int_equal(cycles(c.w), 0);
    c.f.holders[1].now = true;
    looks(c.w, &c.f, 4);
    assert_int_equal(cycles(c.w), 1);
    world_free(c.w);
}

/* Of two who share a lock, either could let go of it, and only one is in the circle. */
static void test_one_of_several_holders_is_no_deadlock(void **state UNUSED)
{
    struct scene c = abba(FILELOCK_FLOCK);

    c.f.holders[1].lock.exclusive = false;
    holds(&c.f, 400, c.f.holders[1].lock);
    looks(c.w, &c.f, 30);
    assert_int_equal(cycles(c.w), 0);
    world_free(c.w);
}

/* The kernel refuses POSIX locks that would make a circle, within one process all are its own. */
static void test_posix_circle_within_threads(void **state UNUSED)
{
    struct scene c = scene_new(1);
    struct file_lock posix = lock_of(FILELOCK_POSIX, true, 7);

    wants(c.waiter, 100, posix);
    holds(&c.f, 100, posix);
    looks(c.w, &c.f, 30);
    assert_int_equal(cycles(c.w), 0);
    world_free(c.w);
}

/* Through a mutex and a flock. */
static void test_mixed_circle(void **state UNUSED)
{
    struct scene c = scene_new(1);
    const uint64_t addr = 0x7f0000001000;

    shared_word(c.waiter, addr, 55, 0);
    shared_word(c.other, addr, 55, 0);
    waits(c.other, 200, addr, FUTEX_WAIT, 2);
    put_mutex(&word_at(c.other, addr)->memory, 2, 100, 0x80);
    put_mutex(&word_at(c.waiter, addr)->memory, 2, 100, 0x80);
    holds(&c.f, 200, c.lock);
    looks(c.w, &c.f, 2);
    assert_int_equal(cycles(c.w), 0);
    looks(c.w, &c.f, 8);
    assert_int_equal(cycles(c.w), 1);
    struct snapshot *s = snapshot_now(c.w);
    expect_text(s->verdict, "wants flock on /run/app.lock");
    expect_text(s->verdict, "holds flock on /run/app.lock, wants mutex");
    snapshot_free(s);
    world_free(c.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flock_self_deadlock),
        cmocka_unit_test(test_flock_of_its_own_process),
        cmocka_unit_test(test_abba_needs_its_time),
        cmocka_unit_test(test_a_run_breaks_the_proof),
        cmocka_unit_test(test_old_holders_prove_nothing),
        cmocka_unit_test(test_one_of_several_holders_is_no_deadlock),
        cmocka_unit_test(test_posix_circle_within_threads),
        cmocka_unit_test(test_mixed_circle),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

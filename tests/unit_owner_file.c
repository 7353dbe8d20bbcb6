/*
 * unit_owner_file - who is said to hold a lock on a file, how sure that is, and what is said where
 * nobody can be named.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "file_build.h"

/* One holder ---------------------------------------------------------------------------- */

static void test_one_holder(void **state UNUSED)
{
    struct scene c = scene_new(1);

    calls(c.other, 200, CALL_recvfrom);
    thread_of(c.other, 200)->fact.fd = 9;
    thread_of(c.other, 200)->fact.fd_kind = FD_SOCKET;
    holds(&c.f, 200, c.lock);
    looks(c.w, &c.f, 51);
    struct snapshot *s = snapshot_now(c.w);
    const struct snap_lock *l = lock_named(s, ID);
    const struct snap_holder *h = only_holder(s);
    assert_int_equal(l->class, CLASS_FILELOCK);
    assert_int_equal(l->confidence, CONF_CONFIRMED);
    assert_string_equal(l->path, "/run/app.lock");
    assert_int_equal(l->waiters, 1);
    assert_int_equal(l->held, 1);
    assert_true(l->busy > 0.99);
    assert_int_equal(h->pid, 200);
    assert_int_equal(h->tid, 200);
    assert_string_equal(h->comm, "t200");
    assert_int_equal(h->confidence, CONF_CONFIRMED);
    assert_int_equal(h->mode, MODE_EXCLUSIVE);
    assert_int_equal(h->fd, 3);
    assert_true(h->state_known);
    assert_int_equal(h->state, THREAD_NET);
    expect_text(h->detail, "recvfrom fd 9");
    assert_true(fabs(h->held_ms - 51 * 20) < 1e-6);
    /* A chain of one waiter behind it, and an alarm that names it. */
    assert_int_equal(s->nchains, 1);
    assert_int_equal(s->chains[0].end, CHAIN_OUTSIDE);
    expect_text(s->chains[0].text, "t100[100] waits for flock on /run/app.lock held by t200[200]");
    assert_int_equal(s->severity, SEVERITY_WARNING);
    expect_text(s->verdict, "flock on /run/app.lock; held by t200[200]: net, recvfrom fd 9");
    snapshot_free(s);
    world_free(c.w);
}

/* /proc/locks said so up to a second ago, and its descriptors were not looked at now. */
static void test_a_holder_of_a_second_ago(void **state UNUSED)
{
    struct scene c = scene_new(1);

    holds(&c.f, 200, c.lock)->now = false;
    looks(c.w, &c.f, 5);
    struct snapshot *s = snapshot_now(c.w);
    assert_int_equal(only_holder(s)->tid, 200);
    assert_int_equal(only_holder(s)->confidence, CONF_LIKELY);
    snapshot_free(s);
    world_free(c.w);
}

/* It was seen to come for the very lock that it is now said to hold: it has got it since. */
static void test_who_has_just_got_it(void **state UNUSED)
{
    struct scene c = scene_new(1);

    looks(c.w, &c.f, 5);
    wants(c.other, 200, c.lock);
    holds(&c.f, 200, c.lock);
    look(c.w, &c.f, TICK);
    struct snapshot *s = snapshot_now(c.w);
    assert_int_equal(only_holder(s)->tid, 200);
    assert_int_equal(only_holder(s)->confidence, CONF_LIKELY);
    assert_string_equal(only_holder(s)->detail, "has just got it");
    for (size_t i = 0; i < s->nchains; i++)
        assert_false(s->chains[i].cycle);
    snapshot_free(s);
    world_free(c.w);
}

/* Of many threads, which of them took it is not recorded, and none is named. */
static void test_process_of_several_threads(void **state UNUSED)
{
    struct scene c = scene_new(5);

    holds(&c.f, 200, c.lock);
    looks(c.w, &c.f, 51);
    struct snapshot *s = snapshot_now(c.w);
    const struct snap_holder *h = only_holder(s);
    assert_int_equal(h->pid, 200);
    assert_int_equal(h->tid, -1);
    assert_string_equal(h->comm, "owner");
    assert_int_equal(h->confidence, CONF_CONFIRMED);
    assert_false(h->state_known);
    assert_string_equal(h->detail, "held by process owner[200] (5 threads, which of them is not "
                                   "recorded)");
    assert_int_equal(s->nchains, 1);
    assert_int_equal(s->chains[0].end, CHAIN_UNNAMED);
    expect_text(s->chains[0].text, "held by process owner[200] (5 threads");
    expect_text(s->verdict, "flock on /run/app.lock; held by process owner[200] (5 threads");
    snapshot_free(s);
    world_free(c.w);
}

/* One that is not watched is here for its lock alone, and lists just the threads asked for. */
static void test_outsider(void **state UNUSED)
{
    struct scene c = scene_new(1);

    c.other->fact.outsider = true;
    c.other->fact.nthreads_all = 12;
    holds(&c.f, 200, c.lock);
    looks(c.w, &c.f, 5);
    struct snapshot *s = snapshot_now(c.w);
    assert_int_equal(only_holder(s)->tid, -1);
    expect_text(only_holder(s)->detail, "owner[200] (12 threads");
    snapshot_free(s);
    c.other->fact.nthreads_all = 1;
    looks(c.w, &c.f, 5);
    s = snapshot_now(c.w);
    assert_int_equal(only_holder(s)->tid, 200);
    snapshot_free(s);
    world_free(c.w);
}

/* Several holders ------------------------------------------------------------------------- */

static void test_shared_holders(void **state UNUSED)
{
    struct scene c = scene_new(1);
    struct file_lock shared = c.lock;
    struct built_process *more = add_busy_process(c.w, 300, 3);

    shared.exclusive = false;
    snprintf(more->fact.comm, sizeof(more->fact.comm), "more");
    holds(&c.f, 300, shared);
    holds(&c.f, 200, shared)->fd = 8;
    holds(&c.f, 400, shared); /* of which nothing else is known */
    looks(c.w, &c.f, 10);
    struct snapshot *s = snapshot_now(c.w);
    const struct snap_lock *l = lock_named(s, ID);
    assert_int_equal(l->nholders, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(l->holders[i].mode, MODE_SHARED);
        assert_int_equal(l->holders[i].confidence, CONF_CONFIRMED); /* each of them does */
    }
    assert_int_equal(l->holders[0].pid, 300);
    assert_int_equal(l->holders[0].tid, -1);
    assert_int_equal(l->holders[1].tid, 200);
    assert_int_equal(l->holders[1].fd, 8);
    assert_int_equal(l->holders[2].pid, 400);
    assert_string_equal(l->holders[2].comm, "");
    assert_string_equal(l->holders[2].detail, "held by process 400");
    /* Of the three, the chain goes on to the one of which is known what it does, and that it is
     * this one for which all wait is not sure. */
    assert_int_equal(s->nchains, 1);
    assert_int_equal(s->chains[0].root.tid, 200);
    assert_int_equal(s->chains[0].confidence, CONF_LIKELY);
    snapshot_free(s);
    world_free(c.w);
}

/* Readers are not in the way of a reader: only who wants to write waits for them. */
static void test_reader_waits_for_the_writer_only(void **state UNUSED)
{
    struct scene c = scene_new(1);
    struct file_lock posix = lock_of(FILELOCK_POSIX, false, 7);
    struct file_lock writer = posix;

    posix.end = writer.end = 99;
    writer.exclusive = true;
    writer.start = writer.end = 50;
    wants(c.waiter, 100, posix);
    holds(&c.f, 300, posix);
    holds(&c.f, 200, writer);
    looks(c.w, &c.f, 5);
    struct snapshot *s = snapshot_now(c.w);
    const struct snap_lock *l = lock_named(s, "posix:fe00:7:0-99");
    assert_int_equal(l->nholders, 1);
    assert_int_equal(l->holders[0].pid, 200);
    assert_int_equal(l->holders[0].mode, MODE_EXCLUSIVE);
    assert_true(l->ranged);
    assert_int_equal(l->range_start, 0);
    assert_int_equal(l->range_end, 99);
    assert_int_equal(l->waiter_threads[0].mode, MODE_SHARED);
    snapshot_free(s);
    world_free(c.w);
}

/* The process's own POSIX locks are not in its way. */
static void test_own_posix_lock(void **state UNUSED)
{
    struct scene c = scene_new(1);
    struct file_lock posix = lock_of(FILELOCK_POSIX, true, 7);

    wants(c.waiter, 100, posix);
    holds(&c.f, 100, lock_of(FILELOCK_POSIX, false, 7));
    holds(&c.f, 200, lock_of(FILELOCK_POSIX, false, 7));
    looks(c.w, &c.f, 10);
    struct snapshot *s = snapshot_now(c.w);
    const struct snap_lock *l = lock_named(s, "posix:fe00:7");
    assert_int_equal(l->nholders, 1);
    assert_int_equal(l->holders[0].pid, 200);
    for (size_t i = 0; i < s->nchains; i++)
        assert_false(s->chains[i].cycle);
    snapshot_free(s);
    world_free(c.w);
}

/* Nobody that could be named -------------------------------------------------------------- */

static void test_taker_that_has_exited(void **state UNUSED)
{
    struct scene c = scene_new(1);
    struct file_holder *h = holds(&c.f, 200, c.lock);

    h->taker = 11739; /* left its descriptor to 200 */
    h->taker_gone = true;
    looks(c.w, &c.f, 51);
    struct snapshot *s = snapshot_now(c.w);
    assert_int_equal(only_holder(s)->tid, 200);
    expect_text(only_holder(s)->detail,
                "; by a descriptor shared with the original locker 11739, which has exited");
    snapshot_free(s);
    h->pid = 0; /* and now nobody is found */
    h->fd = -1;
    h->now = false;
    looks(c.w, &c.f, 51);
    s = snapshot_now(c.w);
    assert_int_equal(only_holder(s)->pid, -1);
    assert_int_equal(only_holder(s)->tid, -1);
    assert_int_equal(only_holder(s)->fd, -1);
    assert_int_equal(only_holder(s)->confidence, CONF_UNKNOWN);
    assert_string_equal(only_holder(s)->detail, "its original locker 11739 has exited; who got the "
                                                "descriptor from it was not found");
    /* The lock is held all the same: no owner that is gone, no deadlock. */
    assert_int_equal(s->chains[0].end, CHAIN_UNNAMED);
    assert_int_equal(s->severity, SEVERITY_WARNING);
    expect_text(s->verdict, "; holder: its original locker 11739 has exited");
    snapshot_free(s);
    world_free(c.w);
}

static void test_nobody_seen(void **state UNUSED)
{
    struct scene c = scene_new(1);

    c.f.files[0].searched = false; /* they are still looked for */
    looks(c.w, &c.f, 5);
    struct snapshot *s = snapshot_now(c.w);
    assert_int_equal(lock_named(s, ID)->nholders, 0);
    assert_int_equal(s->nchains, 0);
    snapshot_free(s);
    c.f.files[0].searched = true;
    looks(c.w, &c.f, 5);
    s = snapshot_now(c.w);
    assert_int_equal(only_holder(s)->pid, -1);
    assert_int_equal(only_holder(s)->confidence, CONF_UNKNOWN);
    expect_text(only_holder(s)->detail, "held by a process that cannot be seen here");
    snapshot_free(s);
    world_free(c.w);
}

/* flock on NFS: its holder may be on another machine, and there need not be one. */
static void test_nfs_server(void **state UNUSED)
{
    struct scene c = scene_new(1);
    const char *text = "waits for NFS server (lockd) 10.0.0.5:/x: its holder is on another "
                       "machine, or the server has no lock manager";

    c.f.files[0].fs = FS_NFS;
    c.f.files[0].server = "10.0.0.5:/x";
    thread_of(c.waiter, 100)->fact.wchan = "nlmclnt_lock";
    thread_of(c.waiter, 100)->fact.uninterruptible = true;
    looks(c.w, &c.f, 51);
    struct snapshot *s = snapshot_now(c.w);
    assert_string_equal(only_holder(s)->detail, text);
    assert_int_equal(only_holder(s)->tid, -1);
    assert_string_equal(s->chains[0].detail, text);
    assert_int_equal(s->chains[0].end, CHAIN_UNNAMED);
    expect_text(s->verdict, "flock on /run/app.lock; holder: waits for NFS server (lockd)");
    snapshot_free(s);
    /* A holder on this machine is named as on any other file system. */
    holds(&c.f, 200, c.lock);
    looks(c.w, &c.f, 5);
    s = snapshot_now(c.w);
    assert_int_equal(only_holder(s)->tid, 200);
    snapshot_free(s);
    world_free(c.w);
}

/* A FUSE server that locks a file on its own file system waits for itself. */
static void test_fuse_daemon(void **state UNUSED)
{
    struct scene c = scene_new(1);

    c.f.files[0].fs = FS_FUSE;
    c.f.files[0].server = "/mnt/data";
    c.f.files[0].fuse_daemon = 100;
    looks(c.w, &c.f, 51);
    struct snapshot *s = snapshot_now(c.w);
    assert_string_equal(only_holder(s)->detail,
                        "waits for FUSE daemon 100 (the same process!), which serves /mnt/data");
    expect_text(s->verdict, "(the same process!)");
    snapshot_free(s);
    c.f.files[0].fuse_daemon = 7368;
    looks(c.w, &c.f, 5);
    s = snapshot_now(c.w);
    assert_string_equal(only_holder(s)->detail,
                        "waits for FUSE daemon 7368, which serves /mnt/data");
    snapshot_free(s);
    world_free(c.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_holder),
        cmocka_unit_test(test_a_holder_of_a_second_ago),
        cmocka_unit_test(test_who_has_just_got_it),
        cmocka_unit_test(test_process_of_several_threads),
        cmocka_unit_test(test_outsider),
        cmocka_unit_test(test_shared_holders),
        cmocka_unit_test(test_reader_waits_for_the_writer_only),
        cmocka_unit_test(test_own_posix_lock),
        cmocka_unit_test(test_taker_that_has_exited),
        cmocka_unit_test(test_nobody_seen),
        cmocka_unit_test(test_nfs_server),
        cmocka_unit_test(test_fuse_daemon),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* unit_kernelwait - locks inside the kernel, by the function in which threads sleep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../src/kernelwait.h"
#include "../src/lockkey.h"
#include "model_build.h"

#define PID 100

/* Families ------------------------------------------------------------------------------ */

static const struct {
    const char *wchan, *family;
    enum kernel_scope scope;
} known[] = {
    {"mmap_read_lock_killable", "mmap_lock", KERNEL_PROCESS},
    {"do_user_addr_fault", "mmap_lock", KERNEL_PROCESS},
    {"vm_mmap_pgoff", "mmap_lock", KERNEL_PROCESS},
    {"__vm_munmap", "mmap_lock", KERNEL_PROCESS},
    {"do_mprotect_pkey.constprop.0", "mmap_lock", KERNEL_PROCESS},
    {"ext4_buffered_write_iter", "inode lock", KERNEL_FILE},
    {"ext4_dio_write_iter", "inode lock", KERNEL_FILE},
    {"xfs_ilock", "inode lock", KERNEL_FILE},
    {"xfs_file_buffered_write", "inode lock", KERNEL_FILE},
    {"btrfs_inode_lock", "inode lock", KERNEL_FILE},
    {"generic_file_write_iter", "inode lock", KERNEL_FILE},
    {"open_last_lookups", "inode lock", KERNEL_FILE},
    {"jbd2_log_wait_commit", "journal", KERNEL_ALL},
    {"wait_transaction_locked", "journal", KERNEL_ALL},
    {"start_this_handle", "journal", KERNEL_ALL},
    {"xlog_grant_head_wait", "journal", KERNEL_ALL},
    {"xfs_log_force_seq", "journal", KERNEL_ALL}, /* and not an inode lock, as xfs_file_ is */
    {"nlmclnt_block", "NFS server", KERNEL_ALL},
    {"nfs_wait_bit_killable", "NFS server", KERNEL_ALL},
    {"nfs4_proc_lock", "NFS server", KERNEL_ALL},
    {"rpc_wait_bit_killable", "NFS server", KERNEL_ALL},
    {"request_wait_answer", "FUSE daemon", KERNEL_ALL},
    {"fuse_lock_inode", "FUSE daemon", KERNEL_ALL},
    {"__fuse_simple_request", "FUSE daemon", KERNEL_ALL},
};

static const struct kernel_family *family(const char *wchan, enum seen seen)
{
    const struct thread_fact f = {.seen = seen, .call = CALL_write, .wchan = wchan};

    return kernelwait_of(&f);
}

static void test_families(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        const struct kernel_family *k = family(known[i].wchan, SEEN_CALL);
        if (!k)
            fail_msg("%s is not known", known[i].wchan);
        assert_string_equal(k->name, known[i].family);
        assert_int_equal(k->scope, known[i].scope);
    }
}

/* What is waited for there is a device, a peer, an event or time: nobody holds these. */
static void test_no_locks(void **state UNUSED)
{
    static const char *const others[] = {
        "folio_wait_bit_common", "io_schedule", "blk_mq_get_tag", "futex_wait_queue",
        "do_epoll_wait", "hrtimer_nanosleep", "pipe_read", "locks_lock_inode_wait", "fcntl_setlk",
        "wait_woken", "do_wait", "unknown_function_of_tomorrow", "0", "",
    };

    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        if (family(others[i], SEEN_CALL))
            fail_msg("%s is taken for a lock", others[i]);
    }
    assert_null(family(NULL, SEEN_CALL));
}

static void test_only_of_who_is_blocked(void **state UNUSED)
{
    assert_non_null(family("do_user_addr_fault", SEEN_FAULT));
    assert_null(family("do_user_addr_fault", SEEN_ACTIVE));
    assert_null(family("do_user_addr_fault", SEEN_STOPPED));
    assert_null(family("do_user_addr_fault", SEEN_UNREADABLE));
    /* Whatever stands behind the prefix, but not before it. */
    assert_non_null(family("jbd2_journal_commit_of_tomorrow", SEEN_CALL));
    assert_null(family("do_jbd2_log_wait_commit", SEEN_CALL));
}

static void test_families_have_numbers_of_their_own(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        const struct kernel_family *a = family(known[i].wchan, SEEN_CALL);
        for (size_t k = 0; k < i; k++) {
            const struct kernel_family *b = family(known[k].wchan, SEEN_CALL);
            assert_int_equal(a->number == b->number, strcmp(a->name, b->name) == 0);
        }
    }
}

/* Keys ------------------------------------------------------------------------------------ */

static const struct process_fact proc1 = {.pid = 100, .start_ticks = 7};
static const struct process_fact proc2 = {.pid = 200, .start_ticks = 8};

static const char *id_of(const struct lockkey *key)
{
    static char text[128];

    lockkey_text(text, sizeof(text), key);
    return text;
}

/* A place is the same for all processes; without one, each has its own. */
static void test_kernel_keys(void **state UNUSED)
{
    struct process_fact reused = proc1;
    struct lockkey here = lockkey_kernel(1, &proc1, "/srv/a");
    struct lockkey same = lockkey_kernel(1, &proc2, "/srv/a");
    struct lockkey there = lockkey_kernel(1, &proc1, "/srv/b");
    struct lockkey other = lockkey_kernel(2, &proc1, "/srv/a");

    assert_memory_equal(&here, &same, sizeof(here));
    assert_memory_not_equal(&here, &there, sizeof(here));
    assert_memory_not_equal(&here, &other, sizeof(here));
    here = lockkey_kernel(1, &proc1, NULL);
    assert_string_equal(id_of(&here), "kernel:1:100");
    there = lockkey_kernel(1, &proc2, NULL);
    assert_memory_not_equal(&here, &there, sizeof(here));
    reused.start_ticks++;
    there = lockkey_kernel(1, &reused, NULL);
    assert_memory_not_equal(&here, &there, sizeof(here));
    here = lockkey_kernel(1, &proc1, "/srv/a");
    assert_int_equal(strncmp(id_of(&here), "kernel:1:", 9), 0);
    assert_string_not_equal(id_of(&here), "kernel:1:100");
}

/* Rows ---------------------------------------------------------------------------------- */

/* Thread TID sleeps in CALL on the file PATH, in the kernel function WCHAN. */
static void sleeps_in(struct built_process *p, pid_t tid, enum call call, const char *wchan,
                      const char *path)
{
    calls(p, tid, call);
    struct thread_fact *f = &thread_of(p, tid)->fact;
    f->wchan = wchan;
    f->uninterruptible = true;
    f->fd = 3;
    f->fd_kind = FD_FILE;
    f->fd_path = path;
}

static size_t kernel_rows(const struct snapshot *s, const struct snap_lock **first)
{
    size_t n = 0;

    *first = NULL;
    for (size_t i = 0; i < s->nlocks; i++) {
        if (s->locks[i].class != CLASS_KERNEL)
            continue;
        assert_int_equal(s->locks[i].kind, KIND_KERNEL);
        *first = n++ ? *first : &s->locks[i];
    }
    return n;
}

static void expect_rows(struct world *w, size_t n)
{
    const struct snap_lock *l;
    struct snapshot *s = snapshot_now(w);

    assert_int_equal(kernel_rows(s, &l), n);
    snapshot_free(s);
}

static void test_one_sleeper_is_no_lock(void **state UNUSED)
{
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 3);

    sleeps_in(p, 100, CALL_write, "ext4_buffered_write_iter", "/srv/log");
    sweeps(w, 20, TICK);
    expect_rows(w, 0);
    struct snapshot *s = snapshot_now(w);
    assert_null(strstr(s->verdict, "inode"));
    assert_int_equal(s->severity, SEVERITY_INFO);
    snapshot_free(s);
    /* One after the other is none either. */
    wakes(p, 100);
    sleeps_in(p, 101, CALL_write, "ext4_buffered_write_iter", "/srv/log");
    sweeps(w, 5, TICK);
    expect_rows(w, 0);
    world_free(w);
}

static void test_several_sleepers_make_a_row(void **state UNUSED)
{
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 4);
    const struct snap_lock *l;

    for (pid_t tid = 100; tid < 103; tid++)
        sleeps_in(p, tid, CALL_write, "ext4_buffered_write_iter", "/srv/log");
    sweeps(w, 5, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(kernel_rows(s, &l), 1);
    assert_string_equal(l->name, "inode lock of /srv/log");
    assert_int_equal(l->waiters, 3);
    assert_int_equal(l->nwaiter_threads, 3);
    assert_int_equal(l->confidence, CONF_LIKELY); /* a name of a function is all there is */
    assert_int_equal(l->nholders, 0);             /* the kernel does not tell */
    assert_int_equal(l->held, -1);
    assert_int_equal(strncmp(l->id, "kernel:", 7), 0);
    for (size_t i = 0; i < l->nwaiter_threads; i++)
        assert_null(l->waiter_threads[i].blocked_by);
    assert_int_equal(s->nchains, 0);
    assert_true(s->processes[0].states[THREAD_KERNEL] > 2.9);
    snapshot_free(s);
    world_free(w);
}

static void test_each_file_has_its_own(void **state UNUSED)
{
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    for (pid_t tid = 100; tid < 104; tid++)
        sleeps_in(p, tid, CALL_write, "xfs_ilock", tid & 1 ? "/srv/a" : "/srv/b");
    sweeps(w, 3, TICK);
    expect_rows(w, 2);
    world_free(w);
}

/* Two in two files are not two in one lock. */
static void test_one_in_each_file_is_no_lock(void **state UNUSED)
{
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 3);

    sleeps_in(p, 100, CALL_write, "xfs_ilock", "/srv/a");
    sleeps_in(p, 101, CALL_write, "xfs_ilock", "/srv/b");
    sweeps(w, 5, TICK);
    expect_rows(w, 0);
    world_free(w);
}

/* A memory map is one process's, a file is everybody's. */
static void test_processes(void **state UNUSED)
{
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 3), *q = add_busy_process(w, 200, 3);
    const struct snap_lock *l;

    sleeps_in(p, 100, CALL_write, "inode_lock_nested", "/srv/a");
    sleeps_in(q, 200, CALL_write, "inode_lock_nested", "/srv/a");
    calls(p, 101, CALL_OTHER);
    calls(q, 201, CALL_OTHER);
    thread_of(p, 101)->fact.wchan = thread_of(q, 201)->fact.wchan = "vm_mmap_pgoff";
    sweeps(w, 5, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(kernel_rows(s, &l), 1);
    assert_string_equal(l->name, "inode lock of /srv/a");
    assert_int_equal(l->pid, -1); /* of both */
    snapshot_free(s);
    thread_of(p, 102)->fact.seen = SEEN_FAULT; /* by another way to the same lock */
    thread_of(p, 102)->fact.wchan = "do_user_addr_fault";
    sweeps(w, 5, TICK);
    s = snapshot_now(w);
    assert_int_equal(kernel_rows(s, &l), 2);
    l = snapshot_lock(s, "kernel:0:100");
    assert_non_null(l);
    assert_string_equal(l->name, "mmap_lock");
    assert_int_equal(l->waiters, 2);
    assert_int_equal(l->pid, 100);
    assert_null(snapshot_lock(s, "kernel:0:200"));
    snapshot_free(s);
    world_free(w);
}

/* Who goes on leaves the row; it stays, empty, for what it was in the last minute. */
static void test_who_goes_on_waits_no_more(void **state UNUSED)
{
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 3);
    const struct snap_lock *l;

    sleeps_in(p, 100, CALL_fsync, "jbd2_log_wait_commit", "/srv/a");
    sleeps_in(p, 101, CALL_fsync, "jbd2_log_wait_commit", "/srv/a");
    sweeps(w, 5, TICK);
    wakes(p, 100);
    calls(p, 101, CALL_OTHER);
    thread_of(p, 100)->fact.wchan = thread_of(p, 101)->fact.wchan = NULL;
    sweeps(w, 5, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(kernel_rows(s, &l), 1);
    assert_int_equal(l->waiters, 0);
    assert_int_equal(l->waiters_max, 2);
    assert_true(l->waiters_avg_10s > 0.9 && l->waiters_avg_10s < 1.1);
    snapshot_free(s);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_no_locks),
        cmocka_unit_test(test_only_of_who_is_blocked),
        cmocka_unit_test(test_families_have_numbers_of_their_own),
        cmocka_unit_test(test_kernel_keys),
        cmocka_unit_test(test_one_sleeper_is_no_lock),
        cmocka_unit_test(test_several_sleepers_make_a_row),
        cmocka_unit_test(test_each_file_has_its_own),
        cmocka_unit_test(test_one_in_each_file_is_no_lock),
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_who_goes_on_waits_no_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The source on captured trees and on trees that change under it as no kernel can be made to. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "source_tree.h"

static void assert_pattern(const struct word_view *v, uint64_t addr)
{
    assert_int_equal(v->lo, 0);
    assert_int_equal(v->hi, WORD_WINDOW);
    for (int i = 0; i < WORD_WINDOW; i++)
        assert_int_equal(v->bytes[i], (uint8_t)(addr - WORD_BEFORE + (uint64_t)i));
}

static void watch_fixture(struct watch *w, const char *tree, const pid_t *pid)
{
    char root[64];

    snprintf(root, sizeof(root), "tests/fixtures/%s", tree);
    watch_tree(w, root, read_pattern, pid, 1);
}

/* Captured trees ----------------------------------------------------------------------------- */

static void test_threads(void **state UNUSED)
{
    const pid_t pid = 8326;
    struct watch w;

    watch_fixture(&w, "proc-threads", &pid);
    sweep(&w);
    assert_int_equal(w.alive, 1);
    assert_int_equal(w.s.nprocesses, 1);
    const struct process_fact *p = &w.s.processes[0];
    assert_string_equal(p->comm, "a) R 1 1 (\n\033[m");
    assert_int_equal(p->nthreads, 3);
    assert_int_equal(p->libc, LIBC_GLIBC);
    assert_false(p->nested_pidns);

    const struct thread_fact *f = thread_in(&w.s, 8333);
    assert_int_equal(f->seen, SEEN_CALL);
    assert_int_equal(f->futex.addr, 0x5584a9eb40e0);
    assert_int_equal(f->futex.cmd, FUTEX_WAIT);
    assert_true(f->futex.is_private);
    assert_int_equal(f->runs, 1);
    const struct word_fact *word = word_of(&w.s, f);
    assert_int_equal(word->region, REGION_FILE);
    assert_string_equal(word->path, "/srv/shop/shopd");
    assert_int_equal(word->offset, 0x30e0);
    assert_pattern(&word->late, word->addr);
    assert_int_equal(word->early.lo, word->early.hi); /* it is new */

    f = thread_in(&w.s, 8326); /* joins 8333 */
    assert_int_equal(f->futex.val, 0x208d);
    assert_int_equal(word_of(&w.s, f)->region, REGION_ANON);
    assert_int_equal(thread_in(&w.s, 8334)->call, CALL_clock_nanosleep);
    assert_int_equal(thread_in(&w.s, 8334)->word, -1);

    sweep(&w);
    f = thread_in(&w.s, 8333);
    assert_false(f->fresh);
    assert_pattern(&word_of(&w.s, f)->early, 0x5584a9eb40e0);
    assert_int_equal(w.s.self.unreadable, 0);
    watch_end(&w);
}

static void test_zombie_leader(void **state UNUSED)
{
    const pid_t pid = 8327;
    struct watch w;

    watch_fixture(&w, "proc-zombie", &pid);
    for (int i = 0; i < 3; i++) {
        sweep(&w);
        assert_int_equal(w.alive, 1);
        assert_int_equal(thread_in(&w.s, 8327)->seen, SEEN_DEAD);
        assert_int_equal(thread_in(&w.s, 8329)->seen, SEEN_CALL);
    }
    watch_end(&w);
}

static void test_pid_namespace(void **state UNUSED)
{
    const pid_t pid = 8330;
    struct watch w;

    watch_fixture(&w, "proc-pidns", &pid);
    sweep(&w);
    assert_true(w.s.processes[0].nested_pidns);
    assert_int_equal(thread_in(&w.s, 8330)->ns_tid, 1);
    assert_int_equal(thread_in(&w.s, 8331)->ns_tid, 2);
    watch_end(&w);
}

static void test_no_tree(void **state UNUSED)
{
    struct source_proc_config cfg = {.root = "/does/not/exist", .read_memory = read_pattern};
    int err = 0;

    assert_null(source_proc_new(&cfg, &err));
    assert_int_equal(err, ENOENT);
}

/* Trees that change -------------------------------------------------------------------------- */

static void test_gate(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    open_tree(&t, &w, 'S');
    tree_thread(&t, PID, 4001, 101, 9, LOCK);
    const struct thread_fact *f = look(&w, 4001);
    assert_true(f->fresh);
    assert_int_equal(f->since, w.s.mono);
    nsec_t since = f->since;
    /* The run count stands: whatever the file says now, the thread has slept on. */
    tree_put(&t, "4000/task/4001/syscall", "%s\n", IDLE);
    f = look(&w, 4001);
    assert_false(f->fresh);
    assert_int_equal(f->call, CALL_futex);
    assert_int_equal(f->since, since);
    assert_int_equal(word_of(&w.s, f)->addr, 0x5000);
    tree_put(&t, "4000/task/4001/schedstat", "9001 600 9\n");
    assert_false(look(&w, 4001)->fresh);
    assert_int_equal(thread_in(&w.s, 4001)->runq_ns, 600);
    tree_put(&t, "4000/task/4001/schedstat", "9500 600 10\n");
    f = look(&w, 4001);
    assert_true(f->fresh);
    assert_int_equal(f->call, CALL_clock_nanosleep);
    assert_int_equal(f->since, w.s.mono);
    assert_int_equal(f->futex.addr, 0);
    assert_int_equal(f->word, -1);
    assert_int_equal(f->run_ns, 9500);
    /* One that runs is looked at each time. */
    tree_put(&t, "4000/task/4001/schedstat", "9600 600 11\n");
    tree_put(&t, "4000/task/4001/syscall", "running\n");
    f = look(&w, 4001);
    assert_int_equal(f->seen, SEEN_ACTIVE);
    assert_int_equal(f->since, 0);
    tree_put(&t, "4000/task/4001/syscall", "%s\n", LOCK);
    f = look(&w, 4001);
    assert_true(f->fresh && f->seen == SEEN_CALL && f->word >= 0);
    close_tree(&t, &w);
}

static void test_bad_lines(void **state UNUSED)
{
    static const char *const bad[] = {"", "202", "202 0x5000 0x80", "forty 0x1", "running",
                                      "-1 0x1"};
    struct tree t;
    struct watch w;
    unsigned runs = 2;

    open_tree(&t, &w, 'S');
    tree_thread(&t, PID, 4001, 101, runs, LOCK);
    assert_int_equal(look(&w, 4001)->seen, SEEN_CALL);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        tree_put(&t, "4000/task/4001/syscall", "%s", bad[i]);
        tree_put(&t, "4000/task/4001/schedstat", "900000 1 %u\n", ++runs);
        const struct thread_fact *f = look(&w, 4001);
        assert_int_equal(f->seen, SEEN_UNREADABLE);
        assert_int_equal(f->futex.addr, 0);
        assert_int_equal(f->word, -1);
        assert_int_equal(f->fd, -1);
        assert_int_equal(w.s.self.unreadable, i + 1);
        assert_int_equal(w.alive, 1);
    }
    tree_put(&t, "4000/task/4001/syscall", "%s\n", LOCK);
    assert_int_equal(look(&w, 4001)->seen, SEEN_CALL);
    /* Without a run count every look is a fresh one. */
    tree_put(&t, "4000/task/4001/schedstat", "what?\n");
    assert_true(look(&w, 4001)->fresh);
    assert_true(look(&w, 4001)->fresh);
    close_tree(&t, &w);
}

static void test_garbage_registers(void **state UNUSED)
{
    struct tree t;
    struct watch w;
    static const char *const lines[] = {
        "202 0xffffffffffffff80 0xdeadbeef00000080 0xffffffff80000010 0x1 0x2 0x3 0x4 0x5",
        "202 0x4 0x80 0x2 0x0 0x0 0x0 0x4 0x5",
        "202 0xfffffffffffffff0 0x80 0x2 0x0 0x0 0x0 0x4 0x5",
    };

    open_tree(&t, &w, 'S');
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        tree_thread(&t, PID, 4001, 101, 10 + (unsigned)i, lines[i]);
        const struct thread_fact *f = look(&w, 4001);
        assert_int_equal(f->call, CALL_futex);
        const struct word_fact *word = word_of(&w.s, f);
        assert_int_equal(word->region, REGION_UNKNOWN);
        assert_int_equal(word->late.lo, word->late.hi); /* at no end of the address space */
        look(&w, 4001);
    }
    tree_thread(&t, PID, 4001, 101, 50, "0 0xffffffff 0x0 0x0 0x0 0x0 0x0 0x4 0x5");
    const struct thread_fact *f = look(&w, 4001);
    assert_int_equal(f->call, CALL_read);
    assert_int_equal(f->fd, -1);
    tree_thread(&t, PID, 4001, 101, 51, "999999 0x0 0x0 0x0 0x0 0x0 0x0 0x4 0x5");
    f = look(&w, 4001);
    assert_int_equal(f->call, CALL_OTHER);
    assert_int_equal(f->nr, 999999);
    tree_thread(&t, PID, 4001, 101, 52, "-1 0x7ffc 0x5");
    assert_int_equal(look(&w, 4001)->seen, SEEN_FAULT);
    close_tree(&t, &w);
}

/* Thread 4001 has run again and is now in this call. */
static void now_in(const struct tree *t, const char *line)
{
    static unsigned runs = 100;

    tree_thread(t, PID, 4001, 101, ++runs, line);
}

static void test_restart(void **state UNUSED)
{
#define ARGS "0x5000 0x189 0x0 0x7f00 0x0 0xffffffff 0x7ffc0000 0x7f02"
    static const struct {
        const char *wchan;
        enum call call;
    } by_wchan[] = {
        {"futex_do_wait", CALL_futex},          {"futex_wait_queue_me", CALL_futex},
        {"hrtimer_nanosleep", CALL_nanosleep},  {"do_nanosleep", CALL_nanosleep},
        {"poll_schedule_timeout", CALL_poll},   {"do_sys_poll", CALL_poll},
        {"0", CALL_restart_syscall},            {"do_syscall_64", CALL_restart_syscall},
    };
    struct tree t;
    struct watch w;

    open_tree(&t, &w, 'S');
    now_in(&t, "219 " ARGS);
    for (size_t i = 0; i < ARRAY_SIZE(by_wchan); i++) {
        watch_end(&w);
        watch_tree(&w, t.root, read_pattern, &the_pid, 1);
        tree_put(&t, "4000/task/4001/wchan", "%s", by_wchan[i].wchan);
        const struct thread_fact *f = look(&w, 4001);
        assert_int_equal(f->nr, 219);
        assert_int_equal(f->call, by_wchan[i].call);
        assert_int_equal(f->futex.addr, f->call == CALL_futex ? 0x5000 : 0);
    }
    /* What the line said before decides, whatever the kernel's function is called. */
    tree_put(&t, "4000/task/4001/wchan", "0");
    now_in(&t, "202 " ARGS);
    assert_int_equal(look(&w, 4001)->nr, 202);
    for (int i = 0; i < 2; i++) { /* a restarted call may be restarted again */
        now_in(&t, "219 " ARGS);
        const struct thread_fact *f = look(&w, 4001);
        assert_int_equal(f->nr, 219);
        assert_int_equal(f->call, CALL_futex);
        assert_true(f->futex.timed);
        assert_int_equal(word_of(&w.s, f)->addr, 0x5000);
        now_in(&t, "running");
        assert_int_equal(look(&w, 4001)->seen, SEEN_ACTIVE);
    }
    now_in(&t, "219 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8"); /* something else */
    assert_int_equal(look(&w, 4001)->call, CALL_restart_syscall);
    close_tree(&t, &w);
#undef ARGS
}

static void test_new_futex_calls(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    open_tree(&t, &w, 'S');
    tree_thread(&t, PID, 4001, 101, 3, "455 0x5000 0x2 0xffffffff 0x82 0x0 0x1 0x7ffc 0x1");
    const struct thread_fact *f = look(&w, 4001);
    assert_int_equal(f->call, CALL_futex_wait);
    assert_int_equal(f->futex.val, 2);
    assert_true(f->futex.is_private);
    assert_int_equal(word_of(&w.s, f)->addr, 0x5000);
    /* futex_waitv: its words are read from memory, here bytes that count up. */
    tree_thread(&t, PID, 4001, 101, 4, "449 0x6000 0x3 0x0 0x0 0x0 0x1 0x7ffc 0x1");
    f = look(&w, 4001);
    assert_int_equal(f->call, CALL_futex_waitv);
    assert_int_equal(f->futex.words, 3);
    assert_int_equal(f->futex.val, 0x03020100);
    assert_int_equal(f->futex.addr, 0x0f0e0d0c0b0a0908);
    tree_thread(&t, PID, 4001, 101, 5, "449 0x6000 0x3 0x0 0x0 0x0 0x1 0x7ffc 0x2");
    refuse = -EFAULT;
    f = look(&w, 4001);
    assert_int_equal(f->seen, SEEN_CALL);
    assert_int_equal(f->futex.addr, 0);
    assert_int_equal(f->word, -1);
    assert_int_equal(w.s.self.unreadable, 1);
    close_tree(&t, &w);
}

static void test_32_bit(void **state UNUSED)
{
    static const unsigned char elf32[20] = {0x7f, 'E', 'L', 'F', 1, 1, 1, [16] = 2, [18] = 3};
    struct tree t;
    struct watch w;
    char path[96];

    tree_new(&t);
    tree_process(&t, PID, 'S');
    tree_thread(&t, PID, PID, 100, 5, "240 0x5000 0x80 0x2 0x0 0x0 0x0 0xffc0 0x1");
    tree_thread(&t, PID, 4001, 100, 5, "202 0x5000 0x80 0x2 0x0 0x0 0x0 0xffc0 0x1");
    snprintf(path, sizeof(path), "%s/%d/exe", t.root, PID);
    FILE *f = fopen(path, "w");
    assert_int_equal(fwrite(elf32, 1, sizeof(elf32), f), sizeof(elf32));
    fclose(f);
    watch_tree(&w, t.root, read_pattern, &the_pid, 1);
    sweep(&w);
    assert_int_equal(w.s.processes[0].abi, ABI_COMPAT);
    assert_int_equal(thread_in(&w.s, PID)->call, CALL_futex);
    assert_int_equal(thread_in(&w.s, PID)->futex.addr, 0x5000);
    assert_int_not_equal(thread_in(&w.s, 4001)->call, CALL_futex);
    close_tree(&t, &w);
}

static void test_come_and_go(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    open_tree(&t, &w, 'S');
    tree_thread(&t, PID, 4001, 101, 3, LOCK);
    uint32_t slot = look(&w, 4001)->slot;
    tree_end_thread(&t, PID, 4001);
    tree_thread(&t, PID, 4002, 102, 3, LOCK);
    nsec_t end = clock_mono() + PATIENCE;
    while (!look(&w, 4002) || thread_in(&w.s, 4001)) {
        if (clock_mono() > end)
            fail_msg("the list of threads was not renewed");
        nap();
    }
    assert_int_equal(w.s.self.vanished, 1);
    tree_thread(&t, PID, 4003, 103, 3, LOCK);
    uint32_t third = look(&w, 4003)->slot;
    assert_true(thread_in(&w.s, 4002)->slot == slot || third == slot); /* used again */
    assert_int_not_equal(thread_in(&w.s, 4002)->slot, third);
    tree_remove(&t, "4000");
    sweep(&w);
    assert_int_equal(w.alive, 0);
    assert_true(w.s.processes[0].ended);
    close_tree(&t, &w);
}

/* A TID in other hands: counts that fall tell. */
static void test_tid_reused(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    open_tree(&t, &w, 'S');
    tree_thread(&t, PID, 4001, 101, 300, LOCK);
    assert_int_equal(look(&w, 4001)->start_ticks, 101);
    tree_thread(&t, PID, 4001, 999, 2, IDLE);
    sweep(&w);
    const struct thread_fact *f = look(&w, 4001);
    assert_int_equal(f->start_ticks, 999);
    assert_int_equal(f->call, CALL_clock_nanosleep);
    assert_int_equal(f->runs, 2);
    assert_int_equal(w.s.self.vanished, 1);
    close_tree(&t, &w);
}

static void test_stopped(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    open_tree(&t, &w, 'T');
    tree_thread(&t, PID, 4001, 101, 3, LOCK);
    tree_thread(&t, PID, 4002, 101, 3, "-1 0x0 0x0");
    const struct thread_fact *f = look(&w, 4001);
    assert_int_equal(f->seen, SEEN_STOPPED);
    assert_int_equal(f->call, CALL_futex);
    assert_int_equal(thread_in(&w.s, 4002)->seen, SEEN_DEAD);
    assert_int_equal(w.alive, 1);
    close_tree(&t, &w);
}

/* The files of a leader that has exited belong to root: what cannot be read is no failure then. */
static void test_dead_leader_unreadable(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    tree_new(&t);
    tree_process(&t, PID, 'Z');
    tree_thread(&t, PID, PID, 100, 5, IDLE);
    tree_remove(&t, "4000/task/4000/syscall");
    tree_put(&t, "4000/task/4000/syscall/x", "%s", ""); /* a directory cannot be read either */
    tree_thread(&t, PID, 4001, 101, 3, LOCK);
    watch_tree(&w, t.root, read_pattern, &the_pid, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(look(&w, PID)->seen, SEEN_DEAD);
        assert_int_equal(thread_in(&w.s, 4001)->seen, SEEN_CALL);
        assert_int_equal(asked, 4001);
    }
    assert_int_equal(w.s.processes[0].rss_kb, -1);
    assert_int_equal(w.s.self.unreadable, 0);
    tree_end_thread(&t, PID, 4001);
    nsec_t end = clock_mono() + PATIENCE;
    do {
        sweep(&w);
        assert_true(clock_mono() < end);
        nap();
    } while (w.alive);
    assert_true(w.s.processes[0].ended);
    close_tree(&t, &w);
}

static void test_no_schedstat(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    open_tree(&t, &w, 'S');
    tree_put(&t, "4000/task/4000/schedstat", "0 0 0\n");
    sweep(&w);
    assert_true(w.s.self.no_schedstat);
    for (int i = 0; i < 3; i++)
        assert_true(look(&w, PID)->fresh);
    tree_thread(&t, PID, 4001, 101, 3, LOCK);
    sweep(&w);
    sweep(&w);
    assert_false(w.s.self.no_schedstat);
    close_tree(&t, &w);
}

static void test_memory_refused(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    open_tree(&t, &w, 'S');
    tree_thread(&t, PID, 4001, 101, 3, LOCK);
    refuse = -ESRCH; /* a thread that has just ended: nothing to complain of */
    sweep(&w);
    assert_false(w.s.self.no_memory);
    refuse = -EPERM;
    const struct thread_fact *f = look(&w, 4001);
    const struct word_fact *word = word_of(&w.s, f);
    assert_int_equal(word->late.lo, word->late.hi);
    assert_int_equal(word->early.lo, word->early.hi);
    assert_true(w.s.self.no_memory);
    assert_int_equal(w.s.self.denied_errno, EPERM);
    close_tree(&t, &w);
}

static void test_two_processes(void **state UNUSED)
{
    static const pid_t pids[] = {PID, 5000};
    struct tree t;
    struct watch w;

    tree_new(&t);
    tree_process(&t, PID, 'S');
    tree_thread(&t, PID, PID, 100, 5, LOCK);
    tree_process(&t, 5000, 'S');
    tree_thread(&t, 5000, 5000, 100, 5, LOCK);
    watch_tree(&w, t.root, read_pattern, pids, 2);
    sweep(&w);
    assert_int_equal(w.alive, 2);
    const struct thread_fact *a = thread_in(&w.s, PID), *b = thread_in(&w.s, 5000);
    assert_int_not_equal(a->slot, b->slot);
    assert_int_not_equal(a->word, b->word);
    assert_int_equal(w.s.processes[w.s.words[a->word].process].pid, PID);
    assert_int_equal(w.s.processes[w.s.words[b->word].process].pid, 5000);
    tree_remove(&t, "4000");
    sweep(&w);
    assert_int_equal(w.alive, 1);
    assert_int_equal(w.s.nprocesses, 2);
    sweep(&w);
    assert_int_equal(w.s.nprocesses, 1);
    assert_int_equal(w.s.words[thread_in(&w.s, 5000)->word].process, 0);
    close_tree(&t, &w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fixture_test(test_threads),       fixture_test(test_zombie_leader),
        fixture_test(test_pid_namespace), fixture_test(test_no_tree),
        fixture_test(test_gate),          fixture_test(test_bad_lines),
        fixture_test(test_garbage_registers),
        fixture_test(test_restart),       fixture_test(test_new_futex_calls),
        fixture_test(test_32_bit),        fixture_test(test_come_and_go),
        fixture_test(test_tid_reused),    fixture_test(test_stopped),
        fixture_test(test_dead_leader_unreadable),
        fixture_test(test_no_schedstat),  fixture_test(test_memory_refused),
        fixture_test(test_two_processes),
    };

    return cmocka_run_group_tests_name("source_fixture", tests, NULL, NULL);
}

/* A sweep over several processes, and what one that goes wrong must not do to the others. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <sys/inotify.h>

#include <cmocka.h>

#include "source_tree.h"

/* Who is a thread, and of whom ----------------------------------------------------------- */

/* Where they have risen (files that are not kept open), the start tells, with the name. */
static void test_tid_reused_by_a_busy_one(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    open_tree(&t, &w, 'S');
    tree_thread(&t, PID, 4001, 101, 300, LOCK);
    assert_int_equal(look(&w, 4001)->start_ticks, 101);
    tree_thread(&t, PID, 4001, 999, 400, IDLE);
    nsec_t end = clock_mono() + PATIENCE;
    while (!look(&w, 4001) || thread_in(&w.s, 4001)->start_ticks != 999) {
        if (clock_mono() > end)
            fail_msg("another thread was taken for the one that bore its TID before");
        nap();
    }
    assert_int_equal(w.s.self.vanished, 1);
    close_tree(&t, &w);
}

/* The kernel's list of threads can leave one out that lives. */
static void test_list_leaves_one_out(void **state UNUSED)
{
    struct tree t;
    struct watch w;
    char task[96], moved[96];

    open_tree(&t, &w, 'S');
    tree_thread(&t, PID, 4001, 101, 3, LOCK);
    assert_true(look(&w, 4001)->fresh);
    snprintf(task, sizeof(task), "%s/4000/task/4001", t.root);
    snprintf(moved, sizeof(moved), "%s/4000/4001", t.root);
    assert_int_equal(rename(task, moved), 0); /* its files stay open, as they do in /proc */
    tree_thread(&t, PID, 4002, 102, 3, LOCK);
    nsec_t end = clock_mono() + PATIENCE;
    while (!look(&w, 4002)) {
        assert_true(clock_mono() < end);
        nap();
    }
    assert_false(thread_in(&w.s, 4001)->fresh);
    assert_int_equal(w.s.self.vanished, 0);
    close_tree(&t, &w);
}

/* Where addresses are not randomised the stack lies where the former program's lay. */
static void test_exec_told_by_the_file(void **state UNUSED)
{
    struct tree t;
    struct watch w;
    char from[96], to[96];

    make_tree(&t, 'S');
    tree_put(&t, "4000/exe", "old");
    tree_put(&t, "4000/new", "new");
    watch_tree(&w, t.root, read_pattern, &the_pid, 1);
    sweep(&w);
    sweep(&w);
    assert_int_equal(w.s.processes[0].execs, 0);
    snprintf(from, sizeof(from), "%s/4000/new", t.root);
    snprintf(to, sizeof(to), "%s/4000/exe", t.root);
    assert_int_equal(rename(from, to), 0);
    nsec_t end = clock_mono() + PATIENCE;
    do {
        sweep(&w);
        assert_true(clock_mono() < end);
        nap();
    } while (w.s.processes[0].execs == 0);
    tree_remove(&t, "4000/exe"); /* what may not be seen is no other program */
    for (int i = 0; i < 3; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 500 * NSEC_PER_MSEC}, NULL);
        sweep(&w);
    }
    assert_int_equal(w.s.processes[0].execs, 1);
    close_tree(&t, &w);
}

/* Several processes ------------------------------------------------------------------------ */

static const pid_t both[] = {PID, 5000};

static void open_two(struct tree *t, struct watch *w)
{
    make_tree(t, 'S');
    tree_process(t, 5000, 'S');
    tree_thread(t, 5000, 5000, 100, 5, IDLE);
    watch_tree(w, t->root, read_pattern, both, 2);
}

/* What one process lacks is not hidden by the next, and is not said for ever. */
static void test_limits_of_one(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    open_two(&t, &w);
    tree_put(&t, "4000/task/4000/schedstat", "0 0 0\n");
    tree_thread(&t, PID, 4001, 101, 0, LOCK);
    sweep(&w);
    assert_true(w.s.self.no_schedstat);
    assert_true(process_in(&w.s, PID)->no_schedstat);
    assert_false(process_in(&w.s, 5000)->no_schedstat);
    assert_false(w.s.self.no_memory);
    refuse = -EPERM;
    sweep(&w);
    assert_true(w.s.self.no_memory);
    assert_int_equal(w.s.self.denied_errno, EPERM);
    assert_true(process_in(&w.s, PID)->no_memory);
    assert_false(process_in(&w.s, 5000)->no_memory); /* nothing was read there */
    refuse = 0;
    tree_put(&t, "4000/task/4000/schedstat", "1000 0 1\n");
    sweep(&w);
    sweep(&w);
    assert_false(w.s.self.no_memory || w.s.self.no_schedstat);
    assert_int_equal(w.s.self.denied_errno, 0);
    assert_false(process_in(&w.s, PID)->no_memory || process_in(&w.s, PID)->no_schedstat);
    close_tree(&t, &w);
}

static void test_opened_later(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    make_tree(&t, 'S');
    watch_tree(&w, t.root, read_pattern, both, 2);
    sweep(&w);
    assert_int_equal(w.alive, 1);
    tree_process(&t, 5000, 'S');
    tree_thread(&t, 5000, 5000, 100, 5, IDLE);
    nsec_t end = clock_mono() + PATIENCE;
    do {
        sweep(&w);
        assert_true(clock_mono() < end);
        nap();
    } while (w.alive < 2);
    close_tree(&t, &w);
}

/* Holders elsewhere -------------------------------------------------------------------------- */

#define MAPS "6000/task/6000/maps"

static void ask(struct watch *w, pid_t tid)
{
    struct request q = {
        .kind = REQUEST_HOLDER, .tid = tid, .file = {.dev = 0x801, .inode = 7}};

    w->source->ops->request(w->source, &q);
}

static void add_outsider(const struct tree *t, unsigned start)
{
    tree_process(t, 6000, 'S');
    tree_stat(t, "6000", 6000, "other", 'S', start, 7777);
    tree_thread(t, 6000, 6000, start, 5, IDLE);
}

static int count_opens(int notify)
{
    char buf[4096] __attribute__((aligned(8)));
    ssize_t n = read(notify, buf, sizeof(buf));
    int opens = 0;

    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *e = (const void *)(buf + at);
        opens += (e->mask & IN_OPEN) != 0;
        at += (ssize_t)(sizeof(*e) + e->len);
    }
    return opens;
}

static void test_bystander_is_remembered(void **state UNUSED)
{
    struct tree t;
    struct watch w;
    char path[96];
    int notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

    open_tree(&t, &w, 'S');
    add_outsider(&t, 300);
    tree_put(&t, MAPS, "1000-2000 rw-p 00000000 00:00 0\n");
    snprintf(path, sizeof(path), "%s/" MAPS, t.root);
    assert_true(inotify_add_watch(notify, path, IN_OPEN) >= 0);
    for (int i = 0; i < 5; i++) {
        ask(&w, 6000);
        sweep(&w);
        assert_null(process_in(&w.s, 6000));
        assert_int_equal(count_opens(notify), i == 0);
    }
    add_outsider(&t, 999); /* the TID is another's now */
    tree_put(&t, MAPS, "1000-2000 rw-s 00000000 08:01 7 /x\n");
    count_opens(notify);
    ask(&w, 6000);
    sweep(&w);
    assert_int_equal(count_opens(notify), 1);
    assert_true(process_in(&w.s, 6000)->outsider);
    assert_int_equal(process_in(&w.s, 6000)->nthreads, 1);
    close(notify);
    close_tree(&t, &w);
}

/* A map that takes long to read: the pipe's other end comes late. */
struct slow {
    char path[96];
    nsec_t done;
};

static void *write_late(void *arg)
{
    struct slow *s = arg;

    nanosleep(&(struct timespec){.tv_nsec = 60 * NSEC_PER_MSEC}, NULL);
    int fd = open(s->path, O_WRONLY | O_CLOEXEC);
    s->done = clock_mono();
    close(fd);
    return NULL;
}

/* Such a map must not come between the early look at the lock words and the threads. */
static void test_slow_things_come_first(void **state UNUSED)
{
    struct tree t;
    struct watch w;
    struct slow s;
    pthread_t writer;

    open_tree(&t, &w, 'S');
    tree_thread(&t, PID, 4001, 101, 3, LOCK);
    sweep(&w);
    add_outsider(&t, 300);
    snprintf(s.path, sizeof(s.path), "%s/" MAPS, t.root);
    assert_int_equal(mkfifo(s.path, 0600), 0);
    ask(&w, 6000);
    assert_int_equal(pthread_create(&writer, NULL, write_late, &s), 0);
    sweep(&w);
    pthread_join(writer, NULL);
    assert_true(w.s.mono >= s.done);
    close_tree(&t, &w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fixture_test(test_tid_reused_by_a_busy_one),
        fixture_test(test_list_leaves_one_out),
        fixture_test(test_exec_told_by_the_file),
        fixture_test(test_limits_of_one),
        fixture_test(test_opened_later),
        fixture_test(test_bystander_is_remembered),
        fixture_test(test_slow_things_come_first),
    };

    return cmocka_run_group_tests_name("source_sweep", tests, NULL, NULL);
}

/* unit_source_holders - which descriptors are followed, and what is made of them, on trees that the
 * test writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "proc_tree.h"
#include "source_watch.h"

#include "../src/procfs.h"
#include "../src/source_holders.h"
#include "../src/xalloc.h"

#define SECOND NSEC_PER_SEC
#define START  (1000 * SECOND)

static const struct file_id the_file = {.dev = 0x801, .inode = 77};
static struct tree tree;
static struct holders *h;
static long fds_left;
static enum file_interest matters;

static int set_up(void **state)
{
    int rc = fds_before(state);

    tree_new(&tree);
    h = xcalloc(1, sizeof(*h));
    h->rootfd = procfs_open_root(tree.root);
    h->fds_left = &fds_left;
    fds_left = 1000;
    matters = FILE_WAITED;
    return rc;
}

static int tear_down(void **state)
{
    holders_release(h);
    close(h->rootfd);
    free(h);
    tree_free(&tree);
    return fds_left == 1000 ? fds_after(state) : -1;
}

#define tree_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static enum file_interest interest(const void *arg, struct file_id file)
{
    (void)arg;
    return file.inode == the_file.inode ? matters : FILE_FORGOTTEN;
}

/* LOCK: what stands after "lock:", or NULL. */
static void put_fd(int pid, int fd, const char *lock)
{
    char rel[64];

    tree_process(&tree, pid, 'S');
    snprintf(rel, sizeof(rel), "%d/fdinfo/%d", pid, fd);
    tree_put(&tree, rel, "pos:\t0\nflags:\t02\nmnt_id:\t30\nino:\t77\n%s%s%s",
             lock ? "lock:\t" : "", lock ? lock : "", lock ? "\n" : "");
}

static void look(nsec_t now)
{
    holders_look(h, interest, NULL, now);
}

static void wait_through(pid_t pid, int fd, bool fresh, nsec_t now)
{
    holders_note_waiter(h, pid, fd, the_file, fresh, now);
}

static void test_since(void **state)
{
    (void)state;
    put_fd(10, 3, "1: FLOCK  ADVISORY  WRITE 10 08:01:77 0 EOF");
    wait_through(10, 3, true, START);
    look(START);
    assert_int_equal(h->nnow, 1);
    assert_int_equal(h->now[0].since, START);
    assert_true(h->now[0].now);
    look(START + SECOND);
    assert_int_equal(h->now[0].since, START);

    put_fd(10, 3, NULL);
    look(START + 2 * SECOND);
    assert_int_equal(h->nnow, 0);
    put_fd(10, 3, "1: FLOCK  ADVISORY  WRITE 10 08:01:77 0 EOF");
    look(START + 3 * SECOND);
    assert_int_equal(h->now[0].since, START + 3 * SECOND);
    /* Another mode is another lock. */
    put_fd(10, 3, "1: FLOCK  ADVISORY  READ 10 08:01:77 0 EOF");
    look(START + 4 * SECOND);
    assert_int_equal(h->now[0].since, START + 4 * SECOND);
}

static void test_reused_number(void **state)
{
    (void)state;
    put_fd(10, 3, "1: FLOCK  ADVISORY  WRITE 10 08:01:78 0 EOF");
    wait_through(10, 3, true, START);
    look(START);
    assert_int_equal(h->nnow, 0);
}

static void test_bad_lines(void **state)
{
    (void)state;
    put_fd(10, 3, "what\nlock:\t2: POSIX  ADVISORY  READ 10 08:01:77 5 9\nlock:\t3: POSIX  ADV");
    wait_through(10, 3, true, START);
    look(START);
    assert_int_equal(h->nnow, 1);
    assert_int_equal(h->now[0].lock.start, 5);
}

/* Of one who sleeps on, the descriptor is not read at each sweep. */
static void test_sleepers_cost_little(void **state)
{
    (void)state;
    put_fd(10, 3, NULL);
    wait_through(10, 3, true, START);
    look(START);
    put_fd(10, 3, "1: FLOCK  ADVISORY  WRITE 10 08:01:77 0 EOF");
    wait_through(10, 3, false, START + 20 * NSEC_PER_MSEC);
    look(START + 20 * NSEC_PER_MSEC);
    assert_int_equal(h->nnow, 0);
    /* It does so no more. */
    look(START + 40 * NSEC_PER_MSEC);
    assert_int_equal(h->nnow, 1);
    /* What holds is read each time. */
    put_fd(10, 3, NULL);
    wait_through(10, 3, false, START + 60 * NSEC_PER_MSEC);
    look(START + 60 * NSEC_PER_MSEC);
    assert_int_equal(h->nnow, 0);
}

static void test_polled_seldom(void **state)
{
    (void)state;
    put_fd(10, 3, "1: FLOCK  ADVISORY  WRITE 10 08:01:77 0 EOF");
    wait_through(10, 3, true, START);
    look(START);
    matters = FILE_POLLED;
    put_fd(10, 3, NULL);
    look(START + SECOND / 2);
    assert_int_equal(h->nnow, 1);
    assert_false(h->now[0].now);
    assert_int_equal(h->now[0].since, START);
    look(START + SECOND);
    assert_int_equal(h->nnow, 0);
}

static void test_dropped(void **state)
{
    (void)state;
    put_fd(10, 3, NULL);
    wait_through(10, 3, true, START);
    look(START);
    assert_int_equal(h->ncandidates, 1);
    matters = FILE_KEPT;
    look(START + 60 * SECOND);
    assert_int_equal(h->ncandidates, 1);
    look(START + 61 * SECOND);
    assert_int_equal(h->ncandidates, 0);

    wait_through(10, 3, true, START);
    matters = FILE_FORGOTTEN;
    look(START);
    assert_int_equal(h->ncandidates, 0);
    matters = FILE_WAITED;
    wait_through(11, 3, true, START); /* no such process */
    look(START);
    assert_int_equal(h->ncandidates, 0);
}

/* However many wait, who holds finds room. */
static void test_room_for_holders(void **state)
{
    (void)state;
    struct file_fact files[] = {{.file = the_file}};
    struct scan_fd fds[] = {{.pid = 9000, .fd = 3, .file = the_file, .holds = true}};
    const struct scan_result found = {.files = files, .nfiles = 1, .fds = fds, .nfds = 1};

    put_fd(9000, 3, "1: FLOCK  ADVISORY  WRITE 9000 08:01:77 0 EOF");
    for (int pid = 100; pid < 200; pid++) {
        put_fd(pid, 3, NULL);
        wait_through(pid, 3, true, START);
    }
    assert_int_equal(h->ncandidates, CANDIDATES_PER_FILE);
    look(START);
    assert_int_equal(h->nnow, 0);
    holders_take(h, &found, interest, NULL, START);
    assert_int_equal(h->ncandidates, CANDIDATES_PER_FILE);
    look(START + 1);
    assert_int_equal(h->nnow, 1);
    assert_int_equal(h->now[0].pid, 9000);
    /* Nor do those who wait take its place. */
    for (int pid = 100; pid < 200; pid++)
        wait_through(pid, 3, true, START + 2);
    look(START + 2);
    assert_int_equal(h->nnow, 1);
}

static void test_no_descriptor_to_spare(void **state)
{
    (void)state;
    fds_left = 0;
    put_fd(10, 3, "1: FLOCK  ADVISORY  WRITE 10 08:01:77 0 EOF");
    wait_through(10, 3, true, START);
    look(START);
    assert_int_equal(h->nnow, 1);
    assert_int_equal(fds_left, 0);
    fds_left = 1000;
}

/* Lines of /proc/locks ------------------------------------------------------------------- */

static struct file_fact looked_for[] = {{.file = {.dev = 0x801, .inode = 77}}};
static struct lock_line held_line;

static struct scan_result found_line(pid_t pid, nsec_t at)
{
    held_line = (struct lock_line){
        .nr = 1, .pid = pid, .lock = {FILELOCK_FLOCK, true, the_file, 0, FILE_END}};
    return (struct scan_result){
        .files = looked_for, .nfiles = 1, .held = &held_line, .nheld = 1, .at = at};
}

static void take_line(pid_t pid, nsec_t at)
{
    struct scan_result r = found_line(pid, at);

    holders_take(h, &r, interest, NULL, at);
    look(at);
}

/* Seen once, the lock may have been let go of before the descriptors were looked through. */
static void test_line_twice(void **state)
{
    (void)state;
    put_fd(10, 3, NULL);
    take_line(10, START);
    assert_int_equal(h->nnow, 0);
    take_line(10, START + SECOND / 2);
    assert_int_equal(h->nnow, 1);
    assert_int_equal(h->now[0].pid, 10);
    assert_int_equal(h->now[0].fd, -1);
    assert_int_equal(h->now[0].since, START);
    assert_false(h->now[0].now || h->now[0].taker_gone);
    /* Not for ever. */
    look(START + 2 * SECOND);
    assert_int_equal(h->nnow, 1);
    look(START + 3 * SECOND);
    assert_int_equal(h->nnow, 0);
}

static void test_line_of_one_gone(void **state)
{
    (void)state;
    take_line(10, START);
    take_line(10, START + SECOND / 2);
    assert_int_equal(h->nnow, 1);
    assert_int_equal(h->now[0].pid, 0);
    assert_int_equal(h->now[0].taker, 10);
    assert_true(h->now[0].taker_gone);
    /* Of no process that we could name. */
    take_line(-1, START + SECOND);
    take_line(-1, START + 2 * SECOND);
    assert_int_equal(h->nnow, 1);
    assert_int_equal(h->now[0].pid, 0);
    assert_int_equal(h->now[0].taker, -1);
    assert_false(h->now[0].taker_gone);
}

static void test_line_explained(void **state)
{
    (void)state;
    struct scan_fd child = {.pid = 11, .fd = 5, .file = the_file, .holds = true, .taker = 10};
    put_fd(11, 5, "1: FLOCK  ADVISORY  WRITE 10 08:01:77 0 EOF");

    for (int i = 0; i < 3; i++) {
        struct scan_result r = found_line(10, START + i);
        child.lock = held_line.lock;
        r.fds = &child;
        r.nfds = 1;
        holders_take(h, &r, interest, NULL, START + i);
        look(START + i);
        assert_int_equal(h->nnow, 1);
        assert_int_equal(h->now[0].pid, 11);
        assert_int_equal(h->now[0].taker, 10);
        assert_true(h->now[0].taker_gone);
    }
}

/* Another process that has got its number is not the one that took the lock. */
static void test_taker_replaced(void **state)
{
    (void)state;
    struct scan_fd child = {.pid = 11, .fd = 5, .file = the_file, .holds = true};
    struct scan_result r = {.files = looked_for, .nfiles = 1, .fds = &child, .nfds = 1};

    tree_process(&tree, 10, 'S');
    put_fd(11, 5, "1: FLOCK  ADVISORY  WRITE 10 08:01:77 0 EOF");
    holders_take(h, &r, interest, NULL, START);
    look(START);
    assert_false(h->now[0].taker_gone);
    tree_stat(&tree, "10", 10, "another", 'S', 200, 1);
    look(START + SECOND / 2); /* asked about once a second */
    assert_false(h->now[0].taker_gone);
    look(START + SECOND);
    assert_true(h->now[0].taker_gone);
    assert_int_equal(h->now[0].since, START);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        tree_test(test_since),
        tree_test(test_reused_number),
        tree_test(test_bad_lines),
        tree_test(test_sleepers_cost_little),
        tree_test(test_polled_seldom),
        tree_test(test_dropped),
        tree_test(test_room_for_holders),
        tree_test(test_no_descriptor_to_spare),
        tree_test(test_line_twice),
        tree_test(test_line_of_one_gone),
        tree_test(test_line_explained),
        tree_test(test_taker_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What the source tells of the descriptors that threads wait for. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "source_tree.h"

static const struct thread_fact *read_from(const struct tree *t, struct watch *w, const char *file)
{
    char path[128];

    tree_thread(t, PID, 4001, 101, 3, "0 0x7 0x7f00 0x1 0x0 0x0 0x0 0x7ffc0000 0x7f02");
    tree_put(t, "4000/task/4001/fd/0", "%s", "");
    snprintf(path, sizeof(path), "%s/4000/task/4001/fd/7", t->root);
    assert_int_equal(symlink(file, path), 0);
    watch_tree(w, t->root, read_pattern, &the_pid, 1);
    return look(w, 4001);
}

static void test_kinds_of_descriptors(void **state UNUSED)
{
    static const struct {
        const char *path;
        enum fd_kind kind;
    } cases[] = {
        {"/dev/zero", FD_UNKNOWN}, {"/dev/tty", FD_TTY},          {"/dev/ptmx", FD_TTY},
        {"/tmp", FD_FILE},         {"/proc/version", FD_FILE},    {"/does/not/exist", FD_FILE},
        {"pipe:[7]", FD_PIPE},     {"anon_inode:[eventfd]", FD_EVENT},
        {"socket:[7]", FD_SOCKET}, {"/dev/pts/gone", FD_TTY},     {"FIFO", FD_PIPE},
        {"FIFO (deleted)", FD_FILE}, /* in /proc such a link still leads there */
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct tree t;
        struct watch w;
        char fifo[96];

        tree_new(&t);
        tree_process(&t, PID, 'S');
        tree_thread(&t, PID, PID, 100, 5, IDLE);
        snprintf(fifo, sizeof(fifo), "%s/%s", t.root, cases[i].path);
        bool named = strcmp(cases[i].path, "FIFO") == 0;
        if (named)
            assert_int_equal(mkfifo(fifo, 0600), 0);
        const char *path = strncmp(cases[i].path, "FIFO", 4) == 0 ? fifo : cases[i].path;
        const struct thread_fact *f = read_from(&t, &w, path);
        assert_string_equal(f->fd_path, path);
        if (f->fd_kind != cases[i].kind)
            fail_msg("%s: kind %d", path, f->fd_kind);
        close_tree(&t, &w);
    }
}

/* 200 threads poll a descriptor, two read one: that is what their state hangs on. */
static void test_links_that_matter_first(void **state UNUSED)
{
    struct tree t;
    struct watch w;
    char path[128];
    size_t linked = 0;

    tree_new(&t);
    tree_process(&t, PID, 'S');
    tree_thread(&t, PID, PID, 100, 5, IDLE);
    for (int i = 1; i <= 202; i++) {
        bool reader = i == 1 || i == 202;
        tree_thread(&t, PID, 4000 + i, 101, 3,
                    reader ? "0 0x7 0x0 0x0 0x0 0x0 0x0 0x1 0x2" : "232 0x7 0x0 0x0 0x0 0x0 0x0 0x1 0x2");
        snprintf(path, sizeof(path), "4000/task/%d/fd/0", 4000 + i);
        tree_put(&t, path, "%s", "");
        snprintf(path, sizeof(path), "%s/4000/task/%d/fd/7", t.root, 4000 + i);
        assert_int_equal(symlink(reader ? "pipe:[7]" : "anon_inode:[eventpoll]", path), 0);
    }
    watch_tree(&w, t.root, read_pattern, &the_pid, 1);
    assert_int_equal(look(&w, 4001)->fd_kind, FD_PIPE);
    assert_int_equal(thread_in(&w.s, 4202)->fd_kind, FD_PIPE);
    for (int i = 2; i <= 201; i++)
        linked += thread_in(&w.s, 4000 + i)->fd_path != NULL;
    assert_true(linked > 0 && linked < 200); /* bounded for one sweep */
    for (int i = 0; i < 3; i++)
        sweep(&w);
    for (int i = 2; i <= 201; i++)
        assert_int_equal(thread_in(&w.s, 4000 + i)->fd_kind, FD_EVENT);
    close_tree(&t, &w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fixture_test(test_kinds_of_descriptors),
        fixture_test(test_links_that_matter_first),
    };

    return cmocka_run_group_tests_name("source_links", tests, NULL, NULL);
}

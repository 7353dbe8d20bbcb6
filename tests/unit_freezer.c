/* Whether a process's control group is frozen: as the kernel says it, on trees and for real. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../src/freezer.h"
#include "proc_tree.h"
#include "source_child.h"

static void test_events(void **state UNUSED)
{
    assert_true(freezer_events_say("populated 1\nfrozen 1\n"));
    assert_true(freezer_events_say("frozen 1\n"));
    assert_false(freezer_events_say("populated 1\nfrozen 0\n"));
    assert_false(freezer_events_say("populated 1\nfrozen 1")); /* cut off */
    assert_false(freezer_events_say("unfrozen 1\n"));
    assert_false(freezer_events_say(""));
}

static void test_what_makes_suspicious(void **state UNUSED)
{
    assert_true(freezer_hint('S', "get_signal"));
    assert_true(freezer_hint('S', "do_freezer_trap"));
    assert_true(freezer_hint('D', "__refrigerator"));
    assert_false(freezer_hint('T', "get_signal")); /* stopped */
    assert_false(freezer_hint('S', "futex_do_wait"));
    assert_false(freezer_hint('S', NULL));
    assert_true(freezer_suspects('D', "futex_do_wait")); /* version 1 freezes it there */
    assert_true(freezer_suspects('T', "do_signal_stop")); /* may be both */
    assert_false(freezer_suspects('S', "futex_do_wait"));
}

/* Trees --------------------------------------------------------------------------------------- */

struct group {
    struct tree t;
    int root, pid;
    struct freezer f;
};

/* Groups are mounted below the tree; process 7 has the text CGROUP. */
static void group_new(struct group *g, const char *cgroup)
{
    *g = (struct group){0};
    tree_new(&g->t);
    tree_put(&g->t, "self/mountinfo",
             "31 23 0:28 / %s rw - tmpfs tmpfs rw\n"
             "37 31 0:34 / %s/cpu,freezer rw - cgroup cgroup rw,cpu,freezer\n"
             "41 31 0:38 / %s/unified rw - cgroup2 cgroup2 rw\n",
             g->t.root, g->t.root, g->t.root);
    tree_put(&g->t, "7/cgroup", "%s", cgroup);
    g->root = open(g->t.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char path[96];
    snprintf(path, sizeof(path), "%s/7", g->t.root);
    g->pid = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(g->root >= 0 && g->pid >= 0);
}

static bool frozen(struct group *g, char state, const char *wchan)
{
    return freezer_is_frozen(&g->f, g->root, g->pid, state, wchan);
}

static void group_free(struct group *g)
{
    close(g->root);
    close(g->pid);
    tree_free(&g->t);
}

static void test_version_2(void **state UNUSED)
{
    struct group g;

    group_new(&g, "2:cpu,freezer:/\n1:name=freezer:/x\n0::/app/a b\n");
    tree_put(&g.t, "unified/app/a b/cgroup.events", "populated 1\nfrozen 1\n");
    assert_true(frozen(&g, 'S', "get_signal"));
    tree_put(&g.t, "unified/app/a b/cgroup.events", "populated 1\nfrozen 0\n");
    assert_false(frozen(&g, 'S', "get_signal")); /* the group knows better than the hint */
    group_free(&g);
}

static void test_version_1(void **state UNUSED)
{
    struct group g;

    group_new(&g, "2:cpu,freezer:/box\n1:name=freezer:/x\n0::/\n");
    tree_put(&g.t, "cpu,freezer/box/freezer.state", "FROZEN\n");
    assert_true(frozen(&g, 'D', "futex_do_wait"));
    tree_put(&g.t, "cpu,freezer/box/freezer.state", "THAWED\n");
    assert_false(frozen(&g, 'D', "futex_do_wait"));
    tree_put(&g.t, "cpu,freezer/box/freezer.state", "FREEZING\n");
    assert_false(frozen(&g, 'D', "futex_do_wait"));
    group_free(&g);
}

/* In a container the group of the process can lie outside what is mounted. */
static void test_hidden(void **state UNUSED)
{
    struct group g;

    group_new(&g, "0::/../elsewhere\n");
    assert_true(frozen(&g, 'S', "do_freezer_trap"));
    assert_false(frozen(&g, 'D', "nfs_wait_bit_killable"));
    assert_false(frozen(&g, 'T', "get_signal"));
    group_free(&g);
    group_new(&g, "0::/\n"); /* the root cannot be frozen */
    assert_false(frozen(&g, 'S', "get_signal"));
    group_free(&g);
}

static void test_hostile_groups(void **state UNUSED)
{
    static const char *const texts[] = {"", "\n", "0\n", "0:\n", "0::", "::\n", "0::/x", ":::::\n"};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct group g;
        group_new(&g, texts[i]);
        assert_false(frozen(&g, 'S', "futex_do_wait"));
        group_free(&g);
    }
}

/* For real ------------------------------------------------------------------------------------ */

static bool write_to(const char *dir, const char *file, const char *text)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", dir, file);
    FILE *f = fopen(path, "w");
    bool ok = f && fputs(text, f) >= 0;
    return f && fclose(f) == 0 && ok;
}

static bool await_frozen(struct watch *w, pid_t pid, bool yes)
{
    nsec_t end = clock_mono() + PATIENCE;
    bool now = !yes;

    while (now != yes && clock_mono() < end) {
        sweep(w);
        now = process_in(&w->s, pid)->frozen;
        nap();
    }
    return now == yes;
}

static void freeze_for_real(const char *below, const char *file, const char *freeze,
                            const char *thaw)
{
    struct room *r = room_new();
    pid_t pid = child_start(r, be_ready);
    struct watch w;
    char dir[128], text[16];

    await_value(&r->ready);
    watch_pid(&w, &pid);
    sweep(&w);
    assert_false(process_in(&w.s, pid)->frozen);
    snprintf(dir, sizeof(dir), "%s/lock-top-test-%d", below, getpid());
    snprintf(text, sizeof(text), "%d", pid);
    bool made = mkdir(dir, 0755) == 0 && write_to(dir, "cgroup.procs", text);
    bool can = made && write_to(dir, file, freeze);
    bool seen = can && await_frozen(&w, pid, true);
    bool thawed = can && write_to(dir, file, thaw) && await_frozen(&w, pid, false);
    child_kill(pid);
    watch_end(&w);
    room_free(r);
    for (int i = 0; i < 1000 && rmdir(dir) != 0 && errno == EBUSY; i++)
        nap();
    if (!can)
        skip();
    assert_true(seen);
    assert_true(thawed);
}

static void test_real_version_2(void **state UNUSED)
{
    bool apart = access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) == 0;

    freeze_for_real(apart ? "/sys/fs/cgroup/unified" : "/sys/fs/cgroup", "cgroup.freeze", "1", "0");
}

static void test_real_version_1(void **state UNUSED)
{
    freeze_for_real("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(test_events),
        leak_test(test_what_makes_suspicious),
        leak_test(test_version_2),
        leak_test(test_version_1),
        leak_test(test_hidden),
        leak_test(test_hostile_groups),
        leak_test(test_real_version_2),
        leak_test(test_real_version_1),
    };

    return cmocka_run_group_tests_name("freezer", tests, NULL, NULL);
}

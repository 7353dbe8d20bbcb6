/* Processes that are sought: all, and those of a user; and what of them may not be looked at. Those
 * of other users need root. */
#include <pwd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "target_play.h"

/* A user that nobody else is likely to be, even in a test that runs at the same time. */
static uid_t some_user(int which)
{
    return (uid_t)(40000 + getpid() % 8000 * 3 + which);
}

static void need_root(void)
{
    if (geteuid() != 0)
        skip();
}

static const char *number(char dst[16], uid_t uid)
{
    snprintf(dst, 16, "%u", (unsigned)uid);
    return dst;
}

/* All --------------------------------------------------------------------------------------- */

static void test_all(void **state UNUSED)
{
    struct proclist *l = proclist_open();
    struct proc_entry e;
    const pid_t *pids;
    pid_t first = settled((struct role){0});
    struct target *t = seek((struct target_spec){.all = true});

    assert_non_null(t);
    assert_string_equal(err, "");
    assert_false(target_may_come(t));
    assert_true(lists(t, first));
    assert_false(lists(t, getpid()));
    size_t n = look(t, &pids);
    for (size_t i = 0; i < n; i++) {
        assert_true(i == 0 || pids[i] > pids[i - 1]);
        if (proclist_one(l, pids[i], &e) == 0)
            assert_false(e.kernel);
    }
    pid_t second = settled((struct role){0});
    assert_true(lists(t, second));
    end(first);
    assert_false(lists(t, first));
    assert_true(lists(t, second));
    end(second);
    target_free(t, 0);
    proclist_close(l);
}

/* Of a user --------------------------------------------------------------------------------- */

static void test_processes_of_a_user(void **state UNUSED)
{
    char text[16];
    pid_t other, a, b;

    need_root();
    other = settled((struct role){.uid = some_user(1)});
    a = settled((struct role){.uid = some_user(0)});
    struct target *t = seek((struct target_spec){.user = number(text, some_user(0))});
    assert_non_null(t);
    await_list(t, &a, 1);
    b = settled((struct role){.uid = some_user(0)});
    await_pair(t, a, b);
    end(a);
    await_list(t, &b, 1);
    assert_int_equal(target_denied(t), 0);
    end(b);
    await_list(t, NULL, 0);
    assert_false(target_may_come(t));
    a = settled((struct role){.uid = some_user(0)});
    await_list(t, &a, 1);
    target_free(t, 0);
    end(a);
    end(other);
}

static void test_user_by_name(void **state UNUSED)
{
    const struct passwd *pw = getpwnam("nobody");

    need_root();
    if (!pw || pw->pw_uid == 0)
        skip();
    pid_t theirs = settled((struct role){.uid = pw->pw_uid}), ours = settled((struct role){0});
    struct target *t = seek((struct target_spec){.user = "nobody"});
    assert_non_null(t);
    assert_true(lists(t, theirs));
    assert_false(lists(t, ours));
    target_free(t, 0);
    end(theirs);
    end(ours);
}

static void test_no_such_user(void **state UNUSED)
{
    static const char *const names[] = {"no-such-user",         "-1",  "4294967295",
                                        "99999999999999999999", "0x0", " 0"};
    char want[256];

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        assert_null(seek((struct target_spec){.user = names[i]}));
        assert_int_equal(status, EXIT_USAGE);
        snprintf(want, sizeof(want),
                 "no user '%s' here; give a name that 'getent passwd' knows, or a number",
                 names[i]);
        assert_string_equal(err, want);
    }
}

static void test_user_without_processes(void **state UNUSED)
{
    char text[16], want[128];

    number(text, some_user(2));
    assert_null(seek((struct target_spec){.user = text}));
    assert_int_equal(status, EXIT_NOTHING);
    snprintf(want, sizeof(want), "user '%s' has no processes (try: ps -u %s)", text, text);
    assert_string_equal(err, want);
}

/* What may not be looked at ------------------------------------------------------------------ */

/* What somebody saw. */
struct seen {
    bool made;
    int status;
    size_t denied, n;
    pid_t pids[8];
    char err[512];
};

static void take_view(struct target *t, struct seen *s)
{
    const pid_t *pids;

    s->n = look(t, &pids);
    s->denied = target_denied(t);
    memcpy(s->pids, pids, MIN(s->n, ARRAY_SIZE(s->pids)) * sizeof(*pids));
}

static bool is_in(const struct seen *s, pid_t pid)
{
    for (size_t i = 0; i < MIN(s->n, ARRAY_SIZE(s->pids)); i++) {
        if (s->pids[i] == pid)
            return true;
    }
    return false;
}

/* SPEC as user UID sees it. */
static struct seen seen_by(uid_t uid, struct target_spec spec)
{
    struct seen s = {0};
    int out[2];

    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (!become(uid))
            _exit(1);
        struct target *t = target_new(&spec, -1, s.err, sizeof(s.err), &s.status);
        s.made = t != NULL;
        if (t)
            take_view(t, &s);
        _exit(write(out[1], &s, sizeof(s)) != sizeof(s));
    }
    close(out[1]);
    assert_int_equal(read(out[0], &s, sizeof(s)), sizeof(s));
    close(out[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return s;
}

/* One's own is watched, the others are counted. */
static void test_others_are_counted(void **state UNUSED)
{
    pid_t own, others;

    need_root();
    own = settled((struct role){.uid = some_user(0)});
    others = settled((struct role){.uid = some_user(1)});
    struct seen s = seen_by(some_user(0), (struct target_spec){.all = true});
    assert_true(s.made);
    assert_string_equal(s.err, "");
    assert_int_equal(s.n, 1);
    assert_int_equal(s.pids[0], own);
    assert_true(s.denied >= 2); /* root's, which this is, and the other */
    end(own);
    end(others);
}

static void test_none_may_be_looked_at(void **state UNUSED)
{
    char text[16], want[256];
    pid_t a, b;

    need_root();
    number(text, some_user(1));
    a = settled((struct role){.uid = some_user(1)});
    struct seen s = seen_by(some_user(0), (struct target_spec){.user = text});
    assert_false(s.made);
    assert_int_equal(s.status, EXIT_NOTHING);
    snprintf(
        want, sizeof(want),
        "only 1 process that you (uid %u) may not look at; run lock-top as their user or as root "
        "(sudo)",
        (unsigned)some_user(0));
    assert_string_equal(s.err, want);

    b = settled((struct role){.uid = some_user(1)});
    s = seen_by(some_user(0), (struct target_spec){.user = text});
    assert_int_equal(s.status, EXIT_NOTHING);
    assert_int_equal(strncmp(s.err, "only 2 processes that you", 25), 0);

    s = seen_by(some_user(0), (struct target_spec){.all = true});
    assert_false(s.made);
    assert_int_equal(s.status, EXIT_NOTHING);
    assert_non_null(strstr(s.err, "may not look at"));
    end(a);
    end(b);
}

/* The kernel refuses what keeps its memory to itself, whose user is the same. */
static void test_own_that_is_closed(void **state UNUSED)
{
    char text[16];
    pid_t open_one, closed;

    need_root();
    open_one = settled((struct role){.uid = some_user(0)});
    closed = settled((struct role){.uid = some_user(0), .undumpable = true});
    struct seen s = seen_by(some_user(0), (struct target_spec){.user = number(text, some_user(0))});
    assert_true(s.made);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.pids[0], open_one);
    assert_int_equal(s.denied, 1);
    end(open_one);
    end(closed);
}

/* Waits for GO, and is then another program, of another user. */
static pid_t begin_changer(uid_t uid, const int go[2])
{
    pid_t pid = fork();

    if (pid == 0) {
        char c;
        close(go[1]); /* it ends when nobody is left to say so */
        if (read(go[0], &c, 1) != 1 || !become(uid))
            _exit(1);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execlp("sleep", "sleep", "600", NULL);
        _exit(1);
    }
    return pid;
}

static bool await_name(pid_t pid, const char *name)
{
    struct proclist *l = proclist_open();
    struct proc_entry e = {0};

    for (int i = 0; i < 15000 && strcmp(e.comm, name) != 0; i++) {
        usleep(2000);
        if (proclist_one(l, pid, &e) != 0)
            break;
    }
    proclist_close(l);
    return strcmp(e.comm, name) == 0;
}

/* A login: what root began goes on as a user's program, under the same number. The exit status has
 * a bit for each thing that was wrong. */
static int watch_changer(uid_t uid, pid_t changer, int go)
{
    struct target_spec spec = {.all = true};
    struct seen before = {0}, after = {0};

    if (!become(uid))
        return 1;
    struct target *t = target_new(&spec, -1, err, sizeof(err), &status);
    if (!t)
        return 2;
    take_view(t, &before);
    if (write(go, "x", 1) != 1 || !await_name(changer, "sleep"))
        return 4;
    take_view(t, &after);
    target_free(t, 0);
    return (is_in(&before, changer) ? 8 : 0) | (is_in(&after, changer) ? 0 : 16);
}

static void test_one_that_changes_its_user(void **state UNUSED)
{
    const uid_t user = some_user(0); /* the viewer is another process */
    pid_t own, changer, viewer;
    int go[2], rc;

    need_root();
    assert_int_equal(pipe2(go, O_CLOEXEC), 0);
    own = settled((struct role){.uid = user});
    changer = begin_changer(user, go);
    viewer = fork();
    if (viewer == 0)
        _exit(watch_changer(user, changer, go[1]));
    assert_int_equal(waitpid(viewer, &rc, 0), viewer);
    assert_int_equal(rc, 0);
    end(changer);
    end(own);
    close(go[0]);
    close(go[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_processes_of_a_user),
        cmocka_unit_test(test_user_by_name),
        cmocka_unit_test(test_no_such_user),
        cmocka_unit_test(test_user_without_processes),
        cmocka_unit_test(test_others_are_counted),
        cmocka_unit_test(test_none_may_be_looked_at),
        cmocka_unit_test(test_own_that_is_closed),
        cmocka_unit_test(test_one_that_changes_its_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

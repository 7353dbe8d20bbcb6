#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/err.h"
#include "../src/proclist.h"
#include "../src/target.h"

/* Later than every look that was made with the time of now. */
#define LATER(n) (clock_mono() + (n)*60 * NSEC_PER_SEC)

static char err[512];
static int status;

static struct target *by_pids(const pid_t *pids, size_t n)
{
    struct target_spec spec = {.pids = pids, .npids = n};

    status = -1;
    return target_new(&spec, -1, err, sizeof(err), &status);
}

static struct target *by_pid(pid_t pid)
{
    return by_pids(&pid, 1);
}

static struct target *by_name(const char *name)
{
    struct target_spec spec = {.name = name};

    status = -1;
    return target_new(&spec, -1, err, sizeof(err), &status);
}

static void assert_list(struct target *t, nsec_t now, const pid_t *want, size_t n)
{
    const pid_t *got;

    assert_int_equal(target_list(t, now, &got), n);
    if (n)
        assert_memory_equal(got, want, n * sizeof(*want));
}

static void assert_empty(struct target *t, nsec_t now)
{
    assert_list(t, now, NULL, 0);
}

/* A child named NAME that does nothing; it bears the name when this returns. */
static pid_t sleeper(const char *name)
{
    int ready[2];
    char c;

    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, name);
        close(ready[0]);
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* By PID ------------------------------------------------------------------------------ */

static void test_this_process(void **state)
{
    pid_t self = getpid();
    struct target *t = by_pid(self);

    (void)state;
    assert_non_null(t);
    assert_string_equal(err, "");
    assert_list(t, clock_mono(), &self, 1);
    target_free(t, 0);
    target_free(NULL, 0);
}

static void *tell_tid(void *arg)
{
    int *fds = arg;
    pid_t tid = (pid_t)syscall(SYS_gettid);
    char c;

    if (write(fds[1], &tid, sizeof(tid)) == sizeof(tid) && read(fds[2], &c, 1) == 1)
        return arg;
    return NULL;
}

/* A TID stands for its process, and that is not listed twice. */
static void test_thread_id(void **state)
{
    int fds[4];
    pthread_t thread;
    pid_t pids[2] = {0, getpid()};

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(pipe(fds + 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, tell_tid, fds), 0);
    assert_int_equal(read(fds[0], &pids[0], sizeof(pid_t)), sizeof(pid_t));
    assert_int_not_equal(pids[0], getpid());

    struct target *t = by_pids(pids, 2);
    assert_non_null(t);
    assert_list(t, clock_mono(), &pids[1], 1);
    target_free(t, 0);
    assert_int_equal(write(fds[3], "x", 1), 1);
    pthread_join(thread, NULL);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
}

static void test_several_in_order(void **state)
{
    pid_t a = sleeper("lt-a"), b = sleeper("lt-b");
    pid_t given[] = {b, a, b, a}, want[] = {a < b ? a : b, a < b ? b : a};
    struct target *t = by_pids(given, 4);

    (void)state;
    assert_non_null(t);
    assert_list(t, clock_mono(), want, 2);
    end(a);
    assert_list(t, clock_mono(), want, 2); /* not looked at again so soon */
    assert_list(t, LATER(1), &b, 1);
    end(b);
    assert_empty(t, LATER(2));
    target_free(t, 0);
}

static void test_no_such_process(void **state)
{
    (void)state;
    assert_null(by_pid(999999999));
    assert_int_equal(status, EXIT_NOTHING);
    assert_string_equal(err, "no process 999999999");
}

static void test_some_are_missing(void **state)
{
    pid_t pids[] = {999999998, getpid(), 999999999}, self = getpid();
    struct target *t = by_pids(pids, 3);

    (void)state;
    assert_non_null(t);
    assert_string_equal(err, "no process 999999998");
    assert_list(t, clock_mono(), &self, 1);
    target_free(t, 0);
}

static void test_zombie(void **state)
{
    pid_t pid = sleeper("lt-\033zom\nbie");
    char want[256];

    (void)state;
    struct target *t = by_pid(pid);
    assert_non_null(t);
    assert_list(t, clock_mono(), &pid, 1);
    kill(pid, SIGKILL);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_empty(t, LATER(1));
    target_free(t, 0);

    assert_null(by_pid(pid));
    assert_int_equal(status, EXIT_NOTHING);
    snprintf(want, sizeof(want), "and only waits to be reaped by its parent %d", (int)getpid());
    assert_non_null(strstr(err, want));
    assert_non_null(strstr(err, "zom"));
    for (const char *p = err; *p; p++)
        assert_true(*p >= ' ' && *p <= '~');
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void *sleep_for_ever(void *arg)
{
    for (;;)
        pause();
    return arg;
}

/* The main thread is a zombie, the process lives on in another thread. */
static void test_main_thread_gone(void **state)
{
    struct proc_entry e = {0};
    struct proclist *l = proclist_open();
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        pthread_t thread;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (pthread_create(&thread, NULL, sleep_for_ever, NULL) != 0)
            _exit(1);
        syscall(SYS_exit, 0);
    }
    for (int i = 0; i < 5000 && e.state != 'Z'; i++) {
        assert_int_equal(proclist_one(l, pid, &e), 0);
        usleep(1000);
    }
    assert_int_equal(e.state, 'Z');
    proclist_close(l);

    struct target *t = by_pid(pid);
    assert_non_null(t);
    assert_list(t, LATER(1), &pid, 1);
    end(pid);
    assert_empty(t, LATER(2));
    target_free(t, 0);
}

static void test_kernel_thread(void **state)
{
    struct proclist *l = proclist_open();
    struct proc_entry e;
    int rc = proclist_one(l, 2, &e);

    (void)state;
    proclist_close(l);
    if (rc != 0 || !e.kernel)
        skip(); /* a container does not show them */
    assert_null(by_pid(2));
    assert_string_equal(err, "process 2 (kthreadd) is a kernel thread and takes no locks of user "
                             "space");
    assert_int_equal(status, EXIT_NOTHING);
    assert_null(by_name("kthreadd"));
}

/* No descriptor is left: what cannot be looked at has not gone. */
static void test_out_of_descriptors(void **state)
{
    struct rlimit old, low;
    int fds[64], n = 0;
    pid_t pid = sleeper("lt-fds");
    struct target *given = by_pid(pid), *named = by_name("lt-fds");

    (void)state;
    assert_non_null(given);
    assert_non_null(named);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    while (n < 64 && (fds[n] = dup(0)) >= 0)
        n++;
    const pid_t *pids;
    size_t by_pid_n = target_list(given, LATER(1), &pids);
    size_t by_name_n = target_list(named, LATER(1), &pids);
    while (n > 0)
        close(fds[--n]);
    setrlimit(RLIMIT_NOFILE, &old);
    assert_int_equal(by_pid_n, 1);
    assert_int_equal(by_name_n, 1);
    end(pid);
    assert_empty(given, LATER(2));
    assert_empty(named, LATER(2));
    target_free(given, 0);
    target_free(named, 0);
}

/* By name ----------------------------------------------------------------------------- */

static void test_names(void **state)
{
    static const struct {
        const char *comm, *name;
        bool match;
    } cases[] = {
        {"lt-exact", "lt-exact", true},
        {"lt-exact", "lt-exac", false},
        {"lt-exact", "lt-*ct", true},
        {"lt-exact", "lt-e?act", true},
        {"lt-exact", "lt-[de]xact", true},
        {"lt-exact", "LT-EXACT", false},
        {"lt-fifteen-char", "lt-fifteen-characters-and-more", true},
        {"lt-fifteen-char", "lt-fifteen-characters*", false},
        {"lt-fifteen-cha", "lt-fifteen-characters", false},
        {"lt [odd] *", "lt [odd] *", true},
        {"lt) R 1 1 (", "lt) R 1 1 (", true},
        {"lt-a\nb\033[2J", "lt-a\nb\033[2J", true},
        {"lt-a\nb\033[2J", "lt-a?b?[[]2J", true},
        {"lt-\xff\xfe", "lt-\xff\xfe", true},
        {"lt-\xc3\xa9t\xc3\xa9", "lt-\xc3\xa9t\xc3\xa9", true},
        {"lt-a.b", "lt-a.b", true},
        {"lt-what?", "lt-what?", true},
        {"lt-back\\slash", "lt-back\\slash", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        pid_t pid = sleeper(cases[i].comm);
        struct target *t = by_name(cases[i].name);
        if (!t != !cases[i].match)
            print_error("'%s' by '%s'\n", cases[i].comm, cases[i].name);
        assert_int_equal(t != NULL, cases[i].match);
        if (t)
            assert_list(t, clock_mono(), &pid, 1);
        else
            assert_int_equal(status, EXIT_NOTHING);
        target_free(t, 0);
        end(pid);
    }
}

static void test_name_unknown(void **state)
{
    (void)state;
    assert_null(by_name("lt-no-such-\033-process"));
    assert_int_equal(status, EXIT_NOTHING);
    assert_string_equal(err, "no process named 'lt-no-such-\\x1b-process' (names are cut to 15 "
                             "characters; try: pgrep -l lt-no-such-\\x1b)");
    assert_null(by_name(""));
}

/* A name that this process bears as well; a dead bearer does not count. */
static void test_never_itself(void **state)
{
    char old[16];

    (void)state;
    prctl(PR_GET_NAME, old);
    prctl(PR_SET_NAME, "lt-myself");
    assert_null(by_name("lt-myself"));

    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_null(by_name("lt-myself"));
    assert_int_equal(waitpid(pid, NULL, 0), pid);

    pid = sleeper("lt-myself");
    struct target *t = by_name("lt-myself");
    assert_non_null(t);
    assert_list(t, clock_mono(), &pid, 1);
    target_free(t, 0);
    end(pid);
    prctl(PR_SET_NAME, old);
}

static void test_name_is_open(void **state)
{
    pid_t a = sleeper("lt-open");
    struct target *t = by_name("lt-open");

    (void)state;
    assert_non_null(t);
    pid_t b = sleeper("lt-open");
    pid_t want[] = {a < b ? a : b, a < b ? b : a};
    assert_list(t, clock_mono(), &a, 1);
    assert_list(t, LATER(1), want, 2);
    end(a);
    assert_list(t, LATER(2), &b, 1);
    end(b);
    assert_empty(t, LATER(3));
    a = sleeper("lt-open");
    assert_list(t, LATER(4), &a, 1);
    target_free(t, 0);
    end(a);
}

static int ascending(const void *a, const void *b)
{
    return *(const pid_t *)a - *(const pid_t *)b;
}

static void test_many(void **state)
{
    enum { N = 200 };
    pid_t pids[N];

    (void)state;
    for (int i = 0; i < N; i++)
        pids[i] = sleeper("lt-many");
    qsort(pids, N, sizeof(*pids), ascending);
    struct target *t = by_name("lt-m*y"), *same = by_pids(pids, N);
    assert_non_null(t);
    assert_non_null(same);
    assert_list(t, clock_mono(), pids, N);
    assert_list(same, clock_mono(), pids, N);
    for (int i = 0; i < N; i++)
        end(pids[i]);
    assert_empty(t, LATER(1));
    assert_empty(same, LATER(1));
    target_free(t, 0);
    target_free(same, 0);
}

/* Processes come and go while the list is read. */
static void test_quick_forks(void **state)
{
    pid_t self = getpid(), pid;
    struct target *t = by_pid(self), *open = by_name("*");
    const pid_t *pids;

    (void)state;
    assert_non_null(open);
    for (int i = 0; i < 200; i++) {
        pid = fork();
        if (pid == 0)
            _exit(0);
        struct target *child = by_pid(pid);
        assert_true(child || status == EXIT_NOTHING);
        assert_list(t, LATER(1), &self, 1);
        if (i % 20 == 0)
            assert_true(target_list(open, LATER(1 + i), &pids) > 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        if (child)
            assert_empty(child, LATER(1));
        target_free(child, 0);
        assert_null(by_pid(pid));
    }
    target_free(open, 0);
    target_free(t, 0);
}

static void test_library(void **state)
{
    (void)state;
    assert_int_equal(strncmp(target_library(), "libproc", strlen("libproc")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_this_process),       cmocka_unit_test(test_thread_id),
        cmocka_unit_test(test_several_in_order),   cmocka_unit_test(test_no_such_process),
        cmocka_unit_test(test_some_are_missing),   cmocka_unit_test(test_zombie),
        cmocka_unit_test(test_main_thread_gone),   cmocka_unit_test(test_kernel_thread),
        cmocka_unit_test(test_out_of_descriptors), cmocka_unit_test(test_names),
        cmocka_unit_test(test_name_unknown),       cmocka_unit_test(test_never_itself),
        cmocka_unit_test(test_name_is_open),       cmocka_unit_test(test_many),
        cmocka_unit_test(test_quick_forks),        cmocka_unit_test(test_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

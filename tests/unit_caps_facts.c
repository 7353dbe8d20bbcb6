#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/caps.h"
#include "../src/compiler.h"
#include "../src/procfs.h"

/* Facts from a tree ---------------------------------------------------------- */

static char tree[64];

static void put(const char *rel, const char *content)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", tree, rel);
    for (char *slash = path + strlen(tree) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(path, 0755) && errno != EEXIST)
            fail_msg("mkdir %s", path);
        *slash = '/';
    }
    unlink(path);
    if (strncmp(content, "user:[", 6) == 0) {
        assert_int_equal(symlink(content, path), 0);
        return;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_int_equal(write(fd, content, strlen(content)), strlen(content));
    close(fd);
}

static void drop(const char *rel)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", tree, rel);
    unlink(path);
}

static int make_tree(void **state UNUSED)
{
    strcpy(tree, "/tmp/unit_caps.XXXXXX");
    if (!mkdtemp(tree))
        return -1;
    put("self/status", "Name:\tlock-top\nCapPrm:\t0000000000080000\nCapEff:\t0000000000080000\n");
    put("self/ns/user", "user:[4026531837]");
    put("5/ns/user", "user:[4026531837]");
    put("5/stat",
        "5 (shop) S 1 5 5 0 -1 4194304 263 0 0 0 0 0 0 0 20 0 3 0 138309 19353600 369 1 1 "
        "1 0 0 0\n");
    put("5/status", "Name:\tshop\nTgid:\t5\nTracerPid:\t0\nUid:\t0\t33\t0\t0\n");
    return 0;
}

static int remove_tree(void **state UNUSED)
{
    static const char *const files[] = {"self/status", "self/ns/user",
                                        "5/ns/user",   "5/stat",
                                        "5/status",    "sys/kernel/yama/ptrace_scope"};
    static const char *const dirs[] = {"self/ns",         "self",       "5/ns", "5",
                                       "sys/kernel/yama", "sys/kernel", "sys",  ""};

    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        drop(files[i]);
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        char path[256];
        snprintf(path, sizeof(path), "%s/%s", tree, dirs[i]);
        rmdir(path);
    }
    return 0;
}

static struct caps_facts collect(pid_t pid)
{
    struct caps_facts f;
    int root = procfs_open_root(tree);

    memset(&f, 0x55, sizeof(f));
    caps_collect(root, pid, &f);
    close(root);
    return f;
}

static void test_collect(void **state UNUSED)
{
    struct caps_facts f = collect(5);

    assert_int_equal(f.my_uid, geteuid());
    assert_int_equal(f.target_uid, 33); /* the effective one */
    assert_true(f.have_ptrace_cap);
    assert_int_equal(f.same_userns, 1);
    assert_int_equal(f.yama_scope, -1);
    assert_false(f.kernel_thread);
    assert_int_equal(f.dumpable, geteuid() != 0); /* the files are ours */
}

static void test_collect_cap(void **state UNUSED)
{
    put("self/status", "Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t000001fffff7ffff\n");
    assert_false(collect(5).have_ptrace_cap);
    put("self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n");
    assert_true(collect(5).have_ptrace_cap);
    put("self/status", "Name:\tx\n");
    assert_false(collect(5).have_ptrace_cap);
    drop("self/status");
    assert_false(collect(5).have_ptrace_cap);
}

static void test_collect_yama(void **state UNUSED)
{
    put("sys/kernel/yama/ptrace_scope", "2\n");
    assert_int_equal(collect(5).yama_scope, 2);
    put("sys/kernel/yama/ptrace_scope", "0\n");
    assert_int_equal(collect(5).yama_scope, 0);
    put("sys/kernel/yama/ptrace_scope", "?\n");
    assert_int_equal(collect(5).yama_scope, -1);
}

static void test_collect_namespace(void **state UNUSED)
{
    put("5/ns/user", "user:[4026532999]");
    assert_int_equal(collect(5).same_userns, 0);
    drop("5/ns/user");
    assert_int_equal(collect(5).same_userns, -1);
}

static void test_collect_root(void **state UNUSED)
{
    put("5/status", "Name:\tshop\nTgid:\t5\nTracerPid:\t4711\nUid:\t0\t0\t0\t0\n");
    assert_true(collect(5).dumpable); /* of root: cannot be told */
}

static void test_collect_kernel_thread(void **state UNUSED)
{
    put("5/stat", "5 (kworker) I 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0 20 0 1 0 11 0 0 "
                  "18446744073709551615 0 0 0 0 0\n");
    assert_true(collect(5).kernel_thread);
    put("5/stat", "garbage");
    assert_false(collect(5).kernel_thread);
}

static void test_collect_nothing(void **state UNUSED)
{
    struct caps_facts f = collect(6);

    assert_int_equal(f.target_uid, -1);
    assert_int_equal(f.same_userns, -1);
    assert_true(f.dumpable);
    drop("5/status");
    assert_int_equal(collect(5).target_uid, geteuid()); /* of the directory */
}

/* Facts of real processes ---------------------------------------------------- */

static bool give_up_rights(void)
{
    return geteuid() != 0 || (setgid(65534) == 0 && setuid(65534) == 0);
}

/* Starts a child that runs PREPARE and then waits; -1 when it could not prepare itself. */
static pid_t start_child(bool (*prepare)(void))
{
    int ready[2];
    char c = 0;

    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        c = prepare() ? 'y' : 'n';
        if (write(ready[1], &c, 1) == 1)
            pause();
        _exit(0);
    }
    close(ready[1]);
    if (read(ready[0], &c, 1) != 1)
        c = 'n';
    close(ready[0]);
    if (c == 'y')
        return pid;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return -1;
}

static struct caps_facts facts_of_child(bool (*prepare)(void))
{
    struct caps_facts f;
    int root = procfs_open_root("/proc");
    pid_t pid = start_child(prepare);

    if (pid < 0) {
        close(root);
        print_message("the child may not do that here\n");
        skip();
    }
    caps_collect(root, pid, &f);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(root);
    return f;
}

static bool dumpable(void)
{
    return give_up_rights() && prctl(PR_SET_DUMPABLE, 1) == 0;
}

static bool not_dumpable(void)
{
    return give_up_rights() && prctl(PR_SET_DUMPABLE, 0) == 0;
}

static void test_live_dumpable(void **state UNUSED)
{
    struct caps_facts f = facts_of_child(dumpable);

    assert_true(f.dumpable);
    assert_int_equal(f.same_userns, 1);
    assert_false(f.kernel_thread);
    f = facts_of_child(not_dumpable);
    assert_false(f.dumpable);
    assert_int_equal(f.target_uid, geteuid() == 0 ? 65534 : geteuid());
}

/* What a user without rights is told about process 1, by the child that is one. */
static void test_live_refusal(void **state UNUSED)
{
    char said[1024] = "";
    int fds[2];

    if (geteuid() != 0) {
        print_message("needs root to become somebody else\n");
        skip();
    }
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct caps_facts f;
        if (!give_up_rights())
            _exit(1);
        caps_collect(procfs_open_root("/proc"), 1, &f);
        caps_explain(said, sizeof(said), 1, "init", EPERM, &f);
        _exit(write(fds[1], said, strlen(said)) < 0);
    }
    close(fds[1]);
    assert_true(read(fds[0], said, sizeof(said) - 1) > 0);
    close(fds[0]);
    waitpid(pid, NULL, 0);
    if (!strstr(said, "process 1 (init) belongs to uid 0 and you are uid 65534: run it as ") &&
        !strstr(said, "ptrace_scope is 3"))
        fail_msg("%s", said);
}

static void test_raise_nofile(void **state UNUSED)
{
    struct rlimit before, after;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit low = {.rlim_cur = 64, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    long limit = caps_raise_nofile();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &after), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(after.rlim_cur == before.rlim_max && after.rlim_max == before.rlim_max);
    assert_int_equal(limit, (long)after.rlim_cur);
}

#define tree_test(f) cmocka_unit_test_setup_teardown(f, make_tree, remove_tree)

int main(void)
{
    const struct CMUnitTest tests[] = {
        tree_test(test_collect),
        tree_test(test_collect_cap),
        tree_test(test_collect_yama),
        tree_test(test_collect_namespace),
        tree_test(test_collect_root),
        tree_test(test_collect_kernel_thread),
        tree_test(test_collect_nothing),
        cmocka_unit_test(test_live_dumpable),
        cmocka_unit_test(test_live_refusal),
        cmocka_unit_test(test_raise_nofile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

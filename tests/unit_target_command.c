/* Commands that are started to be watched: target_new() with a command, target_free(). */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/err.h"
#include "../src/target.h"

static char err[512];
static int status;

static struct target *by_command(int quiet_fd, const char *const *argv)
{
    struct target_spec spec = {.command = (char *const *)argv};

    status = -1;
    return target_new(&spec, quiet_fd, err, sizeof(err), &status);
}

#define command(quiet_fd, ...) by_command(quiet_fd, (const char *[]){__VA_ARGS__, NULL})

/* The list is empty when it is looked at anew. */
static void assert_ended(struct target *t)
{
    const pid_t *pids;

    assert_int_equal(target_list(t, clock_mono() + 60 * NSEC_PER_SEC, &pids), 0);
}

static pid_t only(struct target *t)
{
    const pid_t *pids;

    assert_int_equal(target_list(t, clock_mono(), &pids), 1);
    return pids[0];
}

static void assert_gone(pid_t pid)
{
    assert_int_equal(waitpid(pid, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(kill(pid, 0), -1);
}

static void read_comm(pid_t pid, char *dst, int size)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(dst, size, f));
    fclose(f);
}

static void test_command(void **state)
{
    struct target *t = command(-1, "sleep", "60");
    char comm[32];

    (void)state;
    assert_non_null(t);
    assert_string_equal(err, "");
    pid_t pid = only(t);
    read_comm(pid, comm, sizeof(comm));
    assert_string_equal(comm, "sleep\n"); /* the new program already */
    assert_int_equal(getpgid(pid), getpgrp());
    target_free(t, NSEC_PER_SEC);
    assert_gone(pid);
}

/* Again and again: a program seen half in place would have our name, or our memory. */
static void test_command_is_in_place(void **state)
{
    char comm[32], path[64], *line = NULL;
    size_t size = 0;

    (void)state;
    for (int i = 0; i < 100; i++) {
        struct target *t = command(-1, "sleep", "60");
        pid_t pid = only(t);
        read_comm(pid, comm, sizeof(comm));
        assert_string_equal(comm, "sleep\n");
        snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
        FILE *f = fopen(path, "r");
        assert_true(getline(&line, &size, f) > 0);
        assert_null(strstr(line, "unit_target"));
        fclose(f);
        target_free(t, NSEC_PER_SEC);
    }
    free(line);
}

static void test_command_that_cannot_run(void **state)
{
    (void)state;
    assert_null(command(-1, "/lt/no/such/program"));
    assert_int_equal(status, EXIT_NOTHING);
    assert_string_equal(err, "cannot run '/lt/no/such/program': No such file or directory");
    assert_null(command(-1, "/etc"));
    assert_string_equal(err, "cannot run '/etc': Permission denied");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nothing is left of the attempts */
}

static void test_command_that_ends(void **state)
{
    struct target *t = command(-1, "true");

    (void)state;
    assert_non_null(t);
    siginfo_t info;
    assert_int_equal(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT), 0);
    assert_ended(t);
    target_free(t, NSEC_PER_SEC);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* Neither SIGTERM nor being stopped keeps a command alive; nor is a polite one killed. */
static void test_command_that_resists(void **state)
{
    char path[] = "/tmp/lt-target-XXXXXX";
    int fd = mkstemp(path);

    (void)state;
    unlink(path);
    struct target *t = command(fd, "sh", "-c", "trap '' TERM; echo; while :; do sleep 0.1; done");
    assert_non_null(t);
    pid_t pid = only(t);
    while (lseek(fd, 0, SEEK_END) == 0)
        usleep(1000);
    nsec_t begin = clock_mono();
    target_free(t, NSEC_PER_SEC / 5);
    assert_true(clock_mono() - begin >= NSEC_PER_SEC / 5);
    assert_true(clock_mono() - begin < 3 * NSEC_PER_SEC);
    assert_gone(pid);

    t = command(-1, "sleep", "60");
    pid = only(t);
    kill(pid, SIGSTOP);
    begin = clock_mono();
    target_free(t, 30 * NSEC_PER_SEC);
    assert_true(clock_mono() - begin < 10 * NSEC_PER_SEC);
    assert_gone(pid);
    close(fd);
}

static void test_command_output(void **state)
{
    char path[] = "/tmp/lt-target-XXXXXX", text[64] = "";
    int fd = mkstemp(path);

    (void)state;
    unlink(path);
    struct target *t = command(fd, "sh", "-c", "echo out; echo err >&2");
    assert_non_null(t);
    siginfo_t info;
    assert_int_equal(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT), 0);
    target_free(t, 0);
    assert_int_equal(pread(fd, text, sizeof(text) - 1, 0), 8);
    assert_string_equal(text, "out\nerr\n");
    close(fd);
}

/* What lock-top blocks or ignores for itself is not handed on, but for nohup's SIGHUP. */
static void test_command_signals(void **state)
{
    sigset_t all, old;
    char path[] = "/tmp/lt-target-XXXXXX", text[256] = "";
    int fd = mkstemp(path);

    (void)state;
    unlink(path);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    struct target *t = command(fd, "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status");
    signal(SIGPIPE, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    assert_non_null(t);
    siginfo_t info;
    assert_int_equal(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT), 0);
    target_free(t, 0);
    assert_true(pread(fd, text, sizeof(text) - 1, 0) > 0);
    unsigned long long blocked, ignored;
    assert_int_equal(sscanf(text, "SigBlk: %llx SigIgn: %llx", &blocked, &ignored), 2);
    assert_int_equal(blocked, 0);
    /* 32 and 33 belong to libc, whose spawn ignores them. */
    assert_int_equal(ignored & 0x7fffffff, 1ull << (SIGHUP - 1));
    close(fd);
}

/* Another child of ours is neither ended nor reaped. */
static void test_other_children(void **state)
{
    pid_t other = fork();

    (void)state;
    if (other == 0)
        _exit(7);
    struct target *t = command(-1, "sleep", "60");
    assert_non_null(t);
    target_free(t, NSEC_PER_SEC);
    int wstatus;
    assert_int_equal(waitpid(other, &wstatus, 0), other);
    assert_int_equal(WEXITSTATUS(wstatus), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_command),
        cmocka_unit_test(test_command_is_in_place),
        cmocka_unit_test(test_command_that_cannot_run),
        cmocka_unit_test(test_command_that_ends),
        cmocka_unit_test(test_command_that_resists),
        cmocka_unit_test(test_command_output),
        cmocka_unit_test(test_command_signals),
        cmocka_unit_test(test_other_children),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

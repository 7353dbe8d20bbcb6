/*
 * unit_signals - signals as bytes, and those that end the program. Each case runs in a child: it
 * is about how that ends, and whether its die hook has run before.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/err.h"
#include "../src/filemap.h"
#include "../src/signals.h"
#include "source_child.h"

#define DONE 7 /* the child came to its end */

static int hook_fd; /* of the child */

static void hook(void)
{
    if (write(hook_fd, "h", 1) < 0)
        _exit(97);
}

/* Runs BODY in a child. Returns its wait status; *HOOKS: how often its die hook has run. */
static int run_child(int (*body)(void), int *hooks)
{
    int fds[2], status;
    char byte;

    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        hook_fd = fds[1];
        err_set_die_hook(hook);
        alarm(30);
        _exit(body());
    }
    close(fds[1]);
    *hooks = 0;
    while (read(fds[0], &byte, 1) == 1)
        ++*hooks;
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void assert_done(int (*body)(void))
{
    int hooks, status = run_child(body, &hooks);

    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), DONE);
    assert_int_equal(hooks, 0);
}

/* It dies by SIG, its terminal put back; a sanitizer may turn the death into an exit. */
static void assert_falls(int (*body)(void), int sig)
{
    int hooks, status = run_child(body, &hooks);

    assert_int_equal(hooks, 1);
    if (WIFSIGNALED(status))
        assert_int_equal(WTERMSIG(status), sig);
    else
        assert_true(WEXITSTATUS(status) != DONE && WEXITSTATUS(status) != 0);
}

/* Bytes ------------------------------------------------------------------------------------- */

static int check_bytes(enum signals_use use, const int *signals, size_t n)
{
    struct pollfd p = {.fd = signals_open(use), .events = POLLIN};

    for (size_t i = 0; i < n; i++) {
        if (poll(&p, 1, 0) != 0)
            return 1;
        raise(signals[i]);
        if (poll(&p, 1, 0) != 1 || signals_next() != signals[i] || signals_next() != 0)
            return 2 + (int)i;
    }
    signals_close();
    return DONE;
}

static int tell_screen(void)
{
    static const int signals[] = {SIGWINCH, SIGCONT, SIGTSTP, SIGINT, SIGTERM, SIGQUIT, SIGHUP};

    return check_bytes(SIGNALS_SCREEN, signals, ARRAY_SIZE(signals));
}

static int tell_text(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGINT};

    return check_bytes(SIGNALS_TEXT, signals, ARRAY_SIZE(signals));
}

static void test_bytes(void **state UNUSED)
{
    assert_done(tell_screen);
    assert_done(tell_text);
}

static int end_twice(void)
{
    signals_open(SIGNALS_SCREEN);
    raise(SIGTERM);
    raise(SIGTERM);
    return DONE;
}

static void test_second_end_is_obeyed(void **state UNUSED)
{
    assert_falls(end_twice, SIGTERM);
}

static int close_puts_back(void)
{
    struct sigaction now;

    signal(SIGTERM, SIG_IGN);
    for (int use = SIGNALS_TEXT; use <= SIGNALS_SCREEN; use++) {
        signals_open((enum signals_use)use);
        signals_close();
        sigaction(SIGTERM, NULL, &now);
        if (now.sa_handler != SIG_IGN)
            return 1;
        sigaction(SIGUSR1, NULL, &now);
        if (now.sa_handler != SIG_DFL)
            return 2;
    }
    return DONE;
}

static void test_close(void **state UNUSED)
{
    assert_done(close_puts_back);
}

/* A mapped file that shrinks is no fault of the program's, whichever handler came first. */
static int survives_short_file(void)
{
    signal(SIGBUS, SIG_DFL); /* the test runner's would go on with the other tests */
    for (int screen_first = 0; screen_first < 2; screen_first++) {
        FILE *f = tmpfile();
        if (!f || ftruncate(fileno(f), 8192) != 0)
            return 1;
        if (screen_first)
            signals_open(SIGNALS_SCREEN);
        const volatile uint8_t *image = filemap_new(fileno(f), 8192);
        if (!screen_first)
            signals_open(SIGNALS_SCREEN);
        if (!image || ftruncate(fileno(f), 0) != 0 || image[4096] != 0)
            return 2;
        filemap_free((const uint8_t *)image, 8192);
        signals_close();
        fclose(f);
    }
    return DONE;
}

static void test_short_file(void **state UNUSED)
{
    assert_done(survives_short_file);
}

/* Files are mapped before the screen's handlers are there, and again behind them. */
static void test_bus_error_between_mapped_files(void **state UNUSED)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        FILE *f = tmpfile();
        signal(SIGBUS, SIG_DFL);
        if (!f || ftruncate(fileno(f), 8192) != 0 || !filemap_new(fileno(f), 8192))
            _exit(1);
        signals_open(SIGNALS_SCREEN);
        if (!filemap_new(fileno(f), 8192))
            _exit(2);
        raise(SIGBUS);
        _exit(3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
}

/* What the parent had ignored ---------------------------------------------------------------- */

static int stay_ignored(void)
{
    static const int signals[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGTSTP,
                                  SIGALRM, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF, SIGIO,
                                  SIGPWR,  SIGUSR1, SIGUSR2, SIGCONT};

    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        signal(signals[i], SIG_IGN);
    signals_open(SIGNALS_SCREEN);
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        for (int twice = 0; twice < 2; twice++)
            if (raise(signals[i]) != 0 || signals_next() != 0)
                return 1 + (int)i;
    return DONE;
}

static int text_heeds_int(void)
{
    signal(SIGINT, SIG_IGN); /* as "sh -c 'lock-top ... &'" does */
    signal(SIGHUP, SIG_IGN); /* as nohup does */
    signals_open(SIGNALS_TEXT);
    raise(SIGHUP);
    raise(SIGHUP);
    if (signals_next() != 0)
        return 1;
    raise(SIGINT);
    return signals_next() == SIGINT ? DONE : 2;
}

static void test_ignored(void **state UNUSED)
{
    assert_done(stay_ignored);
    assert_done(text_heeds_int);
}

/* The end is sure even when the signal of a fault was ignored. */
static int ignored_fault(void)
{
    signal(SIGSEGV, SIG_IGN);
    signals_open(SIGNALS_SCREEN);
    raise(SIGSEGV);
    return DONE;
}

static int user_signal(void)
{
    signals_open(SIGNALS_SCREEN);
    raise(SIGUSR1);
    return DONE;
}

static void test_falls(void **state UNUSED)
{
    assert_falls(ignored_fault, SIGSEGV);
    assert_falls(user_signal, SIGUSR1);
}

/* A write that waits ------------------------------------------------------------------------- */

/* A pipe that takes nothing more; the end to write to. */
static int full_pipe(void)
{
    int fds[2];

    if (pipe(fds) != 0)
        _exit(1);
    fcntl(fds[1], F_SETFL, O_NONBLOCK);
    while (write(fds[1], "x", 1) == 1)
        continue;
    fcntl(fds[1], F_SETFL, 0);
    return fds[1];
}

static int blocked_write(void)
{
    const struct timespec moment = {.tv_nsec = 100 * 1000 * 1000};
    int fd = full_pipe();

    signals_open(SIGNALS_TEXT);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        nanosleep(&moment, NULL); /* by then it waits */
        kill(parent, SIGINT);
        _exit(0);
    }
    ssize_t n = write(fd, "y", 1);
    int err = errno;
    waitpid(pid, NULL, 0);
    return n < 0 && err == EINTR && signals_next() == SIGINT ? DONE : 2;
}

static void test_write_is_interrupted(void **state UNUSED)
{
    assert_done(blocked_write);
}

/* Threads ------------------------------------------------------------------------------------ */

/* Not to be inlined, and with something left to do after the call: no tail call. */
static __attribute__((noinline)) int run_over(volatile char *above, int depth)
{
    volatile char frame[1024];

    frame[0] = above ? above[0] : 0;
    return depth < 0 ? 0 : run_over(frame, depth + 1) + frame[0];
}

static void *overflow(void *stack)
{
    signals_stack_enter(stack);
    run_over(NULL, 0);
    signals_stack_leave(stack);
    return NULL;
}

static void *fault(void *stack)
{
    signals_stack_enter(stack);
    raise(SIGSEGV);
    signals_stack_leave(stack);
    return NULL;
}

static int in_thread(void *(*body)(void *))
{
    static struct signals_stack stack;
    sigset_t mask;
    pthread_t t;

    signals_open(SIGNALS_SCREEN);
    signals_thread_mask(&mask);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (pthread_create(&t, NULL, body, &stack) != 0)
        return 1;
    pthread_join(t, NULL);
    return DONE;
}

static int fault_in_thread(void)
{
    return in_thread(fault);
}

static int overflow_in_thread(void)
{
    return in_thread(overflow);
}

static void test_fault_in_a_thread(void **state UNUSED)
{
    assert_falls(fault_in_thread, SIGSEGV);
    assert_falls(overflow_in_thread, SIGSEGV);
}

static void test_thread_mask(void **state UNUSED)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP};
    sigset_t mask;
    int blocked = 0;

    signals_thread_mask(&mask);
    for (int sig = 1; sig < SIGRTMIN; sig++)
        blocked += sigismember(&mask, sig) == 1;
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++)
        assert_int_equal(sigismember(&mask, faults[i]), 0);
    assert_true(blocked >= 31 - (int)ARRAY_SIZE(faults));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_second_end_is_obeyed),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_short_file),
        cmocka_unit_test(test_bus_error_between_mapped_files),
        cmocka_unit_test(test_ignored),
        cmocka_unit_test(test_falls),
        cmocka_unit_test(test_write_is_interrupted),
        cmocka_unit_test(test_fault_in_a_thread),
        cmocka_unit_test(test_thread_mask),
    };

    return cmocka_run_group_tests_name("signals", tests, NULL, NULL);
}

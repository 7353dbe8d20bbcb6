/*
 * workload_base.h - what workload programs are made of: threads that block in a known call, a
 * holder that rests, the kernel's word for it that they do.
 */
#ifndef WORKLOAD_BASE_H
#define WORKLOAD_BASE_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define WL_EXIT_SKIP   77
#define WL_EXIT_BROKEN 99
#define WL_MAX_THREADS 8192
#define WL_MAX_HOLDERS 64

/* The call in which a holder spends its time. */
enum wl_rest {
    WL_NANOSLEEP,
    WL_READ, /* of a pipe */
    WL_RECV, /* of a socket */
    WL_OPEN,  /* of a FIFO; made by the program itself */
    WL_WRITE, /* to a full pipe, wl.rest_fd[1]; made by the program itself */
};

struct wl_thread {
    pthread_t thread;
    _Atomic pid_t tid;
    long call; /* the system call in which it is expected to block */
    void (*run)(int arg);
    int arg;
};

/* One per program, for programs are small. */
static struct {
    int argc;
    char **argv;
    enum wl_rest rest;
    int rest_fd[2];
    int out; /* where the truth is told; 0: stdout */
    atomic_bool released;
    _Atomic int resting;
    pthread_t sleepers[WL_MAX_HOLDERS];
    _Atomic int nholders;
    pid_t holders[WL_MAX_HOLDERS];
} wl;

/* Ending ---------------------------------------------------------------------------------- */

__attribute__((noreturn)) static inline void wl_end(int status, const char *what, int err)
{
    fprintf(stderr, "%s%s%s\n", what, err ? ": " : "", err ? strerror(err) : "");
    _exit(status);
}

static inline void wl_check(bool ok, const char *what)
{
    if (!ok)
        wl_end(WL_EXIT_BROKEN, what, errno);
}

/* For the pthread functions, which return their error. */
static inline void wl_zero(int err, const char *what)
{
    if (err)
        wl_end(WL_EXIT_BROKEN, what, err);
}

__attribute__((noreturn)) static inline void wl_skip(const char *why, int err)
{
    wl_end(WL_EXIT_SKIP, why, err);
}

/* Arguments ------------------------------------------------------------------------------- */

/* The value behind NAME on the command line, or FALLBACK. */
static inline const char *wl_arg_text(const char *name, const char *fallback)
{
    for (int i = 1; i + 1 < wl.argc; i += 2)
        if (!strcmp(wl.argv[i], name))
            return wl.argv[i + 1];
    return fallback;
}

static inline long wl_arg(const char *name, long fallback)
{
    const char *text = wl_arg_text(name, NULL);
    return text ? strtol(text, NULL, 10) : fallback;
}

/* Time ------------------------------------------------------------------------------------ */

static inline int64_t wl_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static inline void wl_nap(long ns)
{
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    nanosleep(&t, NULL);
}

/* A moment that never comes, for the timed calls. */
static inline struct timespec wl_far(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_sec += 1000000;
    return t;
}

/* Looking at threads ---------------------------------------------------------------------- */

static inline bool wl_read_task(pid_t pid, pid_t tid, const char *file, char *buf, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/%s", pid, tid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, buf, size - 1);
    close(fd);
    buf[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* The call in which the thread is blocked, or -1. Its first argument and run count on request. */
static inline long wl_call_of(pid_t pid, pid_t tid, uint64_t *arg0, uint64_t *runs)
{
    char buf[256];
    unsigned long long a = 0, r = 0;
    long nr = -1;

    if (!wl_read_task(pid, tid, "schedstat", buf, sizeof buf) ||
        sscanf(buf, "%*s %*s %llu", &r) != 1 ||
        !wl_read_task(pid, tid, "syscall", buf, sizeof buf) ||
        sscanf(buf, "%ld %llx", &nr, &a) != 2)
        return -1;
    if (arg0)
        *arg0 = a;
    if (runs)
        *runs = r;
    return nr;
}

static inline void wl_await_call(pid_t pid, pid_t tid, long call)
{
    int64_t end = wl_now() + 30 * INT64_C(1000000000);
    while (wl_call_of(pid, tid, NULL, NULL) != call) {
        if (wl_now() > end)
            wl_end(WL_EXIT_BROKEN, "a thread does not reach the call it should block in", 0);
        wl_nap(200000);
    }
}

/* Returns when every one of the N threads of PID is blocked in its call and has not run between
 * two looks. */
static inline void wl_settle(pid_t pid, const struct wl_thread *t, int n)
{
    /* No memory is asked for: the allocator may be what the threads wait for. */
    static uint64_t runs[WL_MAX_THREADS];
    uint64_t now = 0;
    memset(runs, 0, sizeof runs);
    for (bool same = false; !same; wl_nap(10000000)) {
        same = true;
        for (int i = 0; i < n; i++) {
            wl_await_call(pid, t[i].tid, t[i].call);
            bool still = wl_call_of(pid, t[i].tid, NULL, &now) == t[i].call && now == runs[i];
            /* The count of 0 is that of a kernel without schedstat: there the call must do. */
            same = same && (still || now == 0);
            runs[i] = now;
        }
    }
}

/* Threads --------------------------------------------------------------------------------- */

static inline void *wl_thread_main(void *arg)
{
    struct wl_thread *t = arg;
    t->tid = (pid_t)syscall(SYS_gettid);
    t->run(t->arg);
    return NULL;
}

/* Starts RUN(ARG) and returns when its TID is known. T must live as long as the thread. */
static inline void wl_spawn(struct wl_thread *t, void (*run)(int), int arg, long call)
{
    pthread_attr_t attr;
    t->run = run;
    t->arg = arg;
    t->call = call;
    t->tid = 0;
    wl_zero(pthread_attr_init(&attr), "pthread_attr_init");
    wl_zero(pthread_attr_setstacksize(&attr, 256 * 1024), "pthread_attr_setstacksize");
    wl_zero(pthread_create(&t->thread, &attr, wl_thread_main, t), "pthread_create");
    pthread_attr_destroy(&attr);
    while (!t->tid)
        sched_yield();
}

static inline struct wl_thread *wl_threads(int n)
{
    if (n < 0 || n > WL_MAX_THREADS)
        wl_end(WL_EXIT_BROKEN, "number of threads out of range", 0);
    struct wl_thread *t = calloc((size_t)n + 1, sizeof *t);
    wl_check(t, "calloc");
    return t;
}

/* Holders --------------------------------------------------------------------------------- */

/* Notes that TID holds the lock, whether or not the lock records it. */
static inline void wl_holder(pid_t tid)
{
    int i = wl.nholders++;
    if (i >= WL_MAX_HOLDERS)
        wl_end(WL_EXIT_BROKEN, "too many holders", 0);
    wl.holders[i] = tid;
}

static inline long wl_rest_call(enum wl_rest rest)
{
    static const long call[] = {[WL_NANOSLEEP] = SYS_nanosleep,
                                [WL_READ] = SYS_read,
                                [WL_RECV] = SYS_recvfrom,
                                [WL_OPEN] = SYS_openat,
                                [WL_WRITE] = SYS_write};
    return call[rest];
}

static inline void wl_on_signal(int sig)
{
    (void)sig; /* only to interrupt nanosleep */
}

static inline void wl_fill_pipe(int fd)
{
    static const char page[4096];
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    for (size_t n = sizeof page; n; n /= 2)
        while (write(fd, page, n) > 0)
            ;
    fcntl(fd, F_SETFL, flags);
}

static inline void wl_prepare_rest(enum wl_rest rest)
{
    struct sigaction act = {.sa_handler = wl_on_signal};
    wl.rest = rest;
    sigaction(SIGUSR1, &act, NULL);
    if (rest == WL_READ || rest == WL_WRITE)
        wl_check(pipe2(wl.rest_fd, O_CLOEXEC) == 0, "pipe2");
    if (rest == WL_WRITE)
        wl_fill_pipe(wl.rest_fd[1]);
    if (rest == WL_RECV)
        wl_check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wl.rest_fd) == 0, "socketpair");
}

/* What a holder does while it holds: blocks in the chosen call until "release". */
static inline void wl_rest(void)
{
    struct timespec day = {86400, 0};
    char byte;

    wl.sleepers[wl.resting++ % WL_MAX_HOLDERS] = pthread_self();
    while (!wl.released) {
        ssize_t n = 0;
        if (wl.rest == WL_READ)
            n = read(wl.rest_fd[0], &byte, 1);
        else if (wl.rest == WL_RECV)
            n = recv(wl.rest_fd[0], &byte, 1, 0);
        else
            n = syscall(SYS_nanosleep, &day, NULL);
        if (n < 0 && errno != EINTR)
            wl_end(WL_EXIT_BROKEN, "holder", errno);
    }
}

static inline void wl_release(void)
{
    if (wl.released)
        return;
    wl.released = true;
    if (wl.rest == WL_READ || wl.rest == WL_RECV)
        close(wl.rest_fd[1]);
    else if (wl.rest == WL_WRITE)
        close(wl.rest_fd[0]);
    else
        for (int i = 0; i < wl.resting; i++)
            pthread_kill(wl.sleepers[i], SIGUSR1);
}

/* Forks a child that runs RUN and dies with this process. Call it before any thread is started. */
static inline pid_t wl_fork(void (*run)(void))
{
    pid_t parent = getpid(), child = fork();
    wl_check(child >= 0, "fork");
    if (child > 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        run();
    _exit(0);
}

#endif

/*
 * source_child.h - processes that make the situations which the tests look at. Test and child
 * share a room in memory; the child dies with the test. Include it behind cmocka.h.
 */
#ifndef LT_TESTS_SOURCE_CHILD_H
#define LT_TESTS_SOURCE_CHILD_H

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "source_watch.h"

#define ROOM_TIDS 512

struct room {
    _Atomic pid_t tid[ROOM_TIDS]; /* of thread I of the child, once it runs */
    atomic_int ready, go, word;   /* WORD: a futex that nobody else uses */
    _Atomic uint64_t addr;
    char path[64];
};

static inline struct room *room_new(void)
{
    void *p = mmap(NULL, sizeof(struct room), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                   -1, 0);

    assert_true(p != MAP_FAILED);
    return p;
}

static inline void room_free(struct room *r)
{
    munmap(r, sizeof(*r));
}

/* BODY runs in the child, and what it returns from there is its exit status. */
static inline pid_t child_start(struct room *r, int (*body)(struct room *))
{
    pid_t parent = getpid(), pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            _exit(body(r));
        _exit(99);
    }
    assert_true(pid > 0);
    return pid;
}

static inline void child_kill(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Waits until *WHAT is no longer 0. */
static inline int await_value(atomic_int *what)
{
    nsec_t end = clock_mono() + PATIENCE;

    while (!atomic_load(what)) {
        if (clock_mono() > end)
            fail_msg("the child never got ready");
        nap();
    }
    return atomic_load(what);
}

/* For the child's side ------------------------------------------------------------ */

struct start {
    struct room *room;
    int index;
    void (*body)(struct room *);
};

static inline void *start_thread(void *arg)
{
    struct start s = *(struct start *)arg;

    free(arg);
    atomic_store(&s.room->tid[s.index], (pid_t)syscall(SYS_gettid));
    s.body(s.room);
    return NULL;
}

/* Starts a thread with a small stack and waits until its TID stands in the room. */
static inline void room_thread(struct room *r, int index, void (*body)(struct room *))
{
    struct start *s = malloc(sizeof(*s));
    pthread_attr_t attr;
    pthread_t t;

    *s = (struct start){r, index, body};
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&t, &attr, start_thread, s) != 0)
        _exit(98);
    pthread_attr_destroy(&attr);
    while (!atomic_load(&r->tid[index]))
        sched_yield();
}

static inline long futex(void *addr, int op, uint32_t val, const struct timespec *timeout)
{
    return syscall(SYS_futex, addr, op, val, timeout, NULL, FUTEX_BITSET_MATCH_ANY);
}

static inline int be_ready(struct room *r)
{
    atomic_store(&r->ready, 1);
    while (pause() != 0)
        continue;
    return 0;
}

#endif

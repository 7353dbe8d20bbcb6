/*
 * tracer_scene.h - a child whose threads do something, and a tracer that looks at them. Include it
 * behind cmocka.h.
 */
#ifndef LT_TESTS_TRACER_SCENE_H
#define LT_TESTS_TRACER_SCENE_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/procfs.h"
#include "../src/tracer.h"

#include "source_child.h"

#define MAGIC UINT64_C(0x5eed0fca11ab1e42)

static const struct tracer_limits unlimited = {10000, 1000000 * NSEC_PER_SEC, 5 * NSEC_PER_SEC, false};

/* A child and the means to look at its threads. */
struct scene {
    struct room *room;
    pid_t pid;
    int dirfd;
    struct tracer *tracer;
    struct tracer_look *look;
};

/* What the children of this file count; in memory that they share with the test. */
static struct {
    _Atomic uint64_t progress, eintr, cut, returned, handled;
} * shared;

static inline int map_shared(void **state UNUSED)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : 0;
}

static inline int unmap_shared(void **state UNUSED)
{
    return munmap(shared, 4096);
}

static inline void begin(struct scene *s, int (*body)(struct room *),
                         const struct tracer_limits *limits)
{
    char path[32];

    memset(shared, 0, sizeof(*shared));
    s->room = room_new();
    s->pid = child_start(s->room, body);
    await_value(&s->room->ready);
    snprintf(path, sizeof(path), "/proc/%d", (int)s->pid);
    s->dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(s->dirfd >= 0);
    s->tracer = tracer_new(limits);
    s->look = calloc(1, sizeof(*s->look));
}

static inline void finish(struct scene *s)
{
    tracer_free(s->tracer);
    child_kill(s->pid);
    close(s->dirfd);
    room_free(s->room);
    free(s->look);
}

static inline enum tracer_result look_at(struct scene *s, pid_t tid)
{
    return tracer_look(s->tracer, s->dirfd, tid, s->look);
}

/* A thread that computes may be found in a page fault, or not yet let go of by the last look. */
static inline void look_at_running(struct scene *s, pid_t tid)
{
    nsec_t end = clock_mono() + PATIENCE;
    enum tracer_result r;

    while (((r = look_at(s, tid)) == TRACER_UNSAFE || r == TRACER_NOT_NOW) && clock_mono() < end)
        nap();
    if (r != TRACER_OK)
        fail_msg("thread %d: %s", tid, tracer_result_text(r));
}

static inline void await_result(struct scene *s, pid_t tid, enum tracer_result r)
{
    nsec_t end = clock_mono() + PATIENCE;

    while (look_at(s, tid) != r) {
        if (clock_mono() > end)
            fail_msg("thread %d: never \"%s\"", tid, tracer_result_text(r));
    }
}

static inline char state_of(pid_t pid, pid_t tid)
{
    char rel[64];
    struct procfs_stat st;

    snprintf(rel, sizeof(rel), "/proc/%d/task/%d/stat", (int)pid, (int)tid);
    return procfs_read_stat(AT_FDCWD, rel, &st) == 0 ? st.state : '-';
}

static inline void await_state(pid_t pid, pid_t tid, char state)
{
    nsec_t end = clock_mono() + PATIENCE;

    while (state_of(pid, tid) != state) {
        if (clock_mono() > end)
            fail_msg("thread %d is in %c, not in %c", tid, state_of(pid, tid), state);
        nap();
    }
}

static inline void await_more(_Atomic uint64_t *count)
{
    uint64_t before = *count;
    nsec_t end = clock_mono() + PATIENCE;

    while (*count == before) {
        if (clock_mono() > end)
            fail_msg("the child stands still");
        nap();
    }
}

/* A thread that computes ------------------------------------------------------------------ */

/* Its address range is known to the test: the child is a fork of it. */
__attribute__((noinline, unused, section("spin_code"),
               no_sanitize("address", "thread", "undefined"))) static void
spin(volatile uint64_t *magic)
{
    for (;;) {
        *magic = MAGIC;
        atomic_fetch_add(&shared->progress, 1);
    }
}
extern const char __start_spin_code[], __stop_spin_code[];

/* On the thread's own stack, where sanitizers too must leave MAGIC. */
__attribute__((no_sanitize("address"))) static inline void spin_thread(struct room *r UNUSED)
{
    volatile uint64_t magic;

    spin(&magic);
}

static inline int spinning(struct room *r)
{
    room_thread(r, 0, spin_thread);
    return be_ready(r);
}

#endif

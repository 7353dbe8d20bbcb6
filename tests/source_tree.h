/*
 * source_tree.h - a source that looks at trees which the test itself writes, and at memory that
 * only seems to be there. Include it behind cmocka.h.
 */
#ifndef LT_TESTS_SOURCE_TREE_H
#define LT_TESTS_SOURCE_TREE_H

#include "proc_tree.h"
#include "source_watch.h"

#define PID  4000
#define IDLE "230 0x0 0x0 0x7f00 0x7f00 0x0 0x7f01 0x7ffc0000 0x7f02" /* clock_nanosleep */
#define LOCK "202 0x5000 0x80 0x2 0x0 0x0 0x0 0x7ffc0000 0x7f02"

/* Stands in for the target's memory: each byte is the low byte of its address, so that it is
 * seen what was read, and from which thread. */
static pid_t asked;
static int reads, refuse;

static inline int read_pattern(pid_t pid, struct remote_item *items, size_t n)
{
    asked = pid;
    reads++;
    if (refuse)
        return refuse;
    for (size_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < items[i].len; k++)
            ((uint8_t *)items[i].dst)[k] = (uint8_t)(items[i].addr + k);
        items[i].got = items[i].len;
    }
    return (int)n;
}

static const pid_t the_pid = PID;

/* A tree with one process, PID, that sleeps. */
static inline void make_tree(struct tree *t, char state)
{
    tree_new(t);
    tree_process(t, PID, state);
    tree_thread(t, PID, PID, 100, 5, IDLE);
}

static inline void open_tree(struct tree *t, struct watch *w, char state)
{
    make_tree(t, state);
    watch_tree(w, t->root, read_pattern, &the_pid, 1);
}

static inline void close_tree(struct tree *t, struct watch *w)
{
    watch_end(w);
    tree_free(t);
}

static inline const struct thread_fact *look(struct watch *w, pid_t tid)
{
    sweep(w);
    return thread_in(&w->s, tid);
}

static inline int fixture_setup(void **state)
{
    asked = reads = refuse = 0;
    return fds_before(state);
}

#define fixture_test(f) cmocka_unit_test_setup_teardown(f, fixture_setup, fds_after)

#endif

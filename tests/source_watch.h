/*
 * source_watch.h - looking through a source_proc, for the tests of it. Include it behind cmocka.h.
 */
#ifndef LT_TESTS_SOURCE_WATCH_H
#define LT_TESTS_SOURCE_WATCH_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../src/clock.h"
#include "../src/compiler.h"
#include "../src/source_proc.h"

#define PATIENCE (20 * NSEC_PER_SEC) /* before a condition counts as never coming true */

struct watch {
    struct source *source;
    struct sample s; /* of the last sweep */
    size_t alive;
};

static inline void watch_tree(struct watch *w, const char *root, memory_reader read,
                              const pid_t *pids, size_t n)
{
    const struct source_proc_config cfg = {
        .root = root,
        .pids = pids,
        .npids = n,
        .read_memory = read,
    };
    int err = 0;

    *w = (struct watch){.source = source_proc_new(&cfg, &err)};
    assert_int_equal(err, 0);
    assert_non_null(w->source);
}

/* PID must stay where it is. */
static inline void watch_pid(struct watch *w, const pid_t *pid)
{
    watch_tree(w, "/proc", remote_read, pid, 1);
}

static inline void sweep(struct watch *w)
{
    w->alive = w->source->ops->sweep(w->source, &w->s);
    assert_int_equal(w->s.kind, SAMPLE_SWEEP);
}

static inline void watch_end(struct watch *w)
{
    w->source->ops->free(w->source);
}

static inline const struct process_fact *process_in(const struct sample *s, pid_t pid)
{
    for (size_t i = 0; i < s->nprocesses; i++) {
        if (s->processes[i].pid == pid)
            return &s->processes[i];
    }
    return NULL;
}

static inline const struct thread_fact *thread_in(const struct sample *s, pid_t tid)
{
    for (size_t i = 0; i < s->nprocesses; i++) {
        for (size_t t = 0; t < s->processes[i].nthreads; t++) {
            if (s->processes[i].threads[t].tid == tid)
                return &s->processes[i].threads[t];
        }
    }
    return NULL;
}

static inline const struct word_fact *word_of(const struct sample *s, const struct thread_fact *f)
{
    assert_true(f->word >= 0 && (size_t)f->word < s->nwords);
    const struct word_fact *w = &s->words[f->word];
    assert_int_equal(w->addr, f->futex.addr);
    return w;
}

static inline void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2 * NSEC_PER_MSEC}, NULL);
}

/* Sweeps until IS says yes for thread TID, which is NULL while it is not in the sample. */
static inline const struct thread_fact *await(struct watch *w, pid_t tid,
                                              bool (*is)(const struct thread_fact *))
{
    nsec_t end = clock_mono() + PATIENCE;

    while (clock_mono() < end) {
        sweep(w);
        const struct thread_fact *f = thread_in(&w->s, tid);
        if (is(f))
            return f;
        nap();
    }
    fail_msg("thread %d never came into the state that was waited for", tid);
    return NULL;
}

static inline const struct thread_fact *await_call(struct watch *w, pid_t tid, enum call call)
{
    nsec_t end = clock_mono() + PATIENCE;

    while (clock_mono() < end) {
        sweep(w);
        const struct thread_fact *f = thread_in(&w->s, tid);
        if (f && f->seen == SEEN_CALL && f->call == call)
            return f;
        nap();
    }
    fail_msg("thread %d was never seen in %s", tid, syscalls_name(call));
    return NULL;
}

static inline int count_entries(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* Descriptors that this process has open. */
static inline int count_fds(void)
{
    return count_entries("/proc/self/fd");
}

/* Set-up and tear-down of a test that must leave no descriptor behind. */
static inline int fds_before(void **state)
{
    static int before;

    before = count_fds();
    *state = &before;
    return 0;
}

static inline int fds_after(void **state)
{
    int before = *(int *)*state, after = count_fds();

    if (after != before)
        print_error("%d descriptors before, %d after\n", before, after);
    return after == before ? 0 : -1;
}

#define leak_test(f) cmocka_unit_test_setup_teardown(f, fds_before, fds_after)

#endif

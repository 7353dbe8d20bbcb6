/*
 * workload_mutex.h - the scenes of pthread mutexes, which differ only in their attributes.
 */
#ifndef WORKLOAD_MUTEX_H
#define WORKLOAD_MUTEX_H

#include "workload.h"

struct wl_mutex {
    const char *kind;
    int type; /* PTHREAD_MUTEX_... */
    bool robust, inherit, shared;
    enum wl_rest rest;
    /* How waiters take it; NULL: pthread_mutex_lock. */
    int (*lock)(pthread_mutex_t *m);
};

static pthread_mutex_t *wl_mutex;
static int (*wl_mutex_lock)(pthread_mutex_t *m) = pthread_mutex_lock;

/* Fills *M as SPEC says. */
static inline void wl_mutex_init(pthread_mutex_t *m, const struct wl_mutex *spec)
{
    pthread_mutexattr_t attr;
    wl_zero(pthread_mutexattr_init(&attr), "pthread_mutexattr_init");
    wl_zero(pthread_mutexattr_settype(&attr, spec->type), "pthread_mutexattr_settype");
    if (spec->robust)
        wl_zero(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST), "robust");
    if (spec->inherit)
        wl_zero(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT), "prio inherit");
    if (spec->shared)
        wl_zero(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED), "pshared");
    int err = pthread_mutex_init(m, &attr);
    if (err == ENOTSUP)
        wl_skip("pthread_mutex_init", err);
    wl_zero(err, "pthread_mutex_init");
}

static inline void wl_mutex_hold(void)
{
    wl_zero(pthread_mutex_lock(wl_mutex), "pthread_mutex_lock");
    wl_rest();
    pthread_mutex_unlock(wl_mutex);
}

static inline void wl_mutex_wait(int i)
{
    (void)i;
    wl_zero(wl_mutex_lock(wl_mutex), "lock");
    pthread_mutex_unlock(wl_mutex);
}

/* A program that is nothing but this mutex. M is where it lives. */
static inline int wl_run_mutex(int argc, char **argv, pthread_mutex_t *m,
                               const struct wl_mutex *spec)
{
    struct wl_scene s = {
        .kind = spec->kind,
        .class = "lock",
        .address = m,
        .records_owner = true,
        .rest = spec->rest,
        .hold = wl_mutex_hold,
        .wait = wl_mutex_wait,
    };
    wl_mutex = m;
    if (spec->lock)
        wl_mutex_lock = spec->lock;
    wl_mutex_init(m, spec);
    return wl_run(argc, argv, &s);
}

#endif

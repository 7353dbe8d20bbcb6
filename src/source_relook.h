/*
 * source_relook.h - a second look at threads that a sweep saw waiting: have they left the call
 * since? Part of source_proc; nothing else includes it.
 */
#ifndef LT_SOURCE_RELOOK_H
#define LT_SOURCE_RELOOK_H

#include "sample.h"
#include "source_process.h"

#define RELOOK_MAX 64 /* threads looked at again after one sweep */

struct relook {
    nsec_t delay, asked_at; /* as last asked for */
    nsec_t swept;           /* MONO of the last sweep */
    size_t nwaiting;        /* threads worth looking at again, as of that */
    size_t turn;            /* whose turn it is */
    struct ran_fact ran[RELOOK_MAX];
};

/* The model asks for second looks DELAY after coming sweeps. */
void relook_want(struct relook *r, nsec_t delay, nsec_t now);

/* Counts who is worth it. To be called as soon as a sweep, which began at NOW, has looked at all
 * threads: delays count from the middle of that. */
void relook_sweep(struct relook *r, struct process *const *procs, size_t n, nsec_t now);

/* How long after the last sweep to look again; 0: not at all. */
nsec_t relook_delay(const struct relook *r);

/* Looks again, and fills RAN of S, which lives until the next time. Changes no facts. */
void relook_take(struct relook *r, struct process *const *procs, size_t n, struct sample *s);

#endif

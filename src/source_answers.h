/*
 * source_answers.h - what the inspector answered, as facts of the next sweep. Part of source_proc;
 * nothing else includes it.
 */
#ifndef LT_SOURCE_ANSWERS_H
#define LT_SOURCE_ANSWERS_H

#include "inspector.h"
#include "sample.h"
#include "source_process.h"

#define ANSWERS_PER_SWEEP 256

struct answers {
    struct inspector *inspector; /* borrowed; NULL: nothing is ever asked or answered */
    struct inspection *taken[ANSWERS_PER_SWEEP]; /* those of the last sweep */
    size_t n;
    struct stack_fact stacks[ANSWERS_PER_SWEEP];
    struct name_fact names[ANSWERS_PER_SWEEP];
    struct socket_fact sockets[ANSWERS_PER_SWEEP];
    struct scan_result *scan; /* the last search for locks on files that came with these; NULL */
    size_t nstacks, nnames, nsockets;
};

/* Hands a request for a stack or a name in process P on to the inspector. */
void answers_ask(struct answers *a, const struct process *p, const struct request *r);

/* Frees the answers of the last sweep, takes those that came since, and puts them into S. */
void answers_collect(struct answers *a, struct sample *s);

/* Fills in what stacks cost and how they were taken. */
void answers_count(struct answers *a, struct self_fact *self);

void answers_release(struct answers *a);

#endif

/*
 * model_show_stacks.h - stacks on their way from the model into a snapshot. Part of the model;
 * model_snapshot.c alone includes it.
 */
#ifndef LT_MODEL_SHOW_STACKS_H
#define LT_MODEL_SHOW_STACKS_H

#include "model_internal.h"

/* A waiter of a row. */
struct waiting {
    const struct lock_row *row;
    const struct thread *thread;
    nsec_t since;
};

/* At most so many groups of one role are kept. */
#define SHOWN_STACKS 16

/* The stacks of R's waiters (N of them at W), of its holder and of those it had. */
void model_show_stacks(struct snap_lock *l, struct arena *a, const struct model *m,
                       struct lock_row *r, const struct waiting *w, size_t n);

/* All threads with their stacks, into S. */
void model_show_threads(struct snapshot *s, const struct model *m);

#endif

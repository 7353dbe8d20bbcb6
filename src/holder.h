/*
 * holder.h - who must act for the waiters of a lock to go on, and what that thread is doing, for
 * the snapshot. Part of the model.
 */
#ifndef LT_HOLDER_H
#define LT_HOLDER_H

#include "owner.h"
#include "snapshot.h"
#include "xalloc.h"

/* The holders of R as of the last sweep: an array in arena A, *N of them. 0: nobody holds it now,
 * and nothing is wrong with that. */
const struct snap_holder *holder_list(struct arena *a, const struct proctab *procs,
                                      struct lock_row *r, size_t *n);

#endif

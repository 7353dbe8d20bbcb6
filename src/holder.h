/*
 * holder.h - who must act for the waiters of a lock to go on, and what that thread is doing.
 *
 * Part of the model. A TID in a lock word is a holder only if it is a thread of the process that
 * waits (or, for memory that is mapped shared, of one known to map it).
 */
#ifndef LT_HOLDER_H
#define LT_HOLDER_H

#include "locktab.h"
#include "proctab.h"
#include "snapshot.h"
#include "xalloc.h"

/* Whether the source should look for the named owner elsewhere; then *REQ says how. */
bool holder_request(const struct proctab *procs, struct lock_row *r, nsec_t now,
                    struct request *req);

/* The holders of R as of the last sweep: an array in arena A, *N of them (0: nobody holds it
 * now). */
const struct snap_holder *holder_list(struct arena *a, const struct proctab *procs,
                                      const struct lock_row *r, size_t *n);

#endif

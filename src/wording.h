/*
 * wording.h - who waits for what and what a thread does, in plain words.
 *
 * Part of the model. All texts are made in an arena; names in them are the target's raw bytes.
 */
#ifndef LT_WORDING_H
#define LT_WORDING_H

#include "owner.h"
#include "proctab.h"
#include "xalloc.h"

/* What a lock is called: what the user calls it, else its name, else its place in a shared file:
 * "buf_pool+0x40", "/dev/shm/pool+0x40"; NULL when it has none of these. */
const char *wording_name(struct arena *a, const struct lock_row *r);

/* The same in a sentence, which says of what kind it is unless the name is the user's or tells:
 * "mutex buf_pool+0x40", "mutex 0x7f3200000040", "the queue". */
const char *wording_lock(struct arena *a, const struct lock_row *r);

/* "main[12]" */
const char *wording_thread(struct arena *a, const struct thread *th);

/* What a thread that waits for no lock is blocked in: "fsync fd 12 /data/ibdata1", "syscall 333";
 * NULL when it is not blocked. */
const char *wording_call(struct arena *a, const struct thread *th);

/* " held by b[2]", of a waiter that has an edge; with " (at this moment)" where only one of two
 * reads of the lock says so. */
const char *wording_held_by(struct arena *a, const struct thread *th);

/* How TH, which holds up others, goes on, along the edges of the wait-for graph; to stand behind
 * its name: ", which runs", ", sleeping in nanosleep", ", which waits for mutex 0x7f.. held by
 * b[2], which waits for c[3] to end (join), blocked in recvfrom fd 7 socket:[123]". */
const char *wording_onwards(struct arena *a, const struct proctab *procs, const struct thread *th);

/* The same without what joins it to the name: "waits for mutex 0x7f.. held by b[2], which runs". */
const char *wording_waits(struct arena *a, const struct proctab *procs, const struct thread *th);

/* Why no thread can be named as the holder of R, whose owner O is no OWNER_THREAD: "its owner TID
 * 9120 no longer exists (ended holding it): never released". NULL for a lock that is merely
 * free. */
const char *wording_owner(struct arena *a, const struct proctab *procs, struct lock_row *r,
                          const struct owner *o);

#endif

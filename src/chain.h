/*
 * chain.h - the wait-for graph: who waits for whom, to the root; deadlocks.
 *
 * Part of the model. A sweep is not one instant, so edges seen in one sweep may never have stood
 * together. A cycle is called a deadlock only when each of its edges has stood for 50 ms without
 * a break and without its thread running: then all of them stood at once. A cycle in which somebody
 * waits with a timeout is none, for it ends by itself; it is told, as what it is, when it has stood
 * for longer, since such a wait may have ended without its thread being put on a CPU.
 */
#ifndef LT_CHAIN_H
#define LT_CHAIN_H

#include "locktab.h"
#include "proctab.h"
#include "snapshot.h"

#define DEADLOCK_STANDS (50 * NSEC_PER_MSEC)

/* At the end of each sweep: which edge each waiting thread has, and since when it stands. */
void chain_note(struct proctab *procs);

/* The chains as of the last sweep, in arena A: deadlocks first, then other circles, then those that
 * block most (where nothing but joins is waited for, last); at most CHAIN_MAX. A chain of one
 * waiter behind one running holder is one too. A circle that is not proved to stand (yet), and what
 * waits behind it, is left out. */
#define CHAIN_MAX 64
const struct snap_chain *chain_list(struct arena *a, struct proctab *procs, size_t *n);

/* What blocks TH: "hard", the holder itself; "soft", only the queue in front (it wants to share
 * what is shared already); NULL when it waits for nothing that is held. */
const char *chain_blocked_by(const struct thread *th);

#endif

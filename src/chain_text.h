/*
 * chain_text.h - one line for each chain of the wait-for graph. Part of the model; only chain.c
 * includes it.
 *
 * FAR is the thread at the far end of the longest way, BLOCKED how many wait for the root in all.
 */
#ifndef LT_CHAIN_TEXT_H
#define LT_CHAIN_TEXT_H

#include "proctab.h"
#include "xalloc.h"

/* "4 wait for mutex A held by main[12], which waits for logger[13] to end (join), sleeping in
 * pause; 7 blocked in all" */
const char *chain_text_onwards(struct arena *a, const struct proctab *procs,
                               const struct thread *far, int blocked);

/* "3 wait for mutex A; ABOUT WHY": the chain is that lock alone, and its holder cannot be named. */
const char *chain_text_at_lock(struct arena *a, const struct thread *far, const char *about,
                               const char *why);

/* "DEADLOCK 2 threads: ab[9029] holds B, wants A <- ...": the DEPTH threads from ROOT on wait for
 * one another; or ROOT for itself. TIMED: it ends with a timeout, and is not called a deadlock. */
const char *chain_text_cycle(struct arena *a, const struct thread *root, int depth, int blocked,
                             bool timed);

/* TH waits in a signal handler for what it held when that interrupted it, most likely. */
const char *chain_text_interrupted(struct arena *a, const struct thread *th, int blocked);

#endif

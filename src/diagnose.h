/*
 * diagnose.h - the verdict: one line that says whether a lock is the trouble, with the number
 * that proves it. Part of the model: a pure function of a snapshot that is otherwise complete.
 */
#ifndef LT_DIAGNOSE_H
#define LT_DIAGNOSE_H

#include "snapshot.h"

/*
 * Waiting counts as contention from either of these on (class lock, mean over 10 s or since
 * lock-top began): one thread waiting all the time, or 3 % of all thread-time of the process.
 */
#define CONTENTION_MIN_WAITERS 1.0
#define CONTENTION_MIN_SHARE   0.03
/* On fewer looks, or fewer sightings of a waiter, nothing is alarmed. */
#define ALARM_MIN_LOOKS     10
#define ALARM_MIN_SIGHTINGS 3
/* With more than this part of the threads unreadable, "no contention" would be a guess. */
#define UNREADABLE_MAX_SHARE 0.05

/* Fills s->verdict (in s's arena) and s->severity. */
void diagnose_verdict(struct snapshot *s);

#endif

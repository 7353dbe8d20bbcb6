/*
 * source_owners.h - what a TID belongs to that a lock word names and that is no thread of the
 * process which waits: nothing any more, or another process (a lock that was held across fork).
 * Part of source_proc; nothing else includes it.
 */
#ifndef LT_SOURCE_OWNERS_H
#define LT_SOURCE_OWNERS_H

#include "sample.h"

/* At most so many are asked for between two sweeps; the rest is asked again. */
#define OWNERS_MAX 64

struct owners {
    struct owner_ask {
        pid_t pid, ppid, tid;
    } asked[OWNERS_MAX];
    size_t nasked;
    struct owner_fact facts[OWNERS_MAX];
};

/* Asks what TID, named by a lock of process PID whose parent is PPID, belongs to. All three are
 * numbers as seen from here. */
void owners_ask(struct owners *o, pid_t pid, pid_t ppid, pid_t tid);

/* Looks up what was asked below ROOTFD. Returns the answers, *N of them, which live in O until the
 * next call; what could not be told (no permission) is left out. */
const struct owner_fact *owners_serve(struct owners *o, int rootfd, size_t *n);

#endif

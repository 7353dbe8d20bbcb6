/*
 * profile.h - where the holders of one lock were seen while others waited for it: the call paths
 * that keep it, most frequent first.
 *
 * Part of the model. A holder that runs is looked at only within the budget of stops, one that is
 * blocked always: what was not looked at is counted as such, so shares are of all sightings. A path
 * is one of functions, wherever in them the holder was.
 */
#ifndef LT_PROFILE_H
#define LT_PROFILE_H

#include "clock.h"
#include "snapshot.h"
#include "stacktab.h"

#define PROFILE_PATHS 16
#define PROFILE_EVERY (100 * NSEC_PER_MSEC) /* between sightings */
/* Between stops of a holder that runs: while it stands, others come to wait, and at a lock that is
 * taken millions of times a second such a queue takes milliseconds to dissolve (measured: 5 ms of
 * work lost by each stop). */
#define PROFILE_STOP_EVERY (500 * NSEC_PER_MSEC)
/* All counts are halved after so long: what is shown is of the last minutes. */
#define PROFILE_HALVES (60 * NSEC_PER_SEC)

struct profile_path {
    struct kept_stack *stack; /* NULL: not looked at; the first seen of its functions */
    enum thread_state state;  /* of the holder; one that waits for a CPU counts as running */
    uint32_t count;
};

struct profile {
    struct profile_path paths[PROFILE_PATHS]; /* COUNT 0: free */
    uint32_t total;
    uint32_t owed; /* sightings of holders that ran and were not looked at: the next that is stands
                      for them as well */
    nsec_t seen_at, stopped_at, halved_at; /* model time */
};

/* Whether it is time for another sighting; then it is taken as made. */
bool profile_due(struct profile *p, nsec_t now);

/* Whether a holder that runs may be stopped again; then it is taken as done. Otherwise the sighting
 * is owed. */
bool profile_stop_due(struct profile *p, nsec_t now);

/* A holder was seen in STATE with STACK (NULL: it was not looked at). When all places are taken,
 * the least frequent path makes room, and its count is lost. */
void profile_add(struct profile *p, struct kept_stack *stack, enum thread_state state, nsec_t now);

/* As profile_add(), of one that ran: what is owed counts with it. */
void profile_add_running(struct profile *p, struct kept_stack *stack, nsec_t now);

/* The paths, most frequent first; returns how many. */
size_t profile_sort(const struct profile *p, struct profile_path out[PROFILE_PATHS]);

#endif

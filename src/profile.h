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
    nsec_t seen_at, halved_at; /* model time */
};

/* Whether it is time for another sighting; then it is taken as made. */
bool profile_due(struct profile *p, nsec_t now);

/* A holder was seen in STATE with STACK (NULL: it was not looked at). When all places are taken,
 * the least frequent path makes room, and its count is lost. */
void profile_add(struct profile *p, struct kept_stack *stack, enum thread_state state, nsec_t now);

/* The paths, most frequent first; returns how many. */
size_t profile_sort(const struct profile *p, struct profile_path out[PROFILE_PATHS]);

#endif

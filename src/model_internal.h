/*
 * model_internal.h - the model's state, shared by model.c (which feeds it) and
 * model_snapshot.c (which reads it out) and by their parts that deal with stacks.
 */
#ifndef LT_MODEL_INTERNAL_H
#define LT_MODEL_INTERNAL_H

#include "locktab.h"
#include "model.h"
#include "proctab.h"
#include "stacktab.h"

struct model {
    struct model_host host;
    nsec_t start, now, wall; /* NOW is since START */
    uint64_t sweeps;
    struct locktab locks;
    struct proctab procs;
    struct self_fact self;
    /* At the last snapshot. */
    struct self_fact shown_self;
    nsec_t shown_at;
    struct {
        double cpu_pct, sweep_hz, probe_hz; /* NaN before the second sweep */
    } rates;
    /* Stacks and names. */
    struct signatures *builtin; /* when none were given; owned */
    const struct name_rules *rules; /* borrowed; NULL */
    enum stacks_mode stacks_mode;
    bool may_stop;
    struct stacktab stacks;
    double tokens;     /* stacks that may be asked for now */
    nsec_t tokens_at;
    uint64_t snapshots; /* number of the running one */
    size_t asked_slot; /* whose turn it is */
    size_t rows_left_out; /* of the last snapshot, for want of room */
};

#endif

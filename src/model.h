/*
 * model.h - from samples to snapshots. A pure function of the samples fed so far: no I/O, no
 * clock, so a stored stream of samples gives the same snapshots again.
 */
#ifndef LT_MODEL_H
#define LT_MODEL_H

#include "options.h"
#include "sample.h"
#include "signature.h"
#include "snapshot.h"

/* What does not change while lock-top runs. */
struct model_host {
    char name[65], kernel[65];
    int cpus; /* online */
};

struct model;

struct model *model_new(const struct model_host *host);

/* What the user wants of stacks and names; without it stacks are off. */
struct model_config {
    enum stacks_mode stacks;
    bool may_stop; /* a running holder may be stopped for a moment */
    const struct signatures *signatures; /* borrowed; NULL: those built in */
    const struct name_rules *names;      /* borrowed; NULL: none */
};
void model_configure(struct model *m, const struct model_config *cfg);

/* Takes a sample. The model keeps pointers into a sweep until the next one: feed, take
 * snapshots, and only then let the source look again. */
void model_feed(struct model *m, const struct sample *s);

/* What the source should look at; at most MAX. Call after each sweep was fed. */
size_t model_requests(struct model *m, struct request *out, size_t max);

/* All that is known now; the caller owns it. NULL before the first sweep. Rates and thread
 * states span the time since the previous snapshot. */
struct snapshot *model_snapshot(struct model *m);

/* NULL is allowed. */
void model_free(struct model *m);

#endif

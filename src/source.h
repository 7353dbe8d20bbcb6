/*
 * source.h - where raw thread facts come from, behind one small interface: /proc today
 * (source_proc); a kernel task iterator can stand beside it.
 */
#ifndef LT_SOURCE_H
#define LT_SOURCE_H

#include "sample.h"

struct source;

struct source_ops {
    /* Looks at every watched thread. Fills *OUT; its arrays live until the next sweep.
     * Errors are part of the sample. Returns how many watched processes are still alive. */
    size_t (*sweep)(struct source *s, struct sample *out);
    /* Whether there are words that a probe would read. */
    bool (*wants_probe)(const struct source *s);
    /* Reads again just the lock words of interest; cheap. */
    void (*probe)(struct source *s, struct sample *out);
    /* How long after the last sweep to look again at those who wait; 0: not at all. NULL: never. */
    nsec_t (*relook_delay)(const struct source *s);
    /* Looks at them again: a sample of kind SAMPLE_RELOOK. */
    void (*relook)(struct source *s, struct sample *out);
    /* Takes a wish of the model; served by the next sweep, if at all. */
    void (*request)(struct source *s, const struct request *r);
    void (*free)(struct source *s);
};

struct source {
    const struct source_ops *ops;
};

#endif

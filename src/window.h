/*
 * window.h - sums over the last 1, 10 and 60 seconds of something counted at each look, in a
 * few hundred bytes: tenths of a second for the shortest, whole seconds for the others.
 *
 * All windows of a model share one clock (the samples'), so that a sum can be divided by the
 * number of looks in the same span: mean waiters = window of waiters / window of sweeps.
 */
#ifndef LT_WINDOW_H
#define LT_WINDOW_H

#include <stddef.h>
#include <stdint.h>

#include "clock.h"

#define WINDOW_TENTHS  11 /* the running tenth and ten whole ones */
#define WINDOW_SECONDS 61 /* the running second and sixty whole ones */

struct window {
    int64_t tenth;                   /* number of the running tenth since the model's start */
    uint32_t tenths[WINDOW_TENTHS];  /* rings, indexed by number modulo size */
    uint32_t seconds[WINDOW_SECONDS];
    uint16_t peak[WINDOW_SECONDS];   /* largest single value of each second */
};

/* Adds VALUE at time T (ns since the model's start, never falling). */
void window_add(struct window *w, nsec_t t, uint32_t value);

/* Moves on to time T with nothing to add. */
void window_advance(struct window *w, nsec_t t);

/* The sum over about the last SECONDS (1, or 2..60) up to time T: whole steps and the running
 * one, so up to one step (0.1 s; 1 s) more than asked. Moves on to T. */
uint64_t window_sum(struct window *w, nsec_t t, int seconds);

/* The largest value in the last 60 s. */
unsigned window_peak(struct window *w, nsec_t t);

/* The sum of the whole second that ended AGO seconds before the running one; AGO 1..60. */
uint32_t window_second(struct window *w, nsec_t t, int ago);

#endif

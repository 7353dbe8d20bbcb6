/*
 * estimate.h - from what looks at given moments saw to the mean time that a thread waits for a lock
 * and the rate of such waits. Pure arithmetic; part of the model.
 *
 * Paired looks: of the threads that a sweep saw waiting, the share f has left when they are looked
 * at again a time d later. Where waits are of equal length W, f = d/W; where a wait ends at any
 * moment as likely as at any other, -ln(1-f) = d/W. The truth lies between, so their mean is taken,
 * at a d for which f is small and they differ little (at f = 0.15 by 8 %: an error of 4 %).
 *
 * That d must also be shorter than the lock is mostly held, which is about W by the number that
 * wait: who left, did what it had to do under the lock and waits again looks as if it had stayed.
 *
 * Where one waits at a time, and for longer than sweeps are apart, waits are counted one by one,
 * which needs fewer of them. Short ones among them that no sweep saw are made up for: where any
 * length is as likely as a little other one, they are half as many as those seen just once.
 */
#ifndef LT_ESTIMATE_H
#define LT_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

#include "clock.h"
#include "window.h"

#define ESTIMATE_RUNGS 10 /* delays of paired looks, each twice the one before */
extern const nsec_t estimate_delays[ESTIMATE_RUNGS];

#define ESTIMATE_MIN_EVENTS 30 /* below so many ends of waits nothing is told: 18 % of error */
#define ESTIMATE_ENOUGH     400 /* ends of waits that make a short span as good as a long one */

/* What is kept of one lock. All 0 at first. */
struct estimate {
    struct window pairs[ESTIMATE_RUNGS], left[ESTIMATE_RUNGS]; /* looked at again; had left */
    struct window delay[ESTIMATE_RUNGS]; /* sum of the real delays, in us */
    struct window seen;   /* sightings of a waiter */
    struct window crowd;  /* how many waited, summed over these */
    struct window begun;  /* sleeps that a sweep saw for the first time */
    struct window again;  /* of those of a lone waiter: seen for the second time */
    bool first;           /* the last sighting was the first of its sleep */
};

/* A sweep at model time T saw one waiter, of WAITERS in all. BEGUN: it has not slept since the
 * sweep before. Called for each waiter. */
void estimate_sweep(struct estimate *e, nsec_t t, bool begun, uint32_t waiters);

/* A thread that waited at the sweep was looked at again DELAY later. Not after one that a look in
 * between has found to have left. */
void estimate_pair(struct estimate *e, nsec_t t, nsec_t delay, bool left);

/* Which delay tells most about this lock, one of estimate_delays. Where nothing is known yet it
 * changes from sweep to sweep: ask before each. */
nsec_t estimate_best_delay(struct estimate *e, nsec_t t);

struct figures {
    double wait_ms;         /* mean time of one wait; NaN */
    double contended_per_s; /* waits a second; NaN */
    uint64_t events;        /* ends of waits behind these */
};

/* How much of the time before T the sums of a window over SECONDS stand for: what has passed of
 * the running second comes on top. */
nsec_t estimate_span(nsec_t t, int seconds);

/* Over the last SECONDS (10 or 60). WAITERS: mean waiters over the sweeps in that span; SWEEPS: how
 * many these were; SPAN: estimate_span(T, SECONDS). */
struct figures estimate_figures(struct estimate *e, nsec_t t, int seconds, double waiters,
                                uint64_t sweeps, nsec_t span);

#endif

#include "estimate.h"

#include <math.h>

#include "compiler.h"

const nsec_t estimate_delays[ESTIMATE_RUNGS] = {
    200 * NSEC_PER_USEC,  400 * NSEC_PER_USEC,  800 * NSEC_PER_USEC,
    1600 * NSEC_PER_USEC, 3200 * NSEC_PER_USEC, 6400 * NSEC_PER_USEC,
    13 * NSEC_PER_MSEC,   26 * NSEC_PER_MSEC,   52 * NSEC_PER_MSEC,
};

#define SHARE_GOAL 0.10
#define SHARE_MAX  0.35 /* beyond, the two ways to read a share differ by a fifth */

/* Waits longer than so many intervals between sweeps are all seen. */
#define LONG_WAIT 2.0

void estimate_sweep(struct estimate *e, nsec_t t, bool begun, uint32_t waiters)
{
    window_add(&e->begun, t, begun);
    window_add(&e->crowded, t, waiters > 1);
}

/* The rung to which DELAY belongs: the one nearest in proportion. */
static int rung_of(nsec_t delay)
{
    int i = 0;

    while (i + 1 < ESTIMATE_RUNGS && delay * 10 > estimate_delays[i] * 14)
        i++;
    return i;
}

void estimate_pair(struct estimate *e, nsec_t t, nsec_t delay, bool left)
{
    int i = rung_of(delay);

    window_add(&e->pairs[i], t, 1);
    window_add(&e->left[i], t, left);
    window_add(&e->delay[i], t, (uint32_t)(delay / NSEC_PER_USEC));
}

struct rung {
    double pairs, left, delay_s; /* DELAY_S: mean */
};

static struct rung rung_at(struct estimate *e, nsec_t t, int i, int seconds)
{
    struct rung r = {
        .pairs = (double)window_sum(&e->pairs[i], t, seconds),
        .left = (double)window_sum(&e->left[i], t, seconds),
    };

    r.delay_s = r.pairs > 0 ? (double)window_sum(&e->delay[i], t, seconds) / r.pairs / 1e6 : NAN;
    return r;
}

/* d/W for the share F. */
static double hazard(double f)
{
    return (f - log(1 - f)) / 2;
}

/* The rate of ends that all rungs together tell best: of these, the one with most ends whose share
 * is not too large. */
static double rate_of(struct estimate *e, nsec_t t, int seconds, double least_ends, double *ends)
{
    double rate = NAN;

    *ends = 0;
    for (int i = 0; i < ESTIMATE_RUNGS; i++) {
        struct rung r = rung_at(e, t, i, seconds);
        if (r.left < least_ends || r.left <= *ends || r.left > r.pairs * SHARE_MAX)
            continue;
        *ends = r.left;
        rate = hazard(r.left / r.pairs) / r.delay_s;
    }
    return rate;
}

/* No rung has told anything so far: where nobody has left, longer; where all have, shorter. */
static nsec_t grope(struct estimate *e, nsec_t t)
{
    for (int i = ESTIMATE_RUNGS; i-- > 0;) {
        struct rung r = rung_at(e, t, i, 10);
        if (r.pairs >= 20 && r.left == 0)
            return estimate_delays[MIN(i + 1, ESTIMATE_RUNGS - 1)];
    }
    for (int i = 0; i < ESTIMATE_RUNGS; i++) {
        struct rung r = rung_at(e, t, i, 10);
        if (r.pairs >= 5 && r.left > r.pairs * SHARE_MAX)
            return estimate_delays[MAX(i - 1, 0)];
    }
    return estimate_delays[3];
}

#define FEW_ENDS 3 /* enough to choose a delay by */

nsec_t estimate_best_delay(struct estimate *e, nsec_t t)
{
    double ends, rate = rate_of(e, t, 10, FEW_ENDS, &ends);
    int best = 0;

    if (isnan(rate))
        return grope(e, t);
    double goal = hazard(SHARE_GOAL) / rate * (double)NSEC_PER_SEC;
    while (best + 1 < ESTIMATE_RUNGS && (double)estimate_delays[best] * 1.4 < goal)
        best++;
    return estimate_delays[best];
}

/* By Little's law the mean wait is L over the rate of waits. Who is woken in a crowd and finds the
 * lock taken begins a new sleep, but not a new wait: then counting says nothing. */
static double by_counting(struct estimate *e, nsec_t t, int seconds, double waiters, nsec_t span,
                          double *waits)
{
    *waits = (double)window_sum(&e->begun, t, seconds);
    if (window_sum(&e->crowded, t, seconds) > 0 || *waits < ESTIMATE_MIN_EVENTS)
        return NAN;
    return waiters * ((double)span / (double)NSEC_PER_SEC) / *waits;
}

struct figures estimate_figures(struct estimate *e, nsec_t t, int seconds, double waiters,
                                uint64_t sweeps, nsec_t span)
{
    struct figures out = {.wait_ms = NAN, .contended_per_s = NAN};
    double interval = (double)span / (double)NSEC_PER_SEC / (double)sweeps, ends, waits;
    double wait = 1 / rate_of(e, t, seconds, ESTIMATE_MIN_EVENTS, &ends);
    double counted = by_counting(e, t, seconds, waiters, span, &waits);

    /* Waits that no sweep saw make the counted mean too long: it is believed only when it is far
     * beyond the interval, and the pairs do not speak against it. */
    if (counted > LONG_WAIT * interval && !(wait < LONG_WAIT * interval / 2)) {
        wait = counted;
        ends = waits;
    }
    if (isnan(wait) || !(waiters > 0))
        return out;
    out.wait_ms = wait * 1e3;
    out.contended_per_s = waiters / wait;
    out.events = (uint64_t)ends;
    return out;
}

#include "estimate.h"

#include <math.h>

#include "compiler.h"

const nsec_t estimate_delays[ESTIMATE_RUNGS] = {
    50 * NSEC_PER_USEC,    100 * NSEC_PER_USEC,   200 * NSEC_PER_USEC,  400 * NSEC_PER_USEC,
    800 * NSEC_PER_USEC,   1600 * NSEC_PER_USEC,  3200 * NSEC_PER_USEC, 6400 * NSEC_PER_USEC,
    12800 * NSEC_PER_USEC, 25600 * NSEC_PER_USEC,
};
#define FIRST_RUNG 5 /* where nothing is known */

#define SHARE_GOAL 0.15
#define SHARE_MAX  0.40 /* beyond, the two ways to read a share differ by more than a quarter */

/* Delays, as parts of the time for which a lock is held (W by the waiters): to aim at, and beyond
 * which too many may have come back. */
#define HELD_GOAL 0.6
#define HELD_MAX  1.2

/* Waits longer than so many intervals between sweeps are nearly all seen. */
#define LONG_WAIT 2.0
/* Who is woken beside others and finds the lock taken begins a new sleep, but not a new wait: such
 * sightings must be few where waits are counted. */
#define CROWDED_MAX 0.02

/* Taking ------------------------------------------------------------------------------- */

void estimate_sweep(struct estimate *e, nsec_t t, bool begun, uint32_t waiters)
{
    window_add(&e->seen, t, 1);
    window_add(&e->crowd, t, waiters);
    window_add(&e->begun, t, begun);
    window_add(&e->again, t, e->first && !begun);
    e->first = begun;
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

/* Pairs -------------------------------------------------------------------------------- */

struct rung {
    double pairs, left, delay; /* DELAY: mean, in s */
};

struct looks {
    struct rung rungs[ESTIMATE_RUNGS]; /* those that were used, the shortest first */
    int n;
    double crowd; /* mean of the waiters beside which one waits, itself included */
};

static struct looks looks_of(struct estimate *e, nsec_t t, int seconds)
{
    struct looks out = {.n = 0};
    double seen = (double)window_sum(&e->seen, t, seconds);

    out.crowd = seen > 0 ? (double)window_sum(&e->crowd, t, seconds) / seen : 1;
    for (int i = 0; i < ESTIMATE_RUNGS; i++) {
        double pairs = (double)window_sum(&e->pairs[i], t, seconds);
        if (pairs <= 0)
            continue;
        out.rungs[out.n++] = (struct rung){
            .pairs = pairs,
            .left = (double)window_sum(&e->left[i], t, seconds),
            .delay = (double)window_sum(&e->delay[i], t, seconds) / pairs / 1e6,
        };
    }
    return out;
}

/* d/W for the share F. */
static double hazard(double f)
{
    return (f - log(1 - f)) / 2;
}

/*
 * The rate 1/W with which as many would have left as did. For h = d/W the share is nearly
 * h - h^2/4 (the inverse of hazard()), so over all rungs sum(n d) r - sum(n d^2) r^2/4 = ends.
 */
static double rate_of(const struct looks *l, double *ends)
{
    double a = 0, b = 0;

    *ends = 0;
    for (int i = 0; i < l->n; i++) {
        const struct rung *r = &l->rungs[i];
        *ends += r->left;
        a += r->pairs * r->delay;
        b += r->pairs * r->delay * r->delay;
    }
    return b > 0 ? 2 * (a - sqrt(MAX(a * a - b * *ends, 0.0))) / b : NAN;
}

/* The longest looks are of use for waits that go with RATE. */
static bool is_short_enough(const struct looks *l, double rate)
{
    double h = rate * l->rungs[l->n - 1].delay;

    return h <= hazard(SHARE_MAX) && h * l->crowd <= HELD_MAX;
}

#define SURE_ENDS 80 /* 11 % of error */

/* Sets aside looks after too long a delay, as long as the others tell of LEAST ends. True when what
 * is left is of use; *RATE stands, roughly, when it is not too. */
static bool settle(struct looks *l, double least, double *rate, double *ends)
{
    *rate = rate_of(l, ends);
    while (l->n > 0) {
        struct looks shorter = *l;
        double fewer, shorter_rate;
        shorter.n--;
        shorter_rate = rate_of(&shorter, &fewer);
        /* Long looks that make the rate too low must not vouch for themselves. */
        if (is_short_enough(l, fewer >= SURE_ENDS ? MAX(*rate, shorter_rate) : *rate))
            break;
        if (fewer < least)
            return false;
        *l = shorter;
        *rate = shorter_rate;
        *ends = fewer;
    }
    return l->n > 0 && *ends >= least;
}

#define FEW_ENDS  3 /* enough to choose a delay by */
#define FEW_PAIRS 20

/* Hardly anybody has left so far: look again later and later. */
static nsec_t grope(const struct looks *l)
{
    for (int i = l->n; i-- > 0;) {
        int rung = rung_of((nsec_t)(l->rungs[i].delay * (double)NSEC_PER_SEC));
        if (l->rungs[i].pairs >= FEW_PAIRS)
            return estimate_delays[MIN(rung + 1, ESTIMATE_RUNGS - 1)];
    }
    return estimate_delays[FIRST_RUNG];
}

nsec_t estimate_best_delay(struct estimate *e, nsec_t t)
{
    struct looks l = looks_of(e, t, 10);
    double rate, ends;
    int best = 0;

    settle(&l, FEW_ENDS, &rate, &ends);
    if (ends < FEW_ENDS)
        return grope(&l);
    double goal = MIN(hazard(SHARE_GOAL), HELD_GOAL / l.crowd) / rate * (double)NSEC_PER_SEC;
    while (best + 1 < ESTIMATE_RUNGS && (double)estimate_delays[best] * 1.4 < goal)
        best++;
    return estimate_delays[best];
}

/* Figures ------------------------------------------------------------------------------ */

nsec_t estimate_span(nsec_t t, int seconds)
{
    return MIN(t, t % NSEC_PER_SEC + seconds * NSEC_PER_SEC);
}

/* By Little's law the mean wait is L over the rate of waits. */
static double by_counting(struct estimate *e, nsec_t t, int seconds, double waiting_s,
                          double *waits)
{
    double seen = (double)window_sum(&e->seen, t, seconds);
    double crowd = (double)window_sum(&e->crowd, t, seconds);
    double once;

    *waits = (double)window_sum(&e->begun, t, seconds);
    if (crowd > seen * (1 + CROWDED_MAX) || *waits < ESTIMATE_MIN_EVENTS)
        return NAN;
    once = MAX(*waits - (double)window_sum(&e->again, t, seconds), 0.0);
    return waiting_s / (*waits + once / 2);
}

struct figures estimate_figures(struct estimate *e, nsec_t t, int seconds, double waiters,
                                uint64_t sweeps, nsec_t span)
{
    struct figures out = {.wait_ms = NAN, .contended_per_s = NAN};
    struct looks l = looks_of(e, t, seconds);
    double span_s = (double)span / (double)NSEC_PER_SEC, interval = span_s / (double)sweeps;
    double rate, ends, waits;
    double wait = settle(&l, ESTIMATE_MIN_EVENTS, &rate, &ends) ? 1 / rate : NAN;
    double counted = by_counting(e, t, seconds, waiters * span_s, &waits);

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

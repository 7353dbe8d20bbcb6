#include "tracer_budget.h"

#include <stdlib.h>

#include "compiler.h"
#include "xalloc.h"

#define SPARED_MAX 256

struct stop {
    nsec_t until; /* counts against the budget until then */
    nsec_t ns;
};

struct spared {
    pid_t tid;
    nsec_t until;
};

struct tracer_budget {
    unsigned stops_per_s;
    nsec_t stopped_ns_per_s;
    struct stop *stops; /* the last STOPS_PER_S of them, a ring */
    size_t next_stop;
    struct spared spared[SPARED_MAX];
    size_t next_spared;
};

struct tracer_budget *tracer_budget_new(const struct tracer_limits *limits)
{
    struct tracer_budget *b = xcalloc(1, sizeof(*b));

    b->stops_per_s = limits->stops_per_s;
    b->stopped_ns_per_s = limits->stopped_ns_per_s;
    b->stops = xcalloc(MAX(limits->stops_per_s, 1), sizeof(*b->stops));
    return b;
}

void tracer_budget_free(struct tracer_budget *b)
{
    if (!b)
        return;
    free(b->stops);
    free(b);
}

bool tracer_budget_allows(const struct tracer_budget *b, nsec_t now)
{
    nsec_t ns = 0;

    if (b->stops_per_s == 0 || b->stops[b->next_stop].until > now)
        return false;
    for (size_t i = 0; i < b->stops_per_s; i++)
        ns += b->stops[i].until > now ? b->stops[i].ns : 0;
    return ns < b->stopped_ns_per_s;
}

void tracer_budget_charge(struct tracer_budget *b, nsec_t now, nsec_t ns)
{
    if (b->stops_per_s == 0)
        return;

    double seconds = (double)ns / (double)MAX(b->stopped_ns_per_s, 1);
    nsec_t counts = (nsec_t)(MIN(seconds, 1e6) * (double)NSEC_PER_SEC);
    b->stops[b->next_stop] = (struct stop){now + MAX(counts, NSEC_PER_SEC), ns};
    b->next_stop = (b->next_stop + 1) % b->stops_per_s;
}

void tracer_budget_spare(struct tracer_budget *b, pid_t tid, nsec_t until)
{
    size_t i = 0;

    while (i < SPARED_MAX && b->spared[i].tid != tid)
        i++;
    if (i == SPARED_MAX) {
        i = b->next_spared;
        b->next_spared = (i + 1) % SPARED_MAX;
    }
    b->spared[i] = (struct spared){tid, until};
}

bool tracer_budget_spares(const struct tracer_budget *b, pid_t tid, nsec_t now)
{
    for (size_t i = 0; i < SPARED_MAX; i++) {
        if (b->spared[i].tid == tid)
            return b->spared[i].until > now;
    }
    return false;
}

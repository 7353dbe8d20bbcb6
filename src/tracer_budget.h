/*
 * tracer_budget.h - how often the tracer may stop threads, and which ones it had better leave
 * alone for a while. No clock of its own.
 */
#ifndef LT_TRACER_BUDGET_H
#define LT_TRACER_BUDGET_H

#include <stdbool.h>
#include <sys/types.h>

#include "clock.h"
#include "tracer.h"

struct tracer_budget;
struct tracer_budget *tracer_budget_new(const struct tracer_limits *limits);
void tracer_budget_free(struct tracer_budget *b); /* NULL is allowed */

/* Whether another stop is allowed at NOW: fewer than stops_per_s within the last second, and less
 * than stopped_ns_per_s stopped in all. */
bool tracer_budget_allows(const struct tracer_budget *b, nsec_t now);

/* A stop of NS that ended at NOW. One longer than what is allowed in a second counts for as many
 * seconds as it used up. */
void tracer_budget_charge(struct tracer_budget *b, nsec_t now, nsec_t ns);

/* Thread TID is to be left alone until UNTIL. The latest few hundred are remembered. */
void tracer_budget_spare(struct tracer_budget *b, pid_t tid, nsec_t until);
bool tracer_budget_spares(const struct tracer_budget *b, pid_t tid, nsec_t now);

#endif

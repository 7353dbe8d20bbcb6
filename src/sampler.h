/*
 * sampler.h - the loop: when to sweep, when to probe, when to show, within a CPU budget.
 *
 * Sweeps and probes fall at random within their interval (interval x uniform 0.5..1.5), so that
 * periodic work of the target does not alias with them.
 */
#ifndef LT_SAMPLER_H
#define LT_SAMPLER_H

#include "clock.h"
#include "source.h"

struct sampler_config {
    double sweep_hz;   /* looks at all threads a second; above 0 */
    double probe_hz;   /* looks at lock words alone a second; above 0 */
    double budget_pct; /* own CPU at most, per cent of one CPU, the whole of lock-top counted; above
                          0 */
    nsec_t delay;      /* between ticks; above 0 */
    nsec_t first;      /* until the first tick; 0: at once */
    uint64_t seed;     /* of the random offsets; any */
    /* CPU that another thread has used so far for what can be put off, and that is paid for later;
     * NULL: there is none. */
    nsec_t (*apart)(void *arg);
    void *apart_arg;
};

/* Who listens: called in the sampling thread. */
struct sampler_sink {
    void (*sample)(void *arg, const struct sample *s); /* after every sweep and probe */
    void (*tick)(void *arg); /* every DELAY (while the budget is in debt, up to a tenth of DELAY
                                later where a tick costs little, else up to a second), and once
                                when no watched process is left */
    void *arg;
};

/* Runs until STOP_FD is readable or no watched process is left. */
void sampler_run(struct source *source, const struct sampler_config *cfg,
                 const struct sampler_sink *sink, int stop_fd);

/*
 * The budget: a bucket of CPU time that fills at PCT per cent of the time that passes, holds at
 * most half a second's worth and pays for all that lock-top does. While it is in debt, sweeps
 * and probes wait. The first look at a large process costs many later ones: that is a loan, paid
 * back with half of what comes in, so that sampling starts at once and the mean since the start
 * still falls to the budget. So is what stacks and names cost: looking at a process for the first
 * time takes as much as a second of looks. Pure arithmetic.
 */
struct budget {
    double share;   /* 0..1 of one CPU that is given out: a little less than PCT */
    double credit;  /* ns; below 0: in debt */
    double loan;    /* ns that are still to be paid back */
    nsec_t at, cpu, apart; /* of the last settling */
};
/* CPU: what the process has used so far is paid for too. */
void budget_init(struct budget *b, double pct, nsec_t now, nsec_t cpu);
/* Settles what was used up to NOW, at which the process had used CPU in all, APART of it in the
 * thread whose work is lent. */
void budget_settle(struct budget *b, nsec_t now, nsec_t cpu, nsec_t apart);
/* Turns what is owed into a loan. */
void budget_borrow(struct budget *b);
/* How long from the last settling until the bucket is out of debt; 0 when it is. */
nsec_t budget_wait(const struct budget *b);

#endif

/*
 * monitor.h - the sampling thread: source -> sampler -> model -> snapshot, and the hand-over
 * of snapshots to whoever renders. The only place where two threads meet; a snapshot passes by
 * pointer swap, so a slow terminal never delays a sweep.
 */
#ifndef LT_MONITOR_H
#define LT_MONITOR_H

#include <stdbool.h>
#include <stddef.h>

#include "clock.h"
#include "options.h"
#include "signature.h"
#include "snapshot.h"
#include "target.h"

struct monitor;

struct monitor_config {
    nsec_t delay;       /* between snapshots */
    nsec_t first;       /* until the first one; 0: DELAY */
    double rate_hz;     /* sweeps a second */
    double budget_pct;  /* own CPU at most */
    enum stacks_mode stacks;
    bool may_stop;          /* --stop needed */
    bool events;            /* --events */
    const struct name_rules *names;      /* borrowed, as TARGET is; NULL: none */
    const struct signatures *signatures; /* borrowed, as TARGET is; NULL: those built in */
};

/* Starts the thread. TARGET is borrowed and used only by that thread until monitor_stop().
 * NULL and a sentence in ERR when nothing of the target may be read; *STATUS is then the exit
 * status. */
struct monitor *monitor_start(struct target *target, const struct monitor_config *cfg, char *err,
                              size_t err_size, int *status);

/* Becomes readable (poll) when a new snapshot stands ready or the target is gone. */
int monitor_fd(const struct monitor *m);

/* The newest snapshot not yet taken, or NULL; the caller owns it. Clears the fd, which stays
 * readable once the target is gone. */
struct snapshot *monitor_take(struct monitor *m);

/* True when every watched process has ended and the last snapshot has been taken. */
bool monitor_ended(const struct monitor *m);

/* Stops and joins the thread, frees everything. False when the thread hangs in the kernel for
 * seconds: it is left behind, which is said on stderr, and may still use the monitor and its
 * target: neither is to be touched any more. NULL is allowed. */
bool monitor_stop(struct monitor *m);

#endif

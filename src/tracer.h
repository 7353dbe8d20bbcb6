/*
 * tracer.h - the only user of ptrace: stops one thread for some tens of microseconds, reads its
 * registers and the top of its stack, and lets it go on.
 *
 * A last resort, for threads that run, or that are blocked in a call which the kernel restarts
 * (tracer_may_stop).
 *
 * Every look is taken by a thread made for it. The kernel lets go of whatever a thread traced
 * when that thread ends, in whatever way, whether it is stopped or not: so nothing of the target
 * stays stopped or attached, not when lock-top is killed either. A stop that does not come before
 * the deadline cannot be called off without harm; whenever it comes, the thread is let go at once.
 *
 * A thread that runs when it is looked at may be in a system call by the time the stop reaches
 * it, or run inside one. The kernel restarts most of them. Those that would fail with EINTR
 * instead (epoll_wait, semop, recv with a time-out, ...) are repaired: the result that the stop
 * gave them is made "restart unless a handler runs", so that the program sees EINTR only where a
 * signal handler of its own runs. A time-out then begins anew. What cannot be repaired is a
 * transfer of which a part was done (tracer_cuts_short): for a minute no thread is stopped that
 * was met in such a call.
 */
#ifndef LT_TRACER_H
#define LT_TRACER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "clock.h"
#include "procfs.h"
#include "stack.h"
#include "syscalls.h"

#define TRACER_STACK 16384 /* bytes copied from SP - STACK_RED_ZONE up */

/* How many stops are allowed. */
struct tracer_limits {
    unsigned stops_per_s;     /* 20, in any second */
    nsec_t stopped_ns_per_s;  /* 2 ms, in total over all threads; what a stop took beyond that is
                                 made up for by a longer pause */
    nsec_t deadline;          /* longest wait for an answer, 30 ms: on a busy machine a thread waits
                                 so long for a CPU on which to stop, and loses nothing by it */
    bool running_only;        /* who is blocked is TRACER_UNSAFE, in whatever call: a waiter would
                                 lose its place in the queue */
};
#define TRACER_LIMITS_DEFAULT {20, 2 * NSEC_PER_MSEC, 30 * NSEC_PER_MSEC, false}

enum tracer_result {
    TRACER_OK,
    TRACER_NOT_NOW,   /* the budget of stops is used up; ask again later */
    TRACER_UNSAFE,    /* blocked in a call that a stop would disturb, in D state, stopped already,
                         frozen, met in a transfer a short while ago; or this architecture does
                         not allow a harmless stop (all but x86-64) */
    TRACER_TRACED,    /* somebody else traces it: *TRACER_PID */
    TRACER_DENIED,    /* not permitted */
    TRACER_TIMEOUT,   /* it did not stop before the deadline; it goes on undisturbed. Until it
                         does stop, it is NOT_NOW */
    TRACER_GONE,
};
const char *tracer_result_text(enum tracer_result r); /* for messages */

struct tracer_look {
    struct stack_regs regs;
    uint8_t bytes[TRACER_STACK];
    struct stack_copy copy;  /* of BYTES */
    nsec_t stopped_ns;       /* how long it stood still: until it was let go */
    nsec_t asked_ns;         /* from asking for the stop to letting go: as above, and how long it
                                waited for a CPU before it could stop */
    bool was_blocked;        /* in a system call when stopped (as told before stopping) */
    struct procfs_syscall call; /* as read before stopping */
    bool has_word;
    uint32_t word;           /* what tracer_ask_word() asked for; valid when HAS_WORD */
    pid_t tracer_pid;        /* TRACER_TRACED: who */
};

struct tracer_stats {
    uint64_t stops;     /* since the tracer began */
    nsec_t stopped_ns;  /* in all */
    nsec_t stopped_max; /* longest single one, 0 when none */
    uint64_t timeouts;
    uint64_t refused;   /* answered NOT_NOW or UNSAFE */
    uint64_t repaired;  /* calls that would have failed with EINTR; they were restarted */
    uint64_t cut_short; /* transfers that had ended early when their thread was stopped: harmed,
                           unless the descriptor does not block */
};

struct tracer;
struct tracer *tracer_new(const struct tracer_limits *limits);
void tracer_free(struct tracer *t); /* NULL is allowed */

/* Stops thread TID (whose directory /proc/PID/task/TID lies below DIRFD as "task/TID") if that is
 * harmless and allowed now, and fills *OUT. Never unwinds or looks up anything while it is
 * stopped. One call at a time. */
enum tracer_result tracer_look(struct tracer *t, int dirfd, pid_t tid, struct tracer_look *out);

struct tracer_stats tracer_stats(const struct tracer *t);

/* What system calls make of a stop; pure (tracer_calls.c). --------------------------------- */

/* The next look also reads the 32 bits at ADDR while the thread is stopped. */
void tracer_ask_word(struct tracer *t, uint64_t addr);

/* Whether a thread blocked in call C may be stopped: its arguments alone prove that the call
 * restarts by itself without its caller noticing. What depends on the descriptor (read, accept,
 * recv, flock on a FUSE file, ...) or on memory is not proven. Unknown calls may not. */
bool tracer_may_stop(enum abi abi, const struct procfs_syscall *c);

/* Whether a stop may make the call C end with a part of its work done, which cannot be repaired: a
 * thread that is often seen asleep (S, not D) in such a call had better not be stopped while it
 * runs, for it may be running inside one. */
bool tracer_cuts_short(enum abi abi, const struct procfs_syscall *c);

/* Whether the call may be begun anew after the EINTR that a stop gave it: nothing was done yet. */
bool tracer_can_restart(enum call call);

#endif

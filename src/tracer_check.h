/*
 * tracer_check.h - may a thread be stopped? As far as /proc tells, without touching it.
 */
#ifndef LT_TRACER_CHECK_H
#define LT_TRACER_CHECK_H

#include <stdbool.h>
#include <sys/types.h>

#include "tracer.h"

/* Whether thread TID below DIRFD is alive, not traced, not stopped and not in D state: TRACER_OK.
 * Fills tracer_pid of *OUT. */
enum tracer_result tracer_check_status(int dirfd, pid_t tid, struct tracer_look *out);

/* Whether it runs, or is blocked in a call in which it may be stopped: TRACER_OK. Fills call and
 * was_blocked of *OUT. *MET is set when it is blocked in a transfer that a stop would cut short,
 * and else left alone. */
enum tracer_result tracer_check_call(int dirfd, pid_t tid, struct tracer_look *out, bool *met);

/* Time that the calling thread has waited for a CPU so far, by its file SCHEDSTAT (an fd); -1 where
 * the kernel does not count it. */
nsec_t tracer_own_wait(int schedstat);

#endif

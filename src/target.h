/*
 * target.h - which processes are watched: by PID, by name, by user, by a file that they lock, all,
 * or a command started here.
 * Processes come from libproc2 (or libprocps 3.3.x where that is what the system has).
 */
#ifndef LT_TARGET_H
#define LT_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "clock.h"
#include "options.h"

struct target;

/*
 * Resolves SPEC; its strings must outlive the target, its PIDs need not. A command is started
 * (in our process group, with signals at their defaults) and is already the new program when
 * this returns. It inherits stdin, stdout and stderr; or, when QUIET_FD is not negative, stdout
 * and stderr go to QUIET_FD, and stdin reads nothing if it is a terminal, so that it takes no
 * keys from a screen.
 *
 * Returns NULL and fills ERR with a sentence when there is nothing to watch; *STATUS is then
 * an exit status of err.h. On success ERR holds "", or a sentence to show to the user: some of
 * several PIDs cannot be watched, and why. Names in ERR are safe to print.
 */
struct target *target_new(const struct target_spec *spec, int quiet_fd, char *err, size_t err_size,
                          int *status);

/* The processes (thread group leaders) watched now: those given that are still there, or those
 * that fit at this moment, in ascending order, each once. The array belongs to T
 * and lives until the next call. Looks anew at most every 2 s (NOW: clock_mono()), and less
 * often where a look is costly. A PID given as a TID of another process stands for that
 * process. A process that has ended drops out, reaped or not, and never comes back under a
 * reused PID; one whose main thread has ended while others run stays. */
size_t target_list(struct target *t, nsec_t now, const pid_t **pids);

/* How many processes the last look left out, since they are of other users and may not be looked
 * at. */
size_t target_denied(const struct target *t);

/* Whether it goes on though nothing is left to watch: those who lock a file may come again. */
bool target_may_come(const struct target *t);

/* The next target_list() looks anew: the caller knows that the last of the processes has ended. */
void target_look_anew(struct target *t);

/* Ends T. A command that is still running gets SIGTERM, then SIGKILL after GRACE, and is
 * reaped; only a command stuck in an uninterruptible wait for seconds after SIGKILL is left to
 * the system. NULL is allowed. */
void target_free(struct target *t, nsec_t grace);

/* The library behind it, for --version: "libproc2", with its version where the build gives
 * PROCLIB_VERSION: "libproc2 4.0.2". */
const char *target_library(void);

#endif

/*
 * target_find.h - which processes fit a target that is not given by number: by name, by user, by a
 * file that they lock, or all.
 */
#ifndef LT_TARGET_FIND_H
#define LT_TARGET_FIND_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "options.h"
#include "proclist.h"

struct finder;

/* For SPEC, whose strings must outlive it, with the list of processes PROCS (borrowed). NULL, with
 * a sentence in ERR and an exit status in *STATUS, when there is no such user or file. */
struct finder *finder_new(const struct target_spec *spec, struct proclist *procs, char *err,
                          size_t size, int *status);

/* Whether processes are sought, rather than given. */
bool finder_wanted(const struct target_spec *spec);

/* Those that fit now, in no order, without kernel threads, lock-top itself and, of all processes
 * and those of a user, without those that may not be looked at. Returns how many, or -1 when the
 * look failed, which is no news. The array belongs to F and lives until the next look.
 *
 * Of a file: who waits for a lock on it, who has one through a descriptor, and who took one where
 * that cannot be seen. While somebody has a lock that can be passed on, which a POSIX lock cannot,
 * every fourth look, and one that meets a lock without a known holder, goes through all descriptors
 * of the machine, some 8 us for each. */
ssize_t finder_look(struct finder *f, const pid_t **pids);

/* How many the last look left out since they may not be looked at. */
size_t finder_denied(const struct finder *f);

/* Whether it makes sense to wait for some to come: for a file. */
bool finder_may_come(const struct finder *f);

/* NULL is allowed. */
void finder_free(struct finder *f);

#endif

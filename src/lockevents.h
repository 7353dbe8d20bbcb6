/*
 * lockevents.h - counts attempts at locks on given files with the kernel's own counters:
 * perf_event_open on the tracepoints filelock:flock_lock_inode and filelock:posix_lock_inode, with
 * a filter for the file and the result, on all CPUs, without a wake-up for each event. Needs root
 * (or CAP_PERFMON) and tracefs, which it does not mount. A CPU that comes online after a file was
 * followed is not counted on.
 *
 * While files are followed each lock and unlock of any file on the machine takes longer: by some
 * 0.3 us with one file, 1 us with 16.
 */
#ifndef LT_LOCKEVENTS_H
#define LT_LOCKEVENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "filefacts.h"

struct lockevents;

#define LOCKEVENTS_FILES 16 /* at most so many files are counted at once */

/* NULL, with a static sentence in *WHY that says what is missing and what to do about it, when
 * nothing can be counted here. */
struct lockevents *lockevents_open(const char **why);

/* From now on counts these (those left out are not counted any more); returns how many are: fewer
 * than N when there are too many, or too few descriptors (4 for each CPU and file). */
size_t lockevents_follow(struct lockevents *e, const struct file_id *files, size_t n);

/* The counts since each file was followed, at most MAX; returns how many. UNTIL is NOW
 * (clock_mono). */
size_t lockevents_read(struct lockevents *e, nsec_t now, struct attempt_fact *out, size_t max);

/* NULL is allowed. */
void lockevents_close(struct lockevents *e);

#endif

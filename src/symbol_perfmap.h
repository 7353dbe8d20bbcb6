/*
 * symbol_perfmap.h - names of code that a process generated (JIT), from /tmp/perf-PID.map of its
 * own root, which runtimes write for profilers.
 *
 * The file is the target's: only a regular one of its user or of root is read, and no more than
 * 64 MiB in all.
 */
#ifndef LT_SYMBOL_PERFMAP_H
#define LT_SYMBOL_PERFMAP_H

#include <stdint.h>

#include "module.h"

/*
 * The name of the code at PC of the process of S, or NULL; *START is where it begins. Reads what
 * the file has more when PC is unknown, at most once a second. What was written later counts.
 */
const char *perf_map_name(struct space *s, uint64_t pc, uint64_t *start);

/* What is kept of process PID goes, and with it the names that were returned for it. */
void perf_map_forget(pid_t pid);

#endif

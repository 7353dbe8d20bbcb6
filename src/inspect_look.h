/*
 * inspect_look.h - answers one job of the inspector: the stack of a thread, the name of an
 * address. Used by the inspector's thread alone.
 */
#ifndef LT_INSPECT_LOOK_H
#define LT_INSPECT_LOOK_H

#include "inspector.h"

struct looker;

/* NULL and *ERR = errno when /proc cannot be opened. */
struct looker *looker_new(const struct inspector_config *cfg, int *err);
void looker_free(struct looker *l);

/* The answer to JOB, which the caller frees; NULL when its process is gone. */
struct inspection *looker_answer(struct looker *l, const struct inspect_job *job);

/* What is kept of process PID goes. */
void looker_forget(struct looker *l, pid_t pid);

/* CPU time that went into what is needed once: maps, files, symbol tables. */
nsec_t looker_learnt(const struct looker *l);

struct tracer_stats looker_stops(const struct looker *l);

#endif

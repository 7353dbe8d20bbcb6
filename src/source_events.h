/*
 * source_events.h - attempts at locks on the files that matter, as the kernel counts them. Part of
 * source_proc; nothing else includes it.
 */
#ifndef LT_SOURCE_EVENTS_H
#define LT_SOURCE_EVENTS_H

#include "lockevents.h"
#include "sample.h"

struct events {
    struct lockevents *counters; /* NULL: nothing is counted, and WHY says why if it should be */
    const char *why;
    nsec_t read_at;
    struct attempt_fact facts[LOCKEVENTS_FILES];
    size_t n;
};

/* Begins to count, if that is possible here. */
void events_open(struct events *e);

/* After the files of the sweep S are known: follows the first of those on local file systems (a
 * server's refusals may pass no tracepoint), and reads their counts at most 4 times a second; puts
 * them into S, where they live until the next sweep, and into SELF whether it can. */
void events_look(struct events *e, struct sample *s, nsec_t now, struct self_fact *self);

void events_close(struct events *e);

#endif

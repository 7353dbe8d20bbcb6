/*
 * render_threads.h - text: the stacks of all threads, each stack once.
 */
#ifndef LT_RENDER_THREADS_H
#define LT_RENDER_THREADS_H

#include <stdbool.h>
#include <stdio.h>

#include "snapshot.h"

/*
 * The threads of each process, in groups that are in one state on equal stacks, and wait for the
 * same lock where they wait for one: "24 threads: 29251 29252 ... +16 more" (the first eight), with
 * the longest time that one of them has been blocked. Nothing where the snapshot lacks them.
 */
void render_threads(FILE *out, const struct snapshot *s, bool ascii);

#endif

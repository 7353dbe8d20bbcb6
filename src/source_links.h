/*
 * source_links.h - what the descriptors are that threads wait for: their links in /proc.
 * Part of source_proc; nothing else includes it.
 */
#ifndef LT_SOURCE_LINKS_H
#define LT_SOURCE_LINKS_H

#include "source_threads.h"

/* Takes the descriptor in argument 0. Its link, unless it was read lately, is read by the functions
 * below. */
void links_take(struct thread_fact *f, struct thread_files *k, const struct look *l);

/* It waits for no descriptor. */
void links_none(struct thread_fact *f);

/* Reads the link of thread I where its state depends on what the descriptor is, and where a lock is
 * named by it. */
void links_read_first(struct threads *t, size_t i, const struct look *l);

/* When all threads of all processes have been looked at: reads the other links, which are for
 * show, as long as there are LINKS_LEFT. */
void links_read_rest(struct threads *t, const struct look *l);

#endif

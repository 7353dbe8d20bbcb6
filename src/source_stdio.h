/*
 * source_stdio.h - who holds the lock of a stdio stream: it names its owner by the address of a
 * thread descriptor, in which the TID stands. Part of source_words; nothing else includes it.
 */
#ifndef LT_SOURCE_STDIO_H
#define LT_SOURCE_STDIO_H

#include "source_words.h"

/* Sets the owners (LATE or early ones) of the N words in LIST, whose windows were just read. */
void stdio_read_owners(struct words *w, struct word **list, size_t n, memory_reader read,
                       bool late);

#endif

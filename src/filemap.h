/*
 * filemap.h - files mapped read-only that may shrink under us.
 *
 * Touching a page behind the end of a truncated file, or one that the disk cannot give, is SIGBUS.
 * Here such a page reads as zeros instead, for whoever reads it (libelf too): content that cannot
 * be trusted anyway. Copying the files instead would cost their size in memory and time, and
 * reading on demand would leave out libraries that want the whole image.
 */
#ifndef LT_FILEMAP_H
#define LT_FILEMAP_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Maps SIZE bytes of FD. Returns NULL when that cannot be done (SIZE 0 too). A handler for SIGBUS
 * that was there before is called for faults elsewhere; one that is installed later is to ask
 * filemap_mend(). */
const uint8_t *filemap_new(int fd, size_t size);

/* Of what filemap_new returned, with the same SIZE; NULL is allowed. */
void filemap_free(const uint8_t *image, size_t size);

/* For handlers of SIGBUS: whether the fault INFO was in such a file, and the thread can go on.
 * Async-signal-safe. */
bool filemap_mend(const siginfo_t *info);

#endif

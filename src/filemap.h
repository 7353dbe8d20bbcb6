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

#include <stddef.h>
#include <stdint.h>

/* Maps SIZE bytes of FD. Returns NULL when that cannot be done (SIZE 0 too). Handlers for SIGBUS
 * that are installed later are kept and called for faults elsewhere. */
const uint8_t *filemap_new(int fd, size_t size);

/* Of what filemap_new returned, with the same SIZE; NULL is allowed. */
void filemap_free(const uint8_t *image, size_t size);

#endif

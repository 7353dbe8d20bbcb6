/*
 * xalloc.h - allocation that dies instead of returning NULL, and an arena.
 *
 * A monitor that runs out of memory can do nothing useful: it says so and ends
 * (exit 1, terminal restored).
 */
#ifndef LT_XALLOC_H
#define LT_XALLOC_H

#include <stdarg.h>
#include <stddef.h>

#include "compiler.h"

void *xmalloc(size_t size) MALLOC_LIKE;
void *xcalloc(size_t n, size_t size) MALLOC_LIKE;
char *xstrdup(const char *s) MALLOC_LIKE;
char *xasprintf(const char *fmt, ...) PRINTF_LIKE(1, 2) MALLOC_LIKE;

/* realloc to N elements of SIZE bytes each, overflow-checked. */
void *xreallocarray(void *p, size_t n, size_t size) MUST_USE;

/* Grows P (elements of SIZE bytes, *CAP of them allocated) so that NEED fit; doubles, so
 * appending is amortised constant. New elements are not cleared. */
void *xgrow(void *p, size_t *cap, size_t need, size_t size) MUST_USE;

/*
 * An arena: memory that dies together. Values that are built once and then only read
 * (a snapshot) take all their arrays and strings from one.
 */
struct arena {
    struct arena_block *blocks; /* newest first */
};

/* SIZE zeroed bytes, aligned for any type; they live until arena_release(). */
void *arena_zalloc(struct arena *a, size_t size) MALLOC_LIKE;
char *arena_strdup(struct arena *a, const char *s) MALLOC_LIKE;
char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3) MALLOC_LIKE;
/* Frees all of it; the arena is then empty and usable again. */
void arena_release(struct arena *a);

#endif

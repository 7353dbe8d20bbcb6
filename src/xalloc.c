#include "xalloc.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"

static void *checked(void *p, size_t size)
{
    if (!p)
        die(EXIT_FAILED, "out of memory (%zu bytes wanted)", size);
    return p;
}

void *xmalloc(size_t size)
{
    return checked(malloc(size ? size : 1), size);
}

void *xcalloc(size_t n, size_t size)
{
    return checked(calloc(n ? n : 1, size ? size : 1), n * size);
}

char *xstrdup(const char *s)
{
    return checked(strdup(s), strlen(s) + 1);
}

char *xasprintf(const char *fmt, ...)
{
    char *s;
    va_list ap;

    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    return checked(n < 0 ? NULL : s, 0);
}

void *xreallocarray(void *p, size_t n, size_t size)
{
    return checked(reallocarray(p, n ? n : 1, size), n * size);
}

void *xgrow(void *p, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return p;
    size_t n = MAX(need, *cap ? *cap * 2 : 16);
    p = xreallocarray(p, n, size);
    *cap = n;
    return p;
}

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    alignas(max_align_t) unsigned char data[];
};

#define ARENA_BLOCK 8192

void *arena_zalloc(struct arena *a, size_t size)
{
    const size_t align = alignof(max_align_t);
    struct arena_block *b = a->blocks;

    size = (size + align - 1) / align * align;
    if (!b || b->size - b->used < size) {
        size_t room = MAX(size, (size_t)ARENA_BLOCK);
        b = xmalloc(sizeof(*b) + room);
        b->used = 0;
        b->size = room;
        b->next = a->blocks;
        a->blocks = b;
    }
    void *p = b->data + b->used;
    b->used += size;
    return memset(p, 0, size);
}

char *arena_strdup(struct arena *a, const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(arena_zalloc(a, n), s, n);
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;

    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        BUG("format '%s' cannot be printed", fmt);
    char *s = arena_zalloc(a, (size_t)n + 1);
    vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    return s;
}

void arena_release(struct arena *a)
{
    while (a->blocks) {
        struct arena_block *b = a->blocks;
        a->blocks = b->next;
        free(b);
    }
}

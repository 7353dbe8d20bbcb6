#include "symbol.h"

#if __has_include(<libiberty/demangle.h>)
#include <libiberty/demangle.h>
#else
#include <demangle.h>
#endif
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "xalloc.h"

#define RAW_MAX        4096        /* longer names are not demangled */
#define NAME_MAX_BYTES (16u << 10) /* of a demangled one */

/* A demangled name as it grows. */
struct text {
    char *s;
    size_t len, cap;
    jmp_buf too_long;
};

/* A short mangled name can stand for one of any length, through references to its own parts. */
static void append(const char *s, size_t len, void *arg)
{
    struct text *t = arg;

    if (t->len + len >= NAME_MAX_BYTES)
        longjmp(t->too_long, 1);
    t->s = xgrow(t->s, &t->cap, t->len + len + 1, 1);
    memcpy(t->s + t->len, s, len);
    t->len += len;
    t->s[t->len] = '\0';
}

/*
 * Rust's older scheme is C++'s with an escape and a hash, so it is tried first. For C++ libiberty
 * would refuse names of more than 1,024 letters, which templates do have; RAW_MAX is the limit
 * here.
 */
static bool demangle(struct text *t, const char *raw)
{
    if (rust_demangle_callback(raw, DMGL_PARAMS | DMGL_ANSI, append, t))
        return true;
    t->len = 0;
    return strncmp(raw, "_Z", 2) == 0 &&
           cplus_demangle_v3_callback(raw, DMGL_PARAMS | DMGL_ANSI | DMGL_NO_RECURSE_LIMIT, append,
                                      t);
}

static bool demangle_bounded(struct text *t, const char *raw)
{
    return setjmp(t->too_long) == 0 && demangle(t, raw) && t->len > 0;
}

char *symbol_demangle(const char *raw)
{
    if ((strncmp(raw, "_Z", 2) != 0 && strncmp(raw, "_R", 2) != 0) ||
        strnlen(raw, RAW_MAX + 1) > RAW_MAX)
        return NULL;

    struct text *t = xcalloc(1, sizeof(*t));
    bool done = demangle_bounded(t, raw);
    char *name = t->s;
    free(t);
    if (done)
        return name;
    free(name);
    return NULL;
}

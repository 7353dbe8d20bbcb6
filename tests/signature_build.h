/*
 * signature_build.h - stacks made of the names of their functions.
 */
#ifndef LT_SIGNATURE_BUILD_H
#define LT_SIGNATURE_BUILD_H

#include <stdlib.h>
#include <string.h>

#include "../src/signature.h"

#define LIBC "libc.so.6"

#define COND_WAIT "?@" LIBC, "pthread_cond_wait@" LIBC

struct stack_of_names {
    struct frame_fact f[64];
    size_t n;
};

/* Adds frames "name@module"; "?" is one without a name; a leading '!' marks an exact one, '~' a
 * local function. */
static inline struct stack_of_names stack(const char *const *names)
{
    struct stack_of_names s = {.n = 0};

    for (; *names; names++, s.n++) {
        struct frame_fact *f = &s.f[s.n];
        const char *name = *names, *at = strrchr(name, '@');
        f->exact = s.n == 0 || *name == '!';
        name += *name == '!';
        f->n.exported = *name != '~' && *name != '?';
        name += *name == '~';
        f->n.module = at + 1;
        f->n.name = *name == '?' ? NULL : strndup(name, (size_t)(at - name));
        if (strncmp(at + 1, "libc.so", 7) == 0)
            f->n.kind = MODULE_GLIBC;
        else if (strncmp(at + 1, "ld-musl", 7) == 0)
            f->n.kind = MODULE_MUSL;
    }
    return s;
}
#define STACK(...) stack((const char *const[]){__VA_ARGS__, NULL})

static inline void release(struct stack_of_names *s)
{
    for (size_t i = 0; i < s->n; i++)
        free((char *)s->f[i].n.name);
}

#endif

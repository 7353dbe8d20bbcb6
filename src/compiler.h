/*
 * compiler.h - attributes and small macros; includes nothing of lock-top.
 */
#ifndef LT_COMPILER_H
#define LT_COMPILER_H

#include <stddef.h>

#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define NORETURN               __attribute__((noreturn))
#define MUST_USE               __attribute__((warn_unused_result))
#define MALLOC_LIKE            __attribute__((malloc, returns_nonnull, warn_unused_result))
#define UNUSED                 __attribute__((unused))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)     ((a) < (b) ? (a) : (b))
#define MAX(a, b)     ((a) > (b) ? (a) : (b))

/* How many of the indexes I below N make COND true, which holds for the first ones only. */
#define COUNT_FIRST(n, i, cond)                                                                    \
    __extension__({                                                                                \
        size_t lo_ = 0, hi_ = (n);                                                                 \
        while (lo_ < hi_) {                                                                        \
            size_t i = lo_ + (hi_ - lo_) / 2;                                                      \
            if (cond)                                                                              \
                lo_ = i + 1;                                                                       \
            else                                                                                   \
                hi_ = i;                                                                           \
        }                                                                                          \
        lo_;                                                                                       \
    })

#endif

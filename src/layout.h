/*
 * layout.h - how lock objects look in memory: glibc (2.17 to 2.42 for mutexes), 64 and 32 bit,
 * and musl. Pure functions of the bytes around a futex word.
 *
 * Sources: glibc's bits/pthreadtypes and nptl, musl's pthread implementation; offsets measured
 * on glibc 2.36 (x86-64, i386).
 */
#ifndef LT_LAYOUT_H
#define LT_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sample.h"
#include "snapshot.h"

enum lock_layout { LAYOUT_GLIBC64, LAYOUT_GLIBC32, LAYOUT_MUSL };

/* Parts of a lock word (linux/futex.h). */
#define WORD_TID        0x3fffffffu
#define WORD_OWNER_DIED 0x40000000u
#define WORD_WAITERS    0x80000000u

/* What the memory of a lock says about its holder at the moment it was read. */
struct lock_state {
    bool known;         /* could be read */
    bool held;
    pid_t owner;        /* TID in the target's PID namespace, or 0: none is recorded now */
    bool owner_died;    /* the kernel has marked that the owner ended while holding it */
    bool unrecoverable; /* a robust mutex that nobody made consistent */
    uint32_t readers;   /* rwlock: how many read-hold it */
};

/* The state of an object of KIND whose address is OFF bytes from the futex word that W surrounds.
 * KNOWN is false for kinds that are not held (sync kinds) and for memory that was not read. */
struct lock_state layout_state(enum lock_kind kind, enum lock_layout layout, int off,
                               const struct word_view *w);

/* Where, in the object of KIND at address OBJECT, stands that TID (in the target's PID namespace)
 * holds it: the 32 bits at *ADDR, masked, are *VALUE. False when it does not say so. */
bool layout_owner_word(enum lock_kind kind, enum lock_layout layout, uint64_t object, pid_t tid,
                       uint64_t *addr, uint32_t *mask, uint32_t *value);

/* Whether a kind writes down who holds it (a rwlock: only its writer). */
bool layout_records_owner(enum lock_kind kind, enum lock_layout layout);

/* The fields of a pthread mutex at OFF. */
struct mutex_fields {
    uint32_t lock, owner, users, kind;
};
bool layout_mutex(enum lock_layout layout, int off, const struct word_view *w,
                  struct mutex_fields *out);

/* The lock kind that a mutex's kind field means, or KIND_NONE when no mutex has such a field. */
enum lock_kind layout_mutex_kind(uint32_t kind_field);

/* The fields of a pthread rwlock at OFF, checked for agreement with each other; false when this
 * cannot be one that somebody waits for. */
struct rwlock_fields {
    uint32_t readers; /* read-holders << 3 | RWAITING 4 | WRLOCKED 2 | WRPHASE 1 */
    uint32_t writer;  /* TID of the writer, or 0 */
};
bool layout_rwlock(enum lock_layout layout, int off, const struct word_view *w,
                   struct rwlock_fields *out);

/* Whether the word can be the one that waiters of such an object sleep on; *OFF is then the
 * object's distance from the word. */
bool layout_cond(const struct word_view *w, uint64_t addr, uint32_t val, int *off);
bool layout_sem(enum lock_layout layout, const struct word_view *w);
bool layout_barrier(const struct word_view *w, uint32_t round);

/* libc-internal locks that lie outside libc's own data: a stdio stream's (an owner pointer
 * instead of a TID) and a malloc arena's (its heap's first word points to it). */
bool layout_stdio_lock(const struct word_view *w);
bool layout_arena_lock(const struct word_view *w, uint64_t addr);

#endif

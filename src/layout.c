#include "layout.h"

#include <limits.h>

/* Counts above this are no counts of threads. */
#define MANY_THREADS (1u << 22)

/* pthread_mutex_t: kind field = type 0..3, robust 16, PI 32, PP 64 (with a ceiling above bit 19,
 * not followed here), process-shared 128, elision 256 and 512. */
#define MUTEX_TYPE   3u
#define MUTEX_ROBUST 16u
#define MUTEX_PI     32u
#define MUTEX_BITS   (MUTEX_TYPE | MUTEX_ROBUST | MUTEX_PI | 64u | 128u | 256u | 512u)

bool layout_mutex(enum lock_layout layout, int off, const struct word_view *w,
                  struct mutex_fields *out)
{
    int users = layout == LAYOUT_GLIBC64 ? 12 : 16;
    int kind = layout == LAYOUT_GLIBC64 ? 16 : 12;

    return word_u32(w, off, &out->lock) && word_u32(w, off + 8, &out->owner) &&
           word_u32(w, off + users, &out->users) && word_u32(w, off + kind, &out->kind);
}

enum lock_kind layout_mutex_kind(uint32_t field)
{
    static const enum lock_kind by_type[] = {KIND_MUTEX, KIND_MUTEX_RECURSIVE,
                                             KIND_MUTEX_ERRORCHECK, KIND_MUTEX_ADAPTIVE};

    if (field & ~MUTEX_BITS)
        return KIND_NONE;
    if (field & MUTEX_PI)
        return KIND_MUTEX_PI;
    if (field & MUTEX_ROBUST)
        return KIND_MUTEX_ROBUST;
    return by_type[field & MUTEX_TYPE];
}

/* pthread_rwlock_t: readers, writers, wrphase_futex, writers_futex, pad3, pad4, then
 * 64 bit: cur_writer 24, shared 28; 32 bit: four flag bytes 24 (the second: shared), cur_writer 28. */
bool layout_rwlock(enum lock_layout layout, int off, const struct word_view *w,
                   struct rwlock_fields *out)
{
    uint32_t pad3, pad4, shared;
    bool wide = layout == LAYOUT_GLIBC64;

    if (layout == LAYOUT_MUSL || !word_u32(w, off, &out->readers) ||
        !word_u32(w, off + 16, &pad3) || !word_u32(w, off + 20, &pad4) ||
        !word_u32(w, off + (wide ? 24 : 28), &out->writer) ||
        !word_u32(w, off + (wide ? 28 : 24), &shared))
        return false;
    if (pad3 || pad4 || out->readers >> 3 >= MANY_THREADS || out->writer >= MANY_THREADS)
        return false;
    if (wide ? shared > 1 : (shared & 0xff00u) > 0x100u)
        return false;
    /* Everyone who waits does so because a writer holds it or has claimed it. */
    return out->readers & 2u;
}

/*
 * pthread_cond_t begins with 64-bit wseq and g1_start. Then, glibc 2.25 to 2.40: g_refs[2] 16,
 * g_size[2] 24, g1_orig_size 32, wrefs 36, g_signals[2] 40, and waits are for 0; from 2.41 on:
 * g_size[2] 16, g1_orig_size 24, wrefs 28, g_signals[2] 32, and waits are for any value. The
 * object is aligned to 8, so the word's address tells which of the two groups it is.
 */
static bool cond_head(const struct word_view *w, int off, int wrefs_at, int sizes_at)
{
    uint64_t wseq, g1_start;
    uint32_t wrefs, size[2];

    if (!word_u64(w, off, &wseq) || !word_u64(w, off + 8, &g1_start) ||
        !word_u32(w, off + wrefs_at, &wrefs) || !word_u32(w, off + sizes_at, &size[0]) ||
        !word_u32(w, off + sizes_at + 4, &size[1]))
        return false;
    uint64_t waiters = wrefs >> 3;
    /* The size of the group that still fills counts only those who gave up, below zero. */
    return waiters >= 1 && waiters < MANY_THREADS && wseq >> 1 >= waiters &&
           g1_start >> 1 <= wseq >> 1 && size[0] + MANY_THREADS < 2 * MANY_THREADS &&
           size[1] + MANY_THREADS < 2 * MANY_THREADS;
}

bool layout_cond(const struct word_view *w, uint64_t addr, uint32_t val, int *off)
{
    int group = addr % 8 == 4;
    uint32_t refs;

    if (addr % 4 != 0)
        return false;
    *off = -40 - 4 * group;
    if (val == 0 && cond_head(w, *off, 36, 24) && word_u32(w, *off + 16 + 4 * group, &refs) &&
        refs >> 1 >= 1 && refs < MANY_THREADS)
        return true;
    /* Nothing in the newer layout is fixed by the wait itself: at least the waiters must fit. */
    *off = -32 - 4 * group;
    return val != 0 && cond_head(w, *off, 28, 16) && word_u32(w, 0, &refs) && refs == val;
}

/* sem_t, 64 bit: value, waiters, private (0 or 128). 32 bit: value << 1 | waiters?, private,
 * a gap, waiters. */
bool layout_sem(enum lock_layout layout, const struct word_view *w)
{
    bool wide = layout == LAYOUT_GLIBC64;
    uint32_t waiters, is_private;

    if (layout == LAYOUT_MUSL || !word_u32(w, wide ? 4 : 12, &waiters) ||
        !word_u32(w, wide ? 8 : 4, &is_private))
        return false;
    return waiters >= 1 && waiters < MANY_THREADS && (is_private == 0 || is_private == 128);
}

/* pthread_barrier_t, glibc 2.25 on: in, current_round, count, shared, out. The word is
 * current_round: how many threads have been let through so far, so a multiple of count. */
bool layout_barrier(const struct word_view *w, uint32_t round)
{
    uint32_t in, now, count, shared;

    if (!word_u32(w, -4, &in) || !word_u32(w, 0, &now) || !word_u32(w, 4, &count) ||
        !word_u32(w, 8, &shared))
        return false;
    return now == round && count > 1 && count < MANY_THREADS && round % count == 0 && in > round &&
           in - round < count && (shared == 0 || shared == 1 || shared == 128);
}

bool layout_stdio_lock(const struct word_view *w)
{
    uint64_t owner;

    return word_stdio_owner(w, &owner);
}

/* struct heap_info begins with ar_ptr; the arena, whose first member is its mutex, stands right
 * behind it (48 bytes from glibc 2.35 on, 32 before). */
bool layout_arena_lock(const struct word_view *w, uint64_t addr)
{
    uint64_t arena;

    return (word_u64(w, -48, &arena) && arena == addr) ||
           (word_u64(w, -32, &arena) && arena == addr);
}

bool layout_owner_word(enum lock_kind kind, enum lock_layout layout, uint64_t object, pid_t tid,
                       uint64_t *addr, uint32_t *mask, uint32_t *value)
{
    bool in_word = kind == KIND_MUTEX_ROBUST || kind == KIND_MUTEX_PI || layout == LAYOUT_MUSL;

    if (!layout_records_owner(kind, layout) || (kind == KIND_RWLOCK && layout == LAYOUT_MUSL))
        return false;
    *addr = object + (kind == KIND_RWLOCK        ? layout == LAYOUT_GLIBC32 ? 28 : 24
                      : layout == LAYOUT_MUSL ? 4
                      : in_word               ? 0
                                              : 8);
    *mask = in_word ? WORD_TID : UINT32_MAX;
    *value = (uint32_t)tid;
    return true;
}

bool layout_records_owner(enum lock_kind kind, enum lock_layout layout)
{
    switch (kind) {
    case KIND_MUTEX:
        return layout != LAYOUT_MUSL;
    case KIND_MUTEX_RECURSIVE:
    case KIND_MUTEX_ERRORCHECK:
    case KIND_MUTEX_ADAPTIVE:
    case KIND_MUTEX_ROBUST:
    case KIND_MUTEX_PI:
    case KIND_RWLOCK:
        return true;
    default:
        return false;
    }
}

static void set_owner(struct lock_state *s, uint32_t owner)
{
    /* glibc: INT_MAX - 1 not recoverable, INT_MAX inconsistent (its owner died). */
    if (owner == INT_MAX - 1)
        s->unrecoverable = true;
    else if (owner == INT_MAX)
        s->owner_died = true;
    else if (owner < MANY_THREADS)
        s->owner = (pid_t)owner;
}

static struct lock_state musl_mutex_state(int off, const struct word_view *w)
{
    struct lock_state s = {0};
    uint32_t type, word;

    /* int _m_type, _m_lock: the word is the second. A normal mutex stores EBUSY, no owner. */
    if (!word_u32(w, off, &type) || !word_u32(w, off + 4, &word))
        return s;
    s.known = true;
    s.held = word != 0;
    s.owner_died = type & 4u && word & WORD_OWNER_DIED;
    if (type & 15u)
        set_owner(&s, word & WORD_TID);
    return s;
}

static struct lock_state mutex_state(enum lock_kind kind, enum lock_layout layout, int off,
                                     const struct word_view *w)
{
    struct lock_state s = {0};
    struct mutex_fields m;

    if (layout == LAYOUT_MUSL)
        return musl_mutex_state(off, w);
    if (!layout_mutex(layout, off, w, &m))
        return s;
    s.known = true;
    if (kind == KIND_MUTEX_ROBUST || kind == KIND_MUTEX_PI) {
        s.held = m.lock & WORD_TID;
        s.owner_died = m.lock & WORD_OWNER_DIED;
        set_owner(&s, m.lock & WORD_TID);
        if (m.owner >= INT_MAX - 1)
            set_owner(&s, m.owner);
    } else {
        s.held = m.lock != 0;
        if (s.held)
            set_owner(&s, m.owner);
    }
    return s;
}

static struct lock_state rwlock_state(enum lock_layout layout, int off, const struct word_view *w)
{
    struct lock_state s = {0};
    struct rwlock_fields rw;
    uint32_t readers;

    if (!word_u32(w, off, &readers))
        return s;
    s.known = true;
    /* In a write phase (1) the count is of readers that queue. */
    s.readers = readers & 1u ? 0 : readers >> 3;
    s.held = readers & 2u || s.readers > 0;
    /* cur_writer is the holder only in a write phase; before that it has merely claimed it. */
    if ((readers & 3u) == 3u && layout_rwlock(layout, off, w, &rw))
        set_owner(&s, rw.writer);
    return s;
}

static struct lock_state bare_state(const struct word_view *w, uint32_t mask)
{
    uint32_t word;

    if (!word_u32(w, 0, &word))
        return (struct lock_state){0};
    return (struct lock_state){.known = true, .held = word & mask};
}

struct lock_state layout_state(enum lock_kind kind, enum lock_layout layout, int off,
                               const struct word_view *w)
{
    switch (kind) {
    case KIND_MUTEX:
    case KIND_MUTEX_RECURSIVE:
    case KIND_MUTEX_ERRORCHECK:
    case KIND_MUTEX_ADAPTIVE:
    case KIND_MUTEX_ROBUST:
    case KIND_MUTEX_PI:
        return mutex_state(kind, layout, off, w);
    case KIND_RWLOCK:
        return rwlock_state(layout, off, w);
    case KIND_LIBC: /* musl's have the sign when held, and count those who queue below it */
        return bare_state(w, layout == LAYOUT_MUSL ? WORD_WAITERS : UINT32_MAX);
    case KIND_FUTEX_LOCK:
        return bare_state(w, UINT32_MAX);
    case KIND_ONCE: /* in progress: 1 for pthread_once, 0x100 for a guard of a C++ static */
        return bare_state(w, 0x101u);
    default:
        return (struct lock_state){0};
    }
}

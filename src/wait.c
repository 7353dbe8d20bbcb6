#include "wait.h"

#include <fcntl.h>
#include <linux/futex.h>

/* A frame is not larger than this between a wait and the word it declared on its own stack. */
#define OWN_STACK 65536

/* Values that lock words and waits hold: Drepper's "Futexes Are Tricky" (2: locked, with
 * waiters), glibc's rwlock (1 phase | 2 used), libstdc++'s __cxa_guard_acquire (pending and
 * waiting bits), musl's mutex (EBUSY | waiters). */
#define VAL_CONTENDED   2u
#define VAL_RW_WRITE    3u
#define VAL_RW_WAITING  6u
#define VAL_CXA_GUARD   0x10100u
#define VAL_MUSL_NORMAL 0x80000010u

struct query {
    const struct futex_wait *f;
    const struct wait_context *ctx;
    const struct word_view *view; /* the freshest that was read, or NULL */
    enum lock_layout layout;
};

static struct wait_class answer(const struct query *q, enum lock_kind kind, enum confidence conf,
                                int off)
{
    return (struct wait_class){
        .kind = kind,
        .confidence = conf,
        .layout = q->layout,
        .mode = lock_kind_class(kind) == CLASS_LOCK ? MODE_EXCLUSIVE : MODE_NONE,
        .object = q->f->addr + (uint64_t)(int64_t)off,
    };
}

static struct wait_class unknown(const struct query *q)
{
    return answer(q, KIND_FUTEX, CONF_UNKNOWN, 0);
}

static bool is_thread(const struct query *q, uint32_t tid)
{
    return tid != 0 && tid < INT32_MAX && q->ctx->is_thread(q->ctx->arg, (pid_t)tid);
}

static bool word_is(const struct query *q, uint32_t value)
{
    uint32_t word;

    return word_u32(q->view, 0, &word) && word == value;
}

static enum region region(const struct query *q)
{
    return q->ctx->word ? q->ctx->word->region : REGION_UNKNOWN;
}

/* Only recursive mutexes count, and these from 1 on. */
static bool count_suits(const struct query *q, enum lock_kind kind)
{
    uint32_t count;

    if (kind == KIND_MUTEX_ROBUST || kind == KIND_MUTEX_PI)
        return true;
    return word_u32(q->view, 4, &count) && (count > 0) == (kind == KIND_MUTEX_RECURSIVE);
}

/* A mutex whose owner is a living thread, or else (*GONE) one that an ended thread left locked:
 * other memory may look like that, so that all its fields must agree. */
static enum lock_kind mutex_kind(const struct query *q, bool *gone)
{
    struct mutex_fields m;

    *gone = false;
    if (!layout_mutex(q->layout, 0, q->view, &m))
        return KIND_NONE;
    enum lock_kind kind = layout_mutex_kind(m.kind);
    if (kind == KIND_MUTEX_ROBUST || kind == KIND_MUTEX_PI)
        m.owner = m.lock & WORD_TID;
    else if (m.users == 0 || m.users > 65536 ||
             (q->layout == LAYOUT_GLIBC64 && layout_stdio_lock(q->view)))
        return KIND_NONE;
    if (kind == KIND_NONE || m.owner == 0 || m.owner > 1u << 22)
        return KIND_NONE;
    *gone = !is_thread(q, m.owner);
    return *gone && !count_suits(q, kind) ? KIND_NONE : kind;
}

/* One that waits by FUTEX_WAIT for 2 or by a timed wait for 2: robust mutexes wait for a TID, PI
 * mutexes by another operation. */
static enum lock_kind plain_mutex_kind(const struct query *q, bool *gone)
{
    enum lock_kind kind = mutex_kind(q, gone);

    return kind == KIND_MUTEX_ROBUST || kind == KIND_MUTEX_PI ? KIND_NONE : kind;
}

/* The word lies just above the waiter's own stack pointer: a word of its own, not a lock that
 * threads share. */
static bool on_own_stack(const struct query *q)
{
    return q->f->addr >= q->ctx->sp && q->f->addr - q->ctx->sp < OWN_STACK;
}

/* WAIT for 2: a mutex, a lock inside libc, a barrier in its round 2, or another library's lock. */
static struct wait_class classify_contended(const struct query *q)
{
    bool gone;
    enum lock_kind mutex = plain_mutex_kind(q, &gone);

    if (mutex != KIND_NONE && !gone)
        return answer(q, mutex, CONF_CONFIRMED, 0);
    if (region(q) == REGION_LIBC || layout_stdio_lock(q->view) ||
        layout_arena_lock(q->view, q->f->addr))
        return answer(q, KIND_LIBC, CONF_LIKELY, 0);
    if (layout_barrier(q->view, q->f->val))
        return answer(q, KIND_BARRIER, CONF_LIKELY, -4);
    if (mutex != KIND_NONE)
        return answer(q, mutex, CONF_LIKELY, 0);
    if (on_own_stack(q))
        return unknown(q);
    return answer(q, KIND_FUTEX_LOCK, CONF_UNKNOWN, 0);
}

static struct wait_class rwlock_answer(const struct query *q, int off, enum lock_mode mode)
{
    struct rwlock_fields rw;
    struct wait_class c;

    if (!layout_rwlock(q->layout, off, q->view, &rw))
        return unknown(q);
    /* Somebody must hold it: readers that are counted (in a write phase these only queue), or a
     * writer; one that is no thread may have ended, or belong to a process not seen yet. */
    bool firm = is_thread(q, rw.writer) || (rw.readers >> 3 > 0 && (rw.readers & 3u) != 3u);
    if (!firm && rw.writer == 0)
        return unknown(q);
    c = answer(q, KIND_RWLOCK, firm ? CONF_CONFIRMED : CONF_LIKELY, off);
    c.mode = mode;
    return c;
}

/* Readers behind a writer sleep on wrphase_futex (+8), writers behind a writer on writers_futex
 * (+12), both for 3. The object is aligned to 8 on 64 bit, so the address tells; on 32 bit both
 * are tried. */
static struct wait_class classify_rw_write(const struct query *q)
{
    struct wait_class c = unknown(q);

    if (q->layout != LAYOUT_GLIBC64 || q->f->addr % 8 == 4)
        c = rwlock_answer(q, -12, MODE_EXCLUSIVE);
    if (c.kind != KIND_RWLOCK && (q->layout != LAYOUT_GLIBC64 || q->f->addr % 8 == 0))
        c = rwlock_answer(q, -8, MODE_SHARED);
    return c;
}

/* WAIT_BITSET for 2: a timed mutex, a writer behind readers (+8), or, without a timeout and
 * clock, a lock of Rust's library. */
static struct wait_class classify_bitset_contended(const struct query *q)
{
    bool gone;
    enum lock_kind mutex = plain_mutex_kind(q, &gone);

    if (mutex != KIND_NONE && !gone)
        return answer(q, mutex, CONF_CONFIRMED, 0);
    struct wait_class rw = rwlock_answer(q, -8, MODE_EXCLUSIVE);
    if (rw.kind == KIND_RWLOCK)
        return rw;
    if (q->f->timed && mutex != KIND_NONE)
        return answer(q, mutex, CONF_LIKELY, 0);
    if (!q->f->timed && !q->f->realtime && !on_own_stack(q))
        return answer(q, KIND_FUTEX_LOCK, CONF_UNKNOWN, 0);
    return unknown(q);
}

/* A wait for 0 (glibc up to 2.40) or for a sequence number. */
static struct wait_class classify_hand_off(const struct query *q)
{
    int off;

    if (layout_cond(q->view, q->f->addr, q->f->val, &off))
        return answer(q, KIND_COND, q->f->val == 0 ? CONF_CONFIRMED : CONF_LIKELY, off);
    if (q->f->cmd == FUTEX_WAIT && layout_barrier(q->view, q->f->val))
        return answer(q, KIND_BARRIER, CONF_CONFIRMED, -4);
    if (q->f->cmd == FUTEX_WAIT_BITSET && layout_sem(q->layout, q->view) &&
        q->f->val == (q->layout == LAYOUT_GLIBC32 ? 1u : 0u))
        return answer(q, KIND_SEM, CONF_CONFIRMED, 0);
    return unknown(q);
}

/* pthread_join waits with the process-shared call (up to glibc 2.30 a plain one, then with a clock)
 * for the TID in struct pthread, which is the process's own memory, to become 0. */
static bool is_join(const struct query *q)
{
    return !q->f->is_private && (q->f->realtime || q->f->cmd == FUTEX_WAIT) &&
           region(q) != REGION_SHARED && is_thread(q, q->f->val);
}

static struct wait_class classify_bitset_value(const struct query *q)
{
    if (q->f->val == VAL_CONTENDED) {
        struct wait_class c = classify_bitset_contended(q);
        if (c.kind != KIND_FUTEX)
            return c;
    }
    if (q->f->val == VAL_RW_WRITE) {
        struct wait_class c = classify_rw_write(q);
        if (c.kind == KIND_RWLOCK)
            return c;
    }
    /* A reader that lets a queued writer go first waits for the word of counts itself. */
    if ((q->f->val & VAL_RW_WAITING) == VAL_RW_WAITING) {
        struct wait_class c = rwlock_answer(q, 0, MODE_SHARED);
        if (c.kind == KIND_RWLOCK)
            return c;
    }
    return classify_hand_off(q);
}

static struct wait_class classify_bitset(const struct query *q)
{
    bool join = is_join(q);

    /* In a container 2 and 3 are TIDs too: there the memory of a lock goes first. */
    if (join && q->f->val > VAL_RW_WRITE)
        return answer(q, KIND_JOIN, CONF_CONFIRMED, 0);
    struct wait_class c = classify_bitset_value(q);
    return join && c.kind == KIND_FUTEX ? answer(q, KIND_JOIN, CONF_CONFIRMED, 0) : c;
}

/* pthread_once waits for "in progress" (1, plus 4 for each fork before). A sequence number can
 * have that value too, so only static data counts, where once controls live. */
static bool is_once(const struct query *q)
{
    return q->f->val % 4 == 1 && q->f->val < 4096 && word_is(q, q->f->val) &&
           (region(q) == REGION_FILE || region(q) == REGION_LIBC);
}

static struct wait_class classify_wait(const struct query *q)
{
    bool gone;

    if (q->f->val == VAL_CONTENDED)
        return classify_contended(q);
    if (q->f->val & WORD_WAITERS) {
        enum lock_kind mutex = mutex_kind(q, &gone);
        if (mutex == KIND_MUTEX_ROBUST)
            return answer(q, mutex, gone ? CONF_LIKELY : CONF_CONFIRMED, 0);
    }
    if (q->f->val == VAL_CXA_GUARD && !q->f->is_private)
        return answer(q, KIND_ONCE, CONF_LIKELY, 0);
    struct wait_class c = classify_hand_off(q);
    if (c.kind == KIND_FUTEX && is_join(q) && word_is(q, q->f->val))
        return answer(q, KIND_JOIN, CONF_CONFIRMED, 0);
    if (c.kind == KIND_FUTEX && is_once(q))
        return answer(q, KIND_ONCE, CONF_LIKELY, 0);
    return c;
}

static struct wait_class classify_pi(const struct query *q)
{
    bool gone;

    if (q->layout == LAYOUT_MUSL)
        return answer(q, KIND_MUTEX_PI, CONF_LIKELY, -4);
    bool firm = q->view && mutex_kind(q, &gone) == KIND_MUTEX_PI && !gone;
    return answer(q, KIND_MUTEX_PI, firm ? CONF_CONFIRMED : CONF_LIKELY, 0);
}

/* The kind of musl's mutex, by its type (1 recursive, 2 errorcheck, 4 robust) and what a waiter
 * waits for: all but the normal one hold a TID. */
static enum lock_kind musl_mutex_kind(const struct query *q, uint32_t type)
{
    static const enum lock_kind by_type[] = {KIND_MUTEX, KIND_MUTEX_RECURSIVE,
                                             KIND_MUTEX_ERRORCHECK, KIND_NONE};

    if (type >= 256 || ((type & 15u) == 0 ? q->f->val != VAL_MUSL_NORMAL
                                          : !is_thread(q, q->f->val & WORD_TID)))
        return KIND_NONE;
    return type & 4u ? KIND_MUTEX_ROBUST : by_type[type & 3u];
}

/* musl: contended mutexes and the library's own locks (malloc) wait with the top bit set;
 * condition variables, joins and semaphores pass small values or -1. */
static struct wait_class classify_musl(const struct query *q)
{
    enum lock_kind kind = KIND_NONE;
    uint32_t type;

    if (q->f->cmd != FUTEX_WAIT || !(q->f->val & WORD_WAITERS) || q->f->val == UINT32_MAX)
        return unknown(q);
    if (region(q) == REGION_LIBC)
        return answer(q, KIND_LIBC, CONF_LIKELY, 0);
    if (q->view && word_u32(q->view, -4, &type))
        kind = musl_mutex_kind(q, type);
    return kind == KIND_NONE ? unknown(q) : answer(q, kind, CONF_LIKELY, -4);
}

/* Without memory the operation alone must do; nothing is certain then. */
static struct wait_class classify_blind(const struct query *q)
{
    if (q->f->cmd == FUTEX_WAIT && q->f->val == VAL_CONTENDED)
        return answer(q, KIND_MUTEX, CONF_UNKNOWN, 0);
    if (q->f->cmd == FUTEX_WAIT_BITSET && is_thread(q, q->f->val) && !q->f->is_private)
        return answer(q, KIND_JOIN, CONF_LIKELY, 0);
    if (q->f->cmd == FUTEX_WAIT_BITSET && q->f->val == 0)
        return answer(q, KIND_COND, CONF_UNKNOWN, 0);
    return unknown(q);
}

static const struct word_view *freshest(const struct word_fact *w)
{
    if (!w)
        return NULL;
    if (w->late.hi > w->late.lo)
        return &w->late;
    return w->early.hi > w->early.lo ? &w->early : NULL;
}

static enum lock_layout layout_of(const struct futex_wait *f, const struct wait_context *ctx)
{
    /* A static program has no library to be known by; no other waits for musl's EBUSY | waiters. */
    if (ctx->libc == LIBC_MUSL || (ctx->libc == LIBC_UNKNOWN && f->val == VAL_MUSL_NORMAL))
        return LAYOUT_MUSL;
    return ctx->abi == ABI_COMPAT || sizeof(long) == 4 ? LAYOUT_GLIBC32 : LAYOUT_GLIBC64;
}

struct wait_class wait_classify(const struct futex_wait *f, const struct wait_context *ctx)
{
    struct query q = {
        .f = f,
        .ctx = ctx,
        .view = freshest(ctx->word),
        .layout = layout_of(f, ctx),
    };

    if (f->words > 1)
        return unknown(&q);
    if (f->cmd == FUTEX_LOCK_PI || f->cmd == FUTEX_LOCK_PI2)
        return classify_pi(&q);
    if (f->cmd == FUTEX_WAIT_REQUEUE_PI)
        return answer(&q, KIND_COND, CONF_LIKELY, 0);
    if (q.layout == LAYOUT_MUSL)
        return classify_musl(&q);
    if (!q.view)
        return classify_blind(&q);
    return f->cmd == FUTEX_WAIT ? classify_wait(&q) : classify_bitset(&q);
}

bool wait_suits(const struct futex_wait *f, enum lock_kind kind)
{
    bool pi = f->cmd == FUTEX_LOCK_PI || f->cmd == FUTEX_LOCK_PI2;

    switch (kind) {
    case KIND_MUTEX_PI:
        return pi;
    case KIND_MUTEX_ROBUST:
        return !pi && f->val & WORD_WAITERS;
    case KIND_MUTEX:
    case KIND_MUTEX_RECURSIVE:
    case KIND_MUTEX_ERRORCHECK:
    case KIND_MUTEX_ADAPTIVE:
    case KIND_LIBC:
    case KIND_FUTEX_LOCK:
        return !pi && (f->val == VAL_CONTENDED || f->val & WORD_WAITERS); /* the latter: musl */
    case KIND_RWLOCK:
        return !pi && (f->val == VAL_CONTENDED || f->val == VAL_RW_WRITE ||
                       (f->val & VAL_RW_WAITING) == VAL_RW_WAITING);
    case KIND_ONCE:
        return !pi && f->val != 0;
    default:
        return !pi;
    }
}

enum lock_mode wait_rwlock_mode(const struct futex_wait *f, uint64_t object)
{
    /* writers_futex (+12) is the writers' alone; on wrphase_futex (+8) readers wait for 3 and
     * writers for 2; on the counts (+0) only readers wait. */
    bool writer = f->addr - object == 12 || (f->addr - object == 8 && f->val == VAL_CONTENDED);

    return writer ? MODE_EXCLUSIVE : MODE_SHARED;
}

/* Thread states ------------------------------------------------------------------- */

static enum thread_state state_of_fd(enum fd_kind kind)
{
    switch (kind) {
    case FD_FILE:
        return THREAD_DISK;
    case FD_SOCKET:
        return THREAD_NET;
    case FD_PIPE:
    case FD_TTY:
    case FD_EVENT:
        return THREAD_PIPE;
    case FD_UNKNOWN:
        break;
    }
    return THREAD_OTHER;
}

static enum thread_state state_of_fcntl(const struct thread_fact *f)
{
    int cmd = (int)f->arg[1];

    return cmd == F_SETLKW || cmd == F_OFD_SETLKW || cmd == 14 /* F_SETLKW64 of 32 bit */
               ? THREAD_FILELOCK
               : THREAD_DISK;
}

static enum thread_state state_of_call(const struct thread_fact *f, enum lock_kind kind)
{
    switch (syscalls_wait(f->call)) {
    case WAIT_FUTEX:
        return lock_kind_class(kind) == CLASS_LOCK ? THREAD_LOCK : THREAD_SYNC;
    case WAIT_FILELOCK:
        return THREAD_FILELOCK;
    case WAIT_FCNTL:
        return state_of_fcntl(f);
    case WAIT_SEMOP:
        return THREAD_SYNC;
    case WAIT_FD:
        return state_of_fd(f->fd_kind);
    case WAIT_NET:
        return THREAD_NET;
    case WAIT_PIPE:
        return THREAD_PIPE;
    case WAIT_DISK:
        return THREAD_DISK;
    case WAIT_KERNEL:
        return THREAD_KERNEL;
    case WAIT_SLEEP:
        return THREAD_SLEEP;
    case WAIT_RESTART:
    case WAIT_OTHER:
        break;
    }
    return THREAD_OTHER;
}

enum thread_state wait_state(const struct thread_fact *f, enum lock_kind kind)
{
    switch (f->seen) {
    case SEEN_ACTIVE:
        return THREAD_RUNNING;
    case SEEN_CALL:
        return state_of_call(f, kind);
    case SEEN_FAULT:
        return THREAD_KERNEL;
    case SEEN_STOPPED:
        return THREAD_STOPPED;
    case SEEN_UNREADABLE:
    case SEEN_DEAD:
        break;
    }
    return THREAD_OTHER;
}

/*
 * wait_build.h - one futex wait of a process, with the memory around its word, classified.
 * Include it behind cmocka.h.
 */
#ifndef LT_TESTS_WAIT_BUILD_H
#define LT_TESTS_WAIT_BUILD_H

#include "../src/wait.h"
#include "model_build.h"

/* Short names for tables. */
#define C CONF_CONFIRMED
#define L CONF_LIKELY
#define U CONF_UNKNOWN
#define X MODE_EXCLUSIVE
#define R MODE_SHARED
#define N MODE_NONE

#define OBJECT UINT64_C(0x7f0000001000)
#define OWNER  102u
#define SP     UINT64_C(0x7fff00000000)

/* The process has the threads 101 to 130; in a container also 2 and 3. */
static UNUSED bool in_container;

static inline bool is_thread(const void *arg, pid_t tid)
{
    (void)arg;
    return (tid >= 101 && tid <= 130) || (in_container && (tid == 2 || tid == 3));
}

struct setting {
    enum abi abi;
    enum libc_kind libc;
    enum region region;
    bool no_memory;
    uint64_t sp;
};
static UNUSED const struct setting NORMAL = {ABI_NATIVE, LIBC_GLIBC, REGION_ANON, false, SP};

/* futex(ADDR, OP, VAL) in a process of this SETTING with VIEW around ADDR. */
static inline struct wait_class classify_in(const struct setting *set, uint64_t addr, uint32_t op,
                                            uint64_t val, bool timed, const struct word_view *view)
{
    struct word_fact word = {.addr = addr, .region = set->region, .late = *view};
    struct wait_context ctx = {
        .abi = set->abi,
        .libc = set->libc,
        .word = set->no_memory ? NULL : &word,
        .sp = set->sp,
        .is_thread = is_thread,
    };
    const uint64_t arg[6] = {addr, op, val, timed ? SP : 0};
    struct futex_wait f;

    assert_true(futex_decode(CALL_futex, arg, &f));
    return wait_classify(&f, &ctx);
}

static inline void expect(struct wait_class c, enum lock_kind kind, enum confidence confidence)
{
    if (c.kind != kind || c.confidence != confidence)
        fail_msg("%s, %s instead of %s, %s", lock_kind_name(c.kind), confidence_name(c.confidence),
                 lock_kind_name(kind), confidence_name(confidence));
}

static inline struct wait_class classify(int word, uint32_t op, uint64_t val,
                                         const struct word_view *w)
{
    return classify_in(&NORMAL, OBJECT + (uint64_t)word, op, val, false, w);
}

/* Memory, as it lies around the word. ------------------------------------------------------ */

static inline void mutex(struct word_view *w)
{
    put_mutex(w, 2, OWNER, 0);
}
static inline void recursive(struct word_view *w)
{
    put_mutex(w, 2, OWNER, 1);
}
static inline void errorcheck(struct word_view *w)
{
    put_mutex(w, 2, OWNER, 2);
}
static inline void adaptive(struct word_view *w)
{
    put_mutex(w, 2, OWNER, 3);
}
static inline void pshared(struct word_view *w)
{
    put_mutex(w, 2, OWNER, 128);
}
static inline void robust(struct word_view *w)
{
    put_mutex(w, OWNER | WORD_WAITERS, OWNER, 16);
}
static inline void pi(struct word_view *w)
{
    put_mutex(w, OWNER | WORD_WAITERS, OWNER, 32);
}
static inline void robust_pi(struct word_view *w)
{
    put_mutex(w, OWNER | WORD_WAITERS, OWNER, 48);
}
static inline void two(struct word_view *w)
{
    put32(w, 0, 2);
}
static inline void stdio(struct word_view *w)
{
    PUT_WORDS(w, 0, 2, 1);
    put64(w, 8, 0x7f32a1b2c640);
}
static inline void arena(struct word_view *w)
{
    put32(w, 0, 2);
    put64(w, -48, OBJECT);
}
static inline void cond_first(struct word_view *w)
{
    put_cond(w, -40, 5, 0);
}
static inline void cond_second(struct word_view *w)
{
    put_cond(w, -44, 5, 1);
}
static inline void cond_2_41(struct word_view *w)
{
    PUT_WORDS(w, -32, 40, 0, 20, 0, 1, 0, 0, 2 << 3, 2, 0);
}
static inline void written_at_8(struct word_view *w)
{
    put_rwlock(w, -8, 5 << 3 | 3, OWNER);
}
static inline void written_at_12(struct word_view *w)
{
    put_rwlock(w, -12, 3, OWNER);
}
static inline void read_at_8(struct word_view *w)
{
    put_rwlock(w, -8, 1 << 3 | 2, 0);
}
static inline void recursive_read(struct word_view *w)
{
    PUT_WORDS(w, 0, 14, 0, 2, 1, 0, 0, 0, 0);
}
static inline void semaphore(struct word_view *w)
{
    PUT_WORDS(w, 0, 0, 5, 0);
}
static inline void barrier_0(struct word_view *w)
{
    PUT_WORDS(w, -4, 2, 0, 6, 0, 0);
}
static inline void barrier_2(struct word_view *w)
{
    PUT_WORDS(w, -4, 3, 2, 2, 0, 2);
}
static inline void one(struct word_view *w)
{
    put32(w, 0, 1);
}
static inline void guard(struct word_view *w)
{
    put32(w, 0, 0x10100);
}
static inline void joined(struct word_view *w)
{
    PUT_WORDS(w, 0, 110, 0, 0xdeadbee0, 0x7f01, 0xdeadbee0, 0x7f01);
}
static inline void nothing(struct word_view *w)
{
    (void)w;
}

#endif

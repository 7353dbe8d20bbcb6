/* unit_layout - what memory says about mutexes, rwlocks and the rest: byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "model_build.h"

#define TID 8412u

static struct lock_state state_of(enum lock_kind kind, enum lock_layout layout, int off,
                                  const struct word_view *w)
{
    return layout_state(kind, layout, off, w);
}

static void expect_held(struct lock_state s, pid_t owner)
{
    assert_true(s.known);
    assert_true(s.held);
    assert_int_equal(s.owner, owner);
}

static void expect_free(struct lock_state s)
{
    assert_true(s.known);
    assert_false(s.held);
    assert_int_equal(s.owner, 0);
    assert_int_equal(s.readers, 0);
}

/* Mutexes -------------------------------------------------------------------------------- */

static void test_mutex_64(void **state)
{
    (void)state;
    struct word_view w = blank_view();
    struct mutex_fields m;

    expect_free(state_of(KIND_MUTEX, LAYOUT_GLIBC64, 0, &w));
    PUT_WORDS(&w, 0, 2, 3, TID, 4, 1); /* lock, count, owner, nusers, kind */
    assert_true(layout_mutex(LAYOUT_GLIBC64, 0, &w, &m));
    assert_int_equal(m.lock, 2);
    assert_int_equal(m.owner, TID);
    assert_int_equal(m.users, 4);
    assert_int_equal(m.kind, 1);
    for (enum lock_kind k = KIND_MUTEX; k <= KIND_MUTEX_ADAPTIVE; k++)
        expect_held(state_of(k, LAYOUT_GLIBC64, 0, &w), TID);
    put32(&w, 8, 0); /* between taking the lock and writing one's name */
    expect_held(state_of(KIND_MUTEX, LAYOUT_GLIBC64, 0, &w), 0);
    PUT_WORDS(&w, 0, 0, 0, TID); /* between the name's clearing and the unlock, seen torn */
    expect_free(state_of(KIND_MUTEX, LAYOUT_GLIBC64, 0, &w));
}

static void test_mutex_32(void **state)
{
    (void)state;
    struct word_view w = blank_view();
    struct mutex_fields m;

    PUT_WORDS(&w, 0, 2, 7, TID, 1, 4); /* lock, count, owner, kind, nusers */
    assert_true(layout_mutex(LAYOUT_GLIBC32, 0, &w, &m));
    assert_int_equal(m.kind, 1);
    assert_int_equal(m.users, 4);
    expect_held(state_of(KIND_MUTEX_RECURSIVE, LAYOUT_GLIBC32, 0, &w), TID);
}

static void test_mutex_kinds(void **state)
{
    (void)state;
    static const struct {
        uint32_t field;
        enum lock_kind kind;
    } cases[] = {
        {0, KIND_MUTEX},
        {1, KIND_MUTEX_RECURSIVE},
        {2, KIND_MUTEX_ERRORCHECK},
        {3, KIND_MUTEX_ADAPTIVE},
        {128, KIND_MUTEX},
        {129, KIND_MUTEX_RECURSIVE},
        {256, KIND_MUTEX},
        {512, KIND_MUTEX},
        {16, KIND_MUTEX_ROBUST},
        {17, KIND_MUTEX_ROBUST},
        {16 | 128, KIND_MUTEX_ROBUST},
        {32, KIND_MUTEX_PI},
        {33, KIND_MUTEX_PI},
        {48, KIND_MUTEX_PI},
        {4, KIND_NONE},
        {8, KIND_NONE},
        {1024, KIND_NONE},
        {1u << 31, KIND_NONE},
        {UINT32_MAX, KIND_NONE},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(layout_mutex_kind(cases[i].field), cases[i].kind);
}

/* Robust and PI mutexes hold the TID in the word itself. */
static void test_owner_in_the_word(void **state)
{
    (void)state;
    for (enum lock_kind k = KIND_MUTEX_ROBUST; k <= KIND_MUTEX_PI; k++) {
        struct word_view w = blank_view();
        expect_free(state_of(k, LAYOUT_GLIBC64, 0, &w));
        put_mutex(&w, TID | WORD_WAITERS, 77, 16);
        expect_held(state_of(k, LAYOUT_GLIBC64, 0, &w), TID);
        assert_false(state_of(k, LAYOUT_GLIBC64, 0, &w).owner_died);
        /* the kernel's mark when the owner ended: no TID */
        put32(&w, 0, WORD_OWNER_DIED | WORD_WAITERS);
        struct lock_state s = state_of(k, LAYOUT_GLIBC64, 0, &w);
        assert_true(s.owner_died);
        assert_false(s.held);
        assert_int_equal(s.owner, 0);
    }
}

static void test_inconsistent_and_not_recoverable(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    put_mutex(&w, TID, INT_MAX, 16); /* taken over, not yet made consistent */
    struct lock_state s = state_of(KIND_MUTEX_ROBUST, LAYOUT_GLIBC64, 0, &w);
    expect_held(s, TID);
    assert_true(s.owner_died);
    assert_false(s.unrecoverable);
    put_mutex(&w, 0, INT_MAX - 1, 16);
    s = state_of(KIND_MUTEX_ROBUST, LAYOUT_GLIBC64, 0, &w);
    assert_true(s.unrecoverable);
    assert_false(s.held);
    assert_int_equal(s.owner, 0);
}

/* The real thing, as this machine's C library lays it out. */
static void test_live_mutex(void **state)
{
    (void)state;
#if defined(__GLIBC__) && defined(__LP64__)
    pthread_mutex_t m = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    struct word_view w = blank_view();
    struct mutex_fields f;

    pthread_mutex_lock(&m);
    memcpy(w.bytes + WORD_BEFORE, &m, sizeof(m));
    assert_true(layout_mutex(LAYOUT_GLIBC64, 0, &w, &f));
    assert_int_equal(layout_mutex_kind(f.kind), KIND_MUTEX_RECURSIVE);
    assert_int_equal(f.users, 1);
    expect_held(state_of(KIND_MUTEX_RECURSIVE, LAYOUT_GLIBC64, 0, &w), gettid());
    pthread_mutex_unlock(&m);
    memcpy(w.bytes + WORD_BEFORE, &m, sizeof(m));
    expect_free(state_of(KIND_MUTEX_RECURSIVE, LAYOUT_GLIBC64, 0, &w));
#else
    skip();
#endif
}

static void test_musl_mutex(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    /* type, lock; the word is the lock, so the object lies 4 before it */
    PUT_WORDS(&w, -4, 0, 0x80000010);
    expect_held(state_of(KIND_MUTEX, LAYOUT_MUSL, -4, &w), 0);
    PUT_WORDS(&w, -4, 0, 0);
    expect_free(state_of(KIND_MUTEX, LAYOUT_MUSL, -4, &w));
    for (uint32_t type = 1; type <= 2; type++) {
        PUT_WORDS(&w, -4, type, TID | WORD_WAITERS);
        expect_held(state_of(KIND_MUTEX_RECURSIVE, LAYOUT_MUSL, -4, &w), TID);
    }
    PUT_WORDS(&w, -4, 4, WORD_OWNER_DIED | WORD_WAITERS);
    assert_true(state_of(KIND_MUTEX_ROBUST, LAYOUT_MUSL, -4, &w).owner_died);
    assert_int_equal(state_of(KIND_MUTEX_ROBUST, LAYOUT_MUSL, -4, &w).owner, 0);
}

static void test_who_records_an_owner(void **state)
{
    (void)state;
    for (enum lock_kind k = KIND_NONE; k < LOCK_KINDS; k++) {
        bool mutex = k >= KIND_MUTEX && k <= KIND_MUTEX_PI;
        assert_int_equal(layout_records_owner(k, LAYOUT_GLIBC64), mutex || k == KIND_RWLOCK);
        assert_int_equal(layout_records_owner(k, LAYOUT_GLIBC32), mutex || k == KIND_RWLOCK);
    }
    assert_false(layout_records_owner(KIND_MUTEX, LAYOUT_MUSL));
    assert_true(layout_records_owner(KIND_MUTEX_RECURSIVE, LAYOUT_MUSL));
}

/* Reader-writer locks ---------------------------------------------------------------------- */

static void test_rwlock_write_held(void **state)
{
    (void)state;
    static const int words[] = {0, 8, 12};
    struct rwlock_fields f;

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        struct word_view w = blank_view();
        int off = -words[i];
        put_rwlock(&w, off, 2 << 3 | 3, TID); /* two readers queue */
        assert_true(layout_rwlock(LAYOUT_GLIBC64, off, &w, &f));
        assert_int_equal(f.writer, TID);
        struct lock_state s = state_of(KIND_RWLOCK, LAYOUT_GLIBC64, off, &w);
        expect_held(s, TID);
        assert_int_equal(s.readers, 0);
    }
}

/* As read from an i386 program: two readers behind a writer; the flags stand at +24. */
static void test_rwlock_32(void **state)
{
    (void)state;
    struct word_view w = blank_view();
    struct rwlock_fields f;

    PUT_WORDS(&w, -8, 0x13, 0, 3, 1, 0, 0, 0, 0x4d3a);
    assert_true(layout_rwlock(LAYOUT_GLIBC32, -8, &w, &f));
    expect_held(state_of(KIND_RWLOCK, LAYOUT_GLIBC32, -8, &w), 0x4d3a);
    put32(&w, 16, 0x0102); /* shared, prefers writers */
    assert_true(layout_rwlock(LAYOUT_GLIBC32, -8, &w, &f));
    put32(&w, 16, 0x0202);
    assert_false(layout_rwlock(LAYOUT_GLIBC32, -8, &w, &f));
}

static void test_rwlock_read_held(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    /* [14, 0, 2, 1]: one reader, a writer queues, a reader waits for that writer */
    PUT_WORDS(&w, 0, 14, 0, 2, 1, 0, 0, 0, 0);
    struct lock_state s = state_of(KIND_RWLOCK, LAYOUT_GLIBC64, 0, &w);
    expect_held(s, 0);
    assert_int_equal(s.readers, 1);
    /* a writer that has claimed it only, and left its name early, does not hold it */
    put32(&w, 24, TID);
    assert_int_equal(state_of(KIND_RWLOCK, LAYOUT_GLIBC64, 0, &w).owner, 0);
}

/* The write phase was left, the readers that queued have not been let in yet. */
static void test_rwlock_hand_over(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    PUT_WORDS(&w, 0, 3 << 3 | 1, 0, 3, 0, 0, 0, 0, 0);
    expect_free(state_of(KIND_RWLOCK, LAYOUT_GLIBC64, 0, &w));
    /* held for writing, the writer's name not there yet: those who queue are not its readers */
    PUT_WORDS(&w, 0, 3 << 3 | 3, 0, 3, 0, 0, 0, 0, 0);
    struct lock_state s = state_of(KIND_RWLOCK, LAYOUT_GLIBC64, 0, &w);
    expect_held(s, 0);
    assert_int_equal(s.readers, 0);
}

static void test_rwlock_refused(void **state)
{
    (void)state;
    static const struct {
        int off;
        uint32_t value;
    } spoil[] = {{0, 1u << 31 | 3}, {0, 8}, {16, 1}, {20, 1}, {24, 1u << 22}, {28, 2}};
    struct rwlock_fields f;

    for (size_t i = 0; i < ARRAY_SIZE(spoil); i++) {
        struct word_view w = blank_view();
        put_rwlock(&w, 0, 3, TID);
        assert_true(layout_rwlock(LAYOUT_GLIBC64, 0, &w, &f));
        assert_false(layout_rwlock(LAYOUT_MUSL, 0, &w, &f));
        put32(&w, spoil[i].off, spoil[i].value);
        assert_false(layout_rwlock(LAYOUT_GLIBC64, 0, &w, &f));
    }
}

/* What is not held ------------------------------------------------------------------------- */

static void test_cond(void **state)
{
    (void)state;
    int off = 1;

    for (int g = 0; g < 2; g++) {
        struct word_view w = blank_view();
        put_cond(&w, -40 - 4 * g, 5, g);
        assert_true(layout_cond(&w, 0x1028 + 4 * (uint64_t)g, 0, &off));
        assert_int_equal(off, -40 - 4 * g);
        assert_false(layout_cond(&w, 0x1028 + 4 * (uint64_t)!g, 0, &off));
        assert_false(layout_cond(&w, 0x1029, 0, &off));
        assert_false(layout_cond(&w, 0x1028 + 4 * (uint64_t)g, 7, &off));
        assert_false(state_of(KIND_COND, LAYOUT_GLIBC64, -40, &w).known);
    }
}

/* As read after three waits that timed out: the size of the group that fills is below zero. */
static void test_cond_after_timeouts(void **state)
{
    (void)state;
    struct word_view w = blank_view();
    int off;

    PUT_WORDS(&w, -40, 8, 0, 0, 0, 2, 0, 0xfffffffd, 0, 0, 8, 0, 0);
    assert_true(layout_cond(&w, 0x1028, 0, &off));
    put32(&w, -40 + 24, 0x80000000); /* no count of threads */
    assert_false(layout_cond(&w, 0x1028, 0, &off));
}

static void test_cond_since_2_41(void **state)
{
    (void)state;
    struct word_view w = blank_view();
    int off;

    /* wseq, g1_start, g_size[2] 16, g1_orig_size 24, wrefs 28, g_signals[2] 32 */
    PUT_WORDS(&w, -32, 40, 0, 20, 0, 1, 0, 0, 2 << 3, 14, 0);
    assert_true(layout_cond(&w, 0x1020, 14, &off));
    assert_int_equal(off, -32);
    assert_false(layout_cond(&w, 0x1020, 15, &off));
}

static void test_cond_refused(void **state)
{
    (void)state;
    struct word_view w = blank_view();
    int off;

    assert_false(layout_cond(&w, 0x1028, 0, &off)); /* nobody waits */
    put_cond(&w, -40, 5, 0);
    put64(&w, -40, 2); /* fewer waits than waiters */
    assert_false(layout_cond(&w, 0x1028, 0, &off));
    put_cond(&w, -40, 5, 0);
    put64(&w, -32, 1000); /* the first group begins after the last waiter */
    assert_false(layout_cond(&w, 0x1028, 0, &off));
}

static void test_sem(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    PUT_WORDS(&w, 0, 0, 5, 0); /* value, waiters, private */
    assert_true(layout_sem(LAYOUT_GLIBC64, &w));
    put32(&w, 8, 128);
    assert_true(layout_sem(LAYOUT_GLIBC64, &w));
    put32(&w, 8, 7);
    assert_false(layout_sem(LAYOUT_GLIBC64, &w));
    PUT_WORDS(&w, 0, 0, 0, 0);
    assert_false(layout_sem(LAYOUT_GLIBC64, &w));
    /* as read from an i386 program with two waiters */
    PUT_WORDS(&w, 0, 1, 0, 0, 2);
    assert_true(layout_sem(LAYOUT_GLIBC32, &w));
    assert_false(layout_sem(LAYOUT_MUSL, &w));
}

static void test_barrier(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    PUT_WORDS(&w, -4, 2, 0, 3, 0, 0); /* in, round, count, shared, out */
    assert_true(layout_barrier(&w, 0));
    assert_false(layout_barrier(&w, 3));
    PUT_WORDS(&w, -4, 8, 6, 3, 128, 6);
    assert_true(layout_barrier(&w, 6));
    PUT_WORDS(&w, -4, 8, 5, 3, 0, 6); /* no multiple of count */
    assert_false(layout_barrier(&w, 5));
    PUT_WORDS(&w, -4, 9, 6, 3, 0, 6); /* complete: nobody waits */
    assert_false(layout_barrier(&w, 6));
    PUT_WORDS(&w, -4, 7, 6, 0, 0, 6);
    assert_false(layout_barrier(&w, 6));
}

static void test_libc_locks(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    put64(&w, 8, 0x7f32a1b2c640); /* lock, cnt, owner: a struct pthread */
    assert_true(layout_stdio_lock(&w));
    put64(&w, 8, 0x7f32a1b2c641);
    assert_false(layout_stdio_lock(&w));
    put64(&w, 8, 1ull << 32 | TID); /* a mutex's owner and one user */
    assert_false(layout_stdio_lock(&w));
    assert_false(layout_arena_lock(&w, 0x7f3200000030));
    put64(&w, -48, 0x7f3200000030);
    assert_true(layout_arena_lock(&w, 0x7f3200000030));
    put64(&w, -48, 0);
    put64(&w, -32, 0x7f3200000020);
    assert_true(layout_arena_lock(&w, 0x7f3200000020));
}

static void test_bare_words(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    expect_free(state_of(KIND_LIBC, LAYOUT_GLIBC64, 0, &w));
    expect_free(state_of(KIND_FUTEX_LOCK, LAYOUT_GLIBC64, 0, &w));
    put32(&w, 0, 2);
    expect_held(state_of(KIND_LIBC, LAYOUT_GLIBC64, 0, &w), 0);
    expect_held(state_of(KIND_FUTEX_LOCK, LAYOUT_GLIBC64, 0, &w), 0);
    /* musl: the sign says held; a bare count is of those who queue */
    expect_free(state_of(KIND_LIBC, LAYOUT_MUSL, 0, &w));
    put32(&w, 0, 0x80000003);
    expect_held(state_of(KIND_LIBC, LAYOUT_MUSL, 0, &w), 0);
    put32(&w, 0, 1); /* pthread_once in progress, then done */
    expect_held(state_of(KIND_ONCE, LAYOUT_GLIBC64, 0, &w), 0);
    put32(&w, 0, 2);
    expect_free(state_of(KIND_ONCE, LAYOUT_GLIBC64, 0, &w));
    put32(&w, 0, 0x10100); /* a C++ guard: pending, with waiters */
    expect_held(state_of(KIND_ONCE, LAYOUT_GLIBC64, 0, &w), 0);
}

static void test_sync_kinds_are_never_held(void **state)
{
    (void)state;
    static const enum lock_kind kinds[] = {KIND_NONE,    KIND_COND,  KIND_SEM,
                                           KIND_BARRIER, KIND_JOIN,  KIND_FLOCK,
                                           KIND_POSIX,   KIND_FUTEX, KIND_SYSV_SEM};
    struct word_view w = blank_view();

    memset(w.bytes, 0xff, sizeof(w.bytes));
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        struct lock_state s = state_of(kinds[i], LAYOUT_GLIBC64, 0, &w);
        assert_false(s.known || s.held || s.owner);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutex_64),
        cmocka_unit_test(test_mutex_32),
        cmocka_unit_test(test_mutex_kinds),
        cmocka_unit_test(test_owner_in_the_word),
        cmocka_unit_test(test_inconsistent_and_not_recoverable),
        cmocka_unit_test(test_live_mutex),
        cmocka_unit_test(test_musl_mutex),
        cmocka_unit_test(test_who_records_an_owner),
        cmocka_unit_test(test_rwlock_write_held),
        cmocka_unit_test(test_rwlock_32),
        cmocka_unit_test(test_rwlock_read_held),
        cmocka_unit_test(test_rwlock_hand_over),
        cmocka_unit_test(test_rwlock_refused),
        cmocka_unit_test(test_cond),
        cmocka_unit_test(test_cond_after_timeouts),
        cmocka_unit_test(test_cond_since_2_41),
        cmocka_unit_test(test_cond_refused),
        cmocka_unit_test(test_sem),
        cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_libc_locks),
        cmocka_unit_test(test_bare_words),
        cmocka_unit_test(test_sync_kinds_are_never_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* unit_wait - what a blocked thread waits for: every call, operation, value and memory that the C
 * libraries produce, and nonsense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "wait_build.h"

/* Every row of glibc's table --------------------------------------------------------------- */

struct row {
    const char *name;
    uint32_t op;
    uint64_t val;
    int word; /* address of the word in the object */
    void (*memory)(struct word_view *);
    enum lock_kind kind;
    enum confidence confidence;
    enum lock_mode mode;
    enum region region; /* REGION_UNKNOWN: the usual one */
    bool timed;
};

static const struct row ROWS[] = {
    {"normal mutex", 0x80, 2, 0, mutex, KIND_MUTEX, C, X, 0, false},
    {"recursive", 0x80, 2, 0, recursive, KIND_MUTEX_RECURSIVE, C, X, 0, false},
    {"errorcheck", 0x80, 2, 0, errorcheck, KIND_MUTEX_ERRORCHECK, C, X, 0, false},
    {"adaptive", 0x80, 2, 0, adaptive, KIND_MUTEX_ADAPTIVE, C, X, 0, false},
    {"process-shared", 0x0, 2, 0, pshared, KIND_MUTEX, C, X, REGION_SHARED, false},
    {"process-shared, private memory", 0x0, 2, 0, pshared, KIND_MUTEX, C, X, 0, false},
    {"timedlock", 0x189, 2, 0, mutex, KIND_MUTEX, C, X, 0, true},
    {"clocklock", 0x89, 2, 0, mutex, KIND_MUTEX, C, X, 0, true},
    {"process-shared timedlock", 0x109, 2, 0, pshared, KIND_MUTEX, C, X, REGION_SHARED, true},
    {"robust", 0x0, OWNER | WORD_WAITERS, 0, robust, KIND_MUTEX_ROBUST, C, X, 0, false},
    {"PI", 0x86, 0, 0, pi, KIND_MUTEX_PI, C, X, 0, false},
    {"robust PI", 0x6, 0, 0, robust_pi, KIND_MUTEX_PI, C, X, 0, false},
    {"PI with a deadline", 0x8d, 0, 0, pi, KIND_MUTEX_PI, C, X, 0, true},
    {"libc's own", 0x80, 2, 0, two, KIND_LIBC, L, X, REGION_LIBC, false},
    {"stdio on the heap", 0x80, 2, 0, stdio, KIND_LIBC, L, X, 0, false},
    {"malloc arena", 0x80, 2, 0, arena, KIND_LIBC, L, X, 0, false},
    {"cond, first group", 0x189, 0, 40, cond_first, KIND_COND, C, N, 0, false},
    {"cond, second group", 0x189, 0, 44, cond_second, KIND_COND, C, N, 0, true},
    {"cond, clockwait", 0x89, 0, 40, cond_first, KIND_COND, C, N, 0, true},
    {"cond of 2.25 to 2.32", 0x80, 0, 40, cond_first, KIND_COND, C, N, 0, false},
    {"cond, process-shared", 0x109, 0, 40, cond_first, KIND_COND, C, N, REGION_SHARED, false},
    {"cond of 2.41, value 2", 0x189, 2, 32, cond_2_41, KIND_COND, L, N, 0, false},
    {"cond of 2.24", 0x80, 9, 4, nothing, KIND_FUTEX, U, N, 0, false},
    {"reader behind a writer", 0x189, 3, 8, written_at_8, KIND_RWLOCK, C, R, 0, false},
    {"writer behind a writer", 0x189, 3, 12, written_at_12, KIND_RWLOCK, C, X, 0, false},
    {"writer behind readers", 0x189, 2, 8, read_at_8, KIND_RWLOCK, C, X, 0, false},
    {"timed writer behind readers", 0x189, 2, 8, read_at_8, KIND_RWLOCK, C, X, 0, true},
    {"reader behind a queued writer", 0x189, 14, 0, recursive_read, KIND_RWLOCK, C, R, 0, false},
    {"shared: reader", 0x109, 3, 8, written_at_8, KIND_RWLOCK, C, R, REGION_SHARED, false},
    {"shared: writer", 0x109, 3, 12, written_at_12, KIND_RWLOCK, C, X, REGION_SHARED, false},
    {"shared, on the heap: reader", 0x109, 3, 8, written_at_8, KIND_RWLOCK, C, R, 0, false},
    {"shared, on the heap: read behind", 0x109, 14, 0, recursive_read, KIND_RWLOCK, C, R, 0, false},
    {"sem_wait", 0x189, 0, 0, semaphore, KIND_SEM, C, N, 0, false},
    {"sem_timedwait", 0x189, 0, 0, semaphore, KIND_SEM, C, N, 0, true},
    {"sem_wait, process-shared", 0x109, 0, 0, semaphore, KIND_SEM, C, N, REGION_SHARED, false},
    {"barrier, first round", 0x80, 0, 4, barrier_0, KIND_BARRIER, C, N, 0, false},
    {"barrier of two, round 2", 0x80, 2, 4, barrier_2, KIND_BARRIER, L, N, 0, false},
    {"pthread_once", 0x80, 1, 0, one, KIND_ONCE, L, X, REGION_FILE, false},
    {"C++ static", 0x0, 0x10100, 0, guard, KIND_ONCE, L, X, REGION_FILE, false},
    {"pthread_join", 0x109, 110, 0, joined, KIND_JOIN, C, N, 0, false},
    {"pthread_timedjoin", 0x109, 110, 0, joined, KIND_JOIN, C, N, 0, true},
    {"pthread_join up to 2.30", 0x0, 110, 0, joined, KIND_JOIN, C, N, 0, false},
    {"Rust's mutex", 0x89, 2, 0, two, KIND_FUTEX_LOCK, U, X, 0, false},
    {"Go's mutex", 0x80, 2, 0, two, KIND_FUTEX_LOCK, U, X, 0, false},
    {"sequence number", 0x80, 7, 0, nothing, KIND_FUTEX, U, N, 0, false},
    {"condition of another library", 0x89, 7, 0, nothing, KIND_FUTEX, U, N, 0, false},
};

static void test_every_wait_of_glibc(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(ROWS); i++) {
        const struct row *r = &ROWS[i];
        struct setting set = NORMAL;
        struct word_view w = blank_view();
        if (r->region)
            set.region = r->region;
        r->memory(&w);
        /* the upper half of the register is noise */
        for (int noise = 0; noise < 2; noise++) {
            uint64_t val = r->val | (noise ? UINT64_C(0xffffffff) << 32 : 0);
            struct wait_class c =
                classify_in(&set, OBJECT + (uint64_t)r->word, r->op, val, r->timed, &w);
            if (c.kind != r->kind || c.confidence != r->confidence || c.mode != r->mode)
                fail_msg("%s: %s, %s, mode %d", r->name, lock_kind_name(c.kind),
                         confidence_name(c.confidence), c.mode);
            if (c.kind != KIND_FUTEX && c.object != OBJECT)
                fail_msg("%s: object at %#lx", r->name, (unsigned long)c.object);
        }
    }
}

/* Other libraries, other widths ------------------------------------------------------------- */

static void test_musl(void **state)
{
    (void)state;
    struct setting set = NORMAL;
    struct word_view w = blank_view();
    uint64_t normal = UINT64_C(0xffffffff80000010); /* as the kernel shows it */

    set.libc = LIBC_MUSL;
    PUT_WORDS(&w, -4, 0, 0x80000010);
    struct wait_class c = classify_in(&set, OBJECT + 4, 0x80, normal, false, &w);
    expect(c, KIND_MUTEX, L);
    assert_int_equal(c.object, OBJECT);
    PUT_WORDS(&w, -4, 1, OWNER | WORD_WAITERS);
    expect(classify_in(&set, OBJECT + 4, 0x80, OWNER | WORD_WAITERS, false, &w),
           KIND_MUTEX_RECURSIVE, L);
    put32(&w, -4, 2);
    expect(classify_in(&set, OBJECT + 4, 0x80, OWNER | WORD_WAITERS, false, &w),
           KIND_MUTEX_ERRORCHECK, L);
    put32(&w, -4, 4);
    expect(classify_in(&set, OBJECT + 4, 0x80, OWNER | WORD_WAITERS, false, &w), KIND_MUTEX_ROBUST,
           L);
    put32(&w, -4, 2); /* not a thread */
    expect(classify_in(&set, OBJECT + 4, 0x80, 4711 | WORD_WAITERS, false, &w), KIND_FUTEX, U);
    set.region = REGION_LIBC; /* the allocator's: how many want it, and the sign */
    expect(classify_in(&set, OBJECT, 0x80, UINT64_C(0xffffffff80000003), false, &w), KIND_LIBC, L);
}

/* What is a mutex's value in glibc is a condition variable's, on the own stack, in musl. */
static void test_musl_sync(void **state)
{
    (void)state;
    struct setting set = NORMAL;
    struct word_view w = blank_view();

    set.libc = LIBC_MUSL;
    mutex(&w);
    expect(classify_in(&set, OBJECT, 0x80, 2, false, &w), KIND_FUTEX, U);          /* cond, join */
    expect(classify_in(&set, OBJECT, 0x80, UINT64_MAX, false, &w), KIND_FUTEX, U); /* sem */
    expect(classify_in(&set, OBJECT, 0x80, 0, false, &w), KIND_FUTEX, U);
    set.no_memory = true;
    expect(classify_in(&set, OBJECT, 0x80, 0x80000010, false, &w), KIND_FUTEX, U);
}

static void test_32_bit(void **state)
{
    (void)state;
    struct setting set = NORMAL;
    struct word_view w = blank_view();

    set.abi = ABI_COMPAT;
    PUT_WORDS(&w, 0, 2, 0, OWNER, 1, 1); /* lock, count, owner, kind, nusers */
    expect(classify_in(&set, OBJECT, 0x80, 2, false, &w), KIND_MUTEX_RECURSIVE, C);
    w = blank_view();
    PUT_WORDS(&w, -8, 0x13, 0, 3, 1, 0, 0, 0, OWNER);
    struct wait_class c = classify_in(&set, OBJECT + 8, 0x189, 3, false, &w);
    expect(c, KIND_RWLOCK, C);
    assert_int_equal(c.mode, MODE_SHARED);
    /* aligned to 4 only: +12 lies at a multiple of 8 */
    w = blank_view();
    PUT_WORDS(&w, -12, 3, 1, 3, 3, 0, 0, 0, OWNER);
    c = classify_in(&set, OBJECT + 4 + 12, 0x189, 3, false, &w);
    expect(c, KIND_RWLOCK, C);
    assert_int_equal(c.mode, MODE_EXCLUSIVE);
    w = blank_view();
    PUT_WORDS(&w, 0, 1, 0, 0, 2); /* value and flag, private, gap, waiters */
    expect(classify_in(&set, OBJECT, 0x189, 1, false, &w), KIND_SEM, C);
    w = blank_view();
    cond_first(&w);
    expect(classify_in(&set, OBJECT + 40, 0x189, 0, false, &w), KIND_COND, C);
}

/* Several words, other calls ----------------------------------------------------------------- */

static void test_waitv_and_futex_wait(void **state)
{
    (void)state;
    struct word_view w = blank_view();
    struct word_fact word = {.addr = OBJECT, .region = REGION_ANON};
    struct wait_context ctx = {
        .abi = ABI_NATIVE, .libc = LIBC_GLIBC, .word = &word, .is_thread = is_thread};
    struct futex_wait f = {
        .addr = OBJECT, .cmd = FUTEX_WAIT_BITSET, .val = 2, .is_private = true, .words = 3};

    mutex(&w);
    word.late = w;
    expect(wait_classify(&f, &ctx), KIND_FUTEX, U); /* one of three: not its lock alone */
    f.words = 1;
    expect(wait_classify(&f, &ctx), KIND_MUTEX, C);
    const uint64_t arg[6] = {OBJECT, 2, UINT32_MAX, 0x82};
    assert_true(futex_decode(CALL_futex_wait, arg, &f));
    word.late = blank_view();
    put32(&word.late, 0, 2);
    expect(wait_classify(&f, &ctx), KIND_FUTEX_LOCK, U);
}

static void test_requeue_pi_is_a_condition(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    expect(classify(0, FUTEX_WAIT_REQUEUE_PI | 0x80, 0, &w), KIND_COND, L);
}

static void test_without_memory(void **state)
{
    (void)state;
    struct setting set = NORMAL;
    struct word_view w = blank_view();

    for (int cut = 0; cut < 2; cut++) {
        set.no_memory = cut == 0;
        w.lo = w.hi = 0; /* asked for, but nothing came */
        expect(classify_in(&set, OBJECT, 0x80, 2, false, &w), KIND_MUTEX, U);
        expect(classify_in(&set, OBJECT, 0x189, 0, false, &w), KIND_COND, U);
        expect(classify_in(&set, OBJECT, 0x109, 110, false, &w), KIND_JOIN, L);
        expect(classify_in(&set, OBJECT, 0x86, 0, false, &w), KIND_MUTEX_PI, L);
        expect(classify_in(&set, OBJECT, 0x80, 9, false, &w), KIND_FUTEX, U);
        expect(classify_in(&set, OBJECT, 0x189, 3, false, &w), KIND_FUTEX, U);
    }
}

/* The early look serves where the late one failed. */
static void test_early_memory(void **state)
{
    (void)state;
    struct word_fact word = {.addr = OBJECT, .region = REGION_ANON, .early = blank_view()};
    struct wait_context ctx = {
        .abi = ABI_NATIVE, .libc = LIBC_GLIBC, .word = &word, .is_thread = is_thread};
    struct futex_wait f = {.addr = OBJECT, .cmd = FUTEX_WAIT, .val = 2, .words = 1};

    mutex(&word.early);
    expect(wait_classify(&f, &ctx), KIND_MUTEX, C);
    word.late = blank_view();
    expect(wait_classify(&f, &ctx), KIND_FUTEX_LOCK, U);
}

static void test_rwlock_modes(void **state)
{
    (void)state;
    static const struct {
        uint64_t word;
        uint32_t val;
        enum lock_mode mode;
    } cases[] = {{0, 14, R}, {8, 3, R}, {8, 2, X}, {12, 3, X}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct futex_wait f = {.addr = OBJECT + cases[i].word, .val = cases[i].val};
        assert_int_equal(wait_rwlock_mode(&f, OBJECT), cases[i].mode);
    }
}

/* Nonsense: whatever is read, nobody is accused who is not a thread of the process. --------- */

static uint32_t random_word(unsigned *seed)
{
    static const uint32_t likely[] = {0,
                                      1,
                                      2,
                                      3,
                                      14,
                                      16,
                                      32,
                                      128,
                                      0x10100,
                                      0x7f32,
                                      OWNER,
                                      4711,
                                      1,
                                      8,
                                      19,
                                      0x80000000u,
                                      OWNER | WORD_WAITERS,
                                      0x40000000u};
    *seed = *seed * 1103515245u + 12345u;
    unsigned pick = *seed >> 8;

    return pick % 8 == 0 ? *seed * 2654435761u : likely[pick / 8 % ARRAY_SIZE(likely)];
}

static void test_nonsense_confirms_no_foreign_owner(void **state)
{
    (void)state;
    static const uint32_t ops[] = {0x80, 0, 0x189, 0x109, 0x89, 0x9, 0x86, 6, 0x8d, 0x8b};
    unsigned seed = 20, confirmed = 0;

    for (int i = 0; i < 1000000; i++) {
        struct setting set = NORMAL;
        struct word_view w = blank_view();
        for (int off = -WORD_BEFORE; off < WORD_AFTER; off += 4)
            put32(&w, off, random_word(&seed));
        set.abi = random_word(&seed) % 2 ? ABI_NATIVE : ABI_COMPAT;
        set.libc = (enum libc_kind)(random_word(&seed) % 3);
        set.region = (enum region)(random_word(&seed) % 6);
        uint32_t op = ops[random_word(&seed) % ARRAY_SIZE(ops)];
        uint64_t addr = OBJECT + random_word(&seed) % 16 * 4;
        struct wait_class c =
            classify_in(&set, addr, op, random_word(&seed), random_word(&seed) % 2, &w);
        if (c.confidence < CONF_CONFIRMED || lock_kind_class(c.kind) != CLASS_LOCK)
            continue;
        int off = (int)(int64_t)(c.object - addr);
        pid_t owner = layout_state(c.kind, c.layout, off, &w).owner;
        confirmed += owner != 0;
        if (owner && !is_thread(NULL, owner))
            fail_msg("%s held by %d", lock_kind_name(c.kind), owner);
    }
    assert_true(confirmed > 100); /* the property was tried at all */
}

/* What memory was once known to be holds only while its waiters come as they must. */
static void test_suits(void **state)
{
    (void)state;
    static const struct {
        uint32_t cmd, val;
        enum lock_kind kind;
        bool suits;
    } rows[] = {
        {FUTEX_WAIT, 2, KIND_MUTEX, true},         {FUTEX_WAIT, 0, KIND_MUTEX, false},
        {FUTEX_WAIT_BITSET, 2, KIND_MUTEX, true},  {FUTEX_LOCK_PI, 0, KIND_MUTEX, false},
        {FUTEX_LOCK_PI, 0, KIND_MUTEX_PI, true},   {FUTEX_WAIT, 2, KIND_MUTEX_PI, false},
        {FUTEX_WAIT, 0x80000007, KIND_MUTEX_ROBUST, true},
        {FUTEX_WAIT, 2, KIND_MUTEX_ROBUST, false}, {FUTEX_WAIT_BITSET, 3, KIND_RWLOCK, true},
        {FUTEX_WAIT_BITSET, 14, KIND_RWLOCK, true}, {FUTEX_WAIT_BITSET, 0, KIND_RWLOCK, false},
        {FUTEX_WAIT_BITSET, 0, KIND_COND, true},   {FUTEX_WAIT, 0, KIND_ONCE, false},
        {FUTEX_WAIT, 3, KIND_FUTEX_LOCK, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct futex_wait f = {.addr = 0x1000, .cmd = rows[i].cmd, .val = rows[i].val};
        if (wait_suits(&f, rows[i].kind) != rows[i].suits)
            fail_msg("row %zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_wait_of_glibc),
        cmocka_unit_test(test_musl),
        cmocka_unit_test(test_musl_sync),
        cmocka_unit_test(test_32_bit),
        cmocka_unit_test(test_waitv_and_futex_wait),
        cmocka_unit_test(test_suits),
        cmocka_unit_test(test_requeue_pi_is_a_condition),
        cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_early_memory),
        cmocka_unit_test(test_rwlock_modes),
        cmocka_unit_test(test_nonsense_confirms_no_foreign_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

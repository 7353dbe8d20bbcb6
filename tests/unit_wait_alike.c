/* unit_wait_alike - waits that look alike and must be told apart, or left unnamed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "wait_build.h"

/* Rows that look alike ----------------------------------------------------------------------- */

/* A recursive read: the word at +8 is a flag, not an owner, though TID 2 is a thread here. */
static void test_recursive_read_names_nobody(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    recursive_read(&w);
    in_container = true;
    struct wait_class c = classify(0, 0x189, 14, &w);
    in_container = false;
    expect(c, KIND_RWLOCK, C);
    struct lock_state s = layout_state(c.kind, c.layout, 0, &w);
    assert_true(s.held);
    assert_int_equal(s.owner, 0);
    assert_int_equal(s.readers, 1);
}

static void test_stdio_pointer_is_no_tid(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    stdio(&w);
    expect(classify(0, 0x80, 2, &w), KIND_LIBC, L);
    /* the low half of the pointer happens to be the TID of a thread */
    put64(&w, 8, UINT64_C(0x7f3200000000) | 128);
    expect(classify(0, 0x80, 2, &w), KIND_LIBC, L);
    put32(&w, 12, 1); /* a mutex of one user */
    expect(classify(0, 0x80, 2, &w), KIND_MUTEX, C);
}

/* An owner that is no thread, and another field that no such mutex has: a lock of another sort. */
static void test_counts_of_orphans(void **state)
{
    (void)state;
    static const struct {
        uint32_t count, kind_field;
        enum lock_kind kind;
    } cases[] = {
        {0, 0, KIND_MUTEX},
        {1, 0, KIND_FUTEX_LOCK},
        {1, 1, KIND_MUTEX_RECURSIVE},
        {0, 1, KIND_FUTEX_LOCK},
        {0, 3, KIND_MUTEX_ADAPTIVE},
        {7, 2, KIND_FUTEX_LOCK},
        {0, 2, KIND_MUTEX_ERRORCHECK},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct word_view w = blank_view();
        put_mutex(&w, 2, 700001, cases[i].kind_field);
        put32(&w, 4, cases[i].count);
        struct wait_class c = classify(0, 0x80, 2, &w);
        assert_int_equal(c.kind, cases[i].kind);
        assert_int_not_equal(c.confidence, CONF_CONFIRMED);
    }
}

static void test_mutex_and_barrier_in_round_2(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    barrier_2(&w);
    assert_int_equal(lock_kind_class(classify(4, 0x80, 2, &w).kind), CLASS_SYNC);
    put32(&w, 8, 1); /* process-shared */
    assert_int_equal(lock_kind_class(classify(4, 0x0, 2, &w).kind), CLASS_SYNC);
    w = blank_view();
    mutex(&w);
    put32(&w, -4, 3); /* whatever lies before it */
    expect(classify(0, 0x80, 2, &w), KIND_MUTEX, C);
}

static void test_timed_mutex_and_rwlock_writer(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    /* A write lock's word and what follows it, with a writer whose TID is small. */
    read_at_8(&w);
    expect(classify_in(&NORMAL, OBJECT + 8, 0x189, 2, true, &w), KIND_RWLOCK, C);
    w = blank_view();
    mutex(&w);
    PUT_WORDS(&w, -8, 2, 0);
    expect(classify_in(&NORMAL, OBJECT + 8, 0x189, 2, true, &w), KIND_MUTEX, C);
}

/* In a container the TIDs 2 and 3 exist, and are also what rwlocks and timed mutexes wait for. */
static void test_small_tids(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    in_container = true;
    written_at_8(&w);
    struct wait_class reader = classify(8, 0x109, 3, &w);
    w = blank_view();
    joined(&w);
    put32(&w, 0, 3);
    struct wait_class join = classify(0, 0x109, 3, &w);
    put32(&w, 0, 2);
    struct wait_class join2 = classify(0, 0x109, 2, &w);
    in_container = false;
    expect(reader, KIND_RWLOCK, C);
    expect(join, KIND_JOIN, C);
    expect(join2, KIND_JOIN, C);
}

/* A thread's TID as a value is a join only in the process's own memory. */
static void test_join_needs_own_memory_and_a_thread(void **state)
{
    (void)state;
    struct setting set = NORMAL;
    struct word_view w = blank_view();

    joined(&w);
    set.region = REGION_SHARED;
    expect(classify_in(&set, OBJECT, 0x109, 110, false, &w), KIND_FUTEX, U);
    expect(classify(0, 0x109, 500, &w), KIND_FUTEX, U);
    expect(classify(0, 0x189, 110, &w), KIND_FUTEX, U); /* private: a sequence number */
}

static void test_owners_that_are_no_threads(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    put_mutex(&w, 2, 4711, 0);
    expect(classify(0, 0x80, 2, &w), KIND_MUTEX, L);
    expect(classify_in(&NORMAL, OBJECT, 0x189, 2, true, &w), KIND_MUTEX, L);
    put_mutex(&w, 4711 | WORD_WAITERS, 4711, 16);
    expect(classify(0, 0x0, 4711 | WORD_WAITERS, &w), KIND_MUTEX_ROBUST, L);
    put_mutex(&w, 4711 | WORD_WAITERS, 4711, 32);
    expect(classify(0, 0x86, 0, &w), KIND_MUTEX_PI, L);
    w = blank_view();
    put_rwlock(&w, -8, 5 << 3 | 3, 4711);
    expect(classify(8, 0x189, 3, &w), KIND_RWLOCK, L);
    put32(&w, 16, 0); /* the writer has not put down its name yet */
    expect(classify(8, 0x189, 3, &w), KIND_FUTEX, U);
}

/* A word between the stack pointer and the frames above it is the waiter's own. */
static void test_word_on_the_own_stack(void **state)
{
    (void)state;
    struct setting set = NORMAL;
    struct word_view w = blank_view();

    two(&w);
    set.sp = OBJECT - 512;
    expect(classify_in(&set, OBJECT, 0x80, 2, false, &w), KIND_FUTEX, U);
    expect(classify_in(&set, OBJECT, 0x89, 2, false, &w), KIND_FUTEX, U);
    set.sp = OBJECT + 8;
    expect(classify_in(&set, OBJECT, 0x80, 2, false, &w), KIND_FUTEX_LOCK, U);
    set.sp = OBJECT - 512;
    mutex(&w); /* a real mutex of a function's own may well lie there */
    expect(classify_in(&set, OBJECT, 0x80, 2, false, &w), KIND_MUTEX, C);
}

/* During a hand-over the word says free, and no owner stands there. */
static void test_free_word(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    expect(classify(0, 0x80, 2, &w), KIND_FUTEX_LOCK, U);
    expect(classify(0, 0x0, OWNER | WORD_WAITERS, &w), KIND_FUTEX, U);
    expect(classify(0, 0x86, 0, &w), KIND_MUTEX_PI, L);
}

static void test_once_only_in_static_data(void **state)
{
    (void)state;
    struct setting set = NORMAL;
    struct word_view w = blank_view();

    one(&w);
    expect(classify(0, 0x80, 1, &w), KIND_FUTEX, U);
    set.region = REGION_LIBC;
    expect(classify_in(&set, OBJECT, 0x80, 1, false, &w), KIND_ONCE, L);
    put32(&w, 0, 9); /* after two forks */
    expect(classify_in(&set, OBJECT, 0x80, 9, false, &w), KIND_ONCE, L);
    expect(classify_in(&set, OBJECT, 0x80, 5, false, &w), KIND_FUTEX, U);
    put32(&w, 0, 2); /* done */
    expect(classify_in(&set, OBJECT, 0x80, 1, false, &w), KIND_FUTEX, U);
}

static void test_cond_and_semaphore(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    /* the words behind a condition variable's may look like a semaphore's */
    cond_first(&w);
    PUT_WORDS(&w, 0, 0, 1, 0);
    expect(classify(40, 0x189, 0, &w), KIND_COND, C);
    semaphore(&w);
    w.lo = WORD_BEFORE;
    expect(classify(0, 0x189, 0, &w), KIND_SEM, C);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recursive_read_names_nobody),
        cmocka_unit_test(test_stdio_pointer_is_no_tid),
        cmocka_unit_test(test_counts_of_orphans),
        cmocka_unit_test(test_mutex_and_barrier_in_round_2),
        cmocka_unit_test(test_timed_mutex_and_rwlock_writer),
        cmocka_unit_test(test_small_tids),
        cmocka_unit_test(test_join_needs_own_memory_and_a_thread),
        cmocka_unit_test(test_owners_that_are_no_threads),
        cmocka_unit_test(test_word_on_the_own_stack),
        cmocka_unit_test(test_free_word),
        cmocka_unit_test(test_once_only_in_static_data),
        cmocka_unit_test(test_cond_and_semaphore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

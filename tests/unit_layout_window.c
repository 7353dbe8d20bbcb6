/* unit_layout_window - windows of memory that are cut short, and garbage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "model_build.h"

#define TID 8412u

static struct lock_state state_of(enum lock_kind kind, enum lock_layout layout, int off,
                                  const struct word_view *w)
{
    return layout_state(kind, layout, off, w);
}

static uint32_t next(uint32_t *random)
{
    *random = *random * 1664525u + 1013904223u;
    return *random >> 3;
}

static bool same_state(struct lock_state a, struct lock_state b)
{
    return a.known == b.known && a.held == b.held && a.owner == b.owner &&
           a.owner_died == b.owner_died && a.unrecoverable == b.unrecoverable &&
           a.readers == b.readers;
}

/* What lies outside the valid part must not matter, wherever it is cut. */
static void test_nothing_outside_the_window_counts(void **state)
{
    (void)state;
    static const int offs[] = {0, -4, -8, -12, -40, -44, -48, 44};
    uint32_t random = 7;

    for (int i = 0; i < 20000; i++) {
        struct word_view a = blank_view(), b;
        for (int k = 0; k < WORD_WINDOW; k++)
            a.bytes[k] = (uint8_t)(next(&random) % 4);
        a.hi = (uint8_t)(next(&random) % (WORD_WINDOW + 1));
        a.lo = (uint8_t)(next(&random) % (a.hi + 1u));
        b = a;
        memset(b.bytes, 0xa5, a.lo);
        memset(b.bytes + a.hi, 0x5a, (size_t)WORD_WINDOW - a.hi);
        int off = offs[next(&random) % ARRAY_SIZE(offs)], at = 0, bt = 0;
        enum lock_layout layout = (enum lock_layout)(next(&random) % 3);
        for (enum lock_kind k = 0; k < LOCK_KINDS; k++)
            assert_true(
                same_state(layout_state(k, layout, off, &a), layout_state(k, layout, off, &b)));
        assert_int_equal(layout_cond(&a, 0x1028, 0, &at), layout_cond(&b, 0x1028, 0, &bt));
        assert_int_equal(layout_sem(layout, &a), layout_sem(layout, &b));
        assert_int_equal(layout_barrier(&a, 0), layout_barrier(&b, 0));
        assert_int_equal(layout_stdio_lock(&a), layout_stdio_lock(&b));
    }
}

static void test_cut_windows_are_not_known(void **state)
{
    (void)state;
    struct word_view w = blank_view();

    put_mutex(&w, 2, TID, 0);
    w.hi = WORD_BEFORE + 20; /* the kind is the last field that is needed */
    assert_true(state_of(KIND_MUTEX, LAYOUT_GLIBC64, 0, &w).known);
    w.hi--;
    assert_false(state_of(KIND_MUTEX, LAYOUT_GLIBC64, 0, &w).known);
    w = blank_view();
    w.lo = WORD_BEFORE + 1;
    assert_false(state_of(KIND_MUTEX, LAYOUT_GLIBC64, 0, &w).known);
    assert_false(state_of(KIND_LIBC, LAYOUT_GLIBC64, 0, &w).known);
    w.lo = w.hi = 0;
    for (enum lock_kind k = 0; k < LOCK_KINDS; k++)
        assert_false(state_of(k, LAYOUT_GLIBC64, 0, &w).known);
}

/* A TID that comes out of garbage is at least one that the kernel could give. */
static void test_garbage_gives_possible_tids(void **state)
{
    (void)state;
    uint32_t random = 99;

    for (int i = 0; i < 200000; i++) {
        struct word_view w = blank_view();
        for (int off = -WORD_BEFORE; off < WORD_AFTER; off += 4)
            put32(&w, off, next(&random) * 2654435761u);
        enum lock_kind kind = (enum lock_kind)(next(&random) % LOCK_KINDS);
        enum lock_layout layout = (enum lock_layout)(next(&random) % 3);
        struct lock_state s = layout_state(kind, layout, -(int)(next(&random) % 4) * 4, &w);
        assert_in_range(s.owner, 0, 1 << 22);
        assert_true(s.known || (!s.held && !s.owner && !s.readers));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_outside_the_window_counts),
        cmocka_unit_test(test_cut_windows_are_not_known),
        cmocka_unit_test(test_garbage_gives_possible_tids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

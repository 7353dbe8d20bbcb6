/* window.c: sums over the last 1, 10 and 60 s. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../src/window.h"

#define MS NSEC_PER_MSEC
#define S  NSEC_PER_SEC

static void test_empty(void **state)
{
    (void)state;
    struct window w = {0};

    assert_int_equal(window_sum(&w, 0, 1), 0);
    assert_int_equal(window_sum(&w, 0, 60), 0);
    assert_int_equal(window_sum(&w, 3600 * S, 10), 0);
    assert_int_equal(window_peak(&w, 3600 * S), 0);
    for (int ago = 1; ago <= 60; ago++)
        assert_int_equal(window_second(&w, 3600 * S, ago), 0);
}

/* 50 looks a second: 2 in the first 40 s, 5 in the next 15, 10 in the last 5. */
static void test_known_sequence(void **state)
{
    (void)state;
    struct window value = {0}, looks = {0};

    for (int i = 0; i < 3000; i++) {
        nsec_t t = i * 20 * MS;
        window_add(&value, t, t < 40 * S ? 2 : t < 55 * S ? 5 : 10);
        window_add(&looks, t, 1);
    }
    nsec_t end = 2999 * 20 * MS;
    assert_int_equal(window_sum(&looks, end, 60), 3000);
    assert_int_equal(window_sum(&value, end, 60), 40 * 50 * 2 + 15 * 50 * 5 + 5 * 50 * 10);
    /* the running second, which is almost over, and ten whole ones */
    assert_int_equal(window_sum(&looks, end, 10), 550);
    assert_int_equal(window_sum(&value, end, 10), 6 * 50 * 5 + 5 * 50 * 10);
    assert_int_equal(window_sum(&looks, end, 1), 55);
    assert_int_equal(window_sum(&value, end, 1), 550);
    assert_int_equal(window_second(&value, end, 1), 500);
    assert_int_equal(window_second(&value, end, 4), 500);
    assert_int_equal(window_second(&value, end, 5), 250);
    assert_int_equal(window_second(&value, end, 20), 100);
    assert_int_equal(window_peak(&value, end), 10);
}

/* A second asked for is never less than a second, and at most a tenth more. */
static void test_one_second_spans_at_least_one(void **state)
{
    (void)state;
    struct window w = {0};

    for (int i = 0; i < 500; i++) {
        nsec_t t = i * 10 * MS;
        window_add(&w, t, 1);
        if (t >= 1200 * MS) {
            uint64_t n = window_sum(&w, t, 1);
            assert_in_range(n, 100, 110);
        }
    }
}

static void expect_gap(nsec_t gap, uint64_t one, uint64_t ten, uint64_t sixty)
{
    struct window w = {0};

    window_add(&w, 5 * S, 7);
    assert_int_equal(window_sum(&w, 5 * S + gap, 1), one);
    assert_int_equal(window_sum(&w, 5 * S + gap, 10), ten);
    assert_int_equal(window_sum(&w, 5 * S + gap, 60), sixty);
    /* what comes behind the gap is not mixed with what was before */
    window_add(&w, 5 * S + gap, 1);
    assert_int_equal(window_sum(&w, 5 * S + gap, 60), sixty + 1);
}

static void test_gaps(void **state)
{
    (void)state;
    expect_gap(0, 7, 7, 7);
    expect_gap(100 * MS, 7, 7, 7);
    expect_gap(1000 * MS, 7, 7, 7);
    expect_gap(1100 * MS, 0, 7, 7);
    expect_gap(9 * S, 0, 7, 7);
    expect_gap(10 * S, 0, 7, 7);
    expect_gap(11 * S, 0, 0, 7);
    expect_gap(60 * S, 0, 0, 7);
    expect_gap(61 * S, 0, 0, 0);
    expect_gap(122 * S, 0, 0, 0);
    expect_gap(3600 * S, 0, 0, 0);
}

/* Each slot of the rings is used many times over; nothing of the last turn may be left in it. */
static void test_wraps(void **state)
{
    (void)state;
    struct window w = {0};

    for (int second = 0; second < 1000; second++) {
        window_add(&w, second * S, (uint32_t)second);
        uint64_t expected = 0;
        for (int s = second < 60 ? 0 : second - 60; s <= second; s++)
            expected += (uint64_t)s;
        assert_int_equal(window_sum(&w, second * S, 60), expected);
        assert_int_equal(window_peak(&w, second * S), second);
        if (second >= 60)
            assert_int_equal(window_second(&w, second * S, 60), second - 60);
    }
}

/* Against a plain list of all that was added, with random steps. */
static void test_random_steps(void **state)
{
    (void)state;
    enum { N = 4000 };
    static nsec_t at[N];
    static uint32_t value[N];
    struct window w = {0};
    nsec_t t = 0;
    unsigned random = 1;

    for (int i = 0; i < N; i++) {
        random = random * 1103515245u + 12345u;
        unsigned step = random >> 16 & 1023;
        t += step < 1000 ? (nsec_t)step * MS / 10 : (nsec_t)(step - 990) * S;
        at[i] = t;
        value[i] = random >> 8 & 15;
        window_add(&w, t, value[i]);
        uint64_t ten = 0, one = 0;
        for (int k = i; k >= 0 && at[k] / S + 10 >= t / S; k--)
            ten += value[k];
        for (int k = i; k >= 0 && at[k] / (100 * MS) + 10 >= t / (100 * MS); k--)
            one += value[k];
        assert_int_equal(window_sum(&w, t, 10), ten);
        assert_int_equal(window_sum(&w, t, 1), one);
    }
}

static void test_ratio_of_two_windows(void **state)
{
    (void)state;
    struct window value = {0}, looks = {0};

    /* Looks come at uneven rates; a constant value keeps its mean all the same. */
    nsec_t t = 0;
    for (int i = 0; i < 2000; i++) {
        t += (i % 7 + 1) * 5 * MS;
        window_add(&value, t, 3);
        window_add(&looks, t, 1);
        for (int k = 0; k < 3; k++) {
            int seconds = (const int[]){1, 10, 60}[k];
            assert_int_equal(window_sum(&value, t, seconds), 3 * window_sum(&looks, t, seconds));
        }
    }
}

static void test_time_does_not_go_back(void **state)
{
    (void)state;
    struct window w = {0};

    window_add(&w, 10 * S, 4);
    window_add(&w, 9 * S, 1); /* counted with the newest */
    assert_int_equal(window_sum(&w, 10 * S, 1), 5);
    window_advance(&w, 0);
    assert_int_equal(window_sum(&w, 10 * S, 1), 5);
}

static void test_peak(void **state)
{
    (void)state;
    struct window w = {0};

    window_add(&w, 0, 9);
    window_add(&w, 1, 3);
    assert_int_equal(window_peak(&w, 60 * S), 9);
    assert_int_equal(window_peak(&w, 61 * S), 0);
    window_add(&w, 61 * S, 70000); /* does not fit: the most there is */
    assert_int_equal(window_peak(&w, 61 * S), UINT16_MAX);
    window_add(&w, 61 * S, 65536);
    assert_int_equal(window_peak(&w, 61 * S), UINT16_MAX);
}

static void test_second_before_the_start(void **state)
{
    (void)state;
    struct window w = {0};

    window_add(&w, 2 * S, 5);
    assert_int_equal(window_second(&w, 3 * S, 1), 5);
    assert_int_equal(window_second(&w, 3 * S, 3), 0);
    assert_int_equal(window_second(&w, 3 * S, 4), 0);
    assert_int_equal(window_second(&w, 3 * S, 60), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_known_sequence),
        cmocka_unit_test(test_one_second_spans_at_least_one),
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_wraps),
        cmocka_unit_test(test_random_steps),
        cmocka_unit_test(test_ratio_of_two_windows),
        cmocka_unit_test(test_time_does_not_go_back),
        cmocka_unit_test(test_peak),
        cmocka_unit_test(test_second_before_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

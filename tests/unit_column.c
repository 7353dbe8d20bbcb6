/* unit_column - the table of columns, choices of them, and the order of rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "snap_build.h"

/* Names and sets --------------------------------------------------------------------------- */

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(column_by_name("wait", 4), COL_WAITERS);
    assert_int_equal(column_by_name("waiter", 4), COL_WAITERS);
    assert_int_equal(column_by_name("BUSY", 4), COL_BUSY);
    assert_int_equal(column_by_name("wai", 3), -1);
    assert_int_equal(column_by_name("waits", 5), -1);
    assert_int_equal(column_by_name("", 0), -1);
    for (enum column c = 0; c < COLUMNS_COUNT; c++) {
        const struct column_info *info = column_info(c);
        assert_int_equal(column_by_name(info->name, strlen(info->name)), c);
        assert_true(info->width == 0 || info->width >= (int)strlen(info->header));
    }
}

static bool has(const struct column_set *set, enum column c)
{
    for (size_t i = 0; i < set->n; i++)
        if (set->cols[i] == c)
            return true;
    return false;
}

/* Cells that are left for the last column. */
static int rest(const struct column_set *set)
{
    int left = set->screen;

    for (size_t i = 0; i + 1 < set->n; i++)
        left -= column_width(set, i) + 1;
    return left;
}

static void test_default_at_80(void **state)
{
    static const enum column want[] = {COL_WAITERS, COL_AVG1, COL_AVG10,  COL_AVG60,
                                       COL_BUSY,    COL_KIND, COL_HOLDER, COL_LOCK};
    struct column_set set;

    (void)state;
    column_set_default(&set, 80, false);
    assert_int_equal(set.n, sizeof(want) / sizeof(want[0]));
    assert_memory_equal(set.cols, want, sizeof(want));
    assert_true(rest(&set) >= 18);
}

static void test_default_fits_every_width(void **state)
{
    struct column_set set;

    (void)state;
    for (int width = 46; width <= 300; width++) {
        column_set_default(&set, width, false);
        assert_true(rest(&set) >= (width >= 80 ? 18 : 10));
        assert_true(has(&set, COL_WAITERS) && has(&set, COL_HOLDER));
        assert_int_equal(set.cols[set.n - 1], COL_LOCK);
        assert_int_equal(column_width(&set, set.n - 1), 0);
    }
    assert_true(has(&set, COL_MAX) && has(&set, COL_AGE) && has(&set, COL_SHARE));
    column_set_default(&set, 0, false);
    assert_true(set.n > 0);
}

static void test_wide_screens_cut_no_kind(void **state)
{
    struct column_set set;

    (void)state;
    column_set_default(&set, 120, false);
    for (size_t i = 0; i < set.n; i++)
        if (set.cols[i] == COL_KIND)
            for (enum lock_kind k = 0; k < LOCK_KINDS; k++)
                assert_true((int)strlen(lock_kind_name(k)) <= column_width(&set, i));
}

static void test_parse_list(void **state)
{
    struct column_set set;
    char err[128] = "";

    (void)state;
    assert_true(column_set_parse(&set, "lock,wait,10s,wait", 80, false, err, sizeof(err)));
    assert_int_equal(set.n, 3);
    assert_int_equal(set.cols[0], COL_LOCK);
    assert_int_equal(set.cols[1], COL_WAITERS);
    assert_int_equal(set.cols[2], COL_AVG10);
    assert_true(column_width(&set, 0) >= 18); /* others stand behind it */
    assert_int_equal(column_width(&set, 1), column_info(COL_WAITERS)->width);
    assert_true(column_set_parse(&set, "LOCK", 80, false, err, sizeof(err)));
    assert_int_equal(set.n, 1);
    assert_string_equal(err, "");
}

static void test_parse_addition(void **state)
{
    struct column_set set, normal;
    char err[128];

    (void)state;
    column_set_default(&normal, 80, false);
    assert_true(column_set_parse(&set, "+share,+pid,+wait", 80, false, err, sizeof(err)));
    assert_int_equal(set.n, normal.n + 2);
    assert_memory_equal(set.cols, normal.cols, (normal.n - 1) * sizeof(set.cols[0]));
    assert_int_equal(set.cols[normal.n - 1], COL_SHARE);
    assert_int_equal(set.cols[normal.n], COL_PID);
    assert_int_equal(set.cols[normal.n + 1], COL_LOCK);
    assert_true(column_set_parse(&set, "+class,pid", 80, false, err, sizeof(err)));
    assert_int_equal(set.n, normal.n + 2);
}

static void test_parse_refuses(void **state)
{
    static const char *const bad[] = {"",         "+",         ",",      "wait,",  ",wait",
                                      "wait,,1s", "wait lock", "nosuch", "wait,+", "wait,\033[1m"};
    struct column_set set;
    char err[128];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        err[0] = '\0';
        assert_false(column_set_parse(&set, bad[i], 80, false, err, sizeof(err)));
        assert_non_null(strstr(err, "no column is named"));
        assert_null(strchr(err, '\033'));
    }
    column_set_parse(&set, "wait,nosuch,lock", 80, false, err, sizeof(err));
    assert_non_null(strstr(err, "'nosuch'"));
}

/* All columns at once, and more items than there are columns. */
static void test_parse_everything_twice(void **state)
{
    char list[512] = "+lock", err[64];
    struct column_set set;

    (void)state;
    for (int round = 0; round < 2; round++)
        for (enum column c = 0; c < COLUMNS_COUNT; c++) {
            strcat(list, ",+");
            strcat(list, column_info(c)->name);
        }
    assert_true(column_set_parse(&set, list, 80, false, err, sizeof(err)));
    assert_int_equal(set.n, COLUMNS_COUNT);
    assert_int_equal(set.cols[set.n - 1], COL_LOCK);
}

/* The same LIST means more where there is more room, and PIDs come with the second process. */
static void test_choose(void **state)
{
    struct snap_process p[] = {healthy_process(1, "a"), healthy_process(2, "b")};
    struct snapshot s = snapshot_of(p, 1, NULL, 0);
    struct column_set set;

    (void)state;
    column_set_choose(&set, "+class", 80, &s);
    assert_true(has(&set, COL_CLASS) && has(&set, COL_LOCK));
    assert_false(has(&set, COL_SHARE) || has(&set, COL_PID));
    column_set_choose(&set, "+class", 140, &s);
    assert_true(has(&set, COL_CLASS) && has(&set, COL_SHARE) && has(&set, COL_AGE));
    assert_int_equal(set.screen, 140);
    column_set_choose(&set, "wait,lock", 140, &s);
    assert_int_equal(set.n, 2);
    column_set_choose(&set, NULL, 80, &s);
    assert_false(has(&set, COL_PID));
    s.nprocesses = 2;
    column_set_choose(&set, NULL, 80, &s);
    assert_true(has(&set, COL_PID));
    column_set_choose(&set, NULL, 80, NULL);
    assert_false(has(&set, COL_PID));
}

/* Order ------------------------------------------------------------------------------------ */

static void test_order_of_numbers(void **state)
{
    struct snap_lock a = blank_lock("a", KIND_MUTEX), b = blank_lock("b", KIND_MUTEX),
                     c = blank_lock("c", KIND_MUTEX);

    (void)state;
    a.waiters_avg_10s = 2;
    b.waiters_avg_10s = 30;
    assert_true(column_compare(COL_AVG10, &b, &a) < 0);
    assert_true(column_compare(COL_AVG10, &a, &b) > 0);
    assert_true(column_compare(COL_AVG10, &a, &c) < 0); /* unknown is last, and not first */
    assert_true(column_compare(COL_AVG10, &c, &a) > 0);
    assert_true(column_compare(COL_AVG60, &a, &b) < 0); /* both unknown: by id */
    b.waiters_avg_10s = 2;
    assert_true(column_compare(COL_AVG10, &a, &b) < 0);
    assert_int_equal(column_compare(COL_AVG10, &a, &a), 0);
}

static void test_order_of_texts(void **state)
{
    struct snap_lock a = blank_lock("z", KIND_MUTEX), b = blank_lock("y", KIND_MUTEX),
                     c = blank_lock("a", KIND_MUTEX);

    (void)state;
    a.name = "alpha";
    b.name = "beta";
    assert_true(column_compare(COL_LOCK, &a, &b) < 0);
    assert_true(column_compare(COL_LOCK, &b, &c) < 0);
    assert_true(column_compare(COL_LOCK, &c, &a) > 0);
    assert_true(column_compare(COL_KIND, &c, &a) < 0);
}

static void test_sorted_leaves_sync_out(void **state)
{
    struct snap_lock locks[] = {blank_lock("a", KIND_MUTEX), blank_lock("b", KIND_MUTEX),
                                blank_lock("c", KIND_MUTEX), blank_lock("d", KIND_MUTEX)};
    struct snapshot s = {.locks = locks, .nlocks = 4}, empty = {0};
    const struct snap_lock *out[4] = {0};

    (void)state;
    for (int i = 0; i < 4; i++)
        locks[i].waiters = i;
    locks[0].class = CLASS_KERNEL;
    locks[1].class = CLASS_SYNC;
    locks[2].class = CLASS_FILELOCK;
    assert_int_equal(column_sorted(&s, COL_WAITERS, false, out), 3);
    assert_string_equal(out[0]->id, "d");
    assert_string_equal(out[1]->id, "c");
    assert_string_equal(out[2]->id, "a");
    assert_int_equal(column_sorted(&s, COL_WAITERS, true, out), 4);
    assert_string_equal(out[2]->id, "b");
    assert_int_equal(column_sorted(&empty, COL_LOCK, true, out), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_default_at_80),
        cmocka_unit_test(test_default_fits_every_width),
        cmocka_unit_test(test_wide_screens_cut_no_kind),
        cmocka_unit_test(test_parse_list),
        cmocka_unit_test(test_parse_addition),
        cmocka_unit_test(test_parse_refuses),
        cmocka_unit_test(test_parse_everything_twice),
        cmocka_unit_test(test_choose),
        cmocka_unit_test(test_order_of_numbers),
        cmocka_unit_test(test_order_of_texts),
        cmocka_unit_test(test_sorted_leaves_sync_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

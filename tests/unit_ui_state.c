/* What the user chose: selection, scrolling, pages, sorting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/compiler.h"
#include "../ui/state.h"

#define MAX_ROWS 64

/* Rows named by letters: "abc" is three locks. */
struct rows {
    struct snap_lock locks[MAX_ROWS];
    const struct snap_lock *list[MAX_ROWS];
    char ids[MAX_ROWS][2];
    size_t n;
};

static const struct column_set columns = {.cols = {COL_WAITERS, COL_AVG10, COL_LOCK}, .n = 3};

static void place(struct ui_state *st, const char *order, size_t visible)
{
    static struct rows r;

    r.n = strlen(order);
    for (size_t i = 0; i < r.n; i++) {
        r.ids[i][0] = order[i];
        r.locks[i] = (struct snap_lock){.id = r.ids[i]};
        r.list[i] = &r.locks[i];
    }
    ui_state_place_locks(st, r.list, r.n, visible);
}

static void apply(struct ui_state *st, enum action action)
{
    ui_state_apply(st, action, &columns);
}

/* A key on the list, and the list placed as the view would. */
static void press(struct ui_state *st, enum action action, const char *order, size_t visible)
{
    apply(st, action);
    place(st, order, visible);
}

static int setup(void **state)
{
    struct ui_state *st = calloc(1, sizeof(*st));

    ui_state_init(st, COL_AVG10);
    *state = st;
    return 0;
}

static int teardown(void **state)
{
    ui_state_release(*state);
    free(*state);
    return 0;
}

static const struct cursor *list(const struct ui_state *st)
{
    return &st->cursor[PAGE_LOCKS];
}

/* Selection --------------------------------------------------------------------------------- */

static void test_follows_the_lock(void **state)
{
    struct ui_state *st = *state;

    place(st, "abcd", 10);
    press(st, ACTION_DOWN, "abcd", 10);
    assert_string_equal(st->selected, "b");
    place(st, "dcab", 10);
    assert_string_equal(st->selected, "b");
    assert_int_equal(list(st)->row, 3);
    place(st, "bxyz", 10);
    assert_int_equal(list(st)->row, 0);
}

static void test_follows_out_of_sight(void **state)
{
    struct ui_state *st = *state;

    place(st, "abcdefgh", 3);
    press(st, ACTION_DOWN, "abcdefgh", 3);
    place(st, "acdefghb", 3);
    assert_int_equal(list(st)->row, 7);
    assert_int_equal(list(st)->top, 5);
}

static void test_untouched_keeps_to_the_top(void **state)
{
    struct ui_state *st = *state;

    place(st, "abc", 10);
    assert_string_equal(st->selected, "a");
    place(st, "cba", 10);
    assert_string_equal(st->selected, "c");
    assert_int_equal(list(st)->row, 0);
}

static void test_home_lets_go(void **state)
{
    struct ui_state *st = *state;

    place(st, "abc", 10);
    press(st, ACTION_DOWN, "abc", 10);
    press(st, ACTION_HOME, "abc", 10);
    place(st, "cba", 10);
    assert_string_equal(st->selected, "c");
}

static void test_vanished_lock_leaves_the_row(void **state)
{
    struct ui_state *st = *state;

    place(st, "abcd", 10);
    press(st, ACTION_DOWN, "abcd", 10);
    place(st, "acd", 10);
    assert_string_equal(st->selected, "c");
    assert_int_equal(list(st)->row, 1);
    place(st, "a", 10);
    assert_string_equal(st->selected, "a");
    assert_int_equal(list(st)->row, 0);
}

static void test_empty_list(void **state)
{
    struct ui_state *st = *state;
    static const enum action all[] = {ACTION_UP,  ACTION_DOWN, ACTION_PAGE_UP, ACTION_PAGE_DOWN,
                                      ACTION_END, ACTION_HOME, ACTION_OPEN,    ACTION_INVERT};

    place(st, "", 10);
    assert_null(st->selected);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        press(st, all[i], "", 10);
    assert_int_equal(ui_state_page(st), PAGE_LOCKS);
    assert_int_equal(list(st)->row, 0);
    place(st, "ab", 10);
    assert_string_equal(st->selected, "a");
}

static void test_two_moves_before_placing(void **state)
{
    struct ui_state *st = *state;

    place(st, "abcd", 10);
    apply(st, ACTION_DOWN);
    apply(st, ACTION_DOWN);
    place(st, "abcd", 10);
    assert_string_equal(st->selected, "c");
}

/* Moving ------------------------------------------------------------------------------------ */

static void test_stops_at_both_ends(void **state)
{
    struct ui_state *st = *state;

    place(st, "abc", 10);
    press(st, ACTION_UP, "abc", 10);
    assert_int_equal(list(st)->row, 0);
    for (int i = 0; i < 9; i++)
        press(st, ACTION_DOWN, "abc", 10);
    assert_string_equal(st->selected, "c");
    press(st, ACTION_UP, "abc", 10);
    assert_string_equal(st->selected, "b");
}

static void test_pages_and_ends(void **state)
{
    struct ui_state *st = *state;
    const char *rows = "abcdefghijklmnop";

    place(st, rows, 5);
    press(st, ACTION_PAGE_DOWN, rows, 5);
    assert_string_equal(st->selected, "e");
    press(st, ACTION_PAGE_DOWN, rows, 5);
    assert_string_equal(st->selected, "i");
    assert_int_equal(list(st)->top, 4);
    press(st, ACTION_END, rows, 5);
    assert_string_equal(st->selected, "p");
    assert_int_equal(list(st)->top, 11);
    press(st, ACTION_PAGE_UP, rows, 5);
    assert_string_equal(st->selected, "l");
    press(st, ACTION_HOME, rows, 5);
    assert_int_equal(list(st)->top, 0);
}

static void test_sizes(void **state)
{
    struct ui_state *st = *state;
    const char *rows = "abcdefghij";

    place(st, rows, 3);
    press(st, ACTION_END, rows, 3);
    for (size_t visible = 0; visible < 14; visible++) {
        place(st, rows, visible);
        const struct cursor *c = list(st);
        assert_string_equal(st->selected, "j");
        assert_true(c->top <= c->row && c->row < c->top + MAX(visible, (size_t)1));
        if (visible >= 10)
            assert_int_equal(c->top, 0);
    }
}

static void test_text_scrolls(void **state)
{
    struct ui_state *st = *state;
    const struct cursor *c = &st->cursor[PAGE_HELP];

    apply(st, ACTION_HELP);
    ui_state_place_lines(st, PAGE_HELP, 30, 10);
    apply(st, ACTION_DOWN);
    assert_int_equal(c->top, 1);
    apply(st, ACTION_END);
    assert_int_equal(c->top, 20);
    apply(st, ACTION_UP);
    assert_int_equal(c->top, 19);
    ui_state_place_lines(st, PAGE_HELP, 5, 10);
    assert_int_equal(c->top, 0);
    assert_null(st->selected);
}

/* Pages ------------------------------------------------------------------------------------- */

static void test_open_and_back(void **state)
{
    struct ui_state *st = *state;

    place(st, "abc", 10);
    press(st, ACTION_DOWN, "abc", 10);
    apply(st, ACTION_OPEN);
    assert_int_equal(ui_state_page(st), PAGE_LOCK);
    assert_string_equal(st->opened, "b");
    apply(st, ACTION_HELP);
    assert_int_equal(ui_state_page(st), PAGE_HELP);
    apply(st, ACTION_HELP);
    assert_int_equal(ui_state_page(st), PAGE_LOCK);
    apply(st, ACTION_BACK);
    assert_int_equal(ui_state_page(st), PAGE_LOCKS);
    apply(st, ACTION_BACK);
    assert_int_equal(ui_state_page(st), PAGE_LOCKS);
    assert_false(st->quit);
}

static void test_opened_lock_stays_selected(void **state)
{
    struct ui_state *st = *state;

    place(st, "abc", 10);
    apply(st, ACTION_OPEN);
    apply(st, ACTION_CLOSE);
    place(st, "cba", 10);
    assert_string_equal(st->selected, "a");
}

static void test_close_and_quit(void **state)
{
    struct ui_state *st = *state;

    place(st, "a", 10);
    apply(st, ACTION_OPEN);
    apply(st, ACTION_CLOSE);
    assert_false(st->quit);
    apply(st, ACTION_CLOSE);
    assert_true(st->quit);
    st->quit = false;
    apply(st, ACTION_HELP);
    apply(st, ACTION_QUIT);
    assert_true(st->quit);
}

static void test_stack_does_not_grow(void **state)
{
    struct ui_state *st = *state;

    place(st, "a", 10);
    for (int i = 0; i < 50; i++) {
        apply(st, ACTION_OPEN);
        apply(st, ACTION_SORT);
        apply(st, ACTION_HELP);
        assert_true(st->depth < PAGES);
    }
}

/* Sorting and switches ------------------------------------------------------------------------ */

static void test_step_sort(void **state)
{
    struct ui_state *st = *state;

    apply(st, ACTION_SORT_NEXT);
    assert_int_equal(st->sort, COL_LOCK);
    apply(st, ACTION_SORT_NEXT);
    assert_int_equal(st->sort, COL_WAITERS);
    apply(st, ACTION_SORT_PREV);
    assert_int_equal(st->sort, COL_LOCK);
    st->sort = COL_MAX; /* not on screen */
    apply(st, ACTION_SORT_NEXT);
    assert_int_equal(st->sort, COL_WAITERS);
    st->sort = COL_MAX;
    apply(st, ACTION_SORT_PREV);
    assert_int_equal(st->sort, COL_LOCK);
}

static void test_step_sort_without_columns(void **state)
{
    struct ui_state *st = *state;
    struct column_set none = {.n = 0};

    ui_state_apply(st, ACTION_SORT_NEXT, &none);
    assert_int_equal(st->sort, COL_AVG10);
}

static void test_choose_sort(void **state)
{
    struct ui_state *st = *state;

    st->reverse = true;
    apply(st, ACTION_SORT);
    assert_int_equal(ui_state_page(st), PAGE_SORT);
    ui_state_place_lines(st, PAGE_SORT, COLUMNS_COUNT, 5);
    assert_int_equal(st->cursor[PAGE_SORT].row, COL_AVG10);
    apply(st, ACTION_DOWN);
    apply(st, ACTION_CHOOSE);
    assert_int_equal(ui_state_page(st), PAGE_LOCKS);
    assert_int_equal(st->sort, COL_AVG10 + 1);
    assert_false(st->reverse);
}

static void test_sort_left_alone(void **state)
{
    struct ui_state *st = *state;

    apply(st, ACTION_SORT);
    ui_state_place_lines(st, PAGE_SORT, COLUMNS_COUNT, 5);
    apply(st, ACTION_END);
    apply(st, ACTION_BACK);
    assert_int_equal(st->sort, COL_AVG10);
}

static void test_switches(void **state)
{
    struct ui_state *st = *state;

    apply(st, ACTION_PAUSE);
    apply(st, ACTION_SYNC);
    apply(st, ACTION_INVERT);
    assert_true(st->paused && st->sync && st->reverse);
    apply(st, ACTION_PAUSE);
    apply(st, ACTION_SYNC);
    apply(st, ACTION_INVERT);
    assert_false(st->paused || st->sync || st->reverse);
    apply(st, ACTION_NONE);
    apply(st, ACTION_REDRAW);
    assert_false(st->quit);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_follows_the_lock),
        T(test_follows_out_of_sight),
        T(test_untouched_keeps_to_the_top),
        T(test_home_lets_go),
        T(test_vanished_lock_leaves_the_row),
        T(test_empty_list),
        T(test_two_moves_before_placing),
        T(test_stops_at_both_ends),
        T(test_pages_and_ends),
        T(test_sizes),
        T(test_text_scrolls),
        T(test_open_and_back),
        T(test_opened_lock_stays_selected),
        T(test_close_and_quit),
        T(test_stack_does_not_grow),
        T(test_step_sort),
        T(test_step_sort_without_columns),
        T(test_choose_sort),
        T(test_sort_left_alone),
        T(test_switches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What the screen is made of before curses sees it: layout, wrapping, plots, the lock's page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../src/column.h"
#include "../ui/draw.h"
#include "../ui/view_help.h"
#include "../ui/view_lock.h"
#include "../ui/view_locks.h"

/* Layout ------------------------------------------------------------------------------------ */

static const struct locks_layout everything = {
    .nverdict = 2, .nprocess = 3, .titles = 1, .fold = 1, .notes = 1};

/* Each line belongs to one part, none is lost, none lies outside. */
static void assert_layout(const struct locks_layout *at, int h)
{
    int used = at->nverdict + at->nprocess + (at->states >= 0) + (at->titles >= 0) + at->nlist +
               (at->fold >= 0) + (at->notes >= 0);

    assert_int_equal(used, h);
    assert_true(at->verdict < h && at->process < h && at->states < h && at->titles < h);
    assert_true(at->list + at->nlist <= h && at->fold < h && at->notes < h);
    if (h > 0)
        assert_int_equal(at->verdict, 0);
}

static void test_layout_every_height(void **state)
{
    (void)state;
    for (int h = -3; h < 80; h++) {
        struct locks_layout at = locks_layout(h, &everything);
        assert_layout(&at, h < 0 ? 0 : h);
    }
}

static void test_layout_80x24(void **state)
{
    struct locks_layout at = locks_layout(22, &everything); /* without header and bar */

    (void)state;
    assert_int_equal(at.nverdict, 2);
    assert_int_equal(at.nprocess, 3);
    assert_true(at.states > at.process && at.titles > at.states && at.list == at.titles + 1);
    assert_true(at.fold > at.list && at.notes > at.fold);
    assert_true(at.nlist >= 10);
}

/* A long verdict takes up to four lines, of those that a short list does not need. */
static void test_layout_long_verdict(void **state)
{
    struct locks_layout want = everything;

    (void)state;
    want.nverdict = 4;
    want.nlist = 3;
    assert_int_equal(locks_layout(22, &want).nverdict, 4);
    assert_true(locks_layout(22, &want).nlist >= 6);
    want.nlist = 40;
    assert_int_equal(locks_layout(22, &want).nverdict, 2);
    for (int h = 0; h < 60; h++) {
        struct locks_layout at = locks_layout(h, &want);
        assert_layout(&at, h);
    }
}

/* Nothing to list: no titles above it either, and the line is not lost. */
static void test_layout_without_titles(void **state)
{
    struct locks_layout want = everything;

    (void)state;
    want.titles = 0;
    for (int h = 0; h < 40; h++) {
        struct locks_layout at = locks_layout(h, &want);
        assert_int_equal(at.titles, -1);
        assert_layout(&at, h);
    }
}

static void test_layout_small(void **state)
{
    struct locks_layout at = locks_layout(3, &everything); /* 20x5 */

    (void)state;
    assert_int_equal(at.nverdict, 1);
    assert_int_equal(at.nlist, 1);
    assert_int_equal(at.process, -1);
    assert_int_equal(at.fold, -1);
}

static void test_layout_many_processes(void **state)
{
    struct locks_layout want = {.nverdict = 1, .nprocess = 1000};
    struct locks_layout at = locks_layout(22, &want);

    (void)state;
    assert_int_equal(at.nprocess, 1); /* their sum */
}

/* Wrapping ---------------------------------------------------------------------------------- */

static void test_break(void **state)
{
    (void)state;
    assert_int_equal(draw_break("short", 10), 5);
    assert_int_equal(draw_break("", 10), 0);
    assert_int_equal(draw_break("exactly ten", 11), 11);
    assert_int_equal(draw_break("hello big world", 12), 10);
    assert_int_equal(draw_break("/a/path/without/blanks", 8), 8);
    assert_int_equal(draw_break("a /very/long/path/without/blanks", 20), 20);
}

static void test_break_always_moves_on(void **state)
{
    (void)state;
    for (int width = -2; width < 3; width++) {
        const char *s = "\xe5\xad\x97\xe5\xad\x97 x\xff\xfe y";
        while (*s) {
            size_t n = draw_break(s, width);
            assert_true(n > 0 && n <= strlen(s));
            s += n;
        }
    }
}

static void test_break_wide_characters(void **state)
{
    (void)state;
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        skip();
    assert_int_equal(draw_break("\xe5\xad\x97\xe5\xad\x97\xe5\xad\x97", 5), 6);
    setlocale(LC_CTYPE, "C");
}

static void test_page_wraps(void **state)
{
    struct text_page p = {.width = 20};

    (void)state;
    text_page_add(&p, STYLE_PLAIN, "%s", "");
    text_page_add(&p, STYLE_BOLD, "one two three four five six seven eight");
    assert_true(p.n >= 3);
    for (size_t i = 0; i < p.n; i++)
        assert_true(strlen(p.lines[i].text) <= 20);
    text_page_release(&p);
    assert_int_equal(p.n, 0);
    assert_null(p.lines);
}

/* Plots ------------------------------------------------------------------------------------- */

static void test_page_cut(void **state)
{
    struct text_page p = {.width = 10};

    (void)state;
    text_page_add(&p, STYLE_PLAIN, "one two three four five");
    size_t n = p.n;
    text_page_cut(&p, n, true);
    assert_int_equal(p.n, n); /* nothing was lost, so nothing is said */
    text_page_cut(&p, 1, true);
    assert_int_equal(p.n, 1);
    assert_string_equal(p.lines[0].text, "one two ~");
    text_page_cut(&p, 0, true);
    assert_int_equal(p.n, 1);
    text_page_release(&p);
}

static void test_plot_ascii(void **state)
{
    struct text_page p = {0};
    static const uint16_t v[] = {0, 1, 90, 180};

    (void)state;
    text_page_plot(&p, v, 4, 2, 180, true);
    assert_int_equal(p.n, 2);
    assert_string_equal(p.lines[0].text, "  180 |   @");
    assert_string_equal(p.lines[1].text, "    0 | .@@");
    text_page_release(&p);
}

static void test_plot_nothing(void **state)
{
    struct text_page p = {0};
    static const uint16_t v[] = {0, 0};

    (void)state;
    text_page_plot(&p, v, 2, 1, 0, false);
    text_page_plot(&p, v, 0, 1, 0, true);
    assert_string_equal(p.lines[0].text, "    1 |  ");
    assert_string_equal(p.lines[1].text, "    1 |");
    text_page_release(&p);
}

static void test_plot_above_the_peak(void **state)
{
    struct text_page p = {0};
    static const uint16_t v[] = {UINT16_MAX - 1};

    (void)state;
    text_page_plot(&p, v, 1, 1, 1, true);
    assert_string_equal(p.lines[0].text, "    1 |@");
    text_page_release(&p);
}

/* A second in which nobody looked is no second in which nobody waited. */
static void test_plot_without_data(void **state)
{
    struct text_page p = {0};
    static const uint16_t v[] = {2, SNAP_NO_DATA, 0};

    (void)state;
    text_page_plot(&p, v, 3, 2, 2, true);
    assert_string_equal(p.lines[0].text, "    2 |@  ");
    assert_string_equal(p.lines[1].text, "    0 |@? ");
    text_page_release(&p);
}

/* The pages of text --------------------------------------------------------------------------- */

static bool page_has(const struct text_page *p, const char *text)
{
    for (size_t i = 0; i < p->n; i++)
        if (strstr(p->lines[i].text, text))
            return true;
    return false;
}

/* A lock whose names are hostile and whose numbers are not known. */
static struct snap_lock hostile_lock(void)
{
    static const struct snap_holder holders[] = {
        {.pid = 7,
         .tid = 9,
         .comm = "\033[2J\n",
         .state_known = true,
         .state = THREAD_DISK,
         .detail = "fsync fd 3 /a\033b",
         .confidence = CONF_CONFIRMED,
         .age_ms = 12,
         .waits_for = "other\n"},
        {.pid = -1, .tid = -1, .detail = "not recorded by this lock", .age_ms = NAN},
        {.pid = 7, .tid = 8, .comm = "x", .gone = true, .age_ms = NAN},
    };
    static const struct snap_waiter waiters[] = {
        {.pid = 7, .tid = 10, .comm = "\xff\x01", .age_ms = NAN},
        {.pid = 7, .tid = 11, .comm = "w", .mode = MODE_SHARED, .age_ms = 3, .blocked_by = "soft"},
    };

    return (struct snap_lock){
        .id = "7:0x10\033",
        .kind = KIND_RWLOCK,
        .name = "na\033me",
        .path = "/p\nq",
        .pid = 7,
        .address = 16,
        .waiters = 5,
        .waiters_avg_1s = NAN,
        .waiters_avg_10s = NAN,
        .waiters_avg_60s = NAN,
        .waiters_max = 5,
        .wait_share = NAN,
        .busy = NAN,
        .wait_ms = NAN,
        .contended_per_s = NAN,
        .acquired_per_s = NAN,
        .hold_us = NAN,
        .holders = holders,
        .nholders = 3,
        .waiter_threads = waiters,
        .nwaiter_threads = 2,
        .nhistory = 2,
        .history = {[SNAP_HISTORY - 1] = 5},
    };
}

static void test_lock_page(void **state)
{
    struct snap_lock l = hostile_lock();
    struct snapshot s = {.locks = &l, .nlocks = 1};
    struct text_page p = {.width = 80};

    (void)state;
    view_lock_build(&p, &s, l.id, true);
    assert_true(page_has(&p, "disk for"));
    assert_true(page_has(&p, "not recorded by this lock"));
    assert_true(page_has(&p, "does not exist any more"));
    assert_true(page_has(&p, "waits itself for a lock that is not listed at this moment"));
    assert_true(page_has(&p, "shared    queue"));
    assert_true(page_has(&p, "and 3 more"));
    assert_true(page_has(&p, "last 2 s"));
    for (size_t i = 0; i < p.n; i++)
        for (const char *c = p.lines[i].text; *c; c++)
            assert_true(*c >= 0x20 && *c <= 0x7e);
    text_page_release(&p);
}

/* The holder's own lock is named as on its page, not by its id. */
static void test_lock_page_names_the_other_lock(void **state)
{
    struct snap_lock l[] = {hostile_lock(), {.id = "other\n", .kind = KIND_MUTEX, .name = "log"}};
    struct snapshot s = {.locks = l, .nlocks = 2};
    struct text_page p = {.width = 80};

    (void)state;
    view_lock_build(&p, &s, l[0].id, true);
    assert_true(page_has(&p, "waits itself for mutex \"log\""));
    text_page_release(&p);
    l[1].name = NULL;
    l[1].address = 0x7f0010;
    view_lock_build(&p, &s, l[0].id, true);
    assert_true(page_has(&p, "waits itself for mutex 0x7f0010"));
    text_page_release(&p);
    l[1].kind = KIND_JOIN;
    view_lock_build(&p, &s, l[0].id, true);
    assert_false(page_has(&p, "waits itself"));
    text_page_release(&p);
}

/* What is as old as the watching may be older. */
static void test_lock_page_tells_what_began_before(void **state)
{
    struct snap_lock l = hostile_lock();
    struct snapshot s = {.locks = &l, .nlocks = 1, .elapsed = 12 * NSEC_PER_MSEC};
    struct text_page p = {.width = 80};

    (void)state;
    view_lock_build(&p, &s, l.id, true);
    assert_true(page_has(&p, "disk for >12.0ms"));
    assert_true(page_has(&p, "   3.0ms      11"));
    text_page_release(&p);
}

static void test_lock_page_narrow(void **state)
{
    struct snap_lock l = hostile_lock();
    struct snapshot s = {.locks = &l, .nlocks = 1};

    (void)state;
    for (int width = 1; width < 20; width++) {
        struct text_page p = {.width = width};
        view_lock_build(&p, &s, l.id, true);
        assert_true(p.n > 0);
        text_page_release(&p);
    }
}

static void test_lock_page_without_lock(void **state)
{
    struct snapshot s = {.nlocks = 0};
    struct text_page p = {.width = 80};

    (void)state;
    view_lock_build(&p, &s, "gone", true);
    assert_true(page_has(&p, "No thread waits"));
    assert_true(page_has(&p, "gone"));
    text_page_release(&p);
    view_lock_build(&p, NULL, NULL, true);
    assert_true(page_has(&p, "No thread waits"));
    text_page_release(&p);
}

/* The line of TEXT, or the number of lines when it is not there. */
static size_t line_of(const struct text_page *p, const char *text)
{
    size_t i = 0;

    while (i < p->n && !strstr(p->lines[i].text, text))
        i++;
    return i;
}

/* Enter does one thing on the list of locks and another on that of columns. */
static void test_help_says_where(void **state)
{
    struct text_page p = {.width = 80};

    (void)state;
    view_help_build(&p);
    size_t any = line_of(&p, "Keys on every page"),
           locks = line_of(&p, "Keys on the list of locks"),
           chains = line_of(&p, "Keys on the list of chains"),
           sort = line_of(&p, "Keys on the list of columns"), rest = line_of(&p, "but the list of"),
           columns = line_of(&p, "Columns");
    assert_true(any < locks && locks < chains && chains < sort && sort < rest && rest < columns &&
                columns < p.n);
    assert_in_range(line_of(&p, "F10 Ctrl-C"), any, locks);
    assert_in_range(line_of(&p, "the selected lock: holders"), locks, chains);
    assert_in_range(line_of(&p, "the lock that the selected thread"), chains, sort);
    assert_in_range(line_of(&p, "sort by the selected column"), sort, rest);
    assert_in_range(line_of(&p, "Esc Backspace"), rest, columns);
    text_page_release(&p);
}

static void test_help_lists_everything(void **state)
{
    struct text_page p = {.width = 80};

    (void)state;
    view_help_build(&p);
    for (int c = 0; c < COLUMNS_COUNT; c++)
        assert_true(page_has(&p, column_info((enum column)c)->header));
    assert_true(page_has(&p, "F10 Ctrl-C"));
    for (int i = 0; i < THREAD_STATES; i++)
        assert_true(page_has(&p, thread_state_label((enum thread_state)i)));
    text_page_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_every_height),
        cmocka_unit_test(test_layout_80x24),
        cmocka_unit_test(test_layout_long_verdict),
        cmocka_unit_test(test_layout_without_titles),
        cmocka_unit_test(test_layout_small),
        cmocka_unit_test(test_layout_many_processes),
        cmocka_unit_test(test_break),
        cmocka_unit_test(test_break_always_moves_on),
        cmocka_unit_test(test_break_wide_characters),
        cmocka_unit_test(test_page_wraps),
        cmocka_unit_test(test_page_cut),
        cmocka_unit_test(test_plot_ascii),
        cmocka_unit_test(test_plot_nothing),
        cmocka_unit_test(test_plot_above_the_peak),
        cmocka_unit_test(test_plot_without_data),
        cmocka_unit_test(test_lock_page),
        cmocka_unit_test(test_lock_page_names_the_other_lock),
        cmocka_unit_test(test_lock_page_tells_what_began_before),
        cmocka_unit_test(test_lock_page_narrow),
        cmocka_unit_test(test_lock_page_without_lock),
        cmocka_unit_test(test_help_says_where),
        cmocka_unit_test(test_help_lists_everything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

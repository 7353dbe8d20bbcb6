/* The table of keys: what each does where, and that it does not contradict itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <curses.h>
#include <stdio.h>
#include <string.h>

#include "../src/compiler.h"
#include "../ui/keys.h"

static void test_list_keys(void **state)
{
    static const struct {
        int code;
        enum action action;
    } want[] = {
        {KEY_UP, ACTION_UP},         {'k', ACTION_UP},
        {KEY_DOWN, ACTION_DOWN},     {'j', ACTION_DOWN},
        {KEY_PPAGE, ACTION_PAGE_UP}, {KEY_NPAGE, ACTION_PAGE_DOWN},
        {KEY_HOME, ACTION_HOME},     {'g', ACTION_HOME},
        {KEY_END, ACTION_END},       {'G', ACTION_END},
        {KEY_F(6), ACTION_SORT},     {'s', ACTION_SORT},
        {'<', ACTION_SORT_PREV},     {'>', ACTION_SORT_NEXT},
        {'I', ACTION_INVERT},        {' ', ACTION_PAUSE},
        {'p', ACTION_PAUSE},         {'Z', ACTION_PAUSE},
        {KEY_F(8), ACTION_PAUSE},    {'S', ACTION_SYNC},
        {'y', ACTION_SYNC},          {'q', ACTION_CLOSE},
        {KEY_F(10), ACTION_QUIT},    {3, ACTION_QUIT},
        {'h', ACTION_HELP},          {'?', ACTION_HELP},
        {KEY_F(1), ACTION_HELP},     {12, ACTION_REDRAW},
        {'\r', ACTION_OPEN},         {'\n', ACTION_OPEN},
        {KEY_ENTER, ACTION_OPEN},    {KEY_F(4), ACTION_CHAINS},
        {'c', ACTION_CHAINS},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(want); i++)
        assert_int_equal(keys_action(PAGE_LOCKS, want[i].code), want[i].action);
}

static void test_pages(void **state)
{
    (void)state;
    assert_int_equal(keys_action(PAGE_SORT, '\r'), ACTION_CHOOSE);
    assert_int_equal(keys_action(PAGE_LOCK, '\r'), ACTION_NONE);
    assert_int_equal(keys_action(PAGE_CHAINS, '\r'), ACTION_FOLLOW);
    assert_int_equal(keys_action(PAGE_CHAINS, KEY_F(4)), ACTION_CHAINS);
    assert_int_equal(keys_action(PAGE_CHAINS, 27), ACTION_BACK);
    assert_int_equal(keys_action(PAGE_HELP, 27), ACTION_BACK);
    assert_int_equal(keys_action(PAGE_LOCK, KEY_BACKSPACE), ACTION_BACK);
    assert_int_equal(keys_action(PAGE_LOCK, 127), ACTION_BACK);
    assert_int_equal(keys_action(PAGE_LOCKS, 27), ACTION_NONE);
    assert_int_equal(keys_action(PAGE_HELP, 'S'), ACTION_NONE);
    assert_int_equal(keys_action(PAGE_HELP, 'q'), ACTION_CLOSE);
    assert_int_equal(keys_action(PAGE_HELP, KEY_F(10)), ACTION_QUIT);
}

static void test_unknown(void **state)
{
    static const int codes[] = {0, -1, ERR, 'x', 0xe9, KEY_MOUSE, KEY_RESIZE, KEY_F(2), 1 << 20};

    (void)state;
    for (enum page p = 0; p < PAGES; p++)
        for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
            assert_int_equal(keys_action(p, codes[i]), ACTION_NONE);
}

/* No code means two things on one page. */
static void test_unambiguous(void **state)
{
    size_t n;
    const struct key *t = keys_table(&n);

    (void)state;
    for (size_t a = 0; a < n; a++)
        for (size_t i = 0; i < ARRAY_SIZE(t[a].codes) && t[a].codes[i]; i++)
            for (size_t b = 0; b < n; b++)
                for (size_t k = 0; k < ARRAY_SIZE(t[b].codes) && t[b].codes[k]; k++)
                    if ((a != b || i != k) && t[a].pages & t[b].pages)
                        assert_int_not_equal(t[a].codes[i], t[b].codes[k]);
}

/* Every row can be explained, and every key of the bar also has a letter or needs none. */
static void test_rows(void **state)
{
    size_t n;
    const struct key *t = keys_table(&n);

    (void)state;
    assert_true(n > 10);
    for (size_t i = 0; i < n; i++) {
        assert_true(t[i].pages != 0 && t[i].pages < 1u << PAGES);
        assert_true(strlen(t[i].shown) > 0 && strlen(t[i].shown) <= 14);
        assert_true(strlen(t[i].help) > 0 && strlen(t[i].help) <= 60);
        assert_true(t[i].codes[0] != 0);
        assert_int_equal(t[i].bar_key == NULL, t[i].bar_label == NULL);
    }
}

/* Every row stands in exactly one section of the help, and no section is empty. */
static void test_places(void **state)
{
    size_t n, nplaces;
    const struct key *t = keys_table(&n);
    const struct key_place *places = keys_places(&nplaces);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        int found = 0;
        for (size_t k = 0; k < nplaces; k++)
            found += places[k].pages == t[i].pages;
        assert_int_equal(found, 1);
    }
    for (size_t k = 0; k < nplaces; k++) {
        size_t i = 0;
        while (i < n && t[i].pages != places[k].pages)
            i++;
        assert_true(i < n);
    }
}

/* A terminal may swallow function keys: each has a plain one beside it. */
static void test_letters(void **state)
{
    size_t n;
    const struct key *t = keys_table(&n);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        bool plain = false;
        for (size_t k = 0; k < ARRAY_SIZE(t[i].codes) && t[i].codes[k]; k++)
            plain |= t[i].codes[k] < 128;
        assert_true(plain);
    }
}

/* The bar of the lock list fits 80 cells, its most important keys 40. */
static void test_bar_fits(void **state)
{
    size_t n, all = 0;
    const struct key *t = keys_table(&n);

    (void)state;
    for (size_t i = 0; i < n; i++)
        if (t[i].bar_key && t[i].pages & 1u << PAGE_LOCKS) {
            all += strlen(t[i].bar_key) + strlen(t[i].bar_label) + 1;
            if (t[i].action == ACTION_QUIT)
                assert_true(all + strlen(":holder") <= 40);
        }
    assert_true(all + strlen(":holder") <= 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_keys), cmocka_unit_test(test_pages),
        cmocka_unit_test(test_unknown),   cmocka_unit_test(test_unambiguous),
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_letters),
        cmocka_unit_test(test_bar_fits),  cmocka_unit_test(test_places),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

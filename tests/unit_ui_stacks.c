/* The stacks on a lock's page, and the page of chains. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <locale.h>
#include <cmocka.h>

#include "../src/fmt.h"
#include "../ui/view_chains.h"
#include "../ui/view_lock.h"
#include "../ui/view_stacks.h"
#include "snap_build.h"

/* The line of TEXT from FROM on, or the number of lines when it is not there. */
static size_t line_of(const struct text_page *p, const char *text, size_t from)
{
    while (from < p->n && !strstr(p->lines[from].text, text))
        from++;
    return from;
}

static void assert_plain(const struct text_page *p)
{
    for (size_t i = 0; i < p->n; i++)
        for (const char *c = p->lines[i].text; *c; c++)
            assert_true(*c >= 0x20 && *c <= 0x7e);
}

/* A lock's page ----------------------------------------------------------------------------- */

static void test_lock_page_has_stacks(void **state)
{
    struct shop m;
    struct text_page p = {.width = 80};

    (void)state;
    fill_shop(&m);
    view_lock_build(&p, &m.snapshot, "p900:1000", true);
    size_t site = line_of(&p, "waited for in shop::Cart<std::map", 0),
           holder = line_of(&p, "journal 902", 0), stack = line_of(&p, "Stack of the holder", 0),
           fsync = line_of(&p, "    #0  fsync+0x24  libc.so.6", stack),
           profile = line_of(&p, "Where holders were seen", 0),
           path = line_of(&p, "   62 % disk  fsync < journal_flush", profile),
           waiters = line_of(&p, "Waiters by stack", 0),
           group = line_of(&p, "  12 threads, such as 922", waiters),
           rest = line_of(&p, "  +1 more stack (1 thread)", group),
           list = line_of(&p, "Waiters, the longest", 0);
    assert_true(site < holder && holder < stack && stack < fsync && fsync < profile);
    assert_true(profile < path && path < waiters && waiters < group && group < rest);
    assert_true(rest < list && list < p.n);
    assert_plain(&p);
    text_page_release(&p);
}

static void test_lock_page_tells_its_deadlock(void **state)
{
    struct shop m;
    struct text_page p = {.width = 80};

    (void)state;
    fill_shop(&m);
    view_lock_build(&p, &m.snapshot, "p900:2000", true);
    size_t at = line_of(&p, "DEADLOCK 2 threads: a[903] holds", 0);
    assert_true(at < p.n);
    assert_int_equal(p.lines[at].style, STYLE_CRITICAL);
    assert_int_equal(line_of(&p, "c[905] waits for", 0), p.n); /* another lock's */
    text_page_release(&p);
}

static void test_lock_page_without_stacks(void **state)
{
    struct shop m;
    struct text_page p = {.width = 80};

    (void)state;
    fill_shop(&m);
    m.snapshot.has_stacks = false;
    view_lock_build(&p, &m.snapshot, "p900:1000", true);
    assert_true(line_of(&p, "no stacks are taken (--stacks off)", 0) < p.n);
    assert_int_equal(line_of(&p, "Waiters by stack", 0), p.n);
    text_page_release(&p);
}

/* Each frame is one line, whatever the screen. */
static void test_stacks_fit_the_screen(void **state)
{
    struct shop m;

    (void)state;
    fill_shop(&m);
    for (int width = 1; width < 120; width++) {
        struct text_page p = {.width = width};
        size_t frames = 0;
        view_stacks_add(&p, &m.snapshot, &m.locks[0], true);
        for (size_t i = 0; i < p.n; i++) {
            assert_true((int)strlen(p.lines[i].text) <= MAX(width, 5));
            frames += strstr(p.lines[i].text, " #") != NULL;
        }
        if (width > 5)
            assert_int_equal(frames, 4 + 7 + 2 + 1 + 1);
        text_page_release(&p);
    }
}

/* The page of chains ------------------------------------------------------------------------ */

static void test_chains_page(void **state)
{
    struct shop m;
    struct chains_page p = {.cap = 0};

    (void)state;
    fill_shop(&m);
    view_chains_build(&p, &m.snapshot, true);
    assert_int_equal(p.text.n, 4 + 2 + 2 + 2 + 1);
    assert_int_equal(p.text.lines[0].style, STYLE_ALARM);
    assert_non_null(strstr(p.text.lines[0].text, "DEADLOCK 2 threads: a[903]"));
    assert_string_equal(p.text.lines[1].text,
                        "  a[903] lock: waits for mutex 0x55d0c0e01000 in queue_push");
    assert_string_equal(p.rows[1].lock, "p900:2000");
    assert_string_equal(p.text.lines[2].text,
                        "  b[904] lock: waits for mutex \"journal_lock\" in shop::Cart::add");
    assert_int_equal(p.text.lines[3].style, STYLE_BOLD);
    assert_string_equal(p.rows[3].lock, "p900:1000"); /* the nearest to the root */
    assert_string_equal(
        p.text.lines[5].text,
        "  journal[902] disk: fsync fd 7 /var/shop/journal, in fsync < journal_flush < worker");
    assert_null(p.rows[5].lock);
    assert_string_equal(p.text.lines[10].text, "  c[905] lock: waits for mutex 0x55d0c0e02000");
    for (size_t i = 0; i < p.text.n; i++)
        for (size_t k = 0; k < i; k++)
            if (k / 3 != 1 && k / 3 != 2) /* two chains of one root here */
                assert_string_not_equal(p.rows[i].id, p.rows[k].id);
    view_chains_release(&p);
    assert_null(p.rows);
}

static void test_chains_page_with_hostile_names(void **state)
{
    struct snap_link path[] = {{.pid = 1, .tid = 2, .comm = "\033[2J\n", .lock = "no such\n"},
                               {.pid = 1, .tid = 3, .state = THREAD_NET}};
    struct snap_chain c = {.end = CHAIN_OUTSIDE,
                           .root = path[1],
                           .detail = "recv\n\033",
                           .depth = 1,
                           .path = path,
                           .npath = 2,
                           .text = "\x9b"};
    struct snapshot s = {.chains = &c, .nchains = 1};
    struct chains_page p = {.cap = 0};

    (void)state;
    view_chains_build(&p, &s, true);
    assert_int_equal(p.text.n, 3);
    assert_plain(&p.text);
    assert_string_equal(p.text.lines[1].text, "  \\x1b[2J\\n[2] running");
    assert_string_equal(p.text.lines[2].text, "  ?[3] net: recv\\n\\x1b");
    view_chains_release(&p);
}

/* A join is told by whom it waits for; the end of a chain by why it is one. */
static void test_chains_page_tells_joins_and_ends(void **state)
{
    struct snap_lock l[] = {blank_lock("j", KIND_JOIN), blank_lock("m", KIND_MUTEX)};
    struct snap_link path[] = {shop_link(1, "stopper", THREAD_SYNC, "j"),
                               shop_link(2, "logger", THREAD_LOCK, "m")};
    struct snap_chain c = {.end = CHAIN_GONE, .root = path[1], .depth = 2, .npath = 2};
    struct snapshot s = {.locks = l, .nlocks = 2, .chains = &c, .nchains = 1};
    struct chains_page p = {.cap = 0};

    (void)state;
    l[1].address = 0x7f00;
    c.path = path;
    c.text = "x";
    c.detail = "its owner TID 5 no longer exists";
    view_chains_build(&p, &s, true);
    assert_string_equal(p.text.lines[1].text,
                        "  stopper[1] sync: waits for logger[2] to end (join)");
    assert_string_equal(p.text.lines[2].text, "  logger[2] lock: waits for mutex 0x7f00; its "
                                              "owner TID 5 no longer exists");
    view_chains_release(&p);

    path[1].lock = "j"; /* both wait for each other */
    c.end = CHAIN_CYCLE;
    view_chains_build(&p, &s, true);
    assert_string_equal(p.text.lines[2].text,
                        "  logger[2] lock: waits for stopper[1] to end (join)");
    view_chains_release(&p);

    path[1].lock = NULL;
    c.end = CHAIN_HAND_OFF;
    c.detail = NULL;
    view_chains_build(&p, &s, true);
    assert_string_equal(p.text.lines[2].text, "  logger[2] lock: waits to be woken (a hand-off: "
                                              "nobody holds it)");
    view_chains_release(&p);
}

/* All of a text is there, over as many lines as it takes, and each line is a row. */
static void test_chains_page_wraps(void **state)
{
    struct shop m;
    struct chains_page p = {.text.width = 40};
    char all[512] = "";

    (void)state;
    fill_shop(&m);
    view_chains_build(&p, &m.snapshot, true);
    for (size_t i = 0; i < p.text.n; i++)
        assert_true(text_cells(p.text.lines[i].text) <= 40);
    for (size_t i = 0; i < 4; i++)
        strcat(all, p.text.lines[i].text + (i ? 4 : 0));
    assert_string_equal(all, m.chains[0].text);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(p.rows[i].lock, "p900:1000");
    assert_string_not_equal(p.rows[0].id, p.rows[1].id);
    view_chains_release(&p);
}

/* Selection on the page of chains ------------------------------------------------------------- */

static const struct column_set columns = {.cols = {COL_LOCK}, .n = 1};

static void place(struct ui_state *st, struct shop *m)
{
    struct chains_page p = {.cap = 0};

    view_chains_build(&p, &m->snapshot, true);
    ui_state_place_links(st, p.rows, p.text.n, 10);
    view_chains_release(&p);
}

static void press(struct ui_state *st, struct shop *m, enum action action)
{
    ui_state_apply(st, action, &columns);
    place(st, m);
}

static void test_enter_leads_to_the_lock(void **state)
{
    struct ui_state st;
    struct shop m;

    (void)state;
    fill_shop(&m);
    ui_state_init(&st, COL_AVG10);
    press(&st, &m, ACTION_CHAINS);
    assert_int_equal(ui_state_page(&st), PAGE_CHAINS);
    press(&st, &m, ACTION_DOWN);
    press(&st, &m, ACTION_DOWN);
    assert_string_equal(st.link_lock, "p900:1000");
    press(&st, &m, ACTION_FOLLOW);
    assert_int_equal(ui_state_page(&st), PAGE_LOCK);
    assert_string_equal(st.opened, "p900:1000");
    press(&st, &m, ACTION_BACK);
    assert_int_equal(ui_state_page(&st), PAGE_CHAINS);
    assert_int_equal(st.cursor[PAGE_CHAINS].row, 2);
    press(&st, &m, ACTION_CHAINS); /* the same key leads back */
    assert_int_equal(ui_state_page(&st), PAGE_LOCKS);
    press(&st, &m, ACTION_CHAINS);
    assert_int_equal(st.cursor[PAGE_CHAINS].row, 0);
    ui_state_release(&st);
}

static void test_the_bar_follows_the_thread(void **state)
{
    struct ui_state st;
    struct shop m;

    (void)state;
    fill_shop(&m);
    ui_state_init(&st, COL_AVG10);
    press(&st, &m, ACTION_CHAINS);
    press(&st, &m, ACTION_END);
    assert_string_equal(st.link_lock, "p900:3000");
    m.chains[0] = m.chains[3]; /* the deadlock was ended, and the lost lock comes first */
    m.snapshot.nchains = 2;
    place(&st, &m);
    assert_int_equal(st.cursor[PAGE_CHAINS].row, 1);
    assert_string_equal(st.link_lock, "p900:3000");
    ui_state_release(&st);
}

static void test_no_chains(void **state)
{
    struct ui_state st;
    struct shop m;

    (void)state;
    fill_shop(&m);
    ui_state_init(&st, COL_AVG10);
    press(&st, &m, ACTION_CHAINS);
    m.snapshot.nchains = 0;
    press(&st, &m, ACTION_DOWN);
    assert_null(st.link);
    assert_null(st.link_lock);
    press(&st, &m, ACTION_FOLLOW); /* leads nowhere */
    assert_int_equal(ui_state_page(&st), PAGE_CHAINS);
    ui_state_release(&st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lock_page_has_stacks),
        cmocka_unit_test(test_lock_page_tells_its_deadlock),
        cmocka_unit_test(test_lock_page_without_stacks),
        cmocka_unit_test(test_stacks_fit_the_screen),
        cmocka_unit_test(test_chains_page),
        cmocka_unit_test(test_chains_page_with_hostile_names),
        cmocka_unit_test(test_chains_page_tells_joins_and_ends),
        cmocka_unit_test(test_chains_page_wraps),
        cmocka_unit_test(test_enter_leads_to_the_lock),
        cmocka_unit_test(test_the_bar_follows_the_thread),
        cmocka_unit_test(test_no_chains),
    };

    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

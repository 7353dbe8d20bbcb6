/* unit_render_stacks - frames, paths and groups of stacks in words, in any room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <locale.h>
#include <cmocka.h>

#include "../src/fmt.h"
#include "../src/render_stacks.h"
#include "snap_build.h"

static void assert_frame(const struct snap_frame *f, size_t index, int width, const char *want)
{
    char text[512];

    assert_string_equal(render_frame(text, sizeof(text), f, index, width, true), want);
}

static void test_frames(void **state)
{
    (void)state;
    assert_frame(&shop_wait_frames[1], 1, 0, "#1  pthread_mutex_lock+0x112  libc.so.6");
    assert_frame(&shop_wait_frames[3], 13, 0, "#13 libshop-plugin.so+0x8b482");
    assert_frame(&shop_wait_frames[4], 4, 0, "#4  0x7f1200003f10");
    assert_frame(&shop_sync_frames[1], 0, 0, "#0  journal_flush+0x40  shop journal.c:112");
    assert_frame(&shop_wait_frames[2], 2, 0, "#2  shop::Cart::add+0x1c  shop cart.cc:45");
}

static void test_frames_in_little_room(void **state)
{
    (void)state;
    assert_frame(&shop_wait_frames[2], 2, 80, "#2  shop::Cart::add+0x1c  shop cart.cc:45");
    assert_frame(&shop_wait_frames[2], 2, 40, "#2  ~Cart::add+0x1c  shop cart.cc:45");
    assert_frame(&shop_wait_frames[2], 2, 24, "#2  ~Cart::add+0x1c  sh~");
    assert_frame(&shop_wait_frames[2], 2, 3, "#2~");
}

static void test_frames_with_hostile_names(void **state)
{
    static const struct snap_frame f = {"a\033[2J", 1, "/lib/b\nc", 2, "x/\377.c", 3};
    static const struct snap_frame bare = {.module = "", .offset = 0};
    static const struct snap_frame slash = {.name = "", .module = "/", .file = "/tmp/"};

    (void)state;
    assert_frame(&f, 0, 0, "#0  a\\x1b[2J+0x1  b\\nc \\xff.c:3");
    assert_frame(&bare, 0, 0, "#0  +0x0");
    assert_frame(&slash, 0, 0, "#0  +0x0  / /tmp/");
}

static void test_frames_keep_inside(void **state)
{
    char name[2000], dst[64];
    struct snap_frame f = {name, UINT64_MAX, name, UINT64_MAX, name, 2147483647};

    (void)state;
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    for (int width = 1; width < 200; width++)
        for (size_t size = 1; size <= sizeof(dst); size += 3) {
            render_frame(dst, size, &f, SIZE_MAX, width, false);
            assert_true(strlen(dst) < size);
        }
    char line[1024];
    for (int width = 1; width < 200; width++)
        assert_true(text_cells(render_frame(line, sizeof(line), &f, 63, width, true)) <= width);
    assert_true(strlen(render_frame(line, sizeof(line), &f, 63, 0, true)) < 200);
}

static void test_paths(void **state)
{
    struct snap_stack st = {.frames = shop_sync_frames, .nframes = 4};
    char text[512];

    (void)state;
    assert_string_equal(render_path(text, sizeof(text), &st, true),
                        "fsync < journal_flush < worker < start_thread");
    st = shop_stack(ROLE_PROFILE, 1, NULL);
    assert_string_equal(render_path(text, sizeof(text), &st, true),
                        "__futex_abstimed_wait_common < pthread_mutex_lock < shop::Cart::add < "
                        "libshop-plugin.so+0x8b482 < 0x7f1200003f10 < start_thread < ...");
    st.nframes = 0;
    assert_string_equal(render_path(text, sizeof(text), &st, true), "");
    st.nframes = 7;
    for (size_t size = 1; size < 100; size++)
        assert_true(strlen(render_path(text, size, &st, false)) < size);
}

static void test_chains(void **state)
{
    struct snap_chain c = {.end = CHAIN_OUTSIDE, .depth = 1, .text = "a\nb"};
    char text[64];

    (void)state;
    assert_string_equal(render_chain(text, sizeof(text), &c, true), "a\\nb");
    assert_false(render_chain_counts(&c));
    c.depth = 2;
    assert_true(render_chain_counts(&c));
    c.depth = 1;
    c.end = CHAIN_GONE;
    assert_true(render_chain_counts(&c));
    c.end = CHAIN_CYCLE;
    c.cycle = true;
    c.text = NULL;
    assert_true(render_chain_counts(&c));
    assert_string_equal(render_chain(text, sizeof(text), &c, true), "");
    for (size_t size = 1; size < 12; size++)
        assert_true(strlen(render_chain(text, size, &c, true)) < size);
}

/* Many chains: the first ten, and how many more. */
static void test_text_of_many_chains(void **state)
{
    static struct snap_chain chains[20];
    struct snapshot s = snapshot_of(NULL, 0, NULL, 0);
    char *text;
    size_t size, lines = 0;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(chains); i++)
        chains[i] = (struct snap_chain){.depth = 1 + i % 2, .text = "x"};
    s.chains = chains;
    s.nchains = ARRAY_SIZE(chains);
    render_chains(out, &s, true);
    s.nchains = 12;
    chains[0].depth = 1;
    render_chains(out, &s, true);
    fclose(out);
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, 10 + 6);
    assert_null(strstr(text, "more"));
    free(text);

    for (size_t i = 0; i < ARRAY_SIZE(chains); i++)
        chains[i].depth = 2;
    s.nchains = 20;
    out = open_memstream(&text, &size);
    render_chains(out, &s, true);
    fclose(out);
    assert_non_null(strstr(text, "  +10 more chains\n"));
    free(text);
}

/* What a sink gets. */
struct got {
    char text[16384];
    size_t lines;
};

static void take(void *arg, enum stack_line kind, const char *text)
{
    static const char marks[] = {
        [STACK_TITLE] = 'T', [STACK_GROUP] = 'G', [STACK_FRAME] = 'F', [STACK_NOTE] = 'N'};
    struct got *g = arg;

    g->lines++;
    snprintf(g->text + strlen(g->text), sizeof(g->text) - strlen(g->text), "%c %s\n", marks[kind],
             text);
}

static void test_groups_in_brief(void **state)
{
    struct shop m;
    struct got g = {.lines = 0};
    const struct stack_sink sink = {take, &g, 60, true, true};

    (void)state;
    fill_shop(&m);
    m.stacks[2].count = 1;
    render_lock_stacks(&sink, &m.locks[0]);
    assert_non_null(strstr(g.text, "G  62 % disk  fsync < journal_flush < worker"));
    assert_non_null(strstr(g.text, "G 12 threads, such as 922\n"));
    assert_non_null(strstr(g.text, "G thread 912: runs too often to be copied\n"));
    assert_non_null(strstr(g.text, "N +1 more stack (1 thread)\n"));
    assert_non_null(strstr(g.text, "T Where holders were seen while others waited, 100 looks\n"));
    assert_true(strstr(g.text, "Stack of the holder") < strstr(g.text, "Waiters by stack"));
}

static void test_deep_stacks_in_brief(void **state)
{
    struct snap_frame frames[40];
    struct snap_stack st = shop_stack(ROLE_WAITER, 1, NULL);
    struct snap_lock l = waited_lock("l", KIND_MUTEX, 1);
    struct got g = {.lines = 0};
    struct stack_sink sink = {take, &g, 60, true, true};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(frames); i++)
        frames[i] = shop_wait_frames[0];
    st.frames = frames;
    st.nframes = ARRAY_SIZE(frames);
    l.stacks = &st;
    l.nstacks = 1;
    render_lock_stacks(&sink, &l);
    assert_int_equal(g.lines, 2 + 16 + 1);
    assert_non_null(strstr(g.text, "F +24 more frames\n"));
    g = (struct got){.lines = 0};
    sink.brief = false;
    render_lock_stacks(&sink, &l);
    assert_int_equal(g.lines, 2 + 40);
}

static void test_unknown_share_is_no_zero(void **state)
{
    struct snap_stack st = shop_stack(ROLE_PROFILE, 1, "a\033b");
    struct snap_lock l = waited_lock("l", KIND_MUTEX, 1);
    struct got g = {.lines = 0};
    const struct stack_sink sink = {take, &g, 0, true, true};

    (void)state;
    st.share = NAN;
    l.stacks = &st;
    l.nstacks = 1;
    render_lock_stacks(&sink, &l);
    assert_non_null(strstr(g.text, "G     - a\\x1bb  no stack\n"));
    assert_non_null(strstr(g.text, "waited, 1 look\n"));
}

static void test_nothing_known(void **state)
{
    struct snap_lock l = waited_lock("l", KIND_MUTEX, 1);
    struct got g = {.lines = 0};
    const struct stack_sink sink = {take, &g, 0, false, true};

    (void)state;
    render_lock_stacks(&sink, &l);
    assert_int_equal(g.lines, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_frames_in_little_room),
        cmocka_unit_test(test_frames_with_hostile_names),
        cmocka_unit_test(test_frames_keep_inside),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_text_of_many_chains),
        cmocka_unit_test(test_groups_in_brief),
        cmocka_unit_test(test_deep_stacks_in_brief),
        cmocka_unit_test(test_unknown_share_is_no_zero),
        cmocka_unit_test(test_nothing_known),
    };

    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

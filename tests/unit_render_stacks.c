/* unit_render_stacks - frames, paths and groups of stacks in words, in any room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <locale.h>
#include <cmocka.h>

#include "../src/fmt.h"
#include "../src/render_path.h"
#include "../src/render_stacks.h"
#include "../src/render_threads.h"
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

static void assert_path(const struct snap_frame *frames, size_t n, const char *want)
{
    struct snap_stack st = {.frames = frames, .nframes = n};
    char text[512];

    assert_string_equal(render_path(text, sizeof(text), &st, true), want);
    for (size_t size = 1; size < strlen(want) + 2; size++)
        assert_true(strlen(render_path(text, size, &st, false)) < size);
}

#define ASSERT_PATH(want, ...)                                                                     \
    do {                                                                                           \
        const struct snap_frame frames_[] = {__VA_ARGS__};                                         \
        assert_path(frames_, ARRAY_SIZE(frames_), want);                                           \
    } while (0)
#define LIBC(function)                                                                             \
    {                                                                                              \
        .name = function, .module = "/lib/x86_64-linux-gnu/libc.so.6"                              \
    }
#define LIBCXX(function)                                                                           \
    {                                                                                              \
        .name = function, .module = "/usr/lib/libstdc++.so.6"                                      \
    }
#define SHOP(function)                                                                             \
    {                                                                                              \
        .name = function, .module = "/opt/shop"                                                    \
    }

static void test_paths(void **state)
{
    (void)state;
    assert_path(shop_sync_frames, 4, "fsync < journal_flush < worker");
    assert_path(shop_wait_frames, 7,
                "__futex_abstimed_wait_common < pthread_mutex_lock < shop::Cart::add < "
                "libshop-plugin.so+0x8b482 < 0x7f1200003f10");
    assert_path(shop_wait_frames, 0, "");
    assert_path(shop_wait_frames, 2, "__futex_abstimed_wait_common < pthread_mutex_lock");
    ASSERT_PATH("f < g < h < i < j < k < ...", SHOP("f"), SHOP("g"), SHOP("h"), SHOP("i"),
                SHOP("j"), SHOP("k"), SHOP("l"));
    ASSERT_PATH("f < g < h < i < j < k", SHOP("f"), SHOP("g"), SHOP("h"), SHOP("i"), SHOP("j"),
                SHOP("k"), LIBC("start_thread"));
}

/* Of the C library the call and what the program called. */
static void test_paths_leave_libraries_out(void **state)
{
    (void)state;
    ASSERT_PATH("write < fflush < flush_log < worker", LIBC("write"), LIBC("_IO_file_write"),
                LIBC("new_do_write"), LIBC("_IO_do_write"), LIBC("_IO_file_sync"), LIBC("fflush"),
                SHOP("flush_log"), SHOP("worker"), LIBC("start_thread"), LIBC("clone3"));
    ASSERT_PATH("compare < qsort < sort_all < main", SHOP("compare"), LIBC("msort_with_tmp"),
                LIBC("qsort_r"), LIBC("qsort"), SHOP("sort_all"), SHOP("main"),
                LIBC("__libc_start_call_main"), LIBC("__libc_start_main_impl"), SHOP("_start"));
    ASSERT_PATH("read < std::istream::read < load", LIBC("read"), LIBCXX("underflow"),
                LIBCXX("std::istream::read"), SHOP("load"), LIBCXX("execute_native_thread_routine"),
                LIBC("start_thread"), LIBC("clone"));
    ASSERT_PATH("sigtimedwait < timer_helper_thread", LIBC("sigtimedwait"),
                LIBC("timer_helper_thread"), LIBC("start_thread"));
    ASSERT_PATH("clone3", LIBC("clone3"));
    ASSERT_PATH("libc.so.6+0x10 < libc.so.6+0x20 < f", {.module = "libc.so.6", .offset = 0x10},
                {.module = "libc.so.6", .offset = 0x20}, SHOP("f"));
    ASSERT_PATH("libcrypto.so.3+0x10 < libcrypto.so.3+0x20",
                {.module = "libcrypto.so.3", .offset = 0x10},
                {.module = "libcrypto.so.3", .offset = 0x20});
}

static void test_paths_name_recursion_once(void **state)
{
    (void)state;
    ASSERT_PATH("fib < main", SHOP("fib"), SHOP("fib"), SHOP("fib"), SHOP("main"));
    ASSERT_PATH("fib < main < fib", SHOP("fib"), SHOP("main"), SHOP("fib"));
}

/* One function at several instructions, with and without a CPU. */
static void fill_spread_profile(struct snap_stack st[5], struct snap_frame frames[5][2])
{
    static const char *const notes[] = {"runq", "running", "running", "disk", "running"};
    static const int counts[] = {38, 27, 9, 20, 6};

    for (size_t i = 0; i < 5; i++) {
        frames[i][0] = (struct snap_frame){"crunch", 0x10 + i, "shop", 0x1010 + i, "a.c", (int)i};
        frames[i][1] = (struct snap_frame){"worker", 8, "shop", 0x2000, NULL, 0};
        st[i] = shop_stack(ROLE_PROFILE, counts[i], NULL);
        st[i].share = counts[i] / 100.0;
        st[i].note = notes[i];
        st[i].frames = frames[i];
        st[i].nframes = 2;
    }
    frames[4][0] = (struct snap_frame){NULL, 0, "shop", 0x3000, NULL, 0};
}

static void test_profiles_are_merged(void **state)
{
    struct snap_frame frames[5][2];
    struct snap_stack st[5], out[5];

    (void)state;
    fill_spread_profile(st, frames);
    for (int brief = 0; brief < 2; brief++) {
        assert_int_equal(merge_stacks(out, st, 5, brief), 3);
        assert_int_equal(out[0].count, 74);
        assert_true(fabs(out[0].share - 0.74) < 1e-9);
        assert_string_equal(out[0].note, "running");
        assert_int_equal(out[0].frames[0].into, 0x10);
        assert_string_equal(out[1].note, "disk");
        assert_int_equal(out[2].count, 6);
    }
    assert_int_equal(merge_stacks(out, st, 0, true), 0);
    st[4].note = NULL;
    st[4].nframes = st[3].nframes = 0;
    assert_int_equal(merge_stacks(out, st, 5, false), 3);
}

/* Inside a library the ways differ, and the line is the same. */
static void test_brief_profiles_have_no_equal_lines(void **state)
{
    struct snap_frame frames[5][2];
    struct snap_stack st[5], out[5];
    const struct snap_frame a[] = {LIBC("write"), LIBC("x"), LIBC("fflush"), SHOP("f")},
                            b[] = {LIBC("write"), LIBC("fflush"), SHOP("f")};

    (void)state;
    fill_spread_profile(st, frames);
    st[1].frames = a;
    st[1].nframes = ARRAY_SIZE(a);
    st[2].frames = b;
    st[2].nframes = ARRAY_SIZE(b);
    assert_int_equal(merge_stacks(out, st, 3, true), 2);
    assert_int_equal(merge_stacks(out, st, 3, false), 3);
}

static void test_chains(void **state)
{
    struct snap_chain c = {.end = CHAIN_OUTSIDE, .depth = 1, .text = "a\nb"};
    struct snapshot s = snapshot_of(NULL, 0, NULL, 0);
    char text[64];

    (void)state;
    assert_string_equal(render_chain(text, sizeof(text), &s, &c, true), "a\\nb");
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
    assert_string_equal(render_chain(text, sizeof(text), &s, &c, true), "");
    for (size_t size = 1; size < 12; size++)
        assert_true(strlen(render_chain(text, size, &s, &c, true)) < size);
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

static char *chains_text(const struct snapshot *s)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    render_chains(out, s, true);
    fclose(out);
    return text;
}

/* What the verdict says already is not said again. */
static void test_text_tells_a_chain_once(void **state)
{
    struct snap_chain chains[] = {{.depth = 2, .text = "a waits for b"},
                                  {.depth = 2, .text = "c waits for d"}};
    struct snapshot s = snapshot_of(NULL, 0, NULL, 0);

    (void)state;
    s.chains = chains;
    s.nchains = 2;
    s.verdict = "a waits for b; and 1 more such";
    char *text = chains_text(&s);
    assert_string_equal(text, "  c waits for d\n");
    free(text);
    s.verdict = NULL;
    text = chains_text(&s);
    assert_string_equal(text, "  a waits for b\n  c waits for d\n");
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

static void test_merged_profile_on_the_screen(void **state)
{
    struct snap_frame frames[5][2];
    struct snap_stack st[5];
    struct snap_lock l = waited_lock("l", KIND_MUTEX, 1);
    struct got g = {.lines = 0};
    const struct stack_sink sink = {take, &g, 0, true, true};

    (void)state;
    fill_spread_profile(st, frames);
    l.stacks = st;
    l.nstacks = 5;
    render_lock_stacks(&sink, &l);
    assert_string_equal(g.text, "T Where holders were seen while others waited, 100 looks\n"
                                "G  74 % running  crunch < worker\n"
                                "G  20 % disk  crunch < worker\n"
                                "G   6 % running  shop+0x3000 < worker\n");
}

/* The code to fix in text ------------------------------------------------------------------- */

static char *code_text(const struct snap_lock *l)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    render_code(out, l, true);
    fclose(out);
    return text;
}

static void test_code_of_a_lock(void **state)
{
    struct shop m;

    (void)state;
    fill_shop(&m);
    char *text = code_text(&m.locks[0]);
    assert_string_equal(text,
                        "    waiters come through: __futex_abstimed_wait_common < "
                        "pthread_mutex_lock < shop::Cart::add < libshop-plugin.so+0x8b482 < "
                        "0x7f1200003f10 (12 of 20)\n"
                        "    holders were seen in: 62 % disk fsync < journal_flush < worker\n"
                        "                          38 % running __futex_abstimed_wait_common < "
                        "pthread_mutex_lock < shop::Cart::add < libshop-plugin.so+0x8b482 < "
                        "0x7f1200003f10\n");
    free(text);
    m.locks[0].nstacks = 0;
    text = code_text(&m.locks[0]);
    assert_string_equal(text, "");
    free(text);
    m.locks[0].nstacks = 1;
    m.stacks[0] = shop_stack(ROLE_PROFILE, 7, "run\n");
    text = code_text(&m.locks[0]);
    assert_string_equal(text, "    holders were seen in: 50 % run\\n (no stack)\n");
    free(text);
}

static void test_code_is_told_of_contention(void **state)
{
    struct shop m;

    (void)state;
    fill_shop(&m);
    assert_ptr_equal(render_code_lock(&m.snapshot), &m.locks[0]);
    m.locks[0].waiters_avg_10s = 0.99;
    assert_null(render_code_lock(&m.snapshot));
    m.locks[0].waiters_avg_10s = NAN;
    assert_null(render_code_lock(&m.snapshot));
    m.locks[0].class = CLASS_SYNC;
    assert_ptr_equal(render_code_lock(&m.snapshot), &m.locks[1]);
    m.snapshot.nlocks = 0;
    assert_null(render_code_lock(&m.snapshot));
}

/* All threads --------------------------------------------------------------------------------- */

#define HELPERS 24

static void fill_helpers(struct snap_thread *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        t[i] = (struct snap_thread){.pid = 900,
                                    .tid = 29251 + (pid_t)i,
                                    .comm = "helper",
                                    .state = THREAD_SYNC,
                                    .age_ms = 100.0 * (double)(1 + i)};
        t[i].stack = shop_stack(ROLE_WAITER, 1, NULL);
        t[i].stack.presumed = i == 0;
        t[i].stack.frames = shop_sync_frames;
        t[i].stack.nframes = 1;
    }
}

static char *threads_text(const struct snapshot *s)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    render_threads(out, s, true);
    fclose(out);
    return text;
}

static void test_threads_in_groups(void **state)
{
    struct snap_thread t[HELPERS];
    struct snap_process p = healthy_process(900, "shop");
    struct snapshot s = snapshot_of(&p, 1, NULL, 0);

    (void)state;
    fill_helpers(t, HELPERS);
    s.threads = t;
    s.nthreads = HELPERS;
    char *text = threads_text(&s);
    assert_string_equal(text, "\nthreads of shop[900]\n"
                              "24 threads: 29251 29252 29253 29254 29255 29256 29257 29258 "
                              "+16 more helper sync up to 2.4s\n"
                              "  #0  fsync+0x24  libc.so.6\n");
    free(text);
    t[1].state = THREAD_NET;
    t[2].stack.complete = false;
    strcpy(t[3].comm, "other");
    s.nthreads = 4;
    text = threads_text(&s);
    assert_string_equal(text, "\nthreads of shop[900]\n"
                              "2 threads: 29251 29254 other and others sync up to 400ms\n"
                              "  #0  fsync+0x24  libc.so.6\n"
                              "29252 helper net 200ms\n"
                              "  #0  fsync+0x24  libc.so.6\n"
                              "29253 helper sync 300ms (not walked to the thread's start)\n"
                              "  #0  fsync+0x24  libc.so.6\n");
    free(text);
}

/* Which lock it is matters, which condition variable does not; processes stay apart. */
static void test_threads_of_several_locks(void **state)
{
    struct snap_thread t[5];
    struct snap_lock l[] = {waited_lock("a", KIND_MUTEX, 1), waited_lock("b", KIND_MUTEX, 1),
                            waited_lock("c", KIND_COND, 1), waited_lock("d", KIND_COND, 1)};
    struct snapshot s = snapshot_of(NULL, 0, l, 4);

    (void)state;
    fill_helpers(t, 5);
    for (size_t i = 0; i < 4; i++) {
        l[i].address = 0x1000 * (i + 1);
        t[i].lock = l[i].id;
        t[i].stack.presumed = false;
    }
    t[4].pid = 901;
    s.threads = t;
    s.nthreads = 5;
    char *text = threads_text(&s);
    assert_non_null(strstr(text, "\n29251 helper sync 100ms for mutex 0x1000\n"));
    assert_non_null(strstr(text, "\n29252 helper sync 200ms for mutex 0x2000\n"));
    assert_non_null(strstr(text, "\n2 threads: 29253 29254 helper sync up to 400ms for different "
                                 "objects\n"));
    assert_non_null(strstr(text, "\n\nthreads of ?[901]\n29255 helper sync 500ms\n"));
    free(text);
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
        cmocka_unit_test(test_paths_leave_libraries_out),
        cmocka_unit_test(test_paths_name_recursion_once),
        cmocka_unit_test(test_profiles_are_merged),
        cmocka_unit_test(test_brief_profiles_have_no_equal_lines),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_text_of_many_chains),
        cmocka_unit_test(test_text_tells_a_chain_once),
        cmocka_unit_test(test_groups_in_brief),
        cmocka_unit_test(test_deep_stacks_in_brief),
        cmocka_unit_test(test_unknown_share_is_no_zero),
        cmocka_unit_test(test_merged_profile_on_the_screen),
        cmocka_unit_test(test_code_of_a_lock),
        cmocka_unit_test(test_code_is_told_of_contention),
        cmocka_unit_test(test_threads_in_groups),
        cmocka_unit_test(test_threads_of_several_locks),
        cmocka_unit_test(test_nothing_known),
    };

    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

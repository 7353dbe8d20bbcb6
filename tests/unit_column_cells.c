/* unit_column_cells - what the cells of a row say, and how they fit their widths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../src/fmt.h"
#include "snap_build.h"

static const struct snap_holder io_write = {
    .pid = 16147,
    .tid = 16149,
    .comm = "io_write",
    .state = THREAD_DISK,
    .state_known = true,
    .confidence = CONF_CONFIRMED,
};

static void assert_cell(enum column c, const struct snap_lock *l, const char *want)
{
    char text[512];

    assert_string_equal(column_text(text, sizeof(text), c, l, true), want);
}

static void assert_holder(struct snap_holder h, size_t n, const char *want)
{
    struct snap_holder several[4] = {h, h, h, h};
    struct snap_lock l = blank_lock("l", KIND_MUTEX);

    l.holders = several;
    l.nholders = n;
    assert_cell(COL_HOLDER, &l, want);
}

static void test_numbers(void **state)
{
    const struct snap_waiter waiters[] = {{.age_ms = 1200}, {.age_ms = 18.4}, {.age_ms = NAN}};
    struct snap_lock l = blank_lock("l", KIND_MUTEX);

    (void)state;
    l.waiters = 31;
    l.waiters_max = 5;
    l.waiters_avg_1s = 30.24;
    l.waiters_avg_60s = 0;
    l.busy = 0.978;
    l.wait_share = 1;
    l.waiter_threads = waiters;
    l.nwaiter_threads = 3;
    assert_cell(COL_WAITERS, &l, "31");
    assert_cell(COL_MAX, &l, "5");
    assert_cell(COL_AVG1, &l, "30.2");
    assert_cell(COL_AVG10, &l, "-");
    assert_cell(COL_AVG60, &l, "0.0");
    assert_cell(COL_BUSY, &l, "98");
    assert_cell(COL_SHARE, &l, "100");
    assert_cell(COL_AGE, &l, "1.2s");
    assert_cell(COL_PID, &l, "16147");
}

static void test_unknown_numbers(void **state)
{
    struct snap_lock l = blank_lock("l", KIND_MUTEX);

    (void)state;
    l.waiters = l.waiters_max = -1;
    l.pid = -1;
    for (enum column c = 0; c < COLUMNS_COUNT; c++)
        if (column_info(c)->right)
            assert_cell(c, &l, "-");
}

static void test_kind_and_class(void **state)
{
    struct snap_lock l = blank_lock("l", KIND_MUTEX);

    (void)state;
    l.kind = KIND_FLOCK;
    l.class = CLASS_FILELOCK;
    assert_cell(COL_KIND, &l, "flock");
    assert_cell(COL_CLASS, &l, "filelock");
    l.confidence = CONF_LIKELY;
    assert_cell(COL_KIND, &l, "flock?");
    l.confidence = CONF_UNKNOWN;
    assert_cell(COL_KIND, &l, "flock?");
}

static void test_lock_cell(void **state)
{
    struct snap_lock l = blank_lock("l", KIND_MUTEX);

    (void)state;
    assert_cell(COL_LOCK, &l, "-");
    l.address = 0x7f00000a0040;
    assert_cell(COL_LOCK, &l, "0x7f00000a0040");
    l.path = "/dev/shm/pool";
    assert_cell(COL_LOCK, &l, "/dev/shm/pool 0x7f00000a0040");
    l.class = CLASS_FILELOCK;
    assert_cell(COL_LOCK, &l, "/dev/shm/pool");
    l.class = CLASS_LOCK;
    l.name = "buf_pool+0x40";
    assert_cell(COL_LOCK, &l, "buf_pool+0x40");
    l.name = "a\033[2Jb\n\xff";
    assert_cell(COL_LOCK, &l, "a\\x1b[2Jb\\n\\xff");
    l.name = "";
    assert_cell(COL_LOCK, &l, "-");
}

static void assert_fitted(const struct snap_lock *l, int width, const char *want)
{
    char cell[256];

    assert_string_equal(column_cell(cell, sizeof(cell), COL_LOCK, NULL, l, width, true), want);
}

static void test_lock_cell_with_site(void **state)
{
    struct snap_lock l = blank_lock("l", KIND_MUTEX);

    (void)state;
    l.site = "queue_push";
    assert_cell(COL_LOCK, &l, "in queue_push");
    l.address = 0x55d0c0e010;
    assert_cell(COL_LOCK, &l, "0x55d0c0e010 in queue_push");
    assert_fitted(&l, 26, "0x55d0c0e010 in queue_push");
    assert_fitted(&l, 25, "in queue_push            "); /* the code tells more than the address */
    assert_fitted(&l, 8, "in queu~");
    assert_fitted(&l, 1, "~");
    l.name = "jobs";
    assert_fitted(&l, 26, "jobs in queue_push        ");
    assert_fitted(&l, 17, "jobs             "); /* but not more than a name */
    l.site = "shop::Queue<std::pair<int, char> >::push(std::pair<int, char> const&)";
    assert_fitted(&l, 26, "jobs in shop::Queue::push ");
    assert_fitted(&l, 24, "jobs in ~Queue::push    ");
    l.site = "a\033b";
    assert_cell(COL_LOCK, &l, "jobs in a\\x1bb");
    l.name = NULL;
    l.path = "/dev/shm/pool";
    assert_cell(COL_LOCK, &l, "/dev/shm/pool 0x55d0c0e010 in a\\x1bb");
}

/* A place in a mapping or a file tells no more than an address. */
static void test_lock_cell_of_a_place(void **state)
{
    static const struct snap_frame frame = {.name = "f", .module = "/opt/shop"};
    static const struct snap_stack stack = {.frames = &frame, .nframes = 1};
    static const char *const places[] = {"[heap]+0x11ee0", "libfoo.so.1+0x40", "shop+0x4010",
                                         "/dev/shm/p+0x40"};
    struct snap_lock l = blank_lock("l", KIND_MUTEX);

    (void)state;
    l.site = "flush_log_queue";
    l.stacks = &stack;
    l.nstacks = 1;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char whole[64];
        l.name = places[i];
        assert_fitted(&l, 27, "in flush_log_queue         ");
        assert_fitted(&l, 18, "in flush_log_queue");
        snprintf(whole, sizeof(whole), "%s in flush_log_queue", places[i]);
        assert_cell(COL_LOCK, &l, whole);
    }
    l.name = "buf_pool+0x40";
    assert_fitted(&l, 20, "buf_pool+0x40       ");
    l.site = NULL;
    l.name = places[0];
    assert_fitted(&l, 20, "[heap]+0x11ee0      ");
}

static void assert_title(const struct snap_lock *l, const char *want)
{
    char text[256];

    assert_string_equal(column_title(text, sizeof(text), l, true), want);
    for (size_t size = 1; size <= strlen(want); size++)
        assert_int_equal(strlen(column_title(text, size, l, true)), size - 1);
}

static void test_title(void **state)
{
    struct snap_lock l = blank_lock("l", KIND_MUTEX);

    (void)state;
    assert_title(&l, "mutex");
    l.site = "push";
    assert_title(&l, "mutex in push");
    l.address = 0x7f10;
    assert_title(&l, "mutex 0x7f10 in push");
    l.name = "mutex";
    assert_title(&l, "mutex \"mutex\" in push");
    l.name = "[heap]+0x10";
    assert_title(&l, "mutex [heap]+0x10 in push");
    l.kind = KIND_MONITOR;
    l.name = "InnoDB row lock";
    assert_title(&l, "InnoDB row lock in push");
    l.name = NULL;
    l.address = 0;
    assert_title(&l, "monitor in push");
}

/* Symbols of C++ may be of any length: what is listed is not. */
static void test_lock_cell_is_bounded(void **state)
{
    struct snap_lock l = blank_lock("l", KIND_MUTEX);
    char name[3000], cell[4096];

    (void)state;
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    l.name = l.site = name;
    assert_true(strlen(column_text(cell, sizeof(cell), COL_LOCK, &l, true)) <= 130);
    for (int width = 1; width < 100; width++)
        assert_int_equal(strlen(column_cell(cell, sizeof(cell), COL_LOCK, NULL, &l, width, true)),
                         width);
}

static void test_holder_cell(void **state)
{
    struct snap_holder h = io_write;

    (void)state;
    assert_holder(h, 0, "-");
    assert_holder(h, 1, "io_write 16149 disk");
    assert_holder(h, 3, "io_write 16149 disk +2");
    h.confidence = CONF_LIKELY;
    assert_holder(h, 1, "io_write 16149 disk?");
    assert_holder(h, 2, "io_write 16149 disk? +1");
    h.state_known = false;
    assert_holder(h, 1, "io_write 16149?");
    h.confidence = CONF_CONFIRMED;
    h.gone = true;
    assert_holder(h, 1, "io_write 16149 gone");
    h.comm[0] = '\0';
    assert_holder(h, 1, "16149 gone");
    h.tid = -1;
    assert_holder(h, 1, "16147 gone");
}

static void test_unnamed_holder_cell(void **state)
{
    struct snap_holder h = {.pid = -1, .tid = -1, .age_ms = NAN};

    (void)state;
    assert_holder(h, 1, "-");
    h.unrecorded = true;
    h.detail = "not recorded by this lock";
    assert_holder(h, 1, "? (not recorded)");
    h.mode = MODE_SHARED;
    h.detail = "3 readers; not recorded";
    assert_holder(h, 1, "? 3 readers; not recorded");
    h.detail = "outside\nthis namespace";
    assert_holder(h, 1, "? outside\\nthis namespace");
}

/* The number of a holder that is gone comes before all reasons. */
static void test_gone_holder_in_few_cells(void **state)
{
    struct snap_holder h = {.pid = -1, .tid = -1, .gone = true, .age_ms = NAN};
    struct snap_lock l = blank_lock("l", KIND_MUTEX);
    char cell[256];

    (void)state;
    h.detail = "its owner TID 15112 no longer exists (ended holding it): never released";
    h.confidence = CONF_LIKELY;
    l.holders = &h;
    l.nholders = 1;
    assert_string_equal(column_cell(cell, 256, COL_HOLDER, NULL, &l, 22, true),
                        "gone 15112            ");
    assert_cell(COL_HOLDER, &l,
                "? its owner TID 15112 no longer exists (ended holding it): never "
                "released");
    h.gone = false;
    h.detail = "owner TID 15112 is not among the threads that can be seen";
    assert_string_equal(column_cell(cell, 256, COL_HOLDER, NULL, &l, 22, true),
                        "? TID 15112           ");
    h.gone = true;
    h.detail = "its owner died while holding it";
    assert_string_equal(column_cell(cell, 256, COL_HOLDER, NULL, &l, 22, true),
                        "gone                  ");
    h.detail = NULL;
    assert_cell(COL_HOLDER, &l, "gone");
}

/* What is as old as the watching may be older. */
static void test_age_of_what_began_before(void **state)
{
    static const struct snap_waiter waiter = {.age_ms = 3190};
    struct snap_lock l = blank_lock("l", KIND_MUTEX);
    struct snapshot s = {.elapsed = 3200 * NSEC_PER_MSEC, .self.sweep_hz = 50};
    char cell[256];

    (void)state;
    l.waiter_threads = &waiter;
    l.nwaiter_threads = 1;
    assert_string_equal(column_cell(cell, 256, COL_AGE, &s, &l, 6, true), " >3.2s");
    assert_string_equal(column_cell(cell, 256, COL_AGE, NULL, &l, 6, true), "  3.2s");
    s.elapsed += 50 * NSEC_PER_MSEC;
    assert_string_equal(column_cell(cell, 256, COL_AGE, &s, &l, 6, true), "  3.2s");
    assert_string_equal(age_text(cell, 256, &s, 3250), ">3.3s");
    assert_string_equal(age_text(cell, 256, &s, NAN), "-");
    s.self.sweep_hz = NAN;
    assert_string_equal(age_text(cell, 256, &s, 3249), "3.2s");
    assert_string_equal(age_text(cell, 256, &s, 3250), ">3.3s");
}

static void test_every_cell_survives_a_small_buffer(void **state)
{
    struct snap_lock l = blank_lock("l", KIND_MUTEX);

    (void)state;
    l.holders = &io_write;
    l.nholders = 1;
    l.path = "/data/very/long";
    l.address = 1;
    l.site = "a_long_function";
    for (size_t size = 1; size < 40; size++)
        for (enum column c = 0; c < COLUMNS_COUNT; c++) {
            char *cell = malloc(size);
            assert_true(strlen(column_text(cell, size, c, &l, false)) < size);
            assert_true(strlen(column_cell(cell, size, c, NULL, &l, 10, false)) < size);
            free(cell);
        }
}

static void test_fitted_cells(void **state)
{
    struct snap_lock l = blank_lock("l", KIND_MUTEX);
    char cell[256];

    (void)state;
    l.waiters = 31;
    l.kind = KIND_MUTEX_RECURSIVE;
    l.holders = &io_write;
    l.nholders = 1;
    assert_string_equal(column_cell(cell, 256, COL_WAITERS, NULL, &l, 6, true), "    31");
    assert_string_equal(column_cell(cell, 256, COL_WAITERS, NULL, NULL, 6, true), "  WAIT");
    assert_string_equal(column_cell(cell, 256, COL_KIND, NULL, NULL, 6, true), "KIND  ");
    assert_string_equal(column_cell(cell, 256, COL_KIND, NULL, &l, 9, true), "mutex-re~");
    assert_string_equal(column_cell(cell, 256, COL_KIND, NULL, &l, 15, true), "mutex-recursive");
    assert_string_equal(column_cell(cell, 256, COL_KIND, NULL, &l, 17, true), "mutex-recursive  ");
    assert_string_equal(column_cell(cell, 256, COL_KIND, NULL, &l, 0, true), "mutex-recursive");
    l.confidence = CONF_UNKNOWN;
    assert_string_equal(column_cell(cell, 256, COL_KIND, NULL, &l, 9, true), "mutex-r~?");
    assert_string_equal(column_cell(cell, 256, COL_KIND, NULL, &l, 16, true), "mutex-recursive?");
    assert_string_equal(column_cell(cell, 256, COL_HOLDER, NULL, &l, 22, true),
                        "io_write 16149 disk   ");
}

/* The TID is what the reader needs: the name gives way. */
static void test_long_holder_keeps_its_tid(void **state)
{
    struct snap_holder h = io_write;
    struct snap_lock l = blank_lock("l", KIND_MUTEX);
    char cell[256];

    (void)state;
    strcpy(h.comm, "connection-hand");
    h.tid = 4194303;
    h.state = THREAD_RUNNING;
    l.holders = &h;
    l.nholders = 1;
    assert_string_equal(column_cell(cell, 256, COL_HOLDER, NULL, &l, 22, true),
                        "conne~ 4194303 running");
    assert_string_equal(column_cell(cell, 256, COL_HOLDER, NULL, &l, 31, true),
                        "connection-hand 4194303 running");
    assert_string_equal(column_cell(cell, 256, COL_HOLDER, NULL, &l, 10, true), "con~ 4194~");
}

static bool utf8_locale(void)
{
    return setlocale(LC_CTYPE, "C.UTF-8") || setlocale(LC_CTYPE, "C.utf8");
}

static void test_double_width_cells_line_up(void **state)
{
    struct snap_holder h = io_write;
    struct snap_lock l = blank_lock("l", KIND_MUTEX);
    char cell[256];

    (void)state;
    if (!utf8_locale())
        skip();
    strcpy(h.comm, "\u65e5\u672c\u8a9e\u65e5");
    l.holders = &h;
    l.nholders = 1;
    for (int width = 1; width < 40; width++)
        assert_int_equal(text_cells(column_cell(cell, 256, COL_HOLDER, NULL, &l, width, false)),
                         width);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_unknown_numbers),
        cmocka_unit_test(test_kind_and_class),
        cmocka_unit_test(test_lock_cell),
        cmocka_unit_test(test_lock_cell_with_site),
        cmocka_unit_test(test_lock_cell_of_a_place),
        cmocka_unit_test(test_title),
        cmocka_unit_test(test_lock_cell_is_bounded),
        cmocka_unit_test(test_holder_cell),
        cmocka_unit_test(test_unnamed_holder_cell),
        cmocka_unit_test(test_gone_holder_in_few_cells),
        cmocka_unit_test(test_age_of_what_began_before),
        cmocka_unit_test(test_every_cell_survives_a_small_buffer),
        cmocka_unit_test(test_fitted_cells),
        cmocka_unit_test(test_long_holder_keeps_its_tid),
        cmocka_unit_test(test_double_width_cells_line_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * unit_render - snapshots built by hand, rendered as text and JSON and compared byte for byte
 * with the files in golden/ (UPDATE_GOLDEN=1 rewrites those), and the lines of text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "snap_build.h"

/* Golden files ----------------------------------------------------------------------------- */

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static char *read_file(const char *path)
{
    char *text = xcalloc(1, 1 << 16);
    FILE *f = fopen(path, "r");

    if (f) {
        size_t n = fread(text, 1, (1 << 16) - 1, f);
        text[n] = '\0';
        fclose(f);
    }
    return text;
}

/* Compares TEXT, which it frees, with golden/NAME beside this source. */
static void assert_golden(const char *name, char *text)
{
    const char *update = getenv("UPDATE_GOLDEN");
    const char *slash = strrchr(__FILE__, '/');
    char path[512];

    snprintf(path, sizeof(path), "%.*sgolden/%s", slash ? (int)(slash - __FILE__ + 1) : 0, __FILE__,
             name);
    if (update && strcmp(update, "1") == 0)
        write_file(path, text);
    char *want = read_file(path);
    if (strcmp(text, want) != 0)
        print_error("%s differs; this was rendered:\n%s\n", path, text);
    assert_string_equal(text, want);
    free(want);
    free(text);
}

static void assert_all_golden(const char *name, const struct snapshot *s)
{
    char file[64];

    snprintf(file, sizeof(file), "%s.txt", name);
    assert_golden(file, render(s, false, true, 80));
    snprintf(file, sizeof(file), "%s.json", name);
    assert_golden(file, render(s, true, true, 80));
}

static void test_mariadb(void **state)
{
    struct mariadb m;

    (void)state;
    fill_mariadb(&m);
    assert_all_golden("mariadb", &m.snapshot);
    assert_golden("mariadb_wide.txt", render(&m.snapshot, false, true, 140));
}

static void test_stacks_and_chains(void **state)
{
    struct shop m;

    (void)state;
    fill_shop(&m);
    assert_all_golden("stacks", &m.snapshot);
    m.snapshot.threads = NULL; /* taken, but not asked for as text */
    m.snapshot.nthreads = 0;
    assert_golden("stacks_auto.txt", render(&m.snapshot, false, true, 80));
}

/* Names that would spoil a terminal, a line or a parser. ----------------------------------- */

static void fill_path(char path[201])
{
    path[0] = '/';
    for (int i = 1; i < 200; i++)
        path[i] = i % 20 ? (char)('a' + i % 20) : '/';
    path[200] = '\0';
}

static void test_hostile_names(void **state)
{
    char path[201];
    struct snap_process p = healthy_process(7, "a\033[2J\nb");
    struct snap_holder h = {.pid = 7,
                            .tid = 9,
                            .comm = ") R 1 1 (\xc3\xa9\xff",
                            .mode = MODE_SHARED,
                            .detail = "read fd 3 \033]0;x\a",
                            .age_ms = NAN};
    struct snap_waiter w = {
        .pid = 7, .tid = 8, .comm = "\xe2\x80\xae\"\\x", .mode = MODE_NONE, .age_ms = NAN};
    struct snap_lock locks[3];
    const char *degraded[] = {"line 1\nline 2"};

    (void)state;
    fill_path(path);
    locks[0] = waited_lock("f1:2:3", KIND_FLOCK, 3);
    locks[0].path = path;
    locks[0].holders = &h;
    locks[0].nholders = 1;
    locks[0].waiter_threads = &w;
    locks[0].nwaiter_threads = 1;
    locks[1] = waited_lock("p7:1\n", KIND_MUTEX, 2);
    locks[1].name = "caf\xc3\xa9\r\x9b\x31m";
    locks[2] = waited_lock("p7:2", KIND_POSIX, 1);
    locks[2].path = "/tmp/\"q\"\t\\\xc3";

    struct snapshot s = snapshot_of(&p, 1, locks, 3);
    s.severity = SEVERITY_WARNING;
    s.verdict = "a\033[31m holds it";
    s.self.degraded = degraded;
    s.self.ndegraded = 1;
    assert_all_golden("hostile", &s);
    assert_golden("hostile_utf8.txt", render(&s, false, false, 80));
}

static void test_healthy(void **state)
{
    struct snap_process p = healthy_process(4242, "idle");
    struct snapshot s = snapshot_of(&p, 1, NULL, 0);

    (void)state;
    assert_all_golden("healthy", &s);
}

static void test_several_processes(void **state)
{
    struct snap_process p[] = {healthy_process(100, "php-fpm"), healthy_process(101, "php-fpm"),
                               healthy_process(102, "")};
    struct snap_lock locks[] = {waited_lock("f8:1:5", KIND_FLOCK, 2)};

    (void)state;
    locks[0].path = "/var/lib/php/sess_x (deleted)";
    locks[0].pid = -1;
    p[0].rss_growth_kb = 2048;
    p[0].states[THREAD_SLEEP] = 1;
    p[0].states[THREAD_FILELOCK] = 2;
    p[0].unreadable = 1;
    p[1].rss_growth_kb = -300;
    p[1].cpus_allowed = 1;
    p[2].threads = 0;
    p[2].ended = true;
    p[2].states[THREAD_SLEEP] = 0;
    p[2].cpu_cores = p[2].voluntary_per_s = NAN;

    struct snapshot s = snapshot_of(p, 3, locks, 1);
    s.elapsed = 75 * NSEC_PER_SEC;
    assert_all_golden("several", &s);
}

static void test_ended_process(void **state)
{
    struct snap_process p = {
        .pid = 16147,
        .comm = "mariadbd",
        .ended = true,
        .cpu_cores = NAN,
        .cpus_allowed = -1,
        .rss_kb = -1,
        .rss_growth_kb = INT64_MIN,
        .voluntary_per_s = NAN,
        .involuntary_per_s = NAN,
        .minflt_per_s = NAN,
        .majflt_per_s = NAN,
    };
    struct snapshot s = snapshot_of(&p, 1, NULL, 0);

    (void)state;
    s.verdict = "mariadbd[16147] has exited";
    s.self.sweep_hz = s.self.cpu_pct = NAN;
    assert_all_golden("ended", &s);
}

/* Text ------------------------------------------------------------------------------------- */

static void test_header_follows_the_time_zone(void **state)
{
    struct snap_process p = healthy_process(1, "a");
    struct snapshot s = snapshot_of(&p, 1, NULL, 0);
    char line[256];

    (void)state;
    setenv("TZ", "XYZ-3", 1);
    render_header(line, sizeof(line), &s, true);
    setenv("TZ", "UTC", 1);
    assert_string_equal(line, "lock-top  a[1]  3 threads  10s   50/s  self 0.6%  19:07:25");
}

static void test_header_of_few(void **state)
{
    struct snap_process p = healthy_process(1, "a");
    struct snapshot s = snapshot_of(&p, 1, NULL, 0);
    char line[256];

    (void)state;
    p.threads = 1;
    s.elapsed = 59600 * NSEC_PER_MSEC;
    assert_non_null(strstr(render_header(line, sizeof(line), &s, true), "  1 thread  1m00s   "));
    s.elapsed = 0;
    s.nprocesses = 0;
    assert_non_null(
        strstr(render_header(line, sizeof(line), &s, true), "0 processes  0 threads  0s   "));
}

static void test_lines_of_one_of_several(void **state)
{
    struct snap_process p[] = {healthy_process(1, "a"), healthy_process(2, "b")};
    struct snapshot s = snapshot_of(p, 2, NULL, 0);
    char line[256];

    (void)state;
    p[1].states[THREAD_STOPPED] = 1.04;
    p[1].states[THREAD_KERNEL] = 0.04;
    p[1].states[THREAD_NET] = NAN;
    assert_string_equal(render_process(line, sizeof(line), &s, 1),
                        "b[2]  cpu 0.1 of 2   ctxsw 20/s   majflt 0/s   rss 5.0M +0");
    assert_string_equal(render_process(line, sizeof(line), &s, -1),
                        "cpu 0.2 of 2   ctxsw 40/s   majflt 0/s   rss 10M +0");
    assert_string_equal(render_states(line, sizeof(line), &s, 1),
                        "run 0.0  runq 0.0  LOCK 0.0  sync 0.0  net -  sleep 3.0  stop 1.0");
    assert_string_equal(render_states(line, sizeof(line), &s, -1),
                        "run 0.0  runq 0.0  LOCK 0.0  sync 0.0  net -  sleep 6.0  stop 1.0");
}

static void test_sync_fold(void **state)
{
    struct snap_lock locks[] = {waited_lock("1", KIND_SEM, 1),   waited_lock("2", KIND_COND, 100),
                                waited_lock("3", KIND_JOIN, 1),  waited_lock("4", KIND_COND, 98),
                                waited_lock("5", KIND_MUTEX, 7), waited_lock("6", KIND_BARRIER, 0)};
    struct snapshot s = snapshot_of(NULL, 0, locks, 6);
    char line[256];

    (void)state;
    assert_string_equal(render_sync_fold(line, sizeof(line), &s),
                        "sync: 200 threads on 4 objects (cond 198, join 1, sem 1)");
    s = snapshot_of(NULL, 0, locks, 1);
    assert_string_equal(render_sync_fold(line, sizeof(line), &s),
                        "sync: 1 thread on 1 object (sem 1)");
    s = snapshot_of(NULL, 0, locks, 0);
    assert_string_equal(render_sync_fold(line, sizeof(line), &s), "");
}

static void test_verdict(void **state)
{
    struct snapshot s = snapshot_of(NULL, 0, NULL, 0);
    char line[64];

    (void)state;
    s.verdict = NULL;
    s.severity = SEVERITY_CRITICAL;
    assert_string_equal(render_verdict(line, sizeof(line), &s, true), "");
    s.verdict = "caf\xc3\xa9\n waits";
    assert_string_equal(render_verdict(line, sizeof(line), &s, true),
                        "CRITICAL caf\\xc3\\xa9\\n waits");
    s.severity = SEVERITY_WARNING;
    assert_string_equal(render_verdict(line, sizeof(line), &s, false),
                        "WARNING caf\xc3\xa9\\n waits");
    s.severity = SEVERITY_INFO;
    assert_string_equal(render_verdict(line, 5, &s, false), "caf");
}

static void test_verdict_shortens_names(void **state)
{
    struct shop m;
    char line[512];

    (void)state;
    fill_shop(&m);
    m.snapshot.verdict = "20 wait for journal_lock (in shop::Cart<std::map<std::string, "
                         "std::vector<shop::Item> > >::add(shop::Item const&)); held by a[1]";
    assert_string_equal(render_verdict(line, sizeof(line), &m.snapshot, true),
                        "CRITICAL 20 wait for journal_lock (in shop::Cart::add); held by a[1]");
}

static void test_no_chains(void **state)
{
    struct shop m;
    char line[128];

    (void)state;
    fill_shop(&m);
    assert_string_equal(render_no_chains(line, sizeof(line), &m.snapshot),
                        "23 threads wait for a lock whose holder is not known at this moment");
    m.snapshot.locks++;
    m.snapshot.nlocks = 1;
    m.locks[1].waiters = 1;
    assert_string_equal(render_no_chains(line, sizeof(line), &m.snapshot),
                        "1 thread waits for a lock whose holder is not known at this moment");
    m.locks[1].class = CLASS_SYNC;
    assert_string_equal(render_no_chains(line, sizeof(line), &m.snapshot),
                        "no thread is known to wait for another");
}

static void test_degraded(void **state)
{
    const char *why[] = {"one\n", "two"};
    struct snapshot s = snapshot_of(NULL, 0, NULL, 0);
    char line[64];

    (void)state;
    s.self.ndegraded = 0;
    assert_string_equal(render_degraded(line, sizeof(line), &s, -1, true), "");
    s.self.degraded = why;
    s.self.ndegraded = 2;
    assert_string_equal(render_degraded(line, sizeof(line), &s, -1, true),
                        "degraded: one\\n; two");
    assert_string_equal(render_degraded(line, sizeof(line), &s, 1, true), "degraded: two");
    assert_string_equal(render_degraded(line, sizeof(line), &s, 2, true), "");
}

static void test_ended(void **state)
{
    struct snap_process p[] = {healthy_process(123, "x\n\033)"), healthy_process(124, "y"),
                               healthy_process(125, "z")};
    struct snapshot s = snapshot_of(p, 1, NULL, 0);
    char line[128];

    (void)state;
    assert_string_equal(render_ended(line, sizeof(line), &s),
                        "process 123 (x\\n\\x1b)) has exited");
    p[0].comm[0] = '\0';
    assert_string_equal(render_ended(line, sizeof(line), &s), "process 123 (?) has exited");
    s.nprocesses = 3;
    assert_string_equal(render_ended(line, sizeof(line), &s), "all 3 processes have exited");
    s.nprocesses = 0;
    const char *nothing = "nothing is left to watch: every process has exited";
    assert_string_equal(render_ended(line, sizeof(line), &s), nothing);
    assert_string_equal(render_ended(line, sizeof(line), NULL), nothing);
}

static void test_lines_survive_a_small_buffer(void **state)
{
    struct mariadb m;

    (void)state;
    fill_mariadb(&m);
    for (size_t size = 1; size < 100; size++) {
        char *line = malloc(size);
        assert_true(strlen(render_header(line, size, &m.snapshot, false)) < size);
        assert_true(strlen(render_process(line, size, &m.snapshot, 0)) < size);
        assert_true(strlen(render_states(line, size, &m.snapshot, 0)) < size);
        assert_true(strlen(render_sync_fold(line, size, &m.snapshot)) < size);
        assert_true(strlen(render_verdict(line, size, &m.snapshot, false)) < size);
        assert_true(strlen(render_degraded(line, size, &m.snapshot, -1, false)) < size);
        assert_true(strlen(render_ended(line, size, &m.snapshot)) < size);
        free(line);
    }
}

static void test_rows_fit_80_cells(void **state)
{
    struct mariadb m;

    (void)state;
    fill_mariadb(&m);
    char *text = render(&m.snapshot, false, true, 80);
    char *list = strstr(text, "WAIT ");
    assert_non_null(list);
    for (char *line = strtok(list, "\n"); line && strncmp(line, "sync:", 5) != 0;
         line = strtok(NULL, "\n"))
        if (!strstr(line, "/dev/shm/") && !strstr(line, "/data/")) /* paths are not cut */
            assert_true(strlen(line) <= 80);
    free(text);
}

static int set_up(void **state)
{
    (void)state;
    setenv("TZ", "UTC", 1);
    setlocale(LC_CTYPE, "C.UTF-8");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mariadb),
        cmocka_unit_test(test_stacks_and_chains),
        cmocka_unit_test(test_hostile_names),
        cmocka_unit_test(test_healthy),
        cmocka_unit_test(test_several_processes),
        cmocka_unit_test(test_ended_process),
        cmocka_unit_test(test_header_follows_the_time_zone),
        cmocka_unit_test(test_header_of_few),
        cmocka_unit_test(test_lines_of_one_of_several),
        cmocka_unit_test(test_sync_fold),
        cmocka_unit_test(test_verdict),
        cmocka_unit_test(test_verdict_shortens_names),
        cmocka_unit_test(test_no_chains),
        cmocka_unit_test(test_degraded),
        cmocka_unit_test(test_ended),
        cmocka_unit_test(test_lines_survive_a_small_buffer),
        cmocka_unit_test(test_rows_fit_80_cells),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/procfs.h"
#include "proc_fixture.h"

/* schedstat and syscall ------------------------------------------------------ */

static void test_schedstat(void **state UNUSED)
{
    struct procfs_schedstat s;

    assert_true(procfs_parse_schedstat("3191743 3882355 4\n", &s));
    assert_int_equal(s.run_ns, 3191743);
    assert_int_equal(s.wait_ns, 3882355);
    assert_int_equal(s.runs, 4);
    assert_true(procfs_parse_schedstat("0 0 0\n", &s));
    assert_int_equal(s.runs, 0);
    assert_true(procfs_parse_schedstat("18446744073709551615 0 1\n", &s));
    assert_true(s.run_ns == UINT64_MAX);
}

static void test_schedstat_bad(void **state UNUSED)
{
    static const char *const bad[] = {"",
                                      "\n",
                                      "1 2\n",
                                      "1 2 3",
                                      "1 2 3 4\n",
                                      "-1 2 3\n",
                                      "1  2 3\n",
                                      "a b c\n",
                                      " 1 2 3\n",
                                      "1 2 x\n",
                                      "1 2 \n",
                                      "0x1 2 3\n",
                                      "18446744073709551616 0 0\n",
                                      "99999999999999999999999 0 0\n"};
    struct procfs_schedstat s;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(procfs_parse_schedstat(bad[i], &s));
}

static void test_syscall(void **state UNUSED)
{
    struct procfs_syscall s;

    assert_true(procfs_parse_syscall("running\n", &s));
    assert_int_equal(s.kind, SYSCALL_RUNNING);

    assert_true(procfs_parse_syscall("-1 0x7ffeeb089650 0x7fbf11309f16\n", &s));
    assert_int_equal(s.kind, SYSCALL_NONE);
    assert_int_equal(s.nr, -1);
    assert_true(s.sp == 0x7ffeeb089650 && s.pc == 0x7fbf11309f16);

    assert_true(procfs_parse_syscall("202 0x5584a9eb40e0 0x80 0x2 0x0 0x3 0xffffffffffffffff "
                                     "0x7fbf1127fea8 0x7fbf1130a12b\n",
                                     &s));
    assert_int_equal(s.kind, SYSCALL_BLOCKED);
    assert_int_equal(s.nr, 202);
    assert_true(s.arg[0] == 0x5584a9eb40e0 && s.arg[1] == 0x80 && s.arg[2] == 2);
    assert_true(s.arg[3] == 0 && s.arg[4] == 3 && s.arg[5] == UINT64_MAX);
    assert_true(s.sp == 0x7fbf1127fea8 && s.pc == 0x7fbf1130a12b);

    assert_true(procfs_parse_syscall("0 0x0 0x1 0x2 0x3 0x4 0x5 0x6 0x7\n", &s));
    assert_int_equal(s.kind, SYSCALL_BLOCKED);
    assert_int_equal(s.nr, 0);
}

static void test_syscall_bad(void **state UNUSED)
{
    static const char *const bad[] = {
        "",
        "\n",
        "0\n",
        "run",
        "running",
        "runnin\n",
        "runningg\n",
        "-1\n",
        "-1 0x1\n",
        "-1 0x1 0x2",
        "-1 0x1 0x2 0x3\n",
        "-1 0x 0x2\n",
        "- 0x1 0x2\n",
        "-1 1 2\n",
        "--1 0x1 0x2\n",
        "abc\n",
        " 202 0x0\n",
        "0x10 0x0 0x1 0x2 0x3 0x4 0x5 0x6 0x7\n",
        "202 0x0 0x1 0x2 0x3 0x4 0x5 0x6 0x10000000000000000\n", /* 65 bits */
        "202 0x0 0x1 0x2 0x3 0x4 0x5 0x6 0xg\n",
        "202 0x0 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8\n",
        "202  0x0 0x1 0x2 0x3 0x4 0x5 0x6 0x7\n",
        "99999999999999999999 0x0 0x1 0x2 0x3 0x4 0x5 0x6 0x7\n"};
    struct procfs_syscall s;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(procfs_parse_syscall(bad[i], &s));
}

/* Cut off anywhere, a line is never taken for another one. */
static void test_syscall_cut(void **state UNUSED)
{
    static const char line[] =
        "202 0x5584a9eb40e0 0x80 0x2 0x0 0x0 0x0 0x7fbf1127fea8 0x7fbf1130a1\n";
    struct procfs_syscall s;

    assert_true(procfs_parse_syscall(line, &s));
    for (size_t n = 0; n < sizeof(line) - 1; n++) {
        char cut[sizeof(line)];
        memcpy(cut, line, n);
        cut[n] = '\0';
        assert_false(procfs_parse_syscall(cut, &s));
    }
}

/* stat ----------------------------------------------------------------------- */

static bool parse_stat_of(int dir, const char *rel, struct procfs_stat *out)
{
    char text[1024];
    ssize_t n = procfs_slurp(dir, rel, text, sizeof(text));

    assert_true(n > 0);
    return procfs_parse_stat(text, (size_t)n, out);
}

static void test_stat_hostile_name(void **state UNUSED)
{
    struct procfs_stat s;
    int dir = open_fixture("proc-threads", 8326);

    assert_true(parse_stat_of(dir, "stat", &s));
    assert_string_equal(s.comm, "a) R 1 1 (\n\033[m");
    assert_int_equal(s.pid, 8326);
    assert_int_equal(s.state, 'S');
    assert_int_equal(s.flags, 4194304);
    assert_int_equal(s.minflt, 263);
    assert_int_equal(s.majflt, 0);
    assert_int_equal(s.start_ticks, 138309);
    assert_int_equal(s.rss_pages, 369);
    assert_true(s.start_stack == 140732841629760);
    assert_true(parse_stat_of(dir, "task/8333/stat", &s));
    assert_string_equal(s.comm, "\xe4\xff\xc3(");
    assert_true(parse_stat_of(dir, "task/8334/stat", &s));
    assert_string_equal(s.comm, "");
    assert_int_equal(s.pid, 8334);
    close(dir);
}

static void test_stat_fields(void **state UNUSED)
{
    static const char line[] =
        "7 (kworker/u8:3-events_unbound) I -2 0 0 0 -1 69238880 11 12 13 14 "
        "15 16 17 18 -51 -20 19 0 20 21 -22 18446744073709551615 1 1 0 0 0\n";
    struct procfs_stat s;

    assert_true(procfs_parse_stat(line, sizeof(line) - 1, &s));
    assert_string_equal(s.comm, "kworker/u8:3-events_unbound");
    assert_int_equal(s.state, 'I');
    assert_true((s.flags & PROCFS_PF_KTHREAD) != 0);
    assert_int_equal(s.minflt, 11);
    assert_int_equal(s.majflt, 13);
    assert_int_equal(s.utime_ticks, 15);
    assert_int_equal(s.stime_ticks, 16);
    assert_int_equal(s.start_ticks, 20);
    assert_int_equal(s.rss_pages, -22);
    assert_int_equal(s.start_stack, 0); /* not permitted */
}

static void test_stat_long_name(void **state UNUSED)
{
    char line[512];
    struct procfs_stat s;
    int n = snprintf(line, sizeof(line),
                     "7 (%0100d) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 "
                     "19 20 21 22 23 24 25 26\n",
                     0);

    assert_true(procfs_parse_stat(line, (size_t)n, &s));
    assert_int_equal(strlen(s.comm), sizeof(s.comm) - 1);
    assert_int_equal(s.start_stack, 25);
}

static void test_stat_bad(void **state UNUSED)
{
    static const char *const bad[] = {
        "",
        "\n",
        "7",
        "7 (",
        "7 (a",
        "7 (a)",
        "7 (a) ",
        "7 (a) R",
        "(a) R 1",
        "7 a) R 1",
        ")7 (",
        "x (a) R 1",
        "7 (a)  R 1",
        "7 (a) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19\n",
        "7 (a) R 1 x 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25\n"};
    struct procfs_stat s;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(procfs_parse_stat(bad[i], strlen(bad[i]), &s));
}

static void test_stat_cut(void **state UNUSED)
{
    static const char line[] =
        "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 "
        "23 24 25\n";
    struct procfs_stat s;

    assert_true(procfs_parse_stat(line, sizeof(line) - 1, &s));
    assert_string_equal(s.comm, "a) b");
    for (size_t n = 0; n < sizeof(line) - 1; n++) {
        char cut[sizeof(line)];
        memcpy(cut, line, n);
        cut[n] = '\0';
        assert_false(procfs_parse_stat(cut, n, &s));
    }
}

/* status --------------------------------------------------------------------- */

static void parse_status_of(int dir, const char *rel, struct procfs_status *out)
{
    char text[8192];

    assert_true(procfs_slurp(dir, rel, text, sizeof(text)) > 0);
    assert_true(procfs_parse_status(text, out));
}

static void test_status(void **state UNUSED)
{
    struct procfs_status s;
    int dir = open_fixture("proc-threads", 8326);

    parse_status_of(dir, "task/8333/status", &s);
    assert_int_equal(s.tgid, 8326);
    assert_int_equal(s.euid, 0);
    assert_int_equal(s.ns_levels, 1);
    assert_int_equal(s.ns_pid[0], 8333);
    assert_int_equal(s.voluntary, 1);
    assert_int_equal(s.involuntary, 0);
    close(dir);
}

static void test_status_pid_namespace(void **state UNUSED)
{
    struct procfs_status s;
    int dir = open_fixture("proc-pidns", 8330);

    parse_status_of(dir, "task/8331/status", &s);
    assert_int_equal(s.tgid, 8330);
    assert_int_equal(s.ns_levels, 2);
    assert_int_equal(s.ns_pid[0], 8331);
    assert_int_equal(s.ns_pid[1], 2);
    close(dir);
}

static void test_status_lines(void **state UNUSED)
{
    struct procfs_status s;

    assert_true(
        procfs_parse_status("Name:\tUid:\t7\nTgid:\t5\nTracerPid:\t6\nUid:\t1000\t33\t1\t2\n"
                            "voluntary_ctxt_switches:\t9000000000\n"
                            "nonvoluntary_ctxt_switches:\t0\n",
                            &s));
    assert_int_equal(s.tgid, 5);
    assert_int_equal(s.euid, 33);
    assert_int_equal(s.ns_levels, 0);
    assert_int_equal(s.voluntary, 9000000000);
    assert_int_equal(s.involuntary, 0);
}

static void test_status_missing(void **state UNUSED)
{
    static const char *const none[] = {"", "\n\n", "garbage", "Name:\tTgid:\n", "NStgid:\t1\n"};
    struct procfs_status s;

    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        assert_false(procfs_parse_status(none[i], &s));
    assert_true(procfs_parse_status("Tgid:\tx\nUid:\t5\nTracerPid:\t-3\nNSpid:\t1\t2x\n"
                                    "voluntary_ctxt_switches:\t12",
                                    &s));
    assert_int_equal(s.tgid, 0);
    assert_int_equal(s.euid, -1);
    assert_int_equal(s.ns_levels, 1);
    assert_int_equal(s.voluntary, -1); /* cut off */
    assert_int_equal(s.involuntary, -1);
}

/* The innermost PID is the last one, however deep the namespaces are. */
static void test_status_deep_namespaces(void **state UNUSED)
{
    struct procfs_status s;

    assert_true(procfs_parse_status("NSpid:\t11\t12\t13\t14\t15\t16\t17\t18\t19\t20\n", &s));
    assert_int_equal(s.ns_levels, 8);
    assert_int_equal(s.ns_pid[0], 11);
    assert_int_equal(s.ns_pid[6], 17);
    assert_int_equal(s.ns_pid[7], 20);
}

/* A zombie leader: what it has left can still be read. */
static void test_zombie_leader(void **state UNUSED)
{
    struct procfs_stat s;
    struct procfs_syscall c;
    char text[256], *maps;
    const char *p;
    struct procfs_map m;
    int dir = open_fixture("proc-zombie", 8327);

    assert_true(parse_stat_of(dir, "stat", &s));
    assert_int_equal(s.state, 'Z');
    assert_int_equal(s.rss_pages, 0);
    assert_true(parse_stat_of(dir, "task/8329/stat", &s));
    assert_int_equal(s.state, 'S');
    assert_true(procfs_slurp(dir, "task/8327/syscall", text, sizeof(text)) > 0);
    assert_true(procfs_parse_syscall(text, &c));
    assert_int_equal(c.kind, SYSCALL_NONE);
    assert_true(procfs_slurp(dir, "task/8329/syscall", text, sizeof(text)) > 0);
    assert_true(procfs_parse_syscall(text, &c));
    assert_int_equal(c.kind, SYSCALL_BLOCKED);
    assert_int_equal(procfs_slurp_alloc(dir, "maps", &maps, 1 << 20), 0);
    p = maps;
    assert_false(procfs_next_map(&p, &m));
    free(maps);
    close(dir);
}

/* maps ----------------------------------------------------------------------- */

static bool find_map(const char *text, const char *path, struct procfs_map *out)
{

    while (procfs_next_map(&text, out)) {
        if (out->path_len == strlen(path) && memcmp(out->path, path, out->path_len) == 0)
            return true;
    }
    return false;
}

static void test_maps_fixture(void **state UNUSED)
{
    char *text;
    struct procfs_map m;
    unsigned n = 0;
    int dir = open_fixture("proc-threads", 8326);

    assert_true(procfs_slurp_alloc(dir, "maps", &text, 1 << 20) > 0);
    for (const char *p = text; procfs_next_map(&p, &m); n++)
        assert_true(m.start < m.end);
    assert_int_equal(n, 32);
    assert_true(find_map(text, "/srv/shop/price list  1.dat (deleted)", &m));
    assert_true(m.start == 0x7fbf1146f000 && m.end == 0x7fbf11471000);
    assert_true(m.shared && m.write && !m.exec);
    assert_int_equal(m.dev_major, 0xfe);
    assert_int_equal(m.dev_minor, 0);
    assert_int_equal(m.inode, 1066221);
    assert_true(find_map(text, "/srv/shop/a\\012b", &m));
    assert_false(m.shared);
    assert_true(find_map(text, "/dev/shm/gone (deleted)", &m));
    assert_int_equal(m.dev_minor, 0x1b);
    assert_true(find_map(text, "[heap]", &m));
    assert_int_equal(m.inode, 0);
    assert_true(find_map(text, "[stack]", &m));
    assert_true(find_map(text, "", &m));
    assert_true(find_map(text, "[vdso]", &m));
    assert_true(m.exec && !m.write);
    assert_true(find_map(text, "[vsyscall]", &m));
    assert_true(m.end == 0xffffffffff601000);
    free(text);
    close(dir);
}

static void test_maps_offset(void **state UNUSED)
{
    const char *p = "1000-2000 rw-s fedcba98000 103:1f 18446744073709551615 /x\n";
    struct procfs_map m;

    assert_true(procfs_next_map(&p, &m));
    assert_true(m.offset == 0xfedcba98000 && m.inode == UINT64_MAX);
    assert_int_equal(m.dev_major, 0x103);
    assert_int_equal(m.dev_minor, 0x1f);
    assert_false(procfs_next_map(&p, &m));
}

static void test_maps_bad(void **state UNUSED)
{
    static const char text[] = "garbage\n"
                               "\n"
                               "2000-1000 r--p 00000000 00:00 0 \n"
                               "1000-2000 rwzp 00000000 00:00 0 \n"
                               "1000-2000 r--p 00000000 00:00\n"
                               "1000-2000 r--p 00000000 00:00 0x1 /a\n"
                               "1000-2000 r--p 00000000 123456789:00 1 /a\n"
                               "10000000000000000-2 r--p 0 00:00 0\n"
                               "3000-4000 r-xp 00000000 08:01 7 /good\n"
                               "5000-6000 r-xp 00000000 08:01 7 /cut o";
    const char *p = text;
    struct procfs_map m;

    assert_true(procfs_next_map(&p, &m));
    assert_int_equal(m.start, 0x3000);
    assert_int_equal(m.path_len, 5);
    assert_memory_equal(m.path, "/good", 5);
    assert_false(procfs_next_map(&p, &m));
    assert_int_equal(*p, 0);
}

/* The kernel we run on writes what the parsers expect. */
static void test_live(void **state UNUSED)
{
    int self = open("/proc/thread-self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char text[8192];
    struct procfs_stat st;
    struct procfs_status status;
    struct procfs_schedstat sched;
    struct procfs_syscall call;

    assert_true(parse_stat_of(self, "stat", &st));
    assert_int_equal(st.pid, getpid());
    assert_int_equal(st.state, 'R');
    parse_status_of(self, "status", &status);
    assert_int_equal(status.tgid, getpid());
    assert_int_equal(status.euid, geteuid());
    if (procfs_slurp(self, "schedstat", text, sizeof(text)) > 0)
        assert_true(procfs_parse_schedstat(text, &sched));
    if (procfs_slurp(self, "syscall", text, sizeof(text)) > 0) {
        assert_true(procfs_parse_syscall(text, &call));
        assert_int_not_equal(call.kind, SYSCALL_NONE);
    }
    close(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedstat),
        cmocka_unit_test(test_schedstat_bad),
        cmocka_unit_test(test_syscall),
        cmocka_unit_test(test_syscall_bad),
        cmocka_unit_test(test_syscall_cut),
        cmocka_unit_test(test_stat_hostile_name),
        cmocka_unit_test(test_stat_fields),
        cmocka_unit_test(test_stat_long_name),
        cmocka_unit_test(test_stat_bad),
        cmocka_unit_test(test_stat_cut),
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_status_pid_namespace),
        cmocka_unit_test(test_status_lines),
        cmocka_unit_test(test_status_missing),
        cmocka_unit_test(test_status_deep_namespaces),
        cmocka_unit_test(test_zombie_leader),
        cmocka_unit_test(test_maps_fixture),
        cmocka_unit_test(test_maps_offset),
        cmocka_unit_test(test_maps_bad),
        cmocka_unit_test(test_live),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

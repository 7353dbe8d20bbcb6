#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/filelocks.h"

/* As Linux 6.18 wrote it. */
static const char real[] = "1: LEASE  BREAKING  UNLCK 6089 fe:00:11190353 0 EOF\n"
                           "1: -> LEASE  BREAKER   WRITE 6095 <none>:0 0 EOF\n"
                           "2: OFDLCK ADVISORY  WRITE -1 fe:00:11190352 50 50\n"
                           "3: POSIX  ADVISORY  READ 6089 fe:00:11190352 100 EOF\n"
                           "4: POSIX  ADVISORY  WRITE 6089 fe:00:11190352 10 29\n"
                           "4: -> POSIX  ADVISORY  WRITE 6090 fe:00:11190352 10 29\n"
                           "4:  -> POSIX  ADVISORY  WRITE 6091 fe:00:11190352 10 29\n"
                           "4:   -> POSIX  ADVISORY  WRITE 6092 fe:00:11190352 10 29\n"
                           "4:    -> OFDLCK ADVISORY  WRITE -1 fe:00:11190352 0 EOF\n"
                           "5: FLOCK  ADVISORY  READ 6089 fe:00:11190351 0 EOF\n"
                           "7: FLOCK  ADVISORY  WRITE 6089 fe:00:11190350 0 EOF\n"
                           "7: -> FLOCK  ADVISORY  WRITE 6093 fe:00:11190350 0 EOF\n";

#define DEV makedev(0xfe, 0)

static void assert_line(const struct lock_line *got, const struct lock_line *want)
{
    assert_int_equal(got->nr, want->nr);
    assert_int_equal(got->level, want->level);
    assert_int_equal(got->lock.kind, want->lock.kind);
    assert_int_equal(got->lock.exclusive, want->lock.exclusive);
    assert_true(got->lock.file.dev == want->lock.file.dev);
    assert_true(got->lock.file.inode == want->lock.file.inode);
    assert_true(got->lock.start == want->lock.start);
    assert_true(got->lock.end == want->lock.end);
    assert_int_equal(got->pid, want->pid);
    assert_int_equal(got->breaking, want->breaking);
}

static void test_real_text(void **state UNUSED)
{
    const struct lock_line want[] = {
        {1, 0, {FILELOCK_LEASE, true, {DEV, 11190353}, 0, FILE_END}, 6089, true},
        {1, 1, {FILELOCK_LEASE, true, {0, 0}, 0, FILE_END}, 6095, false},
        {2, 0, {FILELOCK_OFD, true, {DEV, 11190352}, 50, 50}, -1, false},
        {3, 0, {FILELOCK_POSIX, false, {DEV, 11190352}, 100, FILE_END}, 6089, false},
        {4, 0, {FILELOCK_POSIX, true, {DEV, 11190352}, 10, 29}, 6089, false},
        {4, 1, {FILELOCK_POSIX, true, {DEV, 11190352}, 10, 29}, 6090, false},
        {4, 2, {FILELOCK_POSIX, true, {DEV, 11190352}, 10, 29}, 6091, false},
        {4, 3, {FILELOCK_POSIX, true, {DEV, 11190352}, 10, 29}, 6092, false},
        {4, 4, {FILELOCK_OFD, true, {DEV, 11190352}, 0, FILE_END}, -1, false},
        {5, 0, {FILELOCK_FLOCK, false, {DEV, 11190351}, 0, FILE_END}, 6089, false},
        {7, 0, {FILELOCK_FLOCK, true, {DEV, 11190350}, 0, FILE_END}, 6089, false},
        {7, 1, {FILELOCK_FLOCK, true, {DEV, 11190350}, 0, FILE_END}, 6093, false},
    };
    const char *text = real;
    struct lock_line line;

    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        assert_int_equal(filelocks_next(&text, &line), LINE_TAKEN);
        assert_line(&line, &want[i]);
    }
    assert_int_equal(filelocks_next(&text, &line), LINE_END);
    assert_int_equal(filelocks_next(&text, &line), LINE_END);
}

static void parse_one(const char *text, struct lock_line *out)
{
    assert_int_equal(filelocks_next(&text, out), LINE_TAKEN);
    assert_string_equal(text, "");
}

static void test_other_kernels(void **state UNUSED)
{
    struct lock_line l;

    parse_one("12: DELEG  ACTIVE    READ 77 08:10:5 0 EOF\n", &l);
    assert_int_equal(l.lock.kind, FILELOCK_LEASE);
    assert_false(l.lock.exclusive || l.breaking);
    assert_true(l.lock.file.dev == makedev(8, 16));
    /* A read lease that is taken back from a reader of it would not be; so it was for writing. */
    parse_one("1: LEASE  BREAKING  READ 77 08:10:5 0 EOF\n", &l);
    assert_true(l.lock.exclusive && l.breaking);
    parse_one("3: ACCESS ADVISORY  WRITE 9 103:fffff:18446744073709551615 0 "
              "9223372036854775806\n",
              &l);
    assert_int_equal(l.lock.kind, FILELOCK_POSIX);
    assert_true(l.lock.file.dev == makedev(0x103, 0xfffff));
    assert_true(l.lock.file.inode == UINT64_MAX && l.lock.end == INT64_MAX - 1);
    parse_one("3: POSIX  MANDATORY READ 9 00:1b:7 3 3\n", &l);
    assert_int_equal(l.lock.kind, FILELOCK_POSIX);
    assert_true(l.lock.file.dev == makedev(0, 27));
    parse_one("3: POSIX  *NOINODE* READ 9 <none>:0 3 3\n", &l);
    assert_true(l.lock.file.dev == 0 && l.lock.file.inode == 0);
    parse_one("3: FLOCK  MSNFS     RW 9 00:1b:7 0 EOF\n", &l);
    assert_true(l.lock.exclusive);
    /* Of another PID namespace; of a client of a file server. */
    parse_one("3: POSIX  ADVISORY  READ 0 00:1b:7 3 3\n", &l);
    assert_int_equal(l.pid, 0);
    parse_one("3: POSIX  ADVISORY  READ -4711 00:1b:7 3 3\n", &l);
    assert_int_equal(l.pid, 0);
}

static void test_malformed(void **state UNUSED)
{
    static const char *const bad[] = {
        "\n",
        " \n",
        "1\n",
        "1:\n",
        "1: ->\n",
        "1:-> POSIX  ADVISORY  READ 9 00:1b:7 3 3\n",
        "x: POSIX  ADVISORY  READ 9 00:1b:7 3 3\n",
        ": POSIX  ADVISORY  READ 9 00:1b:7 3 3\n",
        "-1: POSIX  ADVISORY  READ 9 00:1b:7 3 3\n",
        "4294967296: POSIX  ADVISORY  READ 9 00:1b:7 3 3\n",
        "1 POSIX  ADVISORY  READ 9 00:1b:7 3 3\n",
        "1: POSIY  ADVISORY  READ 9 00:1b:7 3 3\n",
        "1: UNKNOWN UNKNOWN  READ 9 00:1b:7 3 3\n",
        "1: POSIX  ADVISORY  REED 9 00:1b:7 3 3\n",
        "1: POSIX  READ 9 00:1b:7 3 3\n",
        "1: POSIX  ADVISORY  READ  00:1b:7 3 3\n",
        "1: POSIX  ADVISORY  READ - 00:1b:7 3 3\n",
        "1: POSIX  ADVISORY  READ +9 00:1b:7 3 3\n",
        "1: POSIX  ADVISORY  READ 2147483648 00:1b:7 3 3\n",
        "1: POSIX  ADVISORY  READ 9 00:1b 3 3\n",
        "1: POSIX  ADVISORY  READ 9 00:1b: 3 3\n",
        "1: POSIX  ADVISORY  READ 9 :1b:7 3 3\n",
        "1: POSIX  ADVISORY  READ 9 00:1B:7 3 3\n",
        "1: POSIX  ADVISORY  READ 9 00:0x1:7 3 3\n",
        "1: POSIX  ADVISORY  READ 9 00:1b:7a 3 3\n",
        "1: POSIX  ADVISORY  READ 9 00:100000000:7 3 3\n",
        "1: POSIX  ADVISORY  READ 9 00:1b:18446744073709551616 3 3\n",
        "1: POSIX  ADVISORY  READ 9 00:1b:7 3\n",
        "1: POSIX  ADVISORY  READ 9 00:1b:7 EOF EOF\n",
        "1: POSIX  ADVISORY  READ 9 00:1b:7 4 3\n",
        "1: POSIX  ADVISORY  READ 9 00:1b:7 3 eof\n",
        "1: POSIX  ADVISORY  READ 9 00:1b:7 3 3 3\n",
        "1: POSIX\tADVISORY  READ 9 00:1b:7 3 3\n",
        /* Cut off: 33 could have been a longer number. */
        "1: POSIX  ADVISORY  READ 9 00:1b:7 3 33",
        "1: POSIX  ADVISORY  READ 9 00:1b:7 3 EOF",
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        const char *text = bad[i];
        struct lock_line l;
        if (filelocks_next(&text, &l) != LINE_MALFORMED)
            fail_msg("taken: %s", bad[i]);
        assert_string_equal(text, "");
    }
}

static void test_hostile_levels(void **state UNUSED)
{
    enum { BLANKS = 100000 };
    char *text = malloc(BLANKS + 128), *at = text;
    struct lock_line l;

    at += sprintf(at, "1:");
    memset(at, ' ', BLANKS);
    sprintf(at + BLANKS, "-> FLOCK  ADVISORY  WRITE 1 00:1b:7 0 EOF\n");
    parse_one(text, &l);
    assert_int_equal(l.level, BLANKS);
    free(text);
}

static void test_many_lines(void **state UNUSED)
{
    enum { LINES = 2000, BAD = 1234 };
    char *all = malloc(LINES * 80), *at = all;
    size_t taken = 0, malformed = 0, waiters = 0;
    enum line_result got;
    struct lock_line l;

    for (int i = 0; i < LINES; i++) {
        if (i == BAD)
            at += sprintf(at, "%d: POSIX  ADVISORY  WRI\n", i + 1);
        else
            at += sprintf(at, "%d: %sPOSIX  ADVISORY  WRITE %d fe:00:%d %d %d\n", i + 1,
                          i % 4 ? "" : "-> ", i + 100, i + 5000, i, i + 10);
    }
    for (const char *text = all; (got = filelocks_next(&text, &l)) != LINE_END;) {
        size_t line = taken + malformed;
        malformed += got == LINE_MALFORMED;
        if (got != LINE_TAKEN)
            continue;
        taken++;
        waiters += l.level == 1;
        assert_int_equal(l.nr, line + 1);
        assert_int_equal(l.pid, line + 100);
        assert_true(l.lock.file.inode == line + 5000 && l.lock.end == line + 10);
    }
    assert_int_equal(taken, LINES - 1);
    assert_int_equal(malformed, 1);
    assert_int_equal(waiters, LINES / 4);
    free(all);
}

static void test_fdinfo(void **state UNUSED)
{
    static const char text[] = "pos:\t12\nflags:\t0100002\nmnt_id:\t27\nino:\t11190352\n"
                               "lock:\t1: POSIX  ADVISORY  WRITE 6089 fe:00:11190352 10 29\n"
                               "lock:\t2: POSIX  ADVISORY\n"
                               "lock:\t3: OFDLCK ADVISORY  WRITE -1 fe:00:11190352 50 50\n"
                               "other:\t9\nlock:\t4: FLOCK  ADVISORY  READ 1 fe:00:1 0 EO";
    const char *at = text;
    struct fdinfo info;
    struct lock_line l;

    filelocks_fdinfo(text, &info);
    assert_true(info.inode == 11190352 && info.mount == 27 && info.pos == 12 && info.fuse == 0);
    assert_int_equal(filelocks_next_of_fd(&at, &l), LINE_TAKEN);
    assert_int_equal(l.lock.kind, FILELOCK_POSIX);
    assert_int_equal(l.level, 0);
    assert_int_equal(l.pid, 6089);
    assert_int_equal(filelocks_next_of_fd(&at, &l), LINE_MALFORMED);
    assert_int_equal(filelocks_next_of_fd(&at, &l), LINE_TAKEN);
    assert_int_equal(l.lock.kind, FILELOCK_OFD);
    assert_true(l.lock.start == 50 && l.lock.end == 50);
    assert_int_equal(filelocks_next_of_fd(&at, &l), LINE_MALFORMED);
    assert_int_equal(filelocks_next_of_fd(&at, &l), LINE_END);
}

static void test_fdinfo_says_less(void **state UNUSED)
{
    struct fdinfo info;

    filelocks_fdinfo("pos:\t0\nflags:\t02\nmnt_id:\t9\n", &info);
    assert_true(info.inode == 0 && info.mount == 9 && info.pos == 0);
    /* Cut off in a number, too large, no number. */
    filelocks_fdinfo("mnt_id:\t2147483648\nino:\tx\npos:\t12", &info);
    assert_true(info.inode == 0 && info.mount == -1 && info.pos == -1);
    filelocks_fdinfo("", &info);
    assert_true(info.inode == 0 && info.mount == -1 && info.pos == -1 && info.fuse == 0);
    /* The kernel's own form of a device number. */
    filelocks_fdinfo("ino:\t90\nfuse_connection:\t39\n", &info);
    assert_true(info.fuse == makedev(0, 39));
    filelocks_fdinfo("fuse_connection:\t8388625\n", &info);
    assert_true(info.fuse == makedev(8, 17));
}

static struct file_lock lock_of(enum filelock_kind kind, bool exclusive, uint64_t start,
                                uint64_t end)
{
    return (struct file_lock){kind, exclusive, {DEV, 7}, start, end};
}

static bool conflict(struct file_lock a, struct file_lock b)
{
    bool one = filelock_conflict(&a, &b);

    assert_int_equal(one, filelock_conflict(&b, &a));
    return one;
}

static void test_conflict(void **state UNUSED)
{
    struct file_lock all = lock_of(FILELOCK_FLOCK, true, 0, FILE_END);
    struct file_lock shared = lock_of(FILELOCK_FLOCK, false, 0, FILE_END);
    struct file_lock part = lock_of(FILELOCK_POSIX, true, 10, 20);

    assert_true(conflict(all, all));
    assert_true(conflict(all, shared));
    assert_false(conflict(shared, shared));
    assert_false(conflict(all, part)); /* flock and fcntl do not know each other */
    assert_true(conflict(part, lock_of(FILELOCK_POSIX, false, 20, 30)));
    assert_true(conflict(part, lock_of(FILELOCK_OFD, true, 0, 10)));
    assert_true(conflict(part, lock_of(FILELOCK_OFD, true, 0, FILE_END)));
    assert_false(conflict(part, lock_of(FILELOCK_POSIX, true, 21, FILE_END)));
    assert_false(conflict(part, lock_of(FILELOCK_POSIX, true, 0, 9)));
    assert_false(conflict(lock_of(FILELOCK_LEASE, true, 0, FILE_END), all));
    assert_false(conflict(lock_of(FILELOCK_NONE, true, 0, FILE_END),
                          lock_of(FILELOCK_NONE, true, 0, FILE_END)));
    struct file_lock other = all;
    other.file.inode++;
    assert_false(conflict(all, other));
    other = all;
    other.file.dev++;
    assert_false(conflict(all, other));
    /* Two locks of which it is not known on what need not be on the same. */
    other.file = (struct file_id){0};
    assert_false(conflict(other, other));
}

static void test_kind_names(void **state UNUSED)
{
    assert_string_equal(filelock_kind_name(FILELOCK_FLOCK), "flock");
    assert_string_equal(filelock_kind_name(FILELOCK_POSIX), "posix");
    assert_string_equal(filelock_kind_name(FILELOCK_OFD), "ofd");
    assert_string_equal(filelock_kind_name(FILELOCK_LEASE), "lease");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_text),        cmocka_unit_test(test_other_kernels),
        cmocka_unit_test(test_malformed),        cmocka_unit_test(test_hostile_levels),
        cmocka_unit_test(test_many_lines),       cmocka_unit_test(test_fdinfo),
        cmocka_unit_test(test_fdinfo_says_less), cmocka_unit_test(test_conflict),
        cmocka_unit_test(test_kind_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

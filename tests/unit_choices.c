/* unit_choices - columns and files that the command line names: read, checked, refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "../src/choices.h"
#include "../src/err.h"

static char dir[64];
static char err[1024];
static struct choices choices;

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/unit_choices.XXXXXX");
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    choices_release(&choices);
    unlink("file");
    return chdir("/") == 0 && rmdir(dir) == 0 ? 0 : -1;
}

static void write_file(const char *text, size_t len)
{
    FILE *f = fopen("file", "w");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static int make(const struct options *opt)
{
    choices_release(&choices);
    err[0] = '\0';
    return choices_make(&choices, opt, err, sizeof(err));
}

static void assert_refused(const struct options *opt, const char *message)
{
    assert_int_equal(make(opt), EXIT_USAGE);
    assert_string_equal(err, message);
}

/* ERR begins with BEGIN and goes on. */
static void assert_refused_at(const struct options *opt, const char *begin)
{
    assert_int_equal(make(opt), EXIT_USAGE);
    assert_memory_equal(err, begin, strlen(begin));
    assert_true(strlen(err) > strlen(begin));
}

static void test_defaults(void **state)
{
    const struct options opt = {.sort = NULL};

    (void)state;
    assert_int_equal(make(&opt), 0);
    assert_int_equal(choices.sort, COL_AVG10);
    assert_null(choices.names);
    assert_non_null(choices.signatures); /* those built in */
}

static void test_columns(void **state)
{
    (void)state;
    const struct options good = {.sort = "busy", .columns = "+share"};
    assert_int_equal(make(&good), 0);
    assert_int_equal(choices.sort, COL_BUSY);
    const struct options sort = {.sort = "no"};
    assert_refused(&sort, "-s: no column 'no'; 'lock-top -s help' lists them");
    const struct options columns = {.columns = "wait,no"};
    assert_refused(&columns, "-o: no column is named 'no'; '-o help' lists them");
}

static void test_files(void **state)
{
    const struct options names = {.names_file = "file"}, signatures = {.signatures_file = "file"};
    static const char rules[] = "# comment\n\ng_lock the lock\n";
    static const char table[] = "# comment\n\nlock take_it\nidle wait_for_* @libshop.so pool\n";

    (void)state;
    write_file(rules, strlen(rules));
    assert_int_equal(make(&names), 0);
    assert_string_equal(name_rules_find(choices.names, "g_lock", NULL, NULL), "the lock");
    write_file(table, strlen(table));
    assert_int_equal(make(&signatures), 0);
    struct frame_fact frame = {.n = {.name = "take_it", .module = "shop"}};
    struct api_match api = api_classify(&frame, 1);
    assert_int_equal(signatures_match(choices.signatures, &frame, 1, &api).role, SIG_LOCK);
    write_file("", 0);
    assert_int_equal(make(&names), 0);
    assert_null(name_rules_find(choices.names, "g_lock", NULL, NULL));
}

static void test_files_that_cannot_be_read(void **state)
{
    const struct options missing = {.names_file = "missing"}, folder = {.signatures_file = "/tmp"};

    (void)state;
    assert_refused(&missing, "--names missing: No such file or directory");
    assert_refused(&folder, "--signatures /tmp: Is a directory");
}

static void test_wrong_lines(void **state)
{
    const struct options names = {.names_file = "file"}, signatures = {.signatures_file = "file"};
    static const char rules[] = "g_lock the lock\nnameless\n";
    static const char table[] = "lock take_it\nmaybe take_it\n";

    (void)state;
    write_file(rules, strlen(rules));
    assert_refused_at(&names, "--names file: line 2: ");
    write_file(table, strlen(table));
    assert_refused_at(&signatures, "--signatures file: line 2: ");
}

static void test_what_is_no_text(void **state)
{
    const struct options names = {.names_file = "file"}, zero = {.names_file = "/dev/zero"};

    (void)state;
    write_file("a b\n\0c d\n", 9);
    assert_refused(&names, "--names file: not a text file");
    assert_refused(&zero, "--names /dev/zero: larger than 1 MiB");
}

static void test_size_limit(void **state)
{
    const struct options names = {.names_file = "file"};
    char *big = malloc(CHOICES_FILE_MAX + 1);

    (void)state;
    memset(big, '\n', CHOICES_FILE_MAX + 1);
    write_file(big, CHOICES_FILE_MAX);
    assert_int_equal(make(&names), 0);
    write_file(big, CHOICES_FILE_MAX + 1);
    assert_refused(&names, "--names file: larger than 1 MiB");
    free(big);
}

/* As from "--names <(...)": a file that comes in pieces and whose size is not known before. */
static void test_pipe(void **state)
{
    int fds[2];
    char path[64];
    struct options names = {.names_file = path};

    (void)state;
    assert_int_equal(pipe(fds), 0);
    snprintf(path, sizeof(path), "/dev/fd/%d", fds[0]);
    assert_int_equal(write(fds[1], "a one\n", 6), 6);
    assert_int_equal(write(fds[1], "b two\n", 6), 6);
    close(fds[1]);
    assert_int_equal(make(&names), 0);
    assert_string_equal(name_rules_find(choices.names, "a", NULL, NULL), "one");
    assert_string_equal(name_rules_find(choices.names, "b", NULL, NULL), "two");
    close(fds[0]);
}

static void test_long_paths_in_small_messages(void **state)
{
    char path[3000], tiny[8];
    const struct options names = {.names_file = path};

    (void)state;
    memset(path, 'x', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    choices_release(&choices);
    assert_int_equal(choices_make(&choices, &names, tiny, sizeof(tiny)), EXIT_USAGE);
    assert_string_equal(tiny, "--names");
    assert_int_equal(make(&names), EXIT_USAGE);
    assert_non_null(strstr(err, "File name too long"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_files_that_cannot_be_read),
        cmocka_unit_test(test_wrong_lines),
        cmocka_unit_test(test_what_is_no_text),
        cmocka_unit_test(test_size_limit),
        cmocka_unit_test(test_pipe),
        cmocka_unit_test(test_long_paths_in_small_messages),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}

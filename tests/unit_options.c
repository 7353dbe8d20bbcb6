#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../src/err.h"
#include "../src/options.h"

static struct options opt;
static char err[512];

/* Parses "lock-top" and the words after it; what stands in OPT and ERR lives until the next. */
#define parse(...) parse_words((const char *[]){"lock-top", __VA_ARGS__, NULL})

static int parse_words(const char *const *words)
{
    static char *argv[32]; /* commands are borrowed from it */
    int argc = 0;

    options_release(&opt);
    for (; words[argc]; argc++)
        argv[argc] = (char *)words[argc];
    argv[argc] = NULL;
    return options_parse(&opt, argc, argv, err, sizeof(err));
}

#define assert_ok(...)                                                                             \
    do {                                                                                           \
        int rc = parse(__VA_ARGS__);                                                               \
        if (rc)                                                                                    \
            print_error("%s\n", err);                                                              \
        assert_int_equal(rc, 0);                                                                   \
        assert_string_equal(err, "");                                                              \
    } while (0)

#define assert_refused(text, ...)                                                                  \
    do {                                                                                           \
        assert_int_equal(parse(__VA_ARGS__), EXIT_USAGE);                                          \
        assert_string_equal(err, text);                                                            \
    } while (0)

static int no_environment(void **state)
{
    (void)state;
    return unsetenv("NO_COLOR");
}

static void test_defaults(void **state)
{
    (void)state;
    assert_ok("-p", "1");
    assert_int_equal(opt.target.npids, 1);
    assert_int_equal(opt.target.pids[0], 1);
    assert_null(opt.target.name);
    assert_null(opt.target.command);
    assert_int_equal(opt.delay, NSEC_PER_SEC);
    assert_int_equal(opt.iterations, 0);
    assert_int_equal(opt.output, OUTPUT_AUTO);
    assert_null(opt.sort);
    assert_null(opt.columns);
    assert_true(opt.rate_hz == 50 && opt.budget_pct == 5);
    assert_int_equal(opt.stacks, STACKS_AUTO);
    assert_true(opt.may_stop);
    assert_null(opt.names_file);
    assert_null(opt.signatures_file);
    assert_false(opt.no_color || opt.ascii || opt.show_help || opt.show_version);
}

static void test_every_option(void **state)
{
    (void)state;
    assert_ok("-p1", "-d", "0.5", "-n", "3", "-b", "-o", "+share", "-s", "wait", "--rate", "100",
              "--budget=2.5", "--no-color", "--ascii");
    assert_int_equal(opt.delay, NSEC_PER_SEC / 2);
    assert_int_equal(opt.iterations, 3);
    assert_int_equal(opt.output, OUTPUT_BATCH);
    assert_string_equal(opt.columns, "+share");
    assert_string_equal(opt.sort, "wait");
    assert_true(opt.rate_hz == 100 && opt.budget_pct == 2.5);
    assert_true(opt.no_color && opt.ascii);
    assert_ok("--comm", "php*", "--delay=2", "--iterations=1", "--columns=lock", "--sort=1s");
    assert_string_equal(opt.target.name, "php*");
    assert_int_equal(opt.delay, 2 * NSEC_PER_SEC);
}

static void test_stacks(void **state)
{
    (void)state;
    assert_ok("-p1", "--stacks", "off", "--stop=never");
    assert_int_equal(opt.stacks, STACKS_OFF);
    assert_false(opt.may_stop);
    assert_ok("-p1", "--stacks=all", "--stop", "never", "--stop", "needed");
    assert_int_equal(opt.stacks, STACKS_ALL);
    assert_true(opt.may_stop);
    assert_ok("-p1", "--stacks=all", "--stacks=auto");
    assert_int_equal(opt.stacks, STACKS_AUTO);
    assert_refused("--stacks: 'some' is none of off, auto, all", "-p1", "--stacks", "some");
    assert_refused("--stacks: '' is none of off, auto, all", "-p1", "--stacks=");
    assert_refused("--stacks: 'All' is none of off, auto, all", "-p1", "--stacks=All");
    assert_refused("--stop: 'always' is neither never nor needed", "-p1", "--stop", "always");
    assert_refused("--stop: '' is neither never nor needed", "-p1", "--stop=");
    assert_refused("--stop needs a value: --stop WHEN", "-p1", "--stop");
    assert_refused("unknown or ambiguous option '--st=all'; lock-top --help lists them",
                   "--st=all");
}

static void test_files(void **state)
{
    (void)state;
    assert_ok("-p1", "--names", "locks.txt", "--signatures=/etc/sig");
    assert_string_equal(opt.names_file, "locks.txt");
    assert_string_equal(opt.signatures_file, "/etc/sig");
    assert_refused("--names: the name of the file is empty", "-p1", "--names=");
    assert_refused("--signatures: the name of the file is empty", "-p1", "--signatures", "");
    assert_refused("--names is given twice; put all lines into one file", "-p1", "--names=a",
                   "--names=a");
}

static void test_json_wins(void **state)
{
    (void)state;
    assert_ok("-p1", "-b", "--json");
    assert_int_equal(opt.output, OUTPUT_JSON);
    assert_ok("-p1", "--json", "-b");
    assert_int_equal(opt.output, OUTPUT_JSON);
}

static void test_pid_lists(void **state)
{
    (void)state;
    assert_ok("-p", "12,34", "--pid", "2147483647", "-p56,34");
    const pid_t want[] = {12, 34, 2147483647, 56, 34};
    assert_int_equal(opt.target.npids, 5);
    assert_memory_equal(opt.target.pids, want, sizeof(want));

    static char list[1000 * 5];
    for (int i = 0; i < 1000; i++)
        memcpy(list + 5 * i, "1234,", 5);
    list[sizeof(list) - 1] = '\0';
    assert_ok("-p", list);
    assert_int_equal(opt.target.npids, 1000);
    assert_int_equal(opt.target.pids[999], 1234);
}

static void test_bad_pids(void **state)
{
    static const char *const bad[] = {"abc",
                                      "0",
                                      "-5",
                                      "+5",
                                      " 5",
                                      "5 ",
                                      "1.5",
                                      "0x10",
                                      "1e3",
                                      "12a",
                                      "1;2",
                                      "１",
                                      "--",
                                      "2147483648",
                                      "18446744073709551617",
                                      "99999999999999999999999999"};
    char want[256];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        snprintf(want, sizeof(want),
                 "-p: '%s' is not a process id; give a number as in 'lock-top -p 1234' "
                 "(or -c NAME)",
                 bad[i]);
        assert_refused(want, "-p", bad[i]);
        char list[64];
        snprintf(list, sizeof(list), "7,%s", bad[i]);
        assert_refused(want, "-p", list);
    }
}

static void test_empty_pid_items(void **state)
{
    static const char *const bad[] = {"", ",", "1,", ",1", "1,,2"};
    char want[256];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        snprintf(want, sizeof(want),
                 "-p: an empty item in '%s'; give numbers as in 'lock-top -p 1234,1235'", bad[i]);
        assert_refused(want, "-p", bad[i]);
    }
}

static void test_delay_limits(void **state)
{
    (void)state;
    assert_ok("-p1", "-d", "0.1");
    assert_int_equal(opt.delay, NSEC_PER_SEC / 10);
    assert_ok("-p1", "-d", "86400");
    assert_int_equal(opt.delay, 86400 * NSEC_PER_SEC);
    assert_ok("-p1", "-d", ".25");
    assert_int_equal(opt.delay, NSEC_PER_SEC / 4);
    assert_ok("-p1", "-d", "3.");
    assert_int_equal(opt.delay, 3 * NSEC_PER_SEC);
    assert_refused("-d: 0.09 is out of range; give 0.1 to 86400 seconds", "-p1", "-d", "0.09");
    assert_refused("-d: 0 is out of range; give 0.1 to 86400 seconds", "-p1", "-d", "0");
    assert_refused("-d: 86400.5 is out of range; give 0.1 to 86400 seconds", "-p1", "-d86400.5");
}

static void test_bad_numbers(void **state)
{
    static const char *const bad[] = {"",    " 1",  "1 ", "abc", "nan",   "inf",   "-1",      "+1",
                                      "1e0", "0x1", ".",  "1s",  "1.2.3", "1,5,0", "infinity"};
    static const char *const names[] = {"-d", "--rate", "--budget"};
    char want[256];

    (void)state;
    for (size_t n = 0; n < 3; n++)
        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
            snprintf(want, sizeof(want), "%s: '%s' is not a number; give one as in '%s 2.5'",
                     names[n], bad[i], names[n]);
            assert_refused(want, "-p1", names[n], bad[i]);
        }
    assert_refused("-d: '1,5' is not a number here; write 1.5", "-p1", "-d", "1,5");
    assert_refused("--rate: 0.5 is out of range; give 1 to 1000 looks per second", "-p1", "--rate",
                   "0.5");
    assert_refused("--rate: 1001 is out of range; give 1 to 1000 looks per second", "-p1", "--rate",
                   "1001");
    assert_refused("--budget: 0 is out of range; give 0.1 to 100 percent", "-p1", "--budget", "0");
    assert_refused("--budget: 101 is out of range; give 0.1 to 100 percent", "-p1", "--budget=101");

    char big[400];
    memset(big, '9', sizeof(big));
    big[sizeof(big) - 1] = '\0';
    assert_int_equal(parse("-p1", "-d", big), EXIT_USAGE);
    assert_non_null(strstr(err, "out of range"));
}

/* Whatever the user's locale: a decimal point, as in every script. */
static void test_locale(void **state)
{
    (void)state;
    if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "fr_FR.UTF-8"))
        skip();
    assert_ok("-p1", "-d", "1.5");
    assert_int_equal(opt.delay, 3 * NSEC_PER_SEC / 2);
    assert_refused("-d: '1,5' is not a number here; write 1.5", "-p1", "-d", "1,5");
    setlocale(LC_ALL, "C");
}

static void test_bad_iterations(void **state)
{
    static const char *const bad[] = {"0", "-1", "1.0", "x", "", "99999999999999999999"};
    char want[256];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        snprintf(want, sizeof(want),
                 "-n: '%s' is not a number of refreshes; give a whole number from 1 on", bad[i]);
        assert_refused(want, "-p1", "-n", bad[i]);
    }
}

static void test_command(void **state)
{
    (void)state;
    assert_ok("-b", "--", "ls", "-l", "--", "-p");
    assert_string_equal(opt.target.command[0], "ls");
    assert_string_equal(opt.target.command[1], "-l");
    assert_string_equal(opt.target.command[2], "--");
    assert_string_equal(opt.target.command[3], "-p");
    assert_null(opt.target.command[4]);
    assert_int_equal(opt.output, OUTPUT_BATCH);
    assert_int_equal(opt.target.npids, 0);
    assert_refused("-- needs a command behind it, as in 'lock-top -- ./server -v'", "-b", "--");
}

static void test_dashes_as_a_value(void **state)
{
    (void)state;
    assert_refused("unexpected argument 'ls'; did you mean -c ls? (a command to start stands "
                   "behind --)",
                   "-o", "--", "ls");
    assert_ok("-o", "--", "-p1");
    assert_string_equal(opt.columns, "--");
}

static void test_one_kind_of_target(void **state)
{
    const char *none = "nothing to watch; give -p PID, -c NAME, -u USER, -f PATH, -a or "
                       "-- COMMAND (lock-top --help tells more)";
    const char *two = "-p PID, -c NAME, -u USER, -f PATH, -a and -- COMMAND exclude each other; "
                      "give one of them";

    (void)state;
    assert_int_equal(parse_words((const char *[]){"lock-top", NULL}), EXIT_USAGE);
    assert_string_equal(err, none);
    assert_refused(none, "-b", "-n", "1");
    assert_refused(two, "-p1", "-c", "x");
    assert_refused(two, "-p1", "--", "x");
    assert_refused(two, "-c", "x", "--", "x");
    assert_refused(two, "-a", "-p1");
    assert_refused(two, "-a", "-u", "x");
    assert_refused(two, "-f", "x", "-u", "x");
    assert_refused(two, "-f", "x", "--", "x");
    assert_refused("-c: the name is empty; give one as in 'lock-top -c mariadbd'", "-c", "");
    assert_refused("-c is given twice; a pattern such as -c 'php*' matches several names", "-cx",
                   "-cy");
}

static void test_many_processes(void **state)
{
    (void)state;
    assert_ok("-a");
    assert_true(opt.target.all);
    assert_ok("--all", "-a");
    assert_ok("-u", "33");
    assert_string_equal(opt.target.user, "33");
    assert_false(opt.target.all);
    assert_ok("-f", "/var/lib/dpkg/lock");
    assert_string_equal(opt.target.file, "/var/lib/dpkg/lock");
    assert_null(opt.target.user);
    assert_refused("-u: the name is empty; give one as in 'lock-top -u www-data'", "-u", "");
    assert_refused("-u is given twice; one user at a time, or -a for all", "-ux", "-uy");
    assert_refused("-f: the path is empty; give one as in 'lock-top -f /var/lib/dpkg/lock'", "-f",
                   "");
    assert_refused("-f is given twice; one file at a time", "-fx", "-fy");
    assert_refused("-u needs a value: -u USER", "-u");
    assert_refused("-f needs a value: -f PATH", "-f");
}

static void test_lists_need_no_target(void **state)
{
    (void)state;
    assert_ok("-o", "help");
    assert_ok("-s", "help");
    assert_string_equal(opt.sort, "help");
}

static void test_stray_words(void **state)
{
    (void)state;
    assert_refused("unexpected argument '1234'; did you mean -p 1234?", "1234");
    assert_refused("unexpected argument '34'; several processes are given as in -p 12,34", "-p",
                   "12", "34", "-b");
    assert_refused("unexpected argument 'mariadbd'; did you mean -c mariadbd? (a command to start "
                   "stands behind --)",
                   "mariadbd");
    assert_int_equal(parse(""), EXIT_USAGE);
    assert_int_equal(parse("-"), EXIT_USAGE);
}

static void test_unknown_options(void **state)
{
    (void)state;
    assert_refused("unknown option '-x'; lock-top --help lists them", "-p1", "-x");
    assert_refused("unknown option '-x'; lock-top --help lists them", "-bxn");
    assert_refused("unknown option '-?'; lock-top --help lists them", "-?");
    assert_refused("unknown or ambiguous option '--pidd'; lock-top --help lists them", "--pidd");
    assert_refused("unknown or ambiguous option '--b'; lock-top --help lists them", "--b");
}

static void test_values_missing_and_too_many(void **state)
{
    (void)state;
    assert_refused("-d needs a value: -d SECS", "-p1", "-d");
    assert_refused("-d needs a value: -d SECS", "-p1", "--delay");
    assert_refused("-p needs a value: -p PID[,PID...]", "-p");
    assert_refused("--rate needs a value: --rate HZ", "-p1", "--rate");
    assert_refused("--json takes no value", "-p1", "--json=yes");
    assert_refused("--batch takes no value", "--batch=1", "-p1");
    assert_refused("--help takes no value", "--help==");
}

static void test_help_and_version_win(void **state)
{
    (void)state;
    assert_ok("-h", "-p", "abc", "--nonsense");
    assert_true(opt.show_help && !opt.show_version);
    assert_ok("-p1", "-bV", "stray");
    assert_true(opt.show_version && !opt.show_help);
    assert_ok("--version");
    assert_ok("--help");
    assert_int_equal(parse("-p", "abc", "-h"), EXIT_USAGE);
    assert_ok("-h", "--");
}

static void test_no_color(void **state)
{
    (void)state;
    setenv("NO_COLOR", "", 1);
    assert_ok("-p1");
    assert_false(opt.no_color);
    setenv("NO_COLOR", "0", 1);
    assert_ok("-p1");
    assert_true(opt.no_color);
    unsetenv("NO_COLOR");
}

static void test_short_message_buffer(void **state)
{
    char *argv[] = {(char *)"lock-top", (char *)"-p", (char *)"abc", NULL};
    struct options o;
    char tiny[8];

    (void)state;
    assert_int_equal(options_parse(&o, 3, argv, tiny, sizeof(tiny)), EXIT_USAGE);
    assert_string_equal(tiny, "-p: 'ab");
    options_release(&o);
    options_release(&o);
}

/* Help -------------------------------------------------------------------------------- */

static char *help_text(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    options_print_help(f);
    fclose(f);
    return text;
}

static void test_help_fits(void **state)
{
    char *text = help_text();

    (void)state;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (strlen(line) > 80)
            fail_msg("%zu cells: %s", strlen(line), line);
    free(text);
}

static void test_help_has_everything(void **state)
{
    static const char *const want[] = {
#define OPT(id, ch, name, arg, group, help) "--" name, help,
#include "../src/options.def"
#undef OPT
        "lock-top -p PID[,PID...]", "-- COMMAND [ARG...]",  "\nTARGET\n", "\nOPTIONS\n",
        "\nExit status\n",          "  3  nothing to watch"};
    char *text = help_text();

    (void)state;
    for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
        char *at = strstr(text, want[i]);
        if (!at)
            fail_msg("--help lacks: %s", want[i]);
    }
    free(text);
}

/* What --help names is what the parser takes. */
static void test_help_is_true(void **state)
{
    static const struct {
        int ch;
        const char *name, *arg;
    } table[] = {
#define OPT(id, ch, name, arg, group, help) {ch, "--" name, arg},
#include "../src/options.def"
#undef OPT
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        char letter[] = {'-', (char)table[i].ch, '\0'};
        const char *spelling[] = {table[i].name, table[i].ch ? letter : table[i].name};
        for (int s = 0; s < 2; s++) {
            bool alone = table[i].arg || strcmp(table[i].name, "--all") == 0; /* a target */
            int rc = alone ? parse(spelling[s]) : parse("-p1", spelling[s]);
            assert_int_equal(rc, table[i].arg ? EXIT_USAGE : 0);
            if (table[i].arg)
                assert_non_null(strstr(err, "needs a value"));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_every_option),
        cmocka_unit_test(test_stacks),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_json_wins),
        cmocka_unit_test(test_pid_lists),
        cmocka_unit_test(test_bad_pids),
        cmocka_unit_test(test_empty_pid_items),
        cmocka_unit_test(test_delay_limits),
        cmocka_unit_test(test_bad_numbers),
        cmocka_unit_test(test_locale),
        cmocka_unit_test(test_bad_iterations),
        cmocka_unit_test(test_command),
        cmocka_unit_test(test_dashes_as_a_value),
        cmocka_unit_test(test_one_kind_of_target),
        cmocka_unit_test(test_lists_need_no_target),
        cmocka_unit_test(test_many_processes),
        cmocka_unit_test(test_stray_words),
        cmocka_unit_test(test_unknown_options),
        cmocka_unit_test(test_values_missing_and_too_many),
        cmocka_unit_test(test_help_and_version_win),
        cmocka_unit_test(test_no_color),
        cmocka_unit_test(test_short_message_buffer),
        cmocka_unit_test(test_help_fits),
        cmocka_unit_test(test_help_has_everything),
        cmocka_unit_test(test_help_is_true),
    };
    int rc = cmocka_run_group_tests(tests, no_environment, NULL);
    options_release(&opt);
    return rc;
}

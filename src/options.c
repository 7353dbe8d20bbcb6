#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "err.h"
#include "xalloc.h"

enum option_id {
#define OPT(id, ch, name, arg, group, help) OPT_##id,
#include "options.def"
#undef OPT
    OPTIONS_COUNT
};

struct option_info {
    int ch; /* short letter, 0: none */
    const char *name;
    const char *arg; /* what the value is called, NULL: takes none */
    const char *group, *help;
};

static const struct option_info table[OPTIONS_COUNT] = {
#define OPT(id, ch, name, arg, group, help) [OPT_##id] = {ch, name, arg, group, help},
#include "options.def"
#undef OPT
};

/* getopt's value of a long option: beyond every letter. */
#define LONG_VALUE 256

struct parse {
    struct options *opt;
    size_t pids_cap;
    char *err;
    size_t err_size;
};

static int PRINTF_LIKE(2, 3) fail(struct parse *p, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(p->err, p->err_size, fmt, ap);
    va_end(ap);
    return EXIT_USAGE;
}

/* "-d" or "--rate": how messages call an option. */
static const char *label(char dst[32], enum option_id id)
{
    if (table[id].ch)
        snprintf(dst, 32, "-%c", table[id].ch);
    else
        snprintf(dst, 32, "--%s", table[id].name);
    return dst;
}

/* Values ------------------------------------------------------------------------------ */

/* A plain decimal number and nothing else: no sign, exponent, hexadecimal, "inf" or "nan". */
static bool decimal(const char *text, double *value)
{
    char *end;

    if (text[strspn(text, "0123456789.")] != '\0')
        return false;
    /* The locale in force may want a comma. */
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    *value = strtod_l(text, &end, c);
    freelocale(c);
    return end != text && *end == '\0';
}

static int not_a_number(struct parse *p, enum option_id id, const char *text)
{
    char name[32], *point = xstrdup(text);
    char *comma = strchr(point, ',');
    double unused;

    if (comma)
        *comma = '.';
    if (comma && decimal(point, &unused))
        fail(p, "%s: '%s' is not a number here; write %s", label(name, id), text, point);
    else
        fail(p, "%s: '%s' is not a number; give one as in '%s 2.5'", label(name, id), text, name);
    free(point);
    return EXIT_USAGE;
}

struct range {
    double min, max;
    const char *text; /* the limits in words: "%g" would follow the locale */
};

static int set_number(struct parse *p, enum option_id id, const char *text, struct range r,
                      double *value)
{
    char name[32];
    double v;

    if (!decimal(text, &v))
        return not_a_number(p, id, text);
    if (v < r.min || v > r.max)
        return fail(p, "%s: %s is out of range; give %s", label(name, id), text, r.text);
    *value = v;
    return 0;
}

static int set_delay(struct parse *p, const char *text)
{
    const struct range r = {0.1, 86400, "0.1 to 86400 seconds"};
    double secs;
    int rc = set_number(p, OPT_DELAY, text, r, &secs);

    if (rc == 0)
        p->opt->delay = (nsec_t)(secs * NSEC_PER_SEC + 0.5);
    return rc;
}

/* Whole number of LEN digits, at least 1; false for anything else or more than MAX. */
static bool whole(const char *text, size_t len, long max, long *value)
{
    char *end;

    if (len == 0 || strspn(text, "0123456789") < len)
        return false;
    errno = 0;
    *value = strtol(text, &end, 10);
    return errno == 0 && end == text + len && *value >= 1 && *value <= max;
}

static int set_iterations(struct parse *p, const char *text)
{
    if (whole(text, strlen(text), LONG_MAX, &p->opt->iterations))
        return 0;
    return fail(p, "-n: '%s' is not a number of refreshes; give a whole number from 1 on", text);
}

/* Which of the N words TEXT is, or -1. */
static int find_word(const char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(text, words[i]) == 0)
            return (int)i;
    return -1;
}

static int set_stacks(struct parse *p, const char *text)
{
    static const char *const words[] = {
        [STACKS_OFF] = "off", [STACKS_AUTO] = "auto", [STACKS_ALL] = "all"};
    int mode = find_word(text, words, ARRAY_SIZE(words));

    if (mode < 0)
        return fail(p, "--stacks: '%.200s' is none of off, auto, all", text);
    p->opt->stacks = (enum stacks_mode)mode;
    return 0;
}

static int set_stop(struct parse *p, const char *text)
{
    static const char *const words[] = {"never", "needed"};
    int when = find_word(text, words, ARRAY_SIZE(words));

    if (when < 0)
        return fail(p, "--stop: '%.200s' is neither never nor needed", text);
    p->opt->may_stop = when == 1;
    return 0;
}

static int set_file(struct parse *p, enum option_id id, const char *path, const char **file)
{
    char name[32];

    if (*path == '\0')
        return fail(p, "%s: the name of the file is empty", label(name, id));
    if (*file)
        return fail(p, "%s is given twice; put all lines into one file", label(name, id));
    *file = path;
    return 0;
}

/* Targets ----------------------------------------------------------------------------- */

static int add_pid(struct parse *p, const char *item, size_t len, const char *list)
{
    struct options *o = p->opt;
    long pid;

    if (len == 0)
        return fail(p, "-p: an empty item in '%s'; give numbers as in 'lock-top -p 1234,1235'",
                    list);
    if (!whole(item, len, INT_MAX, &pid))
        return fail(p,
                    "-p: '%.*s' is not a process id; give a number as in 'lock-top -p 1234' "
                    "(or -c NAME)",
                    (int)MIN(len, (size_t)200), item);
    o->pid_storage = xgrow(o->pid_storage, &p->pids_cap, o->target.npids + 1, sizeof(pid_t));
    o->pid_storage[o->target.npids++] = (pid_t)pid;
    o->target.pids = o->pid_storage;
    return 0;
}

static int add_pids(struct parse *p, const char *list)
{
    for (const char *item = list;; item++) {
        size_t len = strcspn(item, ",");
        int rc = add_pid(p, item, len, list);

        if (rc)
            return rc;
        item += len;
        if (*item == '\0')
            return 0;
    }
}

static int set_name(struct parse *p, const char *name)
{
    if (*name == '\0')
        return fail(p, "-c: the name is empty; give one as in 'lock-top -c mariadbd'");
    if (p->opt->target.name)
        return fail(p, "-c is given twice; a pattern such as -c 'php*' matches several names");
    p->opt->target.name = name;
    return 0;
}

static int set_user(struct parse *p, const char *user)
{
    if (*user == '\0')
        return fail(p, "-u: the name is empty; give one as in 'lock-top -u www-data'");
    if (p->opt->target.user)
        return fail(p, "-u is given twice; one user at a time, or -a for all");
    p->opt->target.user = user;
    return 0;
}

static int set_locked_file(struct parse *p, const char *path)
{
    if (*path == '\0')
        return fail(p, "-f: the path is empty; give one as in 'lock-top -f /var/lib/dpkg/lock'");
    if (p->opt->target.file)
        return fail(p, "-f is given twice; one file at a time");
    p->opt->target.file = path;
    return 0;
}

static int stray(struct parse *p, const char *word)
{
    long pid;

    if (!whole(word, strlen(word), INT_MAX, &pid))
        return fail(p,
                    "unexpected argument '%s'; did you mean -c %s? (a command to start stands "
                    "behind --)",
                    word, word);
    if (p->opt->target.npids)
        return fail(p, "unexpected argument '%s'; several processes are given as in -p %d,%s", word,
                    (int)p->opt->target.pids[0], word);
    return fail(p, "unexpected argument '%s'; did you mean -p %s?", word, word);
}

static bool wants_list(const char *value)
{
    return value && strcmp(value, "help") == 0;
}

static int check_target(struct parse *p)
{
    const struct options *o = p->opt;
    const struct target_spec *t = &o->target;
    int kinds = (t->npids > 0) + (t->name != NULL) + (t->command != NULL) + (t->user != NULL) +
                (t->file != NULL) + t->all;

    if (kinds > 1)
        return fail(p, "-p PID, -c NAME, -u USER, -f PATH, -a and -- COMMAND exclude each other; "
                       "give one of them");
    if (kinds == 0 && !wants_list(o->columns) && !wants_list(o->sort))
        return fail(p, "nothing to watch; give -p PID, -c NAME, -u USER, -f PATH, -a or "
                       "-- COMMAND (lock-top --help tells more)");
    return 0;
}

/* What follows the options: nothing, or "--" and a command. */
static int take_rest(struct parse *p, int argc, char **argv, bool dashes)
{
    if (!dashes && optind < argc)
        return stray(p, argv[optind]);
    if (dashes && optind == argc)
        return fail(p, "-- needs a command behind it, as in 'lock-top -- ./server -v'");
    if (dashes)
        p->opt->target.command = argv + optind;
    return check_target(p);
}

/* The table at work ------------------------------------------------------------------- */

static int apply(struct parse *p, enum option_id id, const char *value)
{
    const struct range rate = {1, 1000, "1 to 1000 looks per second"};
    const struct range budget = {0.1, 100, "0.1 to 100 percent"};
    struct options *o = p->opt;

    switch (id) {
    case OPT_PID:
        return add_pids(p, value);
    case OPT_COMM:
        return set_name(p, value);
    case OPT_USER:
        return set_user(p, value);
    case OPT_FILE:
        return set_locked_file(p, value);
    case OPT_ALL:
        o->target.all = true;
        return 0;
    case OPT_EVENTS:
        o->events = true;
        return 0;
    case OPT_DELAY:
        return set_delay(p, value);
    case OPT_ITERATIONS:
        return set_iterations(p, value);
    case OPT_BATCH:
        o->output = MAX(o->output, OUTPUT_BATCH);
        return 0;
    case OPT_JSON:
        o->output = OUTPUT_JSON;
        return 0;
    case OPT_COLUMNS:
        o->columns = value;
        return 0;
    case OPT_SORT:
        o->sort = value;
        return 0;
    case OPT_RATE:
        return set_number(p, id, value, rate, &o->rate_hz);
    case OPT_BUDGET:
        return set_number(p, id, value, budget, &o->budget_pct);
    case OPT_STACKS:
        return set_stacks(p, value);
    case OPT_STOP:
        return set_stop(p, value);
    case OPT_NAMES:
        return set_file(p, id, value, &o->names_file);
    case OPT_SIGNATURES:
        return set_file(p, id, value, &o->signatures_file);
    case OPT_NO_COLOR:
        o->no_color = true;
        return 0;
    case OPT_ASCII:
        o->ascii = true;
        return 0;
    case OPT_HELP:
        o->show_help = true;
        return 0;
    case OPT_VERSION:
        o->show_version = true;
        return 0;
    case OPTIONS_COUNT:
        break;
    }
    BUG("option %d has no meaning", (int)id);
}

/* The option behind getopt's value, or OPTIONS_COUNT. */
static enum option_id by_value(int value)
{
    for (int id = 0; id < OPTIONS_COUNT; id++)
        if (value == LONG_VALUE + id || (value && value == table[id].ch))
            return (enum option_id)id;
    return OPTIONS_COUNT;
}

static int bad_option(struct parse *p, int got, const char *word)
{
    enum option_id id = by_value(optopt);
    char name[32];

    if (got == ':' && id != OPTIONS_COUNT)
        return fail(p, "%s needs a value: %s %s", label(name, id), name, table[id].arg);
    if (id != OPTIONS_COUNT)
        return fail(p, "--%s takes no value", table[id].name);
    if (optopt)
        return fail(p, "unknown option '-%c'; lock-top --help lists them", optopt);
    return fail(p, "unknown or ambiguous option '%s'; lock-top --help lists them", word);
}

static void make_getopt_tables(char letters[2 * OPTIONS_COUNT + 3],
                               struct option longs[OPTIONS_COUNT + 1])
{
    char *w = letters;

    *w++ = '+'; /* stop at the first word that is no option */
    *w++ = ':'; /* tell a missing value from an unknown option */
    for (int id = 0; id < OPTIONS_COUNT; id++) {
        const struct option_info *t = &table[id];
        if (t->ch)
            *w++ = (char)t->ch;
        if (t->ch && t->arg)
            *w++ = ':';
        longs[id] = (struct option){t->name, t->arg ? required_argument : no_argument, NULL,
                                    LONG_VALUE + id};
    }
    *w = '\0';
    longs[OPTIONS_COUNT] = (struct option){NULL, 0, NULL, 0};
}

static int parse_all(struct parse *p, int argc, char **argv)
{
    char letters[2 * OPTIONS_COUNT + 3];
    struct option longs[OPTIONS_COUNT + 1];

    make_getopt_tables(letters, longs);
    optind = 0; /* glibc and musl start afresh */
    opterr = 0;
    for (int at = 1;; at = optind) {
        int got = getopt_long(argc, argv, letters, longs, NULL);
        /* "--" has been passed over just now; as an option's value it would not be. */
        if (got == -1)
            return take_rest(p, argc, argv, optind > at);
        enum option_id id = by_value(got);
        if (id == OPTIONS_COUNT)
            return bad_option(p, got, argv[optind - 1]);
        int rc = apply(p, id, optarg);
        if (rc || p->opt->show_help || p->opt->show_version)
            return rc;
    }
}

int options_parse(struct options *opt, int argc, char **argv, char *err, size_t err_size)
{
    const char *no_color = getenv("NO_COLOR");
    struct parse p = {.opt = opt, .err = err, .err_size = err_size};

    *opt = (struct options){
        .delay = NSEC_PER_SEC,
        .rate_hz = 50,
        .budget_pct = 5,
        .stacks = STACKS_AUTO,
        .may_stop = true,
        .no_color = no_color && *no_color,
    };
    err[0] = '\0';
    return parse_all(&p, argc, argv);
}

void options_release(struct options *opt)
{
    free(opt->pid_storage);
    *opt = (struct options){0};
}

/* Help -------------------------------------------------------------------------------- */

#define HELP_LINE "  %-22s  %s\n"

static void print_option(FILE *out, const struct option_info *t)
{
    char left[64];

    snprintf(left, sizeof(left), "%c%c%s--%s%s%s", t->ch ? '-' : ' ', t->ch ? t->ch : ' ',
             t->ch ? ", " : "  ", t->name, t->arg ? " " : "", t->arg ? t->arg : "");
    fprintf(out, HELP_LINE, left, t->help);
}

void options_print_help(FILE *out)
{
    fputs("Usage: lock-top -p PID[,PID...] [OPTIONS]\n"
          "       lock-top -c NAME | -u USER | -f PATH | -a [OPTIONS]\n"
          "       lock-top [OPTIONS] -- COMMAND [ARG...]\n"
          "\n"
          "Shows which locks the threads of a process wait for and through which code, who\n"
          "holds them, and what the holders are doing: from outside. A waiting thread is\n"
          "never stopped; one that runs may be, for microseconds (see --stop).\n",
          out);
    for (int id = 0; id < OPTIONS_COUNT; id++) {
        bool first = id == 0 || strcmp(table[id].group, table[id - 1].group) != 0;
        if (first && id > 0 && strcmp(table[id - 1].group, "TARGET") == 0)
            fprintf(out, HELP_LINE, "-- COMMAND [ARG...]",
                    "start this command, watch it, and end it");
        if (first)
            fprintf(out, "\n%s\n", table[id].group);
        print_option(out, &table[id]);
    }
    fputs("\n"
          "Exit status\n"
          "  0  done\n"
          "  1  failed while running\n"
          "  2  the command line is wrong\n"
          "  3  nothing to watch: no such process, or not permitted\n",
          out);
}

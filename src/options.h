/*
 * options.h - the command line. One table, options.def, gives the parser and --help here, and
 * the man page's option list and the completions in contrib/gen_docs.c.
 */
#ifndef LT_OPTIONS_H
#define LT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#include "clock.h"

/* Which processes the user wants to watch: exactly one of these. */
struct target_spec {
    const pid_t *pids; /* as given; the same one may stand there twice */
    size_t npids;
    const char *name;     /* comm, or a shell pattern, not empty; NULL */
    char *const *command; /* argv of a program to start, NULL-terminated; NULL */
    const char *user;     /* name or number of a user, not checked here; NULL */
    const char *file;     /* PATH of a file with locks; NULL */
    bool all;             /* every process */
};

enum output_mode {
    OUTPUT_AUTO, /* the screen on a terminal, text elsewhere */
    OUTPUT_BATCH,
    OUTPUT_JSON, /* wins over OUTPUT_BATCH when both are asked for */
};

/* Which stacks are taken. */
enum stacks_mode {
    STACKS_OFF,
    STACKS_AUTO, /* those of waiters, holders and waits that cannot be told apart otherwise */
    STACKS_ALL,  /* of every thread, and they are printed */
};

/* Strings are borrowed from argv. */
struct options {
    struct target_spec target;
    nsec_t delay;    /* between refreshes, 0.1 s .. 1 day; default 1 s */
    long iterations; /* refreshes before ending; 0: no end */
    enum output_mode output;
    const char *sort;    /* a column's name, not checked here; NULL: the default */
    const char *columns; /* -o LIST, not checked here; NULL: the default */
    double rate_hz;      /* sweeps a second, 1..1000; default 50 */
    double budget_pct;   /* own CPU, per cent of one CPU, 0.1..100; default 5 */
    enum stacks_mode stacks; /* default auto */
    bool may_stop;           /* --stop needed (the default): a thread may be stopped for a moment
                                where nothing else serves */
    const char *names_file, *signatures_file; /* not opened here; NULL: none */
    bool events;         /* --events: tracepoints count attempts at file locks */
    bool no_color;       /* --no-color or NO_COLOR (set and not empty) */
    bool ascii;
    bool show_help, show_version;
    pid_t *pid_storage; /* owned; behind target.pids */
};

/*
 * Fills OPT from the command line. Returns 0, or EXIT_USAGE with a message in ERR that says
 * what is wrong and what is right. Does not print and does not exit. Numbers are read as in the
 * C locale, whatever the locale in force. OPT is to be released after either result.
 *
 * At -h or -V the reading ends with success: nothing behind it is looked at, and there may be
 * no target. Nor need there be one where the list of columns is asked for ("-o help",
 * "-s help"); otherwise a target stands in OPT on success. Uses getopt's global state: one
 * thread at a time.
 */
int options_parse(struct options *opt, int argc, char **argv, char *err, size_t err_size);

void options_release(struct options *opt);

/* The text of --help, made from the table; at most 80 cells wide. */
void options_print_help(FILE *out);

#endif

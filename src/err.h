/*
 * err.h - messages for the user and the way out.
 *
 * Only the top level (main, batch, monitor) and ui/ print; modules below return -errno or fill an
 * error string. The functions here format a message whole and write it once, so that a stderr
 * shared with other programs keeps its lines apart.
 */
#ifndef LT_ERR_H
#define LT_ERR_H

#include "compiler.h"

/* Exit statuses, a promise to scripts (man page, EXIT STATUS). */
enum exit_status {
    EXIT_OK = 0,      /* done */
    EXIT_FAILED = 1,  /* failed while running */
    EXIT_USAGE = 2,   /* the command line is wrong */
    EXIT_NOTHING = 3, /* nothing to watch: no such process, or not permitted */
    EXIT_COND = 4,    /* a condition that the user asked for was met */
};

/* Runs HOOK first in die() and bug(): the screen restores the terminal there.
 * NULL removes it. The hook must be callable from any thread and only once
 * has an effect. */
void err_set_die_hook(void (*hook)(void));

/* Runs the die hook now (the screen has it called at exit() and by signals that end the program);
 * safe to call twice. */
void err_run_die_hook(void);

/* Writes "lock-top: MESSAGE\n" to stderr. */
void warn_msg(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* As warn_msg, then exits with STATUS; the terminal is restored first. */
void die(int status, const char *fmt, ...) PRINTF_LIKE(2, 3) NORETURN;

/* A condition that only a mistake in lock-top can bring about: says where and aborts. */
#define BUG(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)
void bug_at(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4) NORETURN;

#endif

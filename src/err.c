#include "err.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static _Atomic(void (*)(void)) die_hook;

void err_set_die_hook(void (*hook)(void))
{
    atomic_store(&die_hook, hook);
}

void err_run_die_hook(void)
{
    void (*hook)(void) = atomic_exchange(&die_hook, NULL);
    if (hook)
        hook();
}

static void vmessage(const char *prefix, const char *fmt, va_list ap)
{
    char line[2048];
    int n = snprintf(line, sizeof(line), "lock-top: %s", prefix);
    int m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);

    if (m < 0)
        return;
    n = MIN(n + m, (int)sizeof(line) - 2);
    /* Words of the command line are repeated in messages: none of them may steer the terminal. */
    for (int i = 0; i < n; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    }
    line[n++] = '\n';
    /* One write: the line stays whole. Nothing sensible is left to do if it fails. */
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        return;
}

void warn_msg(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vmessage("", fmt, ap);
    va_end(ap);
}

void die(int status, const char *fmt, ...)
{
    va_list ap;

    err_run_die_hook();
    va_start(ap, fmt);
    vmessage("", fmt, ap);
    va_end(ap);
    exit(status);
}

void bug_at(const char *file, int line, const char *fmt, ...)
{
    char prefix[256];
    va_list ap;

    err_run_die_hook();
    snprintf(prefix, sizeof(prefix), "internal error at %s:%d: ", file, line);
    va_start(ap, fmt);
    vmessage(prefix, fmt, ap);
    va_end(ap);
    abort();
}

#include "tracer_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"

#define RECORD 4096 /* what is wanted of a status stands well within it */

static ssize_t read_task(int dirfd, pid_t tid, const char *file, char *buf, size_t size)
{
    char rel[48];

    snprintf(rel, sizeof(rel), "task/%d/%s", (int)tid, file);
    return procfs_slurp(dirfd, rel, buf, size);
}

static const char *value_of(const char *status, const char *line)
{
    const char *at = strstr(status, line);

    return at ? at + strlen(line) : "";
}

static enum tracer_result cannot_read(ssize_t err)
{
    return err == -ENOENT || err == -ESRCH ? TRACER_GONE : TRACER_DENIED;
}

enum tracer_result tracer_check_status(int dirfd, pid_t tid, struct tracer_look *out)
{
    char buf[RECORD];
    ssize_t n = read_task(dirfd, tid, "status", buf, sizeof(buf));

    if (n < 0)
        return cannot_read(n);
    char state = *value_of(buf, "\nState:\t");
    out->tracer_pid = atoi(value_of(buf, "\nTracerPid:\t"));
    if (state == 'Z' || state == 'X')
        return TRACER_GONE;
    if (out->tracer_pid != 0)
        return TRACER_TRACED;
    return state == 'R' || state == 'S' ? TRACER_OK : TRACER_UNSAFE;
}

/* A frozen thread sleeps where a stop or the freezer put it, whatever call it was in before. */
static bool is_held_up(int dirfd, pid_t tid)
{
    static const char *const where[] = {"do_freezer_trap", "__refrigerator", "ptrace_stop",
                                        "do_signal_stop", "do_jobctl_trap"};
    char wchan[64];

    if (read_task(dirfd, tid, "wchan", wchan, sizeof(wchan)) < 0)
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(where); i++) {
        if (strncmp(wchan, where[i], strlen(where[i])) == 0)
            return true;
    }
    return false;
}

/* A stack above 4 GiB is that of a 64-bit program. Of a blocked 32-bit one nothing would be learnt
 * by a stop: its stack cannot be walked. */
static enum abi abi_of(const struct procfs_syscall *c)
{
    return c->sp >> 32 ? ABI_NATIVE : ABI_UNKNOWN;
}

enum tracer_result tracer_check_call(int dirfd, pid_t tid, struct tracer_look *out, bool *met)
{
    char buf[256];
    struct procfs_syscall *c = &out->call;
    ssize_t n = read_task(dirfd, tid, "syscall", buf, sizeof(buf));

    if (n < 0)
        return cannot_read(n);
    if (!procfs_parse_syscall(buf, c))
        return TRACER_UNSAFE;
    out->was_blocked = c->kind == SYSCALL_BLOCKED;
    if (c->kind == SYSCALL_RUNNING)
        return TRACER_OK;
    if (tracer_cuts_short(abi_of(c), c))
        *met = true;
    return tracer_may_stop(abi_of(c), c) && !is_held_up(dirfd, tid) ? TRACER_OK : TRACER_UNSAFE;
}

nsec_t tracer_own_wait(int schedstat)
{
    char buf[96];
    struct procfs_schedstat s;

    if (procfs_reread(schedstat, buf, sizeof(buf)) <= 0 || !procfs_parse_schedstat(buf, &s))
        return -1;
    return s.runs ? (nsec_t)s.wait_ns : -1;
}

const char *tracer_result_text(enum tracer_result r)
{
    static const char *const text[] = {
        [TRACER_OK] = "stopped and let go",
        [TRACER_NOT_NOW] = "the budget of stops is used up",
        [TRACER_UNSAFE] = "a stop might disturb it",
        [TRACER_TRACED] = "another program traces it",
        [TRACER_DENIED] = "not permitted",
        [TRACER_TIMEOUT] = "it did not stop in time",
        [TRACER_GONE] = "it has ended",
    };

    return text[r];
}

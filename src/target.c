#include "target.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "err.h"
#include "fmt.h"
#include "procfs.h"
#include "proclist.h"
#include "target_find.h"
#include "xalloc.h"

#define COMM_MAX   15 /* what the kernel keeps of a name */
#define LOOK_EVERY (2 * NSEC_PER_SEC)
#define LOOK_SHARE 100 /* a look may take one part in this many of the time between looks */
#define EXEC_WAIT  (NSEC_PER_SEC / 4)
#define KILL_WAIT  (5 * NSEC_PER_SEC)

/* A process that was given or started: the start time tells it from a later bearer of its PID. */
struct given {
    pid_t pid;
    uint64_t start_ticks;
};

struct target {
    struct proclist *procs;
    struct finder *finder; /* NULL: by PID or command */
    struct given *given;
    size_t ngiven, given_cap;
    pid_t child; /* the command, not reaped yet; 0: none */
    pid_t *pids; /* the last look's result */
    size_t npids, pids_cap;
    nsec_t next_look;
};

/* Where a sentence about what cannot be watched goes. */
struct report {
    char *text;
    size_t size;
};

static bool PRINTF_LIKE(2, 3) say(struct report *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(r->text, r->size, fmt, ap);
    va_end(ap);
    return false;
}

/* The name as text for a message; the locale is not known here, so plain ASCII. */
static char *safe(char dst[64], const char *name)
{
    fmt_safe(dst, 64, name, strlen(name), true);
    return dst;
}

/* By PID ------------------------------------------------------------------------------ */

static bool say_missing(struct report *r, pid_t pid)
{
    /* A /proc mounted with hidepid shows nothing of other users' processes. */
    if (kill(pid, 0) == 0 || errno == EPERM)
        return say(r,
                   "process %d exists, but /proc here does not show it (mounted with hidepid?); "
                   "try as root",
                   (int)pid);
    return say(r, "no process %d", (int)pid);
}

static bool watchable(struct report *r, const struct proc_entry *e)
{
    char name[64];

    if (proc_entry_dead(e))
        return say(r, "process %d (%s) has exited and only waits to be reaped by its parent %d",
                   (int)e->pid, safe(name, e->comm), (int)e->ppid);
    if (e->kernel)
        return say(r, "process %d (%s) is a kernel thread and takes no locks of user space",
                   (int)e->pid, safe(name, e->comm));
    return true;
}

static bool add_pid(struct target *t, struct report *r, pid_t pid)
{
    struct proc_entry e;
    int rc = proclist_one(t->procs, pid, &e);

    if (rc == 0 && e.tgid != pid)
        rc = proclist_one(t->procs, e.tgid, &e);
    if (rc == -ESRCH)
        return say_missing(r, pid);
    if (rc != 0)
        return say(r, "cannot read process %d: %s", (int)pid, strerror(-rc));
    if (!watchable(r, &e))
        return false;
    t->given = xgrow(t->given, &t->given_cap, t->ngiven + 1, sizeof(*t->given));
    t->given[t->ngiven++] = (struct given){e.pid, e.start_ticks};
    return true;
}

/* True when at least one of the PIDs can be watched; what R says first is kept. */
static bool add_pids(struct target *t, struct report *r, const pid_t *pids, size_t n)
{
    struct report rest = {NULL, 0};

    for (size_t i = 0; i < n; i++)
        add_pid(t, r->text[0] ? &rest : r, pids[i]);
    return t->ngiven > 0;
}

/* Commands ---------------------------------------------------------------------------- */

static void spawn_actions(posix_spawn_file_actions_t *fa, int quiet_fd)
{
    posix_spawn_file_actions_init(fa);
    if (quiet_fd < 0)
        return;
    if (isatty(STDIN_FILENO))
        posix_spawn_file_actions_addopen(fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(fa, quiet_fd, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(fa, quiet_fd, STDERR_FILENO);
}

static void spawn_signals(posix_spawnattr_t *attr)
{
    sigset_t set;
    struct sigaction hup;

    posix_spawnattr_init(attr);
    posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    sigemptyset(&set);
    posix_spawnattr_setsigmask(attr, &set);
    sigfillset(&set);
    /* Under nohup the command is to survive as well. */
    if (sigaction(SIGHUP, NULL, &hup) == 0 && hup.sa_handler == SIG_IGN)
        sigdelset(&set, SIGHUP);
    posix_spawnattr_setsigdefault(attr, &set);
}

/* The spawn returns while the kernel still puts the new program in place: its name and its
 * memory are waited for. Twice, as one look may mix the old memory with the new flags. */
static int wait_for_exec(struct target *t, struct proc_entry *e)
{
    const struct timespec nap = {.tv_nsec = NSEC_PER_MSEC / 4};
    nsec_t deadline = clock_mono() + EXEC_WAIT;
    int rc, seen = 0;

    while ((rc = proclist_one(t->procs, t->child, e)) == 0 && !proc_entry_dead(e)) {
        if ((e->execed && ++seen == 2) || clock_mono() >= deadline)
            break;
        if (!e->execed)
            nanosleep(&nap, NULL);
    }
    return rc;
}

/* A command that has ended already is a target whose list is empty, not an error. */
static void watch_child(struct target *t)
{
    struct proc_entry e;

    if (wait_for_exec(t, &e) != 0)
        return;
    t->given = xgrow(t->given, &t->given_cap, 1, sizeof(*t->given));
    t->given[t->ngiven++] = (struct given){t->child, e.start_ticks};
}

/* posix_spawnp returns when the exec has succeeded or failed, and says which. */
static bool start_command(struct target *t, struct report *r, char *const *argv, int quiet_fd)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    pid_t child;

    spawn_actions(&fa, quiet_fd);
    spawn_signals(&attr);
    int rc = posix_spawnp(&child, argv[0], &fa, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&fa);
    if (rc != 0)
        return say(r, "cannot run '%s': %s", argv[0], strerror(rc));
    t->child = child;
    watch_child(t);
    return true;
}

/* Waits until DEADLINE for the child's end; true when it is reaped (or nobody's any more). */
static bool reap_until(pid_t child, nsec_t deadline)
{
    const struct timespec nap = {.tv_nsec = 2 * NSEC_PER_MSEC};

    for (;;) {
        pid_t got = waitpid(child, NULL, WNOHANG);
        if (got == child || (got < 0 && errno != EINTR))
            return true;
        if (clock_mono() >= deadline)
            return false;
        nanosleep(&nap, NULL);
    }
}

static void end_command(pid_t child, nsec_t grace)
{
    /* Signals only after a look: a PID that is not our child any more is never signalled. */
    if (reap_until(child, 0))
        return;
    kill(child, SIGTERM);
    kill(child, SIGCONT); /* a stopped one would never see the SIGTERM */
    if (reap_until(child, clock_mono() + grace))
        return;
    kill(child, SIGKILL);
    reap_until(child, clock_mono() + KILL_WAIT);
}

/* All of them ------------------------------------------------------------------------- */

static bool still_there(struct target *t, const struct given *g)
{
    struct proc_entry e;

    if (proclist_one(t->procs, g->pid, &e) == 0)
        return !proc_entry_dead(&e) && e.start_ticks == g->start_ticks;
    /* The library says "none" as well when it runs out of descriptors. */
    return kill(g->pid, 0) == 0 || errno == EPERM;
}

static void found(struct target *t, pid_t pid)
{
    t->pids = xgrow(t->pids, &t->pids_cap, t->npids + 1, sizeof(*t->pids));
    t->pids[t->npids++] = pid;
}

static void look_at_given(struct target *t)
{
    t->npids = 0;
    for (size_t i = 0; i < t->ngiven; i++)
        if (still_there(t, &t->given[i]))
            found(t, t->given[i].pid);
}

static void look_for_more(struct target *t)
{
    const pid_t *pids;
    ssize_t n = finder_look(t->finder, &pids);

    if (n < 0)
        return;
    t->npids = 0;
    for (ssize_t i = 0; i < n; i++)
        found(t, pids[i]);
}

static int by_pid(const void *a, const void *b)
{
    pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;
    return (x > y) - (x < y);
}

static void sort_pids(struct target *t)
{
    size_t kept = 0;

    if (t->npids)
        qsort(t->pids, t->npids, sizeof(*t->pids), by_pid);
    for (size_t i = 0; i < t->npids; i++)
        if (kept == 0 || t->pids[i] != t->pids[kept - 1])
            t->pids[kept++] = t->pids[i];
    t->npids = kept;
}

static void look(struct target *t, nsec_t now)
{
    nsec_t begin = clock_thread_cpu();

    if (t->finder)
        look_for_more(t);
    else
        look_at_given(t);
    sort_pids(t);
    t->next_look = now + MAX(LOOK_EVERY, LOOK_SHARE * (clock_thread_cpu() - begin));
}

static bool say_none(const struct target *t, struct report *r, const struct target_spec *spec)
{
    size_t denied = finder_denied(t->finder);
    const char *name = spec->name ? spec->name : spec->user ? spec->user : "";
    char quoted[256];

    fmt_safe(quoted, sizeof(quoted), name, strlen(name), true);
    if (denied > 0)
        return say(r,
                   "only %zu process%s that you (uid %u) may not look at; run lock-top as their "
                   "user or as root (sudo)",
                   denied, denied == 1 ? "" : "es", (unsigned)geteuid());
    if (spec->user)
        return say(r, "user '%s' has no processes (try: ps -u %.*s)", quoted, COMM_MAX, quoted);
    if (!spec->name)
        return say(r, "no processes but this one");
    return say(r, "no process named '%s' (names are cut to %d characters; try: pgrep -l %.*s)",
               quoted, COMM_MAX, COMM_MAX, quoted);
}

static bool seek(struct target *t, struct report *r, const struct target_spec *spec, int *status)
{
    t->finder = finder_new(spec, t->procs, r->text, r->size, status);
    if (!t->finder)
        return false;
    look(t, clock_mono());
    *status = EXIT_NOTHING;
    return t->npids > 0 || finder_may_come(t->finder) || say_none(t, r, spec);
}

struct target *target_new(const struct target_spec *spec, int quiet_fd, char *err, size_t err_size,
                          int *status)
{
    struct target *t = xcalloc(1, sizeof(*t));
    struct report r = {err, err_size};
    struct proc_entry self;
    bool ok;

    err[0] = '\0';
    *status = EXIT_NOTHING;
    t->procs = proclist_open();
    if (!t->procs || proclist_one(t->procs, getpid(), &self) != 0)
        ok = say(&r, "cannot read the list of processes; is /proc mounted?");
    else if (spec->command)
        ok = start_command(t, &r, spec->command, quiet_fd);
    else if (finder_wanted(spec))
        ok = seek(t, &r, spec, status);
    else
        ok = add_pids(t, &r, spec->pids, spec->npids);
    if (ok)
        return t;
    target_free(t, 0);
    return NULL;
}

size_t target_denied(const struct target *t)
{
    return t->finder ? finder_denied(t->finder) : 0;
}

bool target_may_come(const struct target *t)
{
    return t->finder && finder_may_come(t->finder);
}

void target_look_anew(struct target *t)
{
    t->next_look = 0;
}

size_t target_list(struct target *t, nsec_t now, const pid_t **pids)
{
    if (now >= t->next_look)
        look(t, now);
    *pids = t->pids;
    return t->npids;
}

void target_free(struct target *t, nsec_t grace)
{
    if (!t)
        return;
    if (t->child)
        end_command(t->child, grace);
    finder_free(t->finder);
    proclist_close(t->procs);
    free(t->given);
    free(t->pids);
    free(t);
}

const char *target_library(void)
{
    return proclist_library();
}

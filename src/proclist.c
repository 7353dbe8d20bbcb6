#include "proclist.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef HAVE_LIBPROC2
#include <libproc2/pids.h>
#else
#include <proc/readproc.h>
#undef NORETURN /* its headers take names that are compiler.h's */
#endif

#include "compiler.h"
#include "procfs.h"
#include "xalloc.h"

#define FORK_NO_EXEC 0x00000040 /* PF_FORKNOEXEC of the kernel's task flags */

#ifdef PROCLIB_VERSION
#define VERSION_SUFFIX " " PROCLIB_VERSION
#else
#define VERSION_SUFFIX ""
#endif

struct proclist {
#ifdef HAVE_LIBPROC2
    struct pids_info *info;
#endif
    struct proc_entry *all;
    size_t cap;
};

static void take_flags(struct proc_entry *e, unsigned long flags, unsigned long start_code)
{
    e->kernel = flags & PROCFS_PF_KTHREAD;
    /* A new program has an address only when all of it is mapped; 1 means not permitted. */
    e->execed = !(flags & FORK_NO_EXEC) && start_code > 1;
}

bool proc_entry_dead(const struct proc_entry *e)
{
    return (e->state == 'Z' || e->state == 'X') && e->threads <= 1;
}

#ifdef HAVE_LIBPROC2

/* All but the last come from one file, stat: the list of all processes stays cheap. */
enum {
    ITEM_PID,
    ITEM_PPID,
    ITEM_STATE,
    ITEM_FLAGS,
    ITEM_CODE,
    ITEM_THREADS,
    ITEM_BEGAN,
    ITEM_COMM,
    ITEM_TGID
};
static enum pids_item items[] = {
    [ITEM_PID] = PIDS_ID_PID,           [ITEM_PPID] = PIDS_ID_PPID,
    [ITEM_STATE] = PIDS_STATE,          [ITEM_FLAGS] = PIDS_FLAGS,
    [ITEM_CODE] = PIDS_ADDR_CODE_START, [ITEM_THREADS] = PIDS_NLWP,
    [ITEM_BEGAN] = PIDS_TICS_BEGAN,     [ITEM_COMM] = PIDS_CMD,
    [ITEM_TGID] = PIDS_ID_TGID,
};

const char *proclist_library(void)
{
    return "libproc2" VERSION_SUFFIX;
}

struct proclist *proclist_open(void)
{
    struct proclist *l = xcalloc(1, sizeof(*l));
    int rc = procps_pids_new(&l->info, items, ITEM_TGID);

    if (rc == 0)
        return l;
    free(l);
    errno = -rc;
    return NULL;
}

void proclist_close(struct proclist *l)
{
    if (!l)
        return;
    procps_pids_unref(&l->info);
    free(l->all);
    free(l);
}

static void take(struct proc_entry *e, const struct pids_result *r, bool with_tgid)
{
    e->pid = r[ITEM_PID].result.s_int;
    e->tgid = with_tgid ? r[ITEM_TGID].result.s_int : e->pid;
    e->ppid = r[ITEM_PPID].result.s_int;
    e->state = r[ITEM_STATE].result.s_ch;
    take_flags(e, r[ITEM_FLAGS].result.ul_int, r[ITEM_CODE].result.ul_int);
    e->threads = r[ITEM_THREADS].result.s_int;
    e->start_ticks = r[ITEM_BEGAN].result.ull_int;
    snprintf(e->comm, sizeof(e->comm), "%s", r[ITEM_COMM].result.str);
}

ssize_t proclist_all(struct proclist *l, const struct proc_entry **all)
{
    procps_pids_reset(l->info, items, ITEM_TGID);
    struct pids_fetch *got = procps_pids_reap(l->info, PIDS_FETCH_TASKS_ONLY);
    if (!got)
        return -errno;

    size_t n = (size_t)got->counts->total;
    l->all = xgrow(l->all, &l->cap, n, sizeof(*l->all));
    for (size_t i = 0; i < n; i++)
        take(&l->all[i], got->stacks[i]->head, false);
    *all = l->all;
    return (ssize_t)n;
}

int proclist_one(struct proclist *l, pid_t pid, struct proc_entry *out)
{
    unsigned id = (unsigned)pid;

    procps_pids_reset(l->info, items, ARRAY_SIZE(items));
    struct pids_fetch *got = procps_pids_select(l->info, &id, 1, PIDS_SELECT_PID);
    if (!got)
        return -errno;
    if (got->counts->total < 1)
        return -ESRCH;
    take(out, got->stacks[0]->head, true);
    return 0;
}

#else

const char *proclist_library(void)
{
    return "libprocps" VERSION_SUFFIX;
}

struct proclist *proclist_open(void)
{
    PROCTAB *table = openproc(PROC_FILLSTAT);

    if (!table)
        return NULL;
    closeproc(table);
    return xcalloc(1, sizeof(struct proclist));
}

void proclist_close(struct proclist *l)
{
    if (!l)
        return;
    free(l->all);
    free(l);
}

static void take(struct proc_entry *e, const proc_t *p)
{
    e->pid = p->tid;
    e->tgid = p->tgid;
    e->ppid = p->ppid;
    e->state = p->state;
    take_flags(e, p->flags, p->start_code);
    e->threads = p->nlwp;
    e->start_ticks = p->start_time;
    snprintf(e->comm, sizeof(e->comm), "%s", p->cmd);
}

ssize_t proclist_all(struct proclist *l, const struct proc_entry **all)
{
    PROCTAB *table = openproc(PROC_FILLSTAT);
    if (!table)
        return errno ? -errno : -EIO;

    size_t n = 0;
    proc_t p = {0};
    while (readproc(table, &p)) {
        l->all = xgrow(l->all, &l->cap, n + 1, sizeof(*l->all));
        take(&l->all[n++], &p);
    }
    closeproc(table);
    *all = l->all;
    return (ssize_t)n;
}

int proclist_one(struct proclist *l UNUSED, pid_t pid, struct proc_entry *out)
{
    pid_t wanted[] = {pid, 0};
    PROCTAB *table = openproc(PROC_FILLSTAT | PROC_FILLSTATUS | PROC_PID, wanted);
    if (!table)
        return errno ? -errno : -EIO;

    proc_t *p = readproc(table, NULL);
    closeproc(table);
    if (!p)
        return -ESRCH;
    take(out, p);
    freeproc(p);
    return 0;
}

#endif

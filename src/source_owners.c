#include "source_owners.h"

#include <errno.h>
#include <stdio.h>

#include "procfs.h"

void owners_ask(struct owners *o, pid_t pid, pid_t ppid, pid_t tid)
{
    for (size_t i = 0; i < o->nasked; i++) {
        if (o->asked[i].pid == pid && o->asked[i].tid == tid)
            return;
    }
    if (o->nasked < OWNERS_MAX)
        o->asked[o->nasked++] = (struct owner_ask){.pid = pid, .ppid = ppid, .tid = tid};
}

static bool is_gone(int rc)
{
    return rc == -ENOENT || rc == -ESRCH;
}

/* The kernel finds every thread below /proc by its TID, though it lists only leaders there. */
static int read_of(int rootfd, pid_t tid, struct procfs_stat *stat, struct procfs_status *status)
{
    char path[32];

    snprintf(path, sizeof(path), "%d/stat", tid);
    int rc = procfs_read_stat(rootfd, path, stat);
    if (rc != 0 || !status)
        return rc;
    snprintf(path, sizeof(path), "%d/status", tid);
    return procfs_read_status(rootfd, path, status);
}

/* Returns false when it cannot be told. */
static bool look_up(int rootfd, const struct owner_ask *ask, struct owner_fact *out)
{
    struct procfs_stat thread, leader;
    struct procfs_status status;

    *out = (struct owner_fact){.pid = ask->pid, .tid = ask->tid};
    int rc = read_of(rootfd, ask->tid, &thread, &status);
    if (is_gone(rc))
        return true;
    if (rc != 0 || status.tgid <= 0)
        return false;
    /* One that has exited and waits to be reaped holds nothing that it could still release. */
    if (thread.state == 'Z' || thread.state == 'X')
        return true;
    rc = read_of(rootfd, status.tgid, &leader, NULL);
    if (rc != 0)
        return is_gone(rc);
    out->tgid = status.tgid;
    out->start_ticks = thread.start_ticks;
    out->parent = status.tgid == ask->ppid;
    snprintf(out->comm, sizeof(out->comm), "%.*s", COMM_LEN - 1, leader.comm);
    return true;
}

const struct owner_fact *owners_serve(struct owners *o, int rootfd, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < o->nasked; i++)
        *n += look_up(rootfd, &o->asked[i], &o->facts[*n]);
    o->nasked = 0;
    return o->facts;
}

#include "wording_files.h"

#include <inttypes.h>
#include <string.h>

#include "filetab.h"
#include "kernelwait.h"

static const char *base_name(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;

    return slash && slash[1] ? slash + 1 : path;
}

const char *wording_file_name(struct arena *a, const struct lock_row *r)
{
    if (r->key.space == LOCKKEY_SEM)
        return arena_printf(a, "set %d[%u]", r->sem.id, r->sem.num);
    if (r->key.space == LOCKKEY_KERNEL)
        return r->name ? arena_strdup(a, r->name) : NULL;
    const char *part = filetab_sqlite_name(r->path, &r->file);
    return part && r->path ? arena_printf(a, "%s %s", base_name(r->path), part) : part;
}

static const char *range_text(struct arena *a, const struct file_lock *l)
{
    if (l->start == 0 && l->end == FILE_END)
        return "";
    if (l->end == FILE_END)
        return arena_printf(a, " from byte %" PRIu64 " on", l->start);
    return l->start == l->end ? arena_printf(a, " byte %" PRIu64, l->start)
                              : arena_printf(a, " bytes %" PRIu64 "-%" PRIu64, l->start, l->end);
}

const char *wording_file_lock(struct arena *a, const struct lock_row *r)
{
    const char *kind = lock_kind_name(r->kind), *name = wording_file_name(a, r);

    if (r->key.space != LOCKKEY_FILE)
        return arena_printf(a, "%s %s", kind, name ? name : r->id);
    const char *what = r->kind == KIND_FLOCK ? "flock" : arena_printf(a, "%s lock", kind);
    if (name)
        return arena_printf(a, "%s %s", what, name);
    if (!r->path)
        return arena_printf(a, "%s on inode %" PRIu64 "%s", what, r->inode,
                            range_text(a, &r->file));
    return arena_printf(a, "%s on %s%s%s", what, r->path, r->deleted ? " (deleted)" : "",
                        range_text(a, &r->file));
}

/* Owners -------------------------------------------------------------------------------- */

const char *wording_inherited(struct arena *a, const struct file_holder *h)
{
    bool of_descriptor = h->lock.kind == FILELOCK_FLOCK;

    if (!of_descriptor || h->taker <= 0 || h->taker == h->pid)
        return "";
    return arena_printf(a, "; by a descriptor shared with the original locker %d%s", h->taker,
                        h->taker_gone ? ", which has exited" : "");
}

static const char *process_text(struct arena *a, const struct proctab *procs, const struct owner *o)
{
    const struct proc *p = proctab_proc_of(procs, o->holder->pid);
    const char *more = o->holders > 1 ? arena_printf(a, " and %d more", o->holders - 1) : "";

    if (!p || !p->fact)
        return arena_printf(a, "held by process %d%s%s", o->holder->pid, more,
                            wording_inherited(a, o->holder));
    int threads = p->outsider ? p->fact->nthreads_all : (int)p->fact->nthreads;
    return arena_printf(
        a, "held by process %.*s[%d] (%d threads, which of them is not recorded)%s%s", COMM_LEN - 1,
        p->fact->comm, p->pid, threads, more, wording_inherited(a, o->holder));
}

static bool is_waiter(const struct lock_row *r, pid_t pid)
{
    for (int i = 0; i < r->npids; i++) {
        if (r->pids[i] == pid)
            return true;
    }
    return false;
}

static const char *remote_text(struct arena *a, const struct lock_row *r, const struct file_fact *f)
{
    const char *server = f->server ? f->server : "?";

    if (f->fs == FS_NFS)
        return arena_printf(a,
                            "waits for NFS server (lockd) %s: its holder is on another machine, or "
                            "the server has no lock manager",
                            server);
    if (f->fs == FS_FUSE && f->fuse_daemon > 0)
        return arena_printf(a, "waits for FUSE daemon %d%s, which serves %s", f->fuse_daemon,
                            is_waiter(r, f->fuse_daemon) ? " (the same process!)" : "", server);
    return arena_printf(a, "waits for the file server of %s, which knows its holder", server);
}

static const char *hint_text(struct arena *a, const struct proctab *procs, const struct lock_row *r,
                             const struct owner *o)
{
    const struct sem_fact *f = filetab_sem(&procs->files, r->sem.id, r->sem.num);
    const struct proc *p = proctab_proc_of(procs, o->hint);
    const char *value = arena_printf(a, "value %d; who took it is not recorded", f ? f->value : 0);

    if (o->hint <= 0)
        return value;
    return arena_printf(a, "%s (process %d%s%s operated on it last: a hint)", value, o->hint,
                        p ? " " : "", p ? p->last_read.comm : "");
}

const char *wording_file_owner(struct arena *a, const struct proctab *procs,
                               const struct lock_row *r, const struct owner *o)
{
    const struct file_fact *f = filetab_file(&procs->files, r->file.file);

    switch (o->is) {
    case OWNER_PROCESS:
        return process_text(a, procs, o);
    case OWNER_TAKER_ENDED:
        return arena_printf(a,
                            "its original locker %d has exited; who got the descriptor from it was "
                            "not found",
                            o->holder->taker);
    case OWNER_UNSEEN:
        return "held by a process that cannot be seen here (another user's, or another PID "
               "namespace)";
    case OWNER_REMOTE:
        return f ? remote_text(a, r, f) : NULL;
    case OWNER_HINT:
        return hint_text(a, procs, r, o);
    case OWNER_UNREADABLE:
        return "the semaphore may not be read (another IPC namespace, or not permitted)";
    default:
        return NULL;
    }
}

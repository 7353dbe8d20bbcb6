#include "filetab.h"
#include "owner.h"

struct thread *owner_thread_of(const struct proctab *procs, pid_t pid)
{
    const struct proc *p = proctab_proc_of(procs, pid);

    if (!p || !p->fact || p->ended || p->fact->nthreads != 1 ||
        (p->outsider && p->fact->nthreads_all > 1))
        return NULL;
    return procs->by_slot[p->fact->threads[0].slot];
}

/* Whom to tell of: somebody whose thread is known; then who is still there; then whoever. */
static int rank(const struct proctab *procs, const struct file_holder *h)
{
    return owner_thread_of(procs, h->pid) ? 3 : h->pid > 0 && h->now ? 2 : h->pid > 0;
}

static const struct file_holder *best_holder(const struct proctab *procs, const struct lock_row *r,
                                             int *n)
{
    const struct file_holder *best = NULL, *h;
    size_t i = 0;

    *n = 0;
    while ((h = filetab_next_holder(&procs->files, &r->file, &i))) {
        if (filetab_is_own(r, h))
            continue;
        *n += h->pid > 0;
        if (!best || rank(procs, h) > rank(procs, best))
            best = h;
    }
    return best;
}

static enum owner_is nobody_found(const struct proctab *procs, const struct lock_row *r)
{
    const struct file_fact *f = filetab_file(&procs->files, r->file.file);

    if (f && f->fs != FS_LOCAL)
        return OWNER_REMOTE;
    return f && f->searched ? OWNER_UNSEEN : OWNER_UNSEARCHED;
}

static struct owner owner_of_sem(const struct proctab *procs, const struct lock_row *r)
{
    const struct sem_fact *f = filetab_sem(&procs->files, r->sem.id, r->sem.num);
    struct owner o = {.is = f ? OWNER_HINT : OWNER_UNREADABLE};

    /* Enough for its waiters: one of them takes it in a moment. */
    if (f && r->sem.op < 0 && f->value >= -r->sem.op)
        o.is = OWNER_NONE;
    if (f)
        o.hint = f->last_pid;
    return o;
}

struct owner owner_of_file(const struct proctab *procs, const struct lock_row *r)
{
    if (r->key.space == LOCKKEY_SEM)
        return owner_of_sem(procs, r);
    struct owner o = {.is = OWNER_PROCESS};
    o.holder = best_holder(procs, r, &o.holders);
    if (!o.holder) {
        o.is = nobody_found(procs, r);
        return o;
    }
    if (o.holder->pid <= 0) {
        o.is = o.holder->taker_gone ? OWNER_TAKER_ENDED : OWNER_UNSEEN;
        return o;
    }
    o.thread = owner_thread_of(procs, o.holder->pid);
    if (o.thread) {
        o.is = OWNER_THREAD;
        o.tid = o.thread->fact->ns_tid;
    }
    /* Any of several could let go of it. */
    o.agreed = o.holder->now && o.holders == 1;
    return o;
}

#include "owner.h"

#define ASK_EVERY (500 * NSEC_PER_MSEC)

static pid_t named_tid(const struct lock_row *r)
{
    if (r->kind == KIND_JOIN)
        return r->joined;
    return r->holder.known && r->holder.held ? r->holder.late.owner : 0;
}

/* Whether the number in the word is one of a PID namespace that is not ours. */
static bool is_foreign_number(const struct proctab *procs, const struct lock_row *r)
{
    for (int i = 0; i < r->npids; i++) {
        const struct proc *p = proctab_proc_of(procs, r->pids[i]);
        if (p && p->fact && p->fact->nested_pidns)
            return true;
    }
    return false;
}

/* Whether descriptors and the kernel tell who holds it, and not memory. */
static bool is_of_kernel(const struct lock_row *r)
{
    return r->key.space == LOCKKEY_FILE || r->key.space == LOCKKEY_SEM;
}

struct thread *holder_of(const struct proctab *procs, const struct lock_row *r, bool *agreed)
{
    pid_t tid = named_tid(r);
    bool clear;

    if (is_of_kernel(r)) {
        struct owner o = owner_of_file(procs, r);
        *agreed = o.agreed;
        return o.thread;
    }

    *agreed = r->kind == KIND_JOIN || r->holder.agreed;
    if (tid <= 0)
        return NULL;
    if (r->key.space != LOCKKEY_SHARED)
        return proctab_find(procs, r->pid, tid);
    /* Several processes, each in a PID namespace of its own, may have one of that number. */
    if (is_foreign_number(procs, r))
        return NULL;
    struct file_id file = {.dev = r->dev, .inode = r->inode};
    struct thread *th = proctab_find_sharer(procs, file, tid, &clear);
    return clear ? th : NULL;
}

/* What was looked up of a TID that no thread here answers to. */
static enum owner_is judge_fact(const struct proctab *procs, const struct lock_row *r,
                                const struct owner_fact *f)
{
    const struct proc *p = proctab_proc_of(procs, r->pid);

    if (f->tgid == 0)
        return OWNER_ENDED;
    /* New here, or of a process that shares the memory and is not watched. */
    if (f->tgid == r->pid || r->key.space == LOCKKEY_SHARED || !p)
        return OWNER_MISSING;
    /* A thread that began after the process cannot have left it a lock: it bears the number of one
     * that has ended. */
    return f->start_ticks > p->start_ticks ? OWNER_ENDED : OWNER_ELSEWHERE;
}

/* Whether all threads of the process of R are known by the numbers that its locks hold: then one
 * that is not among them is none of them. Out here the number means nothing. */
static bool is_closed_world(const struct proctab *procs, const struct lock_row *r)
{
    const struct proc *p = proctab_proc_of(procs, r->pid);

    if (r->key.space == LOCKKEY_SHARED || !p || !p->fact || !p->fact->nested_pidns || p->outsider)
        return false;
    for (size_t i = 0; i < p->fact->nthreads; i++) {
        if (p->fact->threads[i].ns_tid <= 0)
            return false;
    }
    return p->fact->nthreads > 0;
}

static enum owner_is judge_missing(const struct proctab *procs, const struct lock_row *r,
                                   struct owner *o)
{
    const struct holder_view *v = &r->holder;

    if (r->key.space == LOCKKEY_SHARED && is_foreign_number(procs, r))
        return OWNER_FOREIGN;
    if (r->kind == KIND_JOIN || !v->agreed || procs->now - v->since <= GONE_AFTER)
        return OWNER_MISSING;
    o->fact = proctab_owner(procs, r->pid, o->tid);
    enum owner_is is = o->fact                     ? judge_fact(procs, r, o->fact)
                       : is_closed_world(procs, r) ? OWNER_ENDED
                                                   : OWNER_MISSING;
    /* Another library's lock, with a number of its own where a mutex has its owner. */
    if (is != OWNER_MISSING && r->confidence != CONF_CONFIRMED)
        return OWNER_UNPROVED;
    /* Shared memory may reach into a PID namespace that is not seen. */
    o->sure = r->key.space != LOCKKEY_SHARED;
    return is;
}

/* No TID stands there. */
static enum owner_is judge_unnamed(const struct lock_row *r)
{
    const struct lock_state *late = &r->holder.late;

    if (r->kind == KIND_MONITOR || r->kind == KIND_JOIN)
        return OWNER_UNNAMED;
    if (!r->holder.known)
        return OWNER_UNREADABLE;
    if (late->owner_died || late->unrecoverable)
        return OWNER_DIED;
    if (!r->holder.held)
        return OWNER_NONE;
    return late->readers ? OWNER_READERS : OWNER_UNNAMED;
}

struct owner owner_of(const struct proctab *procs, const struct lock_row *r)
{
    if (is_of_kernel(r))
        return owner_of_file(procs, r);
    struct owner o = {.is = OWNER_THREAD, .tid = named_tid(r)};

    o.thread = holder_of(procs, r, &o.agreed);
    if (o.thread)
        return o;
    o.is = o.tid > 0 ? judge_missing(procs, r, &o) : judge_unnamed(r);
    if (o.is == OWNER_DIED)
        o.sure = o.agreed && r->confidence == CONF_CONFIRMED;
    return o;
}

/* A sleeper that was woken runs within milliseconds, and who would take the lock meanwhile is seen
 * at some look. */
#define FREE_LONG (2 * NSEC_PER_SEC)

nsec_t owner_free_since(const struct proctab *procs, struct lock_row *r)
{
    const struct holder_view *v = &r->holder;

    if (!v->known || v->held || !v->agreed || v->late.owner_died || v->late.unrecoverable ||
        r->confidence == CONF_UNKNOWN || procs->now - v->since < FREE_LONG)
        return -1;
    if (r->busy && window_sum(&r->busy->held, procs->now, (int)(FREE_LONG / NSEC_PER_SEC)) > 0)
        return -1;
    return v->since;
}

const struct thread *owner_first_waiter(const struct proctab *procs, const struct lock_row *r,
                                        enum lock_mode mode, int *n)
{
    const struct thread *first = NULL;

    *n = 0;
    for (size_t i = 0; i < procs->nslots; i++) {
        const struct thread *th = procs->by_slot[i];
        if (!th || th->row != r || (mode != MODE_NONE && th->mode != mode))
            continue;
        ++*n;
        if (!first || th->fact->since < first->fact->since)
            first = th;
    }
    return first;
}

/* Requests ------------------------------------------------------------------------------ */

static bool holder_wanted(const struct lock_row *r, const struct thread *th, nsec_t now)
{
    return r->key.space == LOCKKEY_SHARED && (!th || th->proc->outsider) &&
           (!r->asked_at || now - r->asked_at >= ASK_EVERY);
}

/* TIDs of another namespace mean nothing to the source, and a join names only living threads. */
static bool fact_wanted(const struct proctab *procs, const struct lock_row *r)
{
    const struct proc *p = proctab_proc_of(procs, r->pid);

    return r->kind != KIND_JOIN && p && p->fact && !p->fact->nested_pidns;
}

bool holder_request(struct proctab *procs, struct lock_row *r, nsec_t now, struct request *req)
{
    pid_t tid = named_tid(r);
    bool agreed;

    if (is_of_kernel(r) || tid <= 0 ||
        (r->key.space == LOCKKEY_SHARED && is_foreign_number(procs, r)))
        return false;
    struct thread *th = holder_of(procs, r, &agreed);
    if (holder_wanted(r, th, now)) {
        r->asked_at = now;
        *req = (struct request){
            .kind = REQUEST_HOLDER,
            .tid = tid,
            .file = {.dev = r->dev, .inode = r->inode},
        };
        return true;
    }
    if (th || !agreed || !fact_wanted(procs, r) || !proctab_ask_owner(procs, r->pid, tid))
        return false;
    *req = (struct request){.kind = REQUEST_OWNER, .pid = r->pid, .tid = tid};
    return true;
}

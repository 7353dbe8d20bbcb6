#include "holder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* An owner that is not among the threads for so long is gone, not merely new. */
#define GONE_AFTER (500 * NSEC_PER_MSEC)
#define ASK_EVERY  (500 * NSEC_PER_MSEC)

static pid_t named_owner(const struct lock_row *r)
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

/* The thread that the lock word names, or NULL: none is named, it cannot be found, or several
 * processes (each in a PID namespace of its own) have one of that number. */
static struct thread *holder_thread(const struct proctab *procs, const struct lock_row *r)
{
    pid_t owner = named_owner(r);
    bool clear;

    if (owner <= 0)
        return NULL;
    if (r->key.space == LOCKKEY_PRIVATE)
        return proctab_find(procs, r->pid, owner);
    if (is_foreign_number(procs, r))
        return NULL;
    struct file_id file = {.dev = r->dev, .inode = r->inode};
    struct thread *th = proctab_find_sharer(procs, file, owner, &clear);
    return clear ? th : NULL;
}

bool holder_request(const struct proctab *procs, struct lock_row *r, nsec_t now,
                    struct request *req)
{
    pid_t owner = named_owner(r);

    if (owner <= 0 || r->key.space != LOCKKEY_SHARED ||
        (r->asked_at && now - r->asked_at < ASK_EVERY) || is_foreign_number(procs, r))
        return false;
    struct thread *th = holder_thread(procs, r);
    if (th && !th->proc->outsider)
        return false;
    r->asked_at = now;
    *req = (struct request){
        .kind = REQUEST_HOLDER,
        .tid = owner,
        .file = {.dev = r->dev, .inode = r->inode},
    };
    return true;
}

/* "fsync fd 12 /data/ibdata1", "waits for mutex 0x7f..", "syscall 333", or NULL. */
static const char *what_it_does(struct arena *a, const struct thread *th, const struct lock_row *r)
{
    const struct thread_fact *f = th->fact;

    if (f->seen == SEEN_FAULT)
        return "blocked outside a system call (page fault)";
    if (f->seen != SEEN_CALL)
        return NULL;
    if (th->row == r && r->kind != KIND_JOIN)
        return "waits for this very lock, which it holds already";
    if (th->row)
        return arena_printf(a, "waits for %s 0x%" PRIx64, lock_kind_name(th->row->kind),
                            th->row->object);
    if (f->call == CALL_OTHER)
        return arena_printf(a, "syscall %ld", f->nr);
    if (f->fd < 0)
        return arena_strdup(a, syscalls_name(f->call));
    return arena_printf(a, "%s fd %d%s%s", syscalls_name(f->call), f->fd, f->fd_path ? " " : "",
                        f->fd_path ? f->fd_path : "");
}

static double age_ms(const struct proctab *procs, const struct thread *th)
{
    return (double)(procs->now - th->state_since) / (double)NSEC_PER_MSEC;
}

/* It was seen to wait for the very lock that it is now said to hold, and not to sleep on there: its
 * wait has ended since. Who waits for what it holds already sleeps on, and both reads name it. */
static bool has_just_got_it(const struct lock_row *r, const struct thread *th)
{
    return th->row == r && (th->fact->fresh || !r->holder.agreed);
}

static void fill_thread(struct snap_holder *h, struct arena *a, const struct proctab *procs,
                        const struct lock_row *r, const struct thread *th)
{
    h->pid = th->pid;
    h->tid = th->tid;
    memcpy(h->comm, th->fact->comm, sizeof(h->comm));
    if (has_just_got_it(r, th)) {
        h->confidence = CONF_LIKELY;
        h->detail = "has just got it";
        return;
    }
    h->confidence =
        lock_kind_class(r->kind) != CLASS_LOCK || r->holder.agreed ? CONF_CONFIRMED : CONF_LIKELY;
    h->state = th->state;
    h->state_known = th->fact->seen != SEEN_UNREADABLE;
    h->detail = what_it_does(a, th, r);
    h->age_ms = age_ms(procs, th);
    if (th->row)
        h->waits_for = arena_strdup(a, th->row->id);
}

/* A TID that no thread answers to. */
static void fill_missing(struct snap_holder *h, struct arena *a, const struct proctab *procs,
                         const struct lock_row *r, pid_t owner)
{
    bool gone = procs->now - r->holder.since > GONE_AFTER && r->holder.agreed;

    if (r->key.space == LOCKKEY_SHARED && is_foreign_number(procs, r)) {
        h->detail = arena_printf(a, "TID %d of some PID namespace: whose, a lock in shared memory "
                                 "does not tell", owner);
        return;
    }
    h->gone = gone && r->key.space == LOCKKEY_PRIVATE;
    h->confidence = h->gone ? CONF_LIKELY : CONF_UNKNOWN;
    if (h->gone)
        h->detail = arena_printf(a, "TID %d is no thread of this process: it ended holding the "
                                 "lock, or a fork copied the lock", owner);
    else
        h->detail = arena_printf(a, "owner TID %d is not among the threads that can be seen", owner);
}

static void fill_unnamed(struct snap_holder *h, struct arena *a, const struct lock_row *r)
{
    const struct holder_view *v = &r->holder;

    if (!v->known) {
        h->detail = "the lock's memory could not be read";
    } else if (v->late.owner_died || v->late.unrecoverable) {
        h->gone = true;
        h->confidence = v->agreed ? CONF_CONFIRMED : CONF_LIKELY;
        h->detail = v->late.unrecoverable ? "not recoverable: its owner died and nobody repaired it"
                                          : "its owner died while holding it";
    } else if (v->late.readers) {
        h->mode = MODE_SHARED;
        h->unrecorded = true;
        h->detail = arena_printf(a, "%u reader%s; readers are not recorded by this lock",
                                 v->late.readers, v->late.readers == 1 ? "" : "s");
    } else {
        h->unrecorded = !layout_records_owner(r->kind, r->layout);
        h->detail = h->unrecorded ? "not recorded by this lock" : "not recorded at this moment";
    }
}

const struct snap_holder *holder_list(struct arena *a, const struct proctab *procs,
                                      const struct lock_row *r, size_t *n)
{
    bool lock = lock_kind_class(r->kind) == CLASS_LOCK;

    *n = 0;
    if (r->counted == 0 || (!lock && r->kind != KIND_JOIN))
        return NULL;
    const struct lock_state *late = &r->holder.late;
    if (lock && r->holder.known && !r->holder.held && !late->owner_died && !late->unrecoverable)
        return NULL;
    struct snap_holder *h = arena_zalloc(a, sizeof(*h));
    struct thread *th = holder_thread(procs, r);
    pid_t owner = named_owner(r);
    h->pid = h->tid = -1;
    h->mode = lock ? MODE_EXCLUSIVE : MODE_NONE;
    h->age_ms = NAN;
    if (th) {
        fill_thread(h, a, procs, r, th);
    } else if (owner > 0) {
        fill_missing(h, a, procs, r, owner);
    } else {
        fill_unnamed(h, a, r);
    }
    *n = 1;
    return h;
}

#include "model_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernelwait.h"
#include "sockets.h"
#include "xalloc.h"

#define PEER_ASKED_EVERY  (5 * NSEC_PER_SEC)
#define ATTEMPTS_MIN_SPAN (500 * NSEC_PER_MSEC)

/* Sockets -------------------------------------------------------------------------------- */

/* 0: it sleeps on none. */
static uint64_t socket_inode(const struct thread_fact *f)
{
    return f->fd_kind == FD_SOCKET ? sockets_inode(f->fd_path) : 0;
}

static void forget_peer(struct thread *th)
{
    free(th->peer.text);
    th->peer = (struct peer){0};
}

static void take_socket(struct proctab *procs, const struct socket_fact *f)
{
    for (size_t i = 0; i < procs->nslots; i++) {
        struct thread *th = procs->by_slot[i];
        if (!th || th->pid != f->pid || !th->fact || socket_inode(th->fact) != f->inode)
            continue;
        free(th->peer.text);
        th->peer.text = f->text ? xstrdup(f->text) : NULL;
        th->peer.inode = f->inode;
    }
}

/* What it is connected to is asked of who is waited for. */
static bool wants_peer(struct proctab *procs, struct thread *th)
{
    uint64_t inode = socket_inode(th->fact);

    if (inode == 0 || inode != th->peer.inode)
        forget_peer(th);
    if (inode == 0 || (th->peer.asked_at && procs->now - th->peer.asked_at < PEER_ASKED_EVERY))
        return false;
    th->peer.inode = inode;
    th->peer.asked_at = MAX(procs->now, 1);
    return true;
}

/* Rows ----------------------------------------------------------------------------------- */

static void take_attempts(struct model *m, const struct attempt_fact *f)
{
    for (struct lock_row *r = m->locks.rows; r; r = r->hh.next) {
        if (r->key.space != LOCKKEY_FILE || r->file.file.inode != f->file.inode ||
            r->file.file.dev != f->file.dev)
            continue;
        if (!r->attempts) {
            r->attempts = xcalloc(1, sizeof(*r->attempts));
            r->attempts->per_s = r->attempts->refused = NAN;
        }
        struct attempts *a = r->attempts;
        if (a->last.since != f->since) {
            a->last = *f;
            continue;
        }
        nsec_t span = f->until - a->last.until;
        if (span < ATTEMPTS_MIN_SPAN)
            continue;
        double n = (double)(f->attempts - a->last.attempts);
        a->per_s = n / ((double)span / (double)NSEC_PER_SEC);
        a->refused = n > 0 ? (double)(f->refused - a->last.refused) / n : NAN;
        a->last = *f;
    }
}

void model_take_files(struct model *m, const struct sample *s)
{
    filetab_take(&m->procs.files, s);
    for (size_t i = 0; i < s->nsockets; i++)
        take_socket(&m->procs, &s->sockets[i]);
    for (size_t i = 0; i < s->nattempts; i++)
        take_attempts(m, &s->attempts[i]);
}

static struct lock_row *kernel_row(struct model *m, const struct process_fact *p,
                                   const struct thread_fact *f)
{
    const struct kernel_family *k = kernelwait_of(f);

    if (!k)
        return NULL;
    const char *place = k->scope == KERNEL_PROCESS ? NULL : f->fd_path;
    struct lockkey key = lockkey_kernel(k->number, p, place);
    struct lock_row *r = locktab_keyed_row(&m->locks, p, &key, KIND_KERNEL, CONF_LIKELY);
    if (!r->name) {
        char text[512];
        snprintf(text, sizeof(text), "%s%s%s", k->name, place ? " of " : "", place ? place : "");
        r->name = xstrdup(text);
    }
    return r;
}

struct lock_row *model_file_row(struct model *m, const struct process_fact *p,
                                const struct thread *th, enum lock_mode *mode)
{
    const struct thread_fact *f = th->fact;
    struct lock_row *r = NULL;

    *mode = MODE_NONE;
    if (f->seen != SEEN_CALL && f->seen != SEEN_FAULT)
        return NULL;
    if (f->seen == SEEN_CALL && f->wants.kind != FILELOCK_NONE) {
        *mode = f->wants.exclusive ? MODE_EXCLUSIVE : MODE_SHARED;
        r = filetab_row(&m->procs.files, &m->locks, p, &f->wants);
    }
    if (!r && f->seen == SEEN_CALL && f->sem.id >= 0 && f->sem.nops > 0) {
        *mode = f->sem.op < 0 && f->sem.undo ? MODE_EXCLUSIVE : MODE_NONE;
        r = filetab_sem_row(&m->locks, p, &f->sem);
    }
    return r ? r : kernel_row(m, p, f);
}

/* Sleeps --------------------------------------------------------------------------------- */

static bool is_estimated(const struct lock_row *r)
{
    return r && (r->key.space == LOCKKEY_FILE || r->key.space == LOCKKEY_SEM);
}

static struct estimate *estimate_of(struct lock_row *r)
{
    if (!r->estimate)
        r->estimate = xcalloc(1, sizeof(*r->estimate));
    return r->estimate;
}

void model_end_files(struct model *m, nsec_t mono)
{
    filetab_end_sweep(&m->procs.files, &m->locks);
    for (size_t i = 0; i < m->procs.nslots; i++) {
        const struct thread *th = m->procs.by_slot[i];
        if (!th || !is_estimated(th->row))
            continue;
        bool begun = th->fact->fresh && th->fact->since == mono;
        estimate_sweep(estimate_of(th->row), m->now, begun, th->row->now);
    }
}

void model_take_relook(struct model *m, const struct sample *s)
{
    /* Rows and facts are those of the sweep before; a thread that is another by now does not count.
     */
    for (size_t i = 0; i < s->nran; i++) {
        const struct ran_fact *f = &s->ran[i];
        struct thread *th = f->slot < m->procs.nslots ? m->procs.by_slot[f->slot] : NULL;
        if (th && th->start_ticks == f->start_ticks && is_estimated(th->row))
            estimate_pair(estimate_of(th->row), m->now, f->delay, f->left);
    }
}

/* Requests ------------------------------------------------------------------------------- */

/* One delay serves all: each sweep that of another lock that is waited for, in turn. */
static bool relook_wanted(struct model *m, struct request *req)
{
    struct lock_row *chosen = NULL;
    uint64_t n = 0;

    for (struct lock_row *r = m->locks.rows; r; r = r->hh.next)
        n += is_estimated(r) && locktab_waiters(&m->locks, r) > 0;
    if (n == 0)
        return false;
    uint64_t turn = m->sweeps % n;
    for (struct lock_row *r = m->locks.rows; r && !chosen; r = r->hh.next) {
        if (is_estimated(r) && locktab_waiters(&m->locks, r) > 0 && turn-- == 0)
            chosen = r;
    }
    *req = (struct request){
        .kind = REQUEST_RELOOK,
        .delay = estimate_best_delay(estimate_of(chosen), m->now),
    };
    return true;
}

size_t model_request_files(struct model *m, struct request *out, size_t n, size_t max)
{
    if (n < max && relook_wanted(m, &out[n]))
        n++;
    for (size_t i = 0; i < m->procs.nslots && n < max; i++) {
        const struct thread *waiter = m->procs.by_slot[i];
        struct thread *th = waiter ? waiter->edge.to : NULL;
        if (th && th->fact && wants_peer(&m->procs, th))
            out[n++] = (struct request){
                .kind = REQUEST_SOCKET,
                .pid = th->pid,
                .tid = th->tid,
                .addr = th->peer.inode,
            };
    }
    return n;
}

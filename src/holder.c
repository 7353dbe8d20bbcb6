#include "holder.h"

#include <math.h>
#include <string.h>

#include "filetab.h"
#include "wording.h"
#include "wording_files.h"

static double age_ms(const struct proctab *procs, const struct thread *th)
{
    return (double)(procs->now - th->state_since) / (double)NSEC_PER_MSEC;
}

/* It was seen to wait for the very lock that it is now said to hold, and not to sleep on there: its
 * wait has ended since. Who waits for what it holds already sleeps on, and both reads name it. */
static bool has_just_got_it(const struct lock_row *r, const struct thread *th)
{
    if (r->key.space == LOCKKEY_FILE)
        return th->row == r && th->fact->fresh;
    return th->row == r && (th->fact->fresh || !r->holder.agreed);
}

static const char *what_it_does(struct arena *a, const struct proctab *procs,
                                const struct thread *th, const struct lock_row *r)
{
    if (th->row == r && r->kind != KIND_JOIN)
        return "waits for this very lock, which it holds already";
    if (th->row)
        return wording_waits(a, procs, th);
    return wording_call(a, th);
}

static void fill_thread(struct snap_holder *h, struct arena *a, const struct proctab *procs,
                        const struct lock_row *r, const struct owner *o)
{
    const struct thread *th = o->thread;

    h->pid = th->pid;
    h->tid = th->tid;
    memcpy(h->comm, th->fact->comm, sizeof(h->comm));
    if (has_just_got_it(r, th)) {
        h->confidence = CONF_LIKELY;
        h->detail = "has just got it";
        return;
    }
    h->confidence = o->agreed ? CONF_CONFIRMED : CONF_LIKELY;
    h->state = th->state;
    h->state_known = th->fact->seen != SEEN_UNREADABLE;
    h->detail = what_it_does(a, procs, th, r);
    h->age_ms = age_ms(procs, th);
    if (th->row)
        h->waits_for = arena_strdup(a, th->row->id);
}

static void fill_absent(struct snap_holder *h, const struct lock_row *r, const struct owner *o)
{
    switch (o->is) {
    case OWNER_DIED:
        h->gone = r->confidence == CONF_CONFIRMED;
        h->confidence = o->sure ? CONF_CONFIRMED : CONF_LIKELY;
        break;
    case OWNER_ENDED:
    case OWNER_ELSEWHERE:
        h->gone = true;
        h->confidence = CONF_LIKELY;
        break;
    case OWNER_READERS:
        h->mode = MODE_SHARED;
        h->unrecorded = true;
        break;
    case OWNER_UNNAMED:
        h->unrecorded = r->kind == KIND_MONITOR || !layout_records_owner(r->kind, r->layout);
        break;
    default:
        break;
    }
}

/* Locks on files ------------------------------------------------------------------------- */

static struct snap_holder unknown_holder(void)
{
    return (struct snap_holder){.pid = -1, .tid = -1, .fd = -1, .age_ms = NAN, .held_ms = NAN};
}

/* The process H->pid, and what it does where that is the doing of one thread. */
static void fill_process(struct snap_holder *out, struct arena *a, const struct proctab *procs,
                         const struct lock_row *r, const struct file_holder *h)
{
    const struct proc *p = proctab_proc_of(procs, h->pid);
    const char *inherited = wording_inherited(a, h);
    struct owner o = {.is = OWNER_THREAD, .agreed = h->now, .holder = h, .holders = 1};

    o.thread = owner_thread_of(procs, h->pid);
    if (o.thread) {
        fill_thread(out, a, procs, r, &o);
    } else {
        o.is = OWNER_PROCESS;
        out->pid = h->pid;
        if (p && p->fact)
            memcpy(out->comm, p->fact->comm, sizeof(out->comm));
        out->confidence = h->now ? CONF_CONFIRMED : CONF_LIKELY;
        out->detail = wording_file_owner(a, procs, r, &o);
        return;
    }
    if (*inherited)
        out->detail = arena_printf(a, "%s%s", out->detail ? out->detail : "runs", inherited);
}

static void fill_file_holder(struct snap_holder *out, struct arena *a, const struct proctab *procs,
                             const struct lock_row *r, const struct file_holder *h)
{
    *out = unknown_holder();
    if (h->pid > 0) {
        fill_process(out, a, procs, r, h);
    } else {
        struct owner o = {.is = h->taker_gone ? OWNER_TAKER_ENDED : OWNER_UNSEEN, .holder = h};
        out->detail = wording_file_owner(a, procs, r, &o);
    }
    out->mode = h->lock.exclusive ? MODE_EXCLUSIVE : MODE_SHARED;
    out->fd = h->fd;
    out->held_ms = (double)(procs->now + procs->start - h->since) / (double)NSEC_PER_MSEC;
}

#define FILE_HOLDERS_MAX 64

static const struct snap_holder *file_holders(struct arena *a, const struct proctab *procs,
                                              const struct lock_row *r, size_t *n)
{
    struct snap_holder *out = arena_zalloc(a, FILE_HOLDERS_MAX * sizeof(*out));
    const struct file_holder *h;
    struct file_lock any = r->file;
    size_t i = 0;

    any.exclusive |= r->counted != procs->sweep; /* nobody waits: whoever holds it */
    while (*n < FILE_HOLDERS_MAX && (h = filetab_next_holder(&procs->files, &any, &i))) {
        if (!filetab_is_own(r, h))
            fill_file_holder(&out[(*n)++], a, procs, r, h);
    }
    if (*n > 0)
        return out;
    struct owner o = owner_of_file(procs, r);
    const char *why = wording_file_owner(a, procs, r, &o);
    if (!why)
        return NULL;
    out[0] = unknown_holder();
    out[0].mode = MODE_EXCLUSIVE;
    out[0].detail = why;
    *n = 1;
    return out;
}

/* Who operated on a semaphore last may have taken it. */
static const struct snap_holder *sem_holder(struct arena *a, const struct proctab *procs,
                                            const struct lock_row *r, size_t *n)
{
    struct snap_holder *h = arena_zalloc(a, sizeof(*h));
    struct owner o = owner_of_file(procs, r);
    const char *why = wording_file_owner(a, procs, r, &o);

    if (!why)
        return NULL;
    *n = 1;
    *h = unknown_holder();
    o.thread = o.hint > 0 ? owner_thread_of(procs, o.hint) : NULL;
    if (o.thread)
        fill_thread(h, a, procs, r, &o);
    else if (o.hint > 0)
        h->pid = o.hint;
    if (h->detail)
        why = arena_printf(a, "%s; %s", h->detail, why);
    h->mode = MODE_EXCLUSIVE;
    h->confidence = CONF_UNKNOWN;
    h->detail = why;
    return h;
}

const struct snap_holder *holder_list(struct arena *a, const struct proctab *procs,
                                      struct lock_row *r, size_t *n)
{
    bool lock = lock_kind_class(r->kind) == CLASS_LOCK;
    const char *why = NULL;

    *n = 0;
    if (r->key.space == LOCKKEY_FILE)
        return file_holders(a, procs, r, n);
    if (r->kind == KIND_SYSV_SEM)
        return sem_holder(a, procs, r, n);
    if (r->counted == 0 || (!lock && r->kind != KIND_JOIN))
        return NULL;
    struct owner o = owner_of(procs, r);
    if (o.is != OWNER_THREAD) {
        why = wording_owner(a, procs, r, &o);
        if (!why)
            return NULL;
    }
    struct snap_holder *h = arena_zalloc(a, sizeof(*h));
    *h = unknown_holder();
    h->mode = lock ? MODE_EXCLUSIVE : MODE_NONE;
    h->detail = why;
    if (o.thread)
        fill_thread(h, a, procs, r, &o);
    else
        fill_absent(h, r, &o);
    *n = 1;
    return h;
}

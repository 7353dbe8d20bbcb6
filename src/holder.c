#include "holder.h"

#include <math.h>
#include <string.h>

#include "wording.h"

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

const struct snap_holder *holder_list(struct arena *a, const struct proctab *procs,
                                      struct lock_row *r, size_t *n)
{
    bool lock = lock_kind_class(r->kind) == CLASS_LOCK;
    const char *why = NULL;

    *n = 0;
    if (r->counted == 0 || (!lock && r->kind != KIND_JOIN))
        return NULL;
    struct owner o = owner_of(procs, r);
    if (o.is != OWNER_THREAD) {
        why = wording_owner(a, procs, r, &o);
        if (!why)
            return NULL;
    }
    struct snap_holder *h = arena_zalloc(a, sizeof(*h));
    h->pid = h->tid = -1;
    h->mode = lock ? MODE_EXCLUSIVE : MODE_NONE;
    h->age_ms = NAN;
    h->detail = why;
    if (o.thread)
        fill_thread(h, a, procs, r, &o);
    else
        fill_absent(h, r, &o);
    *n = 1;
    return h;
}

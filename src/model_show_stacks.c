#include "model_show_stacks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "holder.h"
#include "model_stacks.h"
#include "profile.h"

/* Of a holder that was stopped for a look, that stack is shown for so long. */
#define SHOWN_FOR (2 * NSEC_PER_SEC)

static const char *copy(struct arena *a, const char *s)
{
    return s ? arena_strdup(a, s) : NULL;
}

/* Many threads and rows share a stack: it is copied once for each snapshot. */
static const struct snap_frame *frames_of(struct arena *a, const struct model *m,
                                          struct kept_stack *s)
{
    if (s->shown && s->shown_in == m->snapshots)
        return s->shown;
    struct snap_frame *f = arena_zalloc(a, s->n * sizeof(*f));
    for (size_t i = 0; i < s->n; i++) {
        const struct frame_name *n = &s->frames[i].n;
        f[i] = (struct snap_frame){
            .name = copy(a, n->name),
            .into = n->into,
            .module = copy(a, n->module),
            .offset = n->offset,
            .file = copy(a, n->file),
            .line = n->line,
        };
    }
    s->shown = f;
    s->shown_in = m->snapshots;
    return f;
}

static void put_frames(struct snap_stack *out, struct arena *a, const struct model *m,
                       struct kept_stack *s)
{
    out->frames = frames_of(a, m, s);
    out->nframes = s->n;
    out->complete = s->end == STACK_COMPLETE;
    out->guessed = s->guessed;
}

static const char *why_none(const struct thread *th)
{
    switch (th->fact->seen) {
    case SEEN_ACTIVE:
        return th->stack.why && th->stack.failed_runs == th->fact->runs ? th->stack.why
                                                                        : "it runs";
    case SEEN_UNREADABLE:
        return "it may not be looked at";
    default:
        return "not taken yet";
    }
}

/* Waiters ------------------------------------------------------------------------------ */

struct group {
    struct kept_stack *stack; /* NULL: none is known */
    const struct thread *first;
    int count;
    bool presumed; /* that of FIRST is */
};

static int compare_groups(const void *a, const void *b)
{
    const struct group *x = a, *y = b;

    return (x->count < y->count) - (x->count > y->count);
}

static void add_to_group(struct group *groups, size_t *n, const struct thread *th, nsec_t now)
{
    bool presumed;
    struct kept_stack *s = stack_of(th, now, &presumed);
    size_t i = 0;

    while (i < *n && groups[i].stack != s)
        i++;
    if (i == *n)
        groups[(*n)++] = (struct group){.stack = s, .first = th, .presumed = s && presumed};
    groups[i].count++;
    if (s && !presumed && groups[i].presumed) {
        groups[i].first = th;
        groups[i].presumed = false;
    }
}

/* The site of the largest group in which one is known. */
static void note_site(const struct model *m, struct lock_row *r, const struct group *groups,
                      size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (groups[i].stack && groups[i].stack->site) {
            model_set_site(m, r, groups[i].stack->site);
            return;
        }
    }
}

static size_t put_waiter_stacks(struct snap_stack *out, struct arena *a, const struct model *m,
                                struct lock_row *r, const struct waiting *w, size_t n)
{
    struct group *groups = xcalloc(n ? n : 1, sizeof(*groups));
    size_t ngroups = 0;

    for (size_t i = 0; i < n; i++)
        add_to_group(groups, &ngroups, w[i].thread, m->now);
    qsort(groups, ngroups, sizeof(*groups), compare_groups);
    note_site(m, r, groups, ngroups);
    ngroups = MIN(ngroups, (size_t)SHOWN_STACKS);
    for (size_t i = 0; i < ngroups; i++) {
        const struct group *g = &groups[i];
        out[i] = (struct snap_stack){
            .role = ROLE_WAITER,
            .count = g->count,
            .share = (double)g->count / (double)n,
            .pid = g->first->pid,
            .tid = g->first->tid,
            .presumed = g->presumed,
        };
        if (g->stack)
            put_frames(&out[i], a, m, g->stack);
        else
            out[i].note = why_none(g->first);
    }
    free(groups);
    return ngroups;
}

/* Holders ------------------------------------------------------------------------------ */

static size_t put_holder_stack(struct snap_stack *out, struct arena *a, const struct model *m,
                               const struct lock_row *r)
{
    bool agreed, presumed = false;
    const struct thread *th = holder_of(&m->procs, r, &agreed);

    if (!th)
        return 0;
    struct kept_stack *s = stack_of(th, m->now, &presumed);
    if (!s && th->fact->seen == SEEN_ACTIVE)
        s = stack_when_stopped(th, m->now, SHOWN_FOR);
    *out = (struct snap_stack){
        .role = ROLE_HOLDER,
        .count = 1,
        .share = 1,
        .pid = th->pid,
        .tid = th->tid,
        .presumed = presumed && s,
    };
    if (s)
        put_frames(out, a, m, s);
    if (!s || s->n == 0)
        out->note = why_none(th);
    return 1;
}

static size_t put_profile(struct snap_stack *out, struct arena *a, const struct model *m,
                          const struct lock_row *r)
{
    struct profile_path paths[PROFILE_PATHS];
    size_t n = r->profile ? profile_sort(r->profile, paths) : 0;

    for (size_t i = 0; i < n; i++) {
        out[i] = (struct snap_stack){
            .role = ROLE_PROFILE,
            .count = (int)paths[i].count,
            .share = (double)paths[i].count / (double)r->profile->total,
            .pid = -1,
            .tid = -1,
            .note = thread_state_name(paths[i].state),
        };
        if (paths[i].stack)
            put_frames(&out[i], a, m, paths[i].stack);
    }
    return n;
}

void model_show_stacks(struct snap_lock *l, struct arena *a, const struct model *m,
                       struct lock_row *r, const struct waiting *w, size_t n)
{
    struct snap_stack *out =
        arena_zalloc(a, (SHOWN_STACKS + 1 + PROFILE_PATHS) * sizeof(*out));
    size_t k = put_waiter_stacks(out, a, m, r, w, n);

    if (l->waiters > 0)
        k += put_holder_stack(&out[k], a, m, r);
    k += put_profile(&out[k], a, m, r);
    l->stacks = out;
    l->nstacks = k;
}

/* All threads -------------------------------------------------------------------------- */

static int compare_threads(const void *a, const void *b)
{
    const struct snap_thread *x = a, *y = b;

    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    return (x->tid > y->tid) - (x->tid < y->tid);
}

static void put_thread(struct snap_thread *out, struct arena *a, const struct model *m,
                       const struct thread *th)
{
    bool presumed;
    struct kept_stack *s = stack_of(th, m->now, &presumed);

    out->pid = th->pid;
    out->tid = th->tid;
    memcpy(out->comm, th->fact->comm, sizeof(out->comm));
    out->state = th->state;
    out->age_ms = th->fact->since ? (double)(m->now + m->start - th->fact->since) /
                                        (double)NSEC_PER_MSEC
                                  : NAN;
    out->lock = th->row ? arena_strdup(a, th->row->id) : NULL;
    out->stack = (struct snap_stack){
        .role = ROLE_WAITER, .count = 1, .share = 1, .pid = th->pid, .tid = th->tid,
        .presumed = s && presumed,
    };
    if (s)
        put_frames(&out->stack, a, m, s);
    else
        out->stack.note = why_none(th);
}

void model_show_threads(struct snapshot *s, const struct model *m)
{
    struct snap_thread *out = arena_zalloc(&s->arena, m->procs.nslots * sizeof(*out));

    for (size_t i = 0; i < m->procs.nslots; i++) {
        const struct thread *th = m->procs.by_slot[i];
        if (th && th->sweep == m->procs.sweep && !th->proc->outsider &&
            th->fact->seen != SEEN_DEAD)
            put_thread(&out[s->nthreads++], &s->arena, m, th);
    }
    qsort(out, s->nthreads, sizeof(*out), compare_threads);
    s->threads = out;
}

#include "source_answers.h"

static const struct thread_fact *find_thread(const struct process *p, pid_t tid)
{
    for (size_t i = 0; i < p->threads.n; i++) {
        if (p->threads.facts[i].tid == tid)
            return &p->threads.facts[i];
    }
    return NULL;
}

/* Who writes to a pipe or sends much runs and sleeps in turn: it may be in the midst of it again.
 */
#define TRANSFER_PAUSE (60 * NSEC_PER_SEC)

static bool may_be_stopped(const struct process *p, const struct thread_fact *f)
{
    nsec_t at = p->threads.files[f - p->threads.facts].transferred_at;

    return f->seen == SEEN_ACTIVE && (!at || p->words.now - at > TRANSFER_PAUSE);
}

static bool stack_job(const struct process *p, const struct request *r, struct inspect_job *job)
{
    const struct thread_fact *f = find_thread(p, r->tid);

    if (!f || f->seen == SEEN_DEAD || f->seen == SEEN_UNREADABLE)
        return false;
    job->tid = f->tid;
    job->slot = f->slot;
    job->start_ticks = f->start_ticks;
    job->blocked = thread_is_asleep(f);
    job->runs = f->runs;
    job->sp = f->sp;
    job->pc = f->pc;
    job->word = f->futex.addr;
    job->nr = f->nr;
    job->check = r->check;
    job->may_stop = r->may_stop && may_be_stopped(p, f);
    return true;
}

void answers_ask(struct answers *a, const struct process *p, const struct request *r)
{
    struct inspect_job job = {
        .kind = r->kind == REQUEST_STACK    ? INSPECT_STACK
                : r->kind == REQUEST_SOCKET ? INSPECT_SOCKET
                                            : INSPECT_NAME,
        .pid = p->fact.pid,
        .tid = p->words.tid,
        .start_ticks = p->fact.start_ticks,
        .process_start = p->fact.start_ticks,
        .execs = p->fact.execs,
        .no_schedstat = p->fact.no_schedstat,
        .addr = r->addr,
    };

    if (!a->inspector || p->fact.ended)
        return;
    if (r->kind == REQUEST_STACK && !stack_job(p, r, &job))
        return;
    /* A full queue drops it: who asks asks again. */
    inspector_ask(a->inspector, &job);
}

static void drop_taken(struct answers *a)
{
    for (size_t i = 0; i < a->n; i++)
        inspection_free(a->taken[i]);
    a->n = a->nstacks = a->nnames = a->nsockets = 0;
    a->scan = NULL;
}

void answers_collect(struct answers *a, struct sample *s)
{
    drop_taken(a);
    if (a->inspector)
        a->n = inspector_take(a->inspector, a->taken, ANSWERS_PER_SWEEP);
    for (size_t i = 0; i < a->n; i++) {
        switch (a->taken[i]->kind) {
        case INSPECT_STACK:
            a->stacks[a->nstacks++] = a->taken[i]->stack;
            break;
        case INSPECT_NAME:
            a->names[a->nnames++] = a->taken[i]->name;
            break;
        case INSPECT_SOCKET:
            a->sockets[a->nsockets++] = a->taken[i]->socket;
            break;
        case INSPECT_FILES:
            a->scan = &a->taken[i]->files;
            break;
        }
    }
    s->sockets = a->sockets;
    s->nsockets = a->nsockets;
    s->stacks = a->stacks;
    s->nstacks = a->nstacks;
    s->names = a->names;
    s->nnames = a->nnames;
}

void answers_count(struct answers *a, struct self_fact *self)
{
    if (!a->inspector)
        return;
    struct tracer_stats st = inspector_stops(a->inspector);
    self->stops = st.stops;
    self->stop_max = st.stopped_max;
    self->stops_harmed = st.cut_short;
}

void answers_release(struct answers *a)
{
    drop_taken(a);
}

#include "proctab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "xalloc.h"

/* The kernel brings a running thread's clock up to date at its tick, 10 ms at the longest: a
 * runnable thread whose clocks both stood still for longer is not on a CPU. */
#define TICK_MAX (10 * NSEC_PER_MSEC)

void proctab_begin_sweep(struct proctab *t, const struct sample *s, nsec_t start)
{
    t->start = start;
    t->now = s->mono - start;
    t->sweep++;
}

/* Processes ------------------------------------------------------------------------ */

static double rate(uint64_t now, uint64_t before, double seconds)
{
    return now >= before ? (double)(now - before) / seconds : NAN;
}

static double switch_rate(int64_t now, int64_t before, double seconds)
{
    return now < 0 || before < 0 ? NAN : rate((uint64_t)now, (uint64_t)before, seconds);
}

static void take_counters(struct proc *p, const struct process_fact *f)
{
    const struct process_fact *b = &p->last_read;

    if (f->read_at == b->read_at)
        return;
    if (b->read_at) {
        double s = (double)(f->read_at - b->read_at) / (double)NSEC_PER_SEC;
        p->rates = (struct proc_rates){
            .cpu_cores = rate(f->cpu_ns, b->cpu_ns, s) / (double)NSEC_PER_SEC,
            .voluntary = switch_rate(f->voluntary, b->voluntary, s),
            .involuntary = switch_rate(f->involuntary, b->involuntary, s),
            .minflt = rate(f->minflt, b->minflt, s),
            .majflt = rate(f->majflt, b->majflt, s),
        };
    } else {
        p->first_rss_kb = f->rss_kb;
    }
    p->last_read = *f;
}

struct proc *proctab_proc(struct proctab *t, const struct process_fact *f)
{
    struct proc *p;

    HASH_FIND(hh, t->procs, &f->pid, sizeof(f->pid), p);
    if (!p) {
        p = xcalloc(1, sizeof(*p));
        p->pid = f->pid;
        p->rates = (struct proc_rates){NAN, NAN, NAN, NAN, NAN};
        p->first_rss_kb = -1;
        p->from = t->now;
        HASH_ADD(hh, t->procs, pid, sizeof(p->pid), p);
    }
    p->fact = f;
    if (p->sweep == t->sweep)
        return p;
    p->start_ticks = f->start_ticks;
    p->sweep = t->sweep;
    p->ended = f->ended;
    if (f->ended)
        return p;
    p->threads = p->unreadable = 0;
    p->sweeps++;
    p->to = t->now;
    take_counters(p, f);
    return p;
}

/* Threads -------------------------------------------------------------------------- */

static void forget(struct proctab *t, size_t slot)
{
    struct thread *th = t->by_slot[slot];

    if (!th)
        return;
    HASH_DEL(t->by_tid, th);
    free(th);
    t->by_slot[slot] = NULL;
}

static void reserve(struct proctab *t, size_t slots)
{
    if (slots <= t->nslots)
        return;
    size_t n = MAX(slots, t->nslots * 2);
    t->by_slot = xreallocarray(t->by_slot, n, sizeof(struct thread *));
    memset(t->by_slot + t->nslots, 0, (n - t->nslots) * sizeof(struct thread *));
    t->nslots = n;
}

static struct thread *new_thread(struct proctab *t, struct proc *p, const struct thread_fact *f)
{
    struct thread *th = xcalloc(1, sizeof(*th)), *old;

    th->tid = f->tid;
    th->pid = p->pid;
    th->start_ticks = f->start_ticks;
    th->state = THREAD_STATES;
    th->run_ns = f->run_ns;
    th->runq_ns = f->runq_ns;
    th->key = (struct thread_key){.pid = (uint64_t)p->pid, .ns_tid = (uint64_t)f->ns_tid};
    /* A TID that was used again within one sweep: the new thread has the name now. */
    HASH_FIND(hh, t->by_tid, &th->key, sizeof(th->key), old);
    for (size_t i = 0; old && i < t->nslots; i++) {
        if (t->by_slot[i] == old)
            forget(t, i);
    }
    HASH_ADD(hh, t->by_tid, key, sizeof(th->key), th);
    t->by_slot[f->slot] = th;
    return th;
}

struct thread *proctab_thread(struct proctab *t, struct proc *p, const struct thread_fact *f)
{
    reserve(t, (size_t)f->slot + 1);
    struct thread *th = t->by_slot[f->slot];
    if (!th || th->tid != f->tid || th->start_ticks != f->start_ticks || th->pid != p->pid) {
        forget(t, f->slot);
        th = new_thread(t, p, f);
    }
    th->proc = p;
    th->fact = f;
    th->sweep = t->sweep;
    return th;
}

/* Whether a runnable thread waits for a CPU rather than runs: which of its two clocks moved. */
static bool queues(const struct proctab *t, const struct thread *th)
{
    uint64_t ran = th->fact->run_ns - th->run_ns, queued = th->fact->runq_ns - th->runq_ns;

    if (ran == 0 && queued == 0) {
        if (th->fact->runs == 0)
            return false; /* no schedstat */
        bool was_active = th->state == THREAD_RUNNING || th->state == THREAD_RUNQ;
        return was_active && (t->now - th->at > TICK_MAX || th->state == THREAD_RUNQ);
    }
    return queued > ran;
}

void proctab_count(struct proctab *t, struct thread *th, enum thread_state state)
{
    struct proc *p = th->proc;
    const struct thread_fact *f = th->fact;

    if (state == THREAD_RUNNING && queues(t, th))
        state = THREAD_RUNQ;
    if (state != th->state || (f->fresh && state != THREAD_RUNNING && state != THREAD_RUNQ))
        th->state_since = t->now;
    th->state = state;
    if (f->run_ns > th->run_ns)
        p->run_ns += f->run_ns - th->run_ns;
    if (f->runq_ns > th->runq_ns)
        p->runq_ns += f->runq_ns - th->runq_ns;
    th->run_ns = f->run_ns;
    th->runq_ns = f->runq_ns;
    th->at = t->now;
    if (f->seen == SEEN_DEAD)
        return;
    p->seen[state]++;
    p->threads++;
    p->unreadable += f->seen == SEEN_UNREADABLE;
}

void proctab_end_sweep(struct proctab *t)
{
    for (size_t i = 0; i < t->nslots; i++) {
        if (t->by_slot[i] && t->by_slot[i]->sweep != t->sweep)
            forget(t, i);
    }
}

struct thread *proctab_find(const struct proctab *t, pid_t pid, pid_t ns_tid)
{
    struct thread_key key = {.pid = (uint64_t)pid, .ns_tid = (uint64_t)ns_tid};
    struct thread *th;

    HASH_FIND(hh, t->by_tid, &key, sizeof(key), th);
    return th && th->sweep == t->sweep ? th : NULL;
}

/* States --------------------------------------------------------------------------- */

static void split_exactly(const struct proc *p, double total, double out[THREAD_STATES])
{
    double span = (double)(p->to - p->from), blocked = 0;
    double run = (double)p->run_ns / span;
    /* Time in the queue is booked when it ends: a thread that still queues is only seen so. */
    double queue = MAX((double)p->runq_ns / span, out[THREAD_RUNQ]);

    if (run + queue > total) {
        double f = total / (run + queue);
        run *= f;
        queue *= f;
    }
    for (int s = 0; s < THREAD_STATES; s++)
        blocked += s == THREAD_RUNNING || s == THREAD_RUNQ ? 0 : out[s];
    if (blocked == 0) /* all of them run or queue all the time */
        run = total - queue;
    for (int s = 0; s < THREAD_STATES; s++)
        out[s] *= blocked > 0 ? (total - run - queue) / blocked : 0;
    out[THREAD_RUNNING] = run;
    out[THREAD_RUNQ] = queue;
}

void proctab_states(struct proctab *t, struct proc *p, double out[THREAD_STATES])
{
    double total = 0;

    for (int s = 0; s < THREAD_STATES; s++) {
        out[s] = p->sweeps ? p->seen[s] / (double)p->sweeps : NAN;
        total += out[s];
    }
    if (p->sweeps && p->to > p->from && p->run_ns + p->runq_ns > 0)
        split_exactly(p, total, out);
    memset(p->seen, 0, sizeof(p->seen));
    p->sweeps = p->run_ns = p->runq_ns = 0;
    p->from = t->now;
}

void proctab_drop_ended(struct proctab *t)
{
    struct proc *p, *tmp;

    HASH_ITER(hh, t->procs, p, tmp)
    {
        if (p->ended || p->sweep != t->sweep) {
            HASH_DEL(t->procs, p);
            free(p);
        }
    }
}

void proctab_release(struct proctab *t)
{
    struct proc *p, *tmp;

    for (size_t i = 0; i < t->nslots; i++)
        forget(t, i);
    free(t->by_slot);
    HASH_ITER(hh, t->procs, p, tmp)
    {
        HASH_DEL(t->procs, p);
        free(p);
    }
    *t = (struct proctab){0};
}

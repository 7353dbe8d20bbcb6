#include "proctab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "xalloc.h"

/* The kernel brings a running thread's clock up to date at its tick, 10 ms at the longest: a
 * runnable thread whose clocks both stood still for longer is not on a CPU. */
#define TICK_MAX (10 * NSEC_PER_MSEC)

/* Owners that are no threads of the process ------------------------------------------ */

#define OWNER_ASK_EVERY (500 * NSEC_PER_MSEC)
#define OWNER_KEPT      (2 * NSEC_PER_SEC) /* after it was last asked for */

static struct named_tid *find_named(const struct proctab *t, pid_t pid, pid_t tid)
{
    struct named_tid_key key = {.pid = (uint64_t)pid, .tid = (uint64_t)tid};
    struct named_tid *n;

    HASH_FIND(hh, t->named, &key, sizeof(key), n);
    return n;
}

const struct owner_fact *proctab_owner(const struct proctab *t, pid_t pid, pid_t tid)
{
    const struct named_tid *n = find_named(t, pid, tid);

    return n && n->told ? &n->fact : NULL;
}

bool proctab_ask_owner(struct proctab *t, pid_t pid, pid_t tid)
{
    struct named_tid *n = find_named(t, pid, tid);

    if (n && t->now - n->asked_at < OWNER_ASK_EVERY)
        return false;
    if (!n) {
        n = xcalloc(1, sizeof(*n));
        n->key = (struct named_tid_key){.pid = (uint64_t)pid, .tid = (uint64_t)tid};
        HASH_ADD(hh, t->named, key, sizeof(n->key), n);
    }
    n->asked_at = t->now;
    return true;
}

static void forget_named(struct proctab *t, nsec_t kept)
{
    struct named_tid *n, *tmp;

    HASH_ITER(hh, t->named, n, tmp)
    {
        if (t->now - n->asked_at > kept) {
            HASH_DEL(t->named, n);
            free(n);
        }
    }
}

void proctab_take_owners(struct proctab *t, const struct sample *s)
{
    for (size_t i = 0; i < s->nowners; i++) {
        struct named_tid *n = find_named(t, s->owners[i].pid, s->owners[i].tid);
        if (!n)
            continue;
        n->fact = s->owners[i];
        n->told = true;
    }
    forget_named(t, OWNER_KEPT);
}

/* Sweeps --------------------------------------------------------------------------- */

void proctab_begin_sweep(struct proctab *t, const struct sample *s, nsec_t start)
{
    t->start = start;
    t->now = s->mono - start;
    t->sweep++;
    /* What the facts of the last sweep pointed to is gone. */
    for (struct proc *p = t->procs; p; p = p->hh.next)
        p->fact = NULL;
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
    const struct proc_counters *b = &p->last_read;

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
    p->last_read = (struct proc_counters){
        .read_at = f->read_at,
        .cpu_ns = f->cpu_ns,
        .minflt = f->minflt,
        .majflt = f->majflt,
        .rss_kb = f->rss_kb,
        .voluntary = f->voluntary,
        .involuntary = f->involuntary,
        .cpus_allowed = f->cpus_allowed,
    };
    memcpy(p->last_read.comm, f->comm, sizeof(p->last_read.comm));
}

/* A PID that was used again: nothing of the former process counts. */
static void begin(struct proc *p, const struct process_fact *f)
{
    p->start_ticks = f->start_ticks;
    p->rates = (struct proc_rates){NAN, NAN, NAN, NAN, NAN};
    p->last_read = (struct proc_counters){.rss_kb = -1};
    p->first_rss_kb = -1;
}

struct proc *proctab_proc_of(const struct proctab *t, pid_t pid)
{
    struct proc *p;

    HASH_FIND(hh, t->procs, &pid, sizeof(pid), p);
    return p;
}

struct proc *proctab_proc(struct proctab *t, const struct process_fact *f)
{
    struct proc *p;

    HASH_FIND(hh, t->procs, &f->pid, sizeof(f->pid), p);
    if (!p) {
        p = xcalloc(1, sizeof(*p));
        p->pid = f->pid;
        for (int s = 0; s < THREAD_STATES; s++)
            p->states[s] = NAN;
        begin(p, f);
        HASH_ADD(hh, t->procs, pid, sizeof(p->pid), p);
    }
    p->fact = f;
    if (p->sweep == t->sweep)
        return p;
    if (p->start_ticks != f->start_ticks)
        begin(p, f);
    p->execs = f->execs;
    p->refused_errno = f->refused_errno;
    p->sweep = t->sweep;
    p->ended = f->ended;
    p->outsider = f->outsider;
    p->threads = p->unreadable = 0;
    if (f->ended) {
        memset(p->states, 0, sizeof(p->states));
        return p;
    }
    p->sweeps++;
    take_counters(p, f);
    return p;
}

/* States --------------------------------------------------------------------------- */

/* How a thread spent its time since it was last folded, in OUT, 1 in all. SPAN is in ns. */
static void split(const struct thread *th, double sweeps, double span, double out[THREAD_STATES])
{
    double blocked = 0;

    for (int s = 0; s < THREAD_STATES; s++) {
        out[s] = th->seen[s] / sweeps;
        blocked += s == THREAD_RUNNING || s == THREAD_RUNQ ? 0 : out[s];
    }
    if (span <= 0 || th->ran_ns + th->queued_ns == 0)
        return;
    double run = (double)th->ran_ns / span;
    /* Time in the queue is booked when it ends: a thread that still queues is only seen so. */
    double queue = MAX((double)th->queued_ns / span, out[THREAD_RUNQ]);
    double over = MAX(run + queue, 1.0);
    run /= over;
    queue /= over;
    if (blocked == 0) /* it ran or queued all the time */
        run = 1 - queue;
    for (int s = 0; s < THREAD_STATES; s++)
        out[s] *= blocked > 0 ? (1 - run - queue) / blocked : 0;
    out[THREAD_RUNNING] = run;
    out[THREAD_RUNQ] = queue;
}

/* Books the thread's time since the last fold with its process. */
static void fold(struct thread *th)
{
    double part[THREAD_STATES], sweeps = 0;

    for (int s = 0; s < THREAD_STATES; s++)
        sweeps += th->seen[s];
    if (sweeps > 0) {
        split(th, sweeps, (double)(th->at - th->from), part);
        for (int s = 0; s < THREAD_STATES; s++)
            th->proc->spent[s] += part[s] * sweeps;
    }
    memset(th->seen, 0, sizeof(th->seen));
    th->ran_ns = th->queued_ns = 0;
    th->from = th->at;
}

void proctab_fold(struct proctab *t)
{
    for (size_t i = 0; i < t->nslots; i++) {
        if (t->by_slot[i])
            fold(t->by_slot[i]);
    }
}

void proctab_states(struct proc *p, double out[THREAD_STATES])
{
    double total = 0;

    for (int s = 0; s < THREAD_STATES; s++)
        total += p->spent[s];
    /* Threads that came or went in between: the shares are theirs, the number is today's. */
    for (int s = 0; s < THREAD_STATES && p->sweeps; s++)
        p->states[s] = total > 0 ? p->spent[s] / total * p->threads : 0;
    memcpy(out, p->states, sizeof(p->states));
    memset(p->spent, 0, sizeof(p->spent));
    p->sweeps = 0;
}

/* Threads -------------------------------------------------------------------------- */

static void forget(struct proctab *t, size_t slot)
{
    struct thread *th = t->by_slot[slot];

    if (!th)
        return;
    fold(th);
    HASH_DEL(t->by_tid, th);
    free(th->peer.text);
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
    th->slot = f->slot;
    th->pid = p->pid;
    th->proc = p;
    th->from = th->at = t->now;
    th->start_ticks = f->start_ticks;
    th->state = THREAD_STATES;
    th->run_ns = f->run_ns;
    th->runq_ns = f->runq_ns;
    /* Its own name may be unknown: then nothing finds it. */
    pid_t name = f->ns_tid > 0 ? f->ns_tid : -f->tid;
    th->key = (struct thread_key){.pid = (uint64_t)p->pid, .ns_tid = (uint64_t)name};
    /* A TID that was used again within one sweep: the new thread has the name now. */
    HASH_FIND(hh, t->by_tid, &th->key, sizeof(th->key), old);
    if (old)
        forget(t, old->slot);
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
    const struct thread_fact *f = th->fact;

    if (state == THREAD_RUNNING && queues(t, th))
        state = THREAD_RUNQ;
    if (state != th->state || (f->fresh && state != THREAD_RUNNING && state != THREAD_RUNQ))
        th->state_since = t->now;
    th->state = state;
    if (f->run_ns > th->run_ns)
        th->ran_ns += f->run_ns - th->run_ns;
    if (f->runq_ns > th->runq_ns)
        th->queued_ns += f->runq_ns - th->runq_ns;
    th->run_ns = f->run_ns;
    th->runq_ns = f->runq_ns;
    th->at = t->now;
    if (f->seen == SEEN_DEAD)
        return;
    th->seen[state]++;
    th->proc->threads++;
    th->proc->unreadable += f->seen == SEEN_UNREADABLE;
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
    return th && th->sweep == t->sweep && th->fact->seen != SEEN_DEAD ? th : NULL;
}

static bool maps_file(const struct proc *p, struct file_id file)
{
    for (size_t i = 0; p->fact && !p->ended && i < p->fact->nshared; i++) {
        if (p->fact->shared[i].dev == file.dev && p->fact->shared[i].inode == file.inode)
            return true;
    }
    return false;
}

struct thread *proctab_find_sharer(const struct proctab *t, struct file_id file, pid_t ns_tid,
                                   bool *clear)
{
    struct thread *found = NULL;

    *clear = true;
    for (const struct proc *p = t->procs; p; p = p->hh.next) {
        struct thread *th = maps_file(p, file) ? proctab_find(t, p->pid, ns_tid) : NULL;
        if (th && found)
            *clear = false;
        found = th ? th : found;
    }
    return found;
}

void proctab_drop_ended(struct proctab *t)
{
    struct proc *p, *tmp;

    HASH_ITER(hh, t->procs, p, tmp)
    {
        if (p->ended || !p->fact) {
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
    forget_named(t, -1);
    HASH_ITER(hh, t->procs, p, tmp)
    {
        HASH_DEL(t->procs, p);
        free(p);
    }
    *t = (struct proctab){0};
}

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chain.h"
#include "diagnose.h"
#include "holder.h"
#include "model.h"
#include "model_internal.h"
#include "model_show_stacks.h"
#include "wording.h"
#include "xalloc.h"

static double ms(nsec_t ns)
{
    return (double)ns / (double)NSEC_PER_MSEC;
}

/* Locks ----------------------------------------------------------------------------- */

/* Waiters of one row stand together, the longest sleepers first. */
static int compare_waiting(const void *a, const void *b)
{
    const struct waiting *x = a, *y = b;

    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    if (x->since != y->since)
        return x->since < y->since ? -1 : 1;
    return (x->thread->tid > y->thread->tid) - (x->thread->tid < y->thread->tid);
}

static struct waiting *collect_waiting(const struct model *m, size_t *n)
{
    struct waiting *all = xcalloc(m->procs.nslots, sizeof(*all));

    *n = 0;
    for (size_t i = 0; i < m->procs.nslots; i++) {
        const struct thread *th = m->procs.by_slot[i];
        if (th && th->row)
            all[(*n)++] = (struct waiting){th->row, th, th->fact->since};
    }
    qsort(all, *n, sizeof(*all), compare_waiting);
    return all;
}

static int compare_row(const void *key, const void *element)
{
    const struct lock_row *row = key;
    const struct waiting *w = element;

    return row == w->row ? 0 : row < w->row ? -1 : 1;
}

/* Those of ALL (N of them) that wait for R: where they begin, and how many. */
static const struct waiting *waiters_of(const struct lock_row *r, const struct waiting *all,
                                        size_t n, size_t *count)
{
    const struct waiting *hit = bsearch(r, all, n, sizeof(*all), compare_row);

    *count = 0;
    if (!hit)
        return NULL;
    while (hit > all && hit[-1].row == r)
        hit--;
    while (hit + *count < all + n && hit[*count].row == r)
        (*count)++;
    return hit;
}

/* Where in the queue for a file lock. */
static void put_place(struct snap_waiter *w, const struct model *m, const struct thread *th)
{
    const struct filetab *t = &m->procs.files;
    const struct file_waiter *place = NULL;

    w->behind = -1;
    if (th->row->key.space == LOCKKEY_FILE)
        place = filetab_place(t, th->pid, &th->fact->wants);
    if (!place)
        return;
    w->level = place->level;
    w->blocked_by = place->level > 1 ? "soft" : "hard";
    if (place->behind >= 0 && t->waiters[place->behind].pid > 0)
        w->behind = t->waiters[place->behind].pid;
}

static void put_waiters(struct snap_lock *l, struct arena *a, const struct model *m,
                        const struct waiting *hit, size_t n)
{
    size_t count = MIN(n, (size_t)SNAP_MAX_WAITERS);
    struct snap_waiter *out = arena_zalloc(a, count * sizeof(*out));
    for (size_t i = 0; i < count; i++) {
        const struct thread *th = hit[i].thread;
        out[i].pid = th->pid;
        out[i].tid = th->tid;
        memcpy(out[i].comm, th->fact->comm, sizeof(out[i].comm));
        out[i].mode = th->mode;
        out[i].age_ms = ms(m->now + m->start - th->fact->since);
        out[i].blocked_by = chain_blocked_by(th);
        put_place(&out[i], m, th);
    }
    l->waiter_threads = out;
    l->nwaiter_threads = count;
}

static void put_history(struct snap_lock *l, struct model *m, struct lock_row *r)
{
    int valid = (int)MIN(m->now / NSEC_PER_SEC, (nsec_t)SNAP_HISTORY);

    for (int ago = 1; ago <= valid; ago++) {
        double mean = locktab_second(&m->locks, r, ago);
        l->history[SNAP_HISTORY - ago] = isnan(mean) ? SNAP_NO_DATA
                                                      : (uint16_t)lround(MIN(mean, 65534.0));
    }
    l->nhistory = (size_t)valid;
}

/* Threads of the processes in which R has been waited for. */
static int threads_beside(const struct model *m, const struct lock_row *r)
{
    int n = 0;

    for (int i = 0; i < r->npids; i++) {
        const struct proc *p = proctab_proc_of(&m->procs, r->pids[i]);
        n += p && !p->outsider ? p->threads : 0;
    }
    return n;
}

/* Nobody waits for it or has lately, and a watched process has the file open. */
static bool is_only_held(struct model *m, struct lock_row *r)
{
    return r->only_held == m->locks.sweep && window_sum(&r->waiters, m->now, 60) == 0;
}

#define ATTEMPTS_HOLD_FOR (2 * NSEC_PER_SEC) /* then they are not counted any more */

/* Waits: over 10 s where these have events enough, else over a minute. */
static void put_sleeps(struct snap_lock *l, struct model *m, struct lock_row *r)
{
    bool counted = r->attempts && m->now + m->start - r->attempts->last.until < ATTEMPTS_HOLD_FOR;

    l->attempts_per_s = counted ? r->attempts->per_s : NAN;
    l->refused_share = counted ? r->attempts->refused : NAN;
    if (!r->estimate)
        return;
    struct figures f = {0};
    for (int seconds = 10; f.events < ESTIMATE_ENOUGH && seconds <= 60; seconds += 50) {
        f = estimate_figures(r->estimate, m->now, seconds,
                                            locktab_mean(&m->locks, r, seconds),
                                            window_sum(&m->locks.sweeps, m->now, seconds),
                                            estimate_span(m->now, seconds));
    }
    l->wait_ms = f.wait_ms;
    l->contended_per_s = f.contended_per_s;
}

static void put_lock(struct snap_lock *l, struct arena *a, struct model *m, struct lock_row *r)
{
    int threads = threads_beside(m, r);

    l->id = arena_strdup(a, r->id);
    l->kind = r->kind;
    l->class = lock_kind_class(r->kind);
    l->confidence = r->confidence;
    l->pid = r->npids == 1 ? r->pid : -1;
    l->address = r->object;
    l->path = r->path ? arena_strdup(a, r->path) : NULL;
    l->deleted = r->deleted;
    l->ranged = r->key.space == LOCKKEY_FILE && (r->file.start > 0 || r->file.end != FILE_END);
    l->range_start = r->file.start;
    l->range_end = r->file.end;
    l->site = r->site ? arena_strdup(a, r->site) : NULL;
    l->name = wording_name(a, r);
    l->waiters = (int)locktab_waiters(&m->locks, r);
    l->held = locktab_held(&m->locks, r);
    l->waiters_avg_1s = locktab_mean(&m->locks, r, 1);
    l->waiters_avg_10s = locktab_mean(&m->locks, r, 10);
    l->waiters_avg_60s = locktab_mean(&m->locks, r, 60);
    l->waiters_max = (int)window_peak(&r->waiters, m->now);
    l->wait_share = threads > 0 ? MIN(1.0, l->waiters_avg_10s / threads) : NAN;
    l->busy = locktab_busy(&m->locks, r);
    l->wait_ms = l->wait_ms_p99 = l->wait_ms_max = NAN;
    l->contended_per_s = l->acquired_per_s = NAN;
    l->hold_us = l->ceiling_per_s = l->model_wait_ms = NAN;
    l->queue_depth = filetab_depth(&m->procs.files, r);
    l->only_held = is_only_held(m, r);
    put_sleeps(l, m, r);
    if (l->waiters > 0 || l->only_held)
        l->holders = holder_list(a, &m->procs, r, &l->nholders);
    put_history(l, m, r);
}

static int compare_locks(const void *a, const void *b)
{
    const struct snap_lock *x = a, *y = b;

    if (isgreater(x->waiters_avg_10s, y->waiters_avg_10s) ||
        isless(x->waiters_avg_10s, y->waiters_avg_10s))
        return x->waiters_avg_10s > y->waiters_avg_10s ? -1 : 1;
    return strcmp(x->id, y->id);
}

/* A lock in private memory ends with its process, or when that starts another program. */
static bool lives(const struct model *m, const struct lock_row *r)
{
    if (r->key.space == LOCKKEY_SHARED || r->key.space >= LOCKKEY_SITE_SHARED)
        return true;
    const struct proc *p = proctab_proc_of(&m->procs, r->pid);
    return p && !p->ended && p->start_ticks == r->key.c && p->execs == r->key.execs;
}

/* Rows of class sync, and of all others, that are shown at most: who has thousands of contended
 * locks reads the first. */
#define MAX_ROWS 512

struct ranked {
    struct lock_row *row;
    double waiters; /* mean over 10 s */
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    return (x->waiters < y->waiters) - (x->waiters > y->waiters);
}

/* A sleep inside the kernel is told as a lock only when several shared it. */
static bool is_worth_showing(struct model *m, struct lock_row *r)
{
    if (r->kind == KIND_KERNEL && !r->crowded)
        return false;
    return window_sum(&r->waiters, m->now, 60) > 0 || is_only_held(m, r);
}

/* The rows of class sync, or of all others, that are worth showing: at most MAX_ROWS of them, those
 * with most waiters. Adds how many are left out to *LEFT_OUT. */
static size_t rank_rows(struct model *m, bool sync, struct ranked *out, size_t *left_out)
{
    struct lock_row *r, *tmp;
    size_t n = 0;

    HASH_ITER(hh, m->locks.rows, r, tmp)
    {
        if ((lock_kind_class(r->kind) == CLASS_SYNC) != sync || !lives(m, r) ||
            !is_worth_showing(m, r))
            continue;
        out[n++] = (struct ranked){r, locktab_mean(&m->locks, r, 10)};
    }
    if (n <= MAX_ROWS)
        return n;
    qsort(out, n, sizeof(*out), compare_ranked);
    *left_out += n - MAX_ROWS;
    return MAX_ROWS;
}

static void count_sync(struct snapshot *s, const struct model *m)
{
    for (const struct lock_row *r = m->locks.rows; r; r = r->hh.next) {
        uint32_t now = locktab_waiters(&m->locks, r);
        if (lock_kind_class(r->kind) != CLASS_SYNC || now == 0)
            continue;
        s->sync_objects++;
        s->sync_threads[r->kind] += now;
    }
}

static void put_locks(struct snapshot *s, struct model *m)
{
    size_t nwaiting;
    struct waiting *waiting = collect_waiting(m, &nwaiting);
    struct ranked *rows = xcalloc(HASH_COUNT(m->locks.rows), sizeof(*rows));
    size_t sync_left_out = 0;

    m->rows_left_out = 0;
    s->nlocks = rank_rows(m, false, rows, &m->rows_left_out);
    s->nlocks += rank_rows(m, true, rows + s->nlocks, &sync_left_out);
    count_sync(s, m);
    struct snap_lock *locks = arena_zalloc(&s->arena, s->nlocks * sizeof(*locks));
    for (size_t i = 0; i < s->nlocks; i++) {
        put_lock(&locks[i], &s->arena, m, rows[i].row);
        size_t n;
        const struct waiting *w = waiters_of(rows[i].row, waiting, nwaiting, &n);
        put_waiters(&locks[i], &s->arena, m, w, n);
        if (s->has_stacks)
            model_show_stacks(&locks[i], &s->arena, m, rows[i].row, w, n);
    }
    free(rows);
    free(waiting);
    qsort(locks, s->nlocks, sizeof(*locks), compare_locks);
    s->locks = locks;
}

/* Processes ------------------------------------------------------------------------- */

static void put_process(struct snap_process *out, struct proc *p)
{
    const struct proc_counters *f = &p->last_read;

    out->pid = p->pid;
    memcpy(out->comm, f->comm, sizeof(out->comm));
    out->ended = p->ended;
    out->frozen = !p->ended && p->fact && p->fact->frozen;
    out->threads = p->ended ? 0 : p->threads;
    out->cpus_allowed = f->cpus_allowed > 0 ? f->cpus_allowed : -1;
    out->rss_kb = f->rss_kb;
    out->rss_growth_kb = f->rss_kb < 0 || p->first_rss_kb < 0 ? INT64_MIN
                                                               : f->rss_kb - p->first_rss_kb;
    out->cpu_cores = p->rates.cpu_cores;
    out->voluntary_per_s = p->rates.voluntary;
    out->involuntary_per_s = p->rates.involuntary;
    out->minflt_per_s = p->rates.minflt;
    out->majflt_per_s = p->rates.majflt;
    out->unreadable = p->unreadable;
    proctab_states(p, out->states);
}

static int compare_processes(const void *a, const void *b)
{
    const struct snap_process *x = a, *y = b;

    return (x->pid > y->pid) - (x->pid < y->pid);
}

static void put_processes(struct snapshot *s, struct model *m)
{
    struct snap_process *out =
        arena_zalloc(&s->arena, HASH_COUNT(m->procs.procs) * sizeof(*out));
    struct proc *p, *tmp;

    proctab_fold(&m->procs);
    HASH_ITER(hh, m->procs.procs, p, tmp)
    {
        if (!p->outsider)
            put_process(&out[s->nprocesses++], p);
    }
    qsort(out, s->nprocesses, sizeof(*out), compare_processes);
    s->processes = out;
    proctab_drop_ended(&m->procs);
}

/* lock-top itself ------------------------------------------------------------------- */

#define MAX_REFUSED  3 /* processes that are named */
#define MAX_DEGRADED (14 + MAX_REFUSED)

static size_t put_refused(const char **out, struct arena *a, const struct model *m)
{
    size_t n = 0;

    for (const struct proc *p = m->procs.procs; p && n < MAX_REFUSED; p = p->hh.next) {
        if (!p->ended && p->refused_errno)
            out[n++] = arena_printf(a, "process %d (%s) may not be looked into: %s (see NOTES in "
                                    "the manual)", p->pid, p->last_read.comm,
                                    strerror(p->refused_errno));
    }
    return n;
}

static size_t put_degraded(const char **out, struct arena *a, const struct model *m)
{
    const struct self_fact *f = &m->self, *before = &m->shown_self;
    size_t n = put_refused(out, a, m);

    if (f->denied_errno && !f->no_memory && n == 0)
        out[n++] = arena_printf(a, "reads of threads are refused: %s", strerror(f->denied_errno));
    if (f->no_memory)
        out[n++] = "the target's memory may not be read: kinds are guessed, holders are unknown";
    if (f->no_schedstat)
        out[n++] = "the kernel keeps no schedstat: CPU and queueing times are sampled, sleeps "
                   "cannot be told apart";
    if (f->budget_limited)
        out[n++] = "rates are lowered to keep the CPU budget (--budget)";
    if (f->late - before->late > (f->sweeps - before->sweeps) / 4)
        out[n++] = arena_printf(a, "%" PRIu64 " of %" PRIu64 " looks came late: the machine is busy",
                                f->late - before->late, f->sweeps - before->sweeps);
    if (f->fds_short)
        out[n++] = "too few file descriptors: files are opened anew at each look (ulimit -n)";
    if (f->stops_harmed)
        out[n++] = arena_printf(a, "%" PRIu64 " of %" PRIu64 " stops ended a transfer of the target "
                                "early (--stop never forbids them)", f->stops_harmed, f->stops);
    if (f->unprobed)
        out[n++] = arena_printf(a, "%u words that may be locks are not probed, there are too many: "
                                "no BUSY%% for these", f->unprobed);
    if (f->denied)
        out[n++] = arena_printf(a, "%u more process%s may not be looked at", f->denied,
                                f->denied == 1 ? "" : "es");
    if (f->malformed)
        out[n++] = arena_printf(a, "%" PRIu64 " lines of /proc/locks were not understood",
                                f->malformed);
    if (f->attempts_why)
        out[n++] = arena_printf(a, "--events: %s", f->attempts_why);
    if (m->rows_left_out)
        out[n++] = arena_printf(a, "%zu more locks are waited for and not listed",
                                m->rows_left_out);
    return n;
}

/* Rates since the last snapshot; with no look since then, the former ones still stand. */
static void update_rates(struct model *m)
{
    const struct self_fact *now = &m->self, *before = &m->shown_self;
    double span = (double)(m->now - m->shown_at) / (double)NSEC_PER_SEC;

    if (span <= 0)
        return;
    m->rates.cpu_pct = (double)(now->cpu_ns - before->cpu_ns) / span / 1e7;
    m->rates.sweep_hz = (double)(now->sweeps - before->sweeps) / span;
    m->rates.probe_hz = (double)(now->probes - before->probes) / span;
}

static void put_self(struct snapshot *s, struct model *m)
{
    const struct self_fact *now = &m->self;
    const char **degraded = arena_zalloc(&s->arena, MAX_DEGRADED * sizeof(*degraded));

    update_rates(m);
    s->self = (struct snap_self){
        .rss_kb = now->rss_kb,
        .samples = now->sweeps,
        .stops = now->stops,
        .unreadable = now->unreadable,
        .vanished = now->vanished,
        .denied = now->denied,
        .stop_us_max = now->stops ? (double)now->stop_max / (double)NSEC_PER_USEC : NAN,
        .degraded = degraded,
        .ndegraded = put_degraded(degraded, &s->arena, m),
        .cpu_pct = m->rates.cpu_pct,
        .sweep_hz = m->rates.sweep_hz,
        .probe_hz = m->rates.probe_hz,
    };
    m->shown_self = *now;
    m->shown_at = m->now;
}

struct snapshot *model_snapshot(struct model *m)
{
    if (m->sweeps == 0)
        return NULL;
    struct snapshot *s = xcalloc(1, sizeof(*s));
    s->wall = m->wall;
    s->elapsed = m->now;
    memcpy(s->host, m->host.name, sizeof(s->host));
    memcpy(s->kernel, m->host.kernel, sizeof(s->kernel));
    s->cpus = m->host.cpus;
    s->looks = window_sum(&m->locks.sweeps, m->now, 10);
    s->may_come = m->self.may_come;
    m->snapshots++;
    s->has_stacks = m->stacks_mode != STACKS_OFF;
    put_locks(s, m);
    s->chains = chain_list(&s->arena, &m->procs, &s->nchains);
    if (m->stacks_mode == STACKS_ALL)
        model_show_threads(s, m);
    put_processes(s, m);
    put_self(s, m);
    diagnose_verdict(s);
    return s;
}

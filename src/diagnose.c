#include "diagnose.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A semaphore that lets one of many servers accept: who has it waits for work, the others for their
 * turn to do so. */
static bool is_held_by_idler(const struct snap_lock *l)
{
    return l->kind == KIND_SYSV_SEM && l->nholders == 1 && l->holders[0].state_known &&
           l->holders[0].state == THREAD_NET;
}

static bool is_contended(const struct snapshot *s, const struct snap_lock *l)
{
    if (l->class == CLASS_SYNC || is_held_by_idler(l))
        return false;
    if (s->looks < ALARM_MIN_LOOKS || l->waiters_avg_10s * (double)s->looks < ALARM_MIN_SIGHTINGS)
        return false;
    return l->waiters_avg_10s >= CONTENTION_MIN_WAITERS || l->wait_share >= CONTENTION_MIN_SHARE;
}

/* A word that only its value makes look like a lock (its memory could not be read, or says
 * nothing): never a reason to alarm. */
static bool is_proven(const struct snap_lock *l)
{
    return l->confidence > CONF_UNKNOWN;
}

/* Where most thread-time is lost: locks are sorted by that. */
static const struct snap_lock *worst(const struct snapshot *s, bool proven)
{
    for (size_t i = 0; i < s->nlocks; i++) {
        if (is_contended(s, &s->locks[i]) && is_proven(&s->locks[i]) == proven)
            return &s->locks[i];
    }
    return NULL;
}

/* "flock on /run/app.lock", "posix lock on app.db RESERVED". */
static const char *file_lock_name(struct arena *a, const struct snap_lock *l)
{
    const char *kind = lock_kind_name(l->kind), *word = l->kind == KIND_FLOCK ? "" : " lock";

    if (l->name || l->path)
        return arena_printf(a, "%s%s on %s%s", kind, word, l->name ? l->name : l->path,
                            l->deleted ? " (deleted)" : "");
    return arena_printf(a, "%s%s %s", kind, word, l->id);
}

/* "mutex 0x7f3200000040 (in queue_push)": with the function through which most come. */
static const char *lock_name(struct arena *a, const struct snap_lock *l)
{
    const char *name = l->name;

    if (l->class == CLASS_FILELOCK)
        name = file_lock_name(a, l);
    else if (l->kind == KIND_SYSV_SEM)
        name = arena_printf(a, "semaphore %s", name);
    if (!name)
        name = l->path ? arena_printf(a, "%s in %s", lock_kind_name(l->kind), l->path)
                       : arena_printf(a, "%s 0x%" PRIx64, lock_kind_name(l->kind), l->address);
    return l->site ? arena_printf(a, "%s (in %s)", name, l->site) : name;
}

static const char *holder_text(struct arena *a, const struct snap_lock *l)
{
    const struct snap_holder *h = l->holders;

    if (l->nholders == 0)
        return l->held == 0       ? "free at this moment"
               : l->waiters == 0 ? "nobody waits at this moment"
                                 : "holder unknown";
    if (h->tid < 0 && h->pid > 0 && h->detail)
        return h->detail;
    if (l->kind == KIND_SYSV_SEM && h->tid >= 0 && !h->gone)
        return arena_printf(a, "perhaps held by %s[%d]: %s", h->comm, h->tid,
                            h->detail ? h->detail : "unknown");
    if (h->tid < 0 || h->gone)
        return arena_printf(a, "holder: %s", h->detail ? h->detail : "unknown");
    return arena_printf(a, "held by %s[%d]%s: %s%s%s", h->comm, h->tid,
                        h->confidence == CONF_CONFIRMED ? "" : " (at this moment)",
                        h->state_known ? thread_state_name(h->state) : "state unknown",
                        h->detail ? ", " : "", h->detail ? h->detail : "");
}

/* " of mariadbd[16147]" where several processes are watched; PID -1: several of them. */
static const char *process_text(struct snapshot *s, pid_t pid)
{
    for (size_t i = 0; s->nprocesses > 1 && i < s->nprocesses; i++) {
        const struct snap_process *p = &s->processes[i];
        if (p->pid == pid)
            return arena_printf(&s->arena, " of %s[%d]", p->comm, p->pid);
    }
    return s->nprocesses > 1 && pid < 0 ? " of several processes" : "";
}

/* How bad a chain is that may never go on by itself: deadlocks, then locks whose owner is gone;
 * what is proved before what is only likely, or will time out. They need no count of looks: the
 * model tells the former only when they are proved, and the latter only when they have stood for
 * long. */
enum { PASSES, TIMES_OUT, LIKELY_GONE, LIKELY_DEADLOCK, GONE, DEADLOCK };

static int never_ends(const struct snap_chain *c)
{
    bool proved = c->confidence == CONF_CONFIRMED;

    switch (c->end) {
    case CHAIN_CYCLE:
        return proved ? DEADLOCK : LIKELY_DEADLOCK;
    case CHAIN_GONE:
        return proved ? GONE : LIKELY_GONE;
    case CHAIN_CYCLE_TIMED:
        return TIMES_OUT;
    default:
        return PASSES;
    }
}

static enum severity chain_severity(const struct snap_chain *c)
{
    int bad = never_ends(c);

    return bad >= GONE ? SEVERITY_CRITICAL : bad > PASSES ? SEVERITY_WARNING : SEVERITY_INFO;
}

/* The worst of these; *N is how many are as severe. */
static const struct snap_chain *worst_chain(const struct snapshot *s, size_t *n)
{
    const struct snap_chain *found = NULL;

    *n = 0;
    for (size_t i = 0; i < s->nchains; i++) {
        const struct snap_chain *c = &s->chains[i];
        if (never_ends(c) > (found ? never_ends(found) : PASSES))
            found = c;
    }
    for (size_t i = 0; found && i < s->nchains; i++)
        *n += chain_severity(&s->chains[i]) == chain_severity(found);
    return found;
}

static void stuck(struct snapshot *s, const struct snap_chain *c, size_t n)
{
    const char *more = n > 1 ? arena_printf(&s->arena, "; and %zu more such", n - 1) : "";

    s->severity = chain_severity(c);
    s->verdict = arena_printf(&s->arena, "%s%s%s", c->text, process_text(s, c->root.pid), more);
}

/* The number is a mean: nobody may wait at this moment. */
static const char *when_they_wait(const struct snapshot *s, const struct snap_lock *l)
{
    if (l->waiters > 0)
        return "wait";
    return s->elapsed < 10 * NSEC_PER_SEC ? "waited so far" : "waited in the last 10 s";
}

static void contention(struct snapshot *s, const struct snap_lock *l)
{
    struct arena *a = &s->arena;
    char share[32] = "";

    if (!isnan(l->wait_share))
        snprintf(share, sizeof(share), " (%.0f %% of thread-time)", l->wait_share * 100);
    s->severity = SEVERITY_WARNING;
    s->verdict = arena_printf(a, "%.1f threads%s %s%s for %s; %s", l->waiters_avg_10s,
                              process_text(s, l->pid), when_they_wait(s, l), share, lock_name(a, l),
                              holder_text(a, l));
}

/* What all proven locks together take, and how many they are that are waited for. */
struct spread {
    double waiters, share;
    size_t locks;
};

static struct spread spread_of(const struct snapshot *s, double threads)
{
    struct spread sp = {0};

    for (size_t i = 0; i < s->nlocks; i++) {
        const struct snap_lock *l = &s->locks[i];
        if (l->class != CLASS_LOCK || !is_proven(l) || !(l->waiters_avg_10s > 0))
            continue;
        sp.waiters += l->waiters_avg_10s;
        sp.locks++;
    }
    sp.share = threads > 0 ? sp.waiters / threads : 0;
    return sp;
}

static bool is_spread_contention(const struct snapshot *s, const struct spread *sp)
{
    return sp->locks > 1 && s->looks >= ALARM_MIN_LOOKS &&
           sp->waiters * (double)s->looks >= ALARM_MIN_SIGHTINGS &&
           (sp->waiters >= CONTENTION_MIN_WAITERS || sp->share >= CONTENTION_MIN_SHARE);
}

static void spread_contention(struct snapshot *s, const struct spread *sp)
{
    s->severity = SEVERITY_WARNING;
    s->verdict = arena_printf(&s->arena,
                              "%.1f threads wait (%.0f %% of thread-time), spread over %zu locks, "
                              "none of which stands out",
                              sp->waiters, sp->share * 100, sp->locks);
}

static void possible_contention(struct snapshot *s, const struct snap_lock *l)
{
    s->verdict = arena_printf(&s->arena,
                              "no proven contention; %.1f threads sleep on 0x%" PRIx64
                              ": a lock, or an idle wait (%s)",
                              l->waiters_avg_10s, l->address,
                              l->kind == KIND_FUTEX_LOCK ? "not seen free so far"
                                                         : "its memory may not be read");
}

struct totals {
    double threads, unreadable, states[THREAD_STATES];
    size_t living, nfrozen;
    const struct snap_process *frozen; /* the first of NFROZEN; NULL */
};

static struct totals sum(const struct snapshot *s)
{
    struct totals t = {0};

    for (size_t i = 0; i < s->nprocesses; i++) {
        const struct snap_process *p = &s->processes[i];
        t.living += !p->ended;
        t.nfrozen += p->frozen;
        if (p->frozen && !t.frozen)
            t.frozen = p;
        t.threads += p->threads;
        t.unreadable += p->unreadable;
        for (int k = 0; k < THREAD_STATES; k++)
            t.states[k] += isnan(p->states[k]) ? 0 : p->states[k];
    }
    return t;
}

/* "270 threads: 200 sync, 50 sleep, 20 net": the three states with most threads. */
static const char *where_they_are(struct arena *a, const struct totals *t)
{
    const char *text = arena_printf(a, "%.0f thread%s", t->threads, t->threads == 1 ? "" : "s");
    bool told[THREAD_STATES] = {false};

    for (int n = 0; n < 3; n++) {
        int most = -1;
        for (int k = 0; k < THREAD_STATES; k++) {
            if (!told[k] && t->states[k] >= 0.05 && (most < 0 || t->states[k] > t->states[most]))
                most = k;
        }
        if (most < 0)
            break;
        told[most] = true;
        text = arena_printf(a, "%s%s %.*f %s", text, n ? "," : ":", t->states[most] >= 9.95 ? 0 : 1,
                            t->states[most], thread_state_name((enum thread_state)most));
    }
    return text;
}

/* ": 12.0 attempts a second are made (99 % refused)" */
static const char *refusals(struct arena *a, const struct snap_lock *l)
{
    return arena_printf(a, ": %.1f attempts a second are made (%.0f %% refused)",
                        l->attempts_per_s, l->refused_share * 100);
}

static void frozen(struct snapshot *s, const struct totals *t)
{
    const char *more =
        t->nfrozen > 1 ? arena_printf(&s->arena, " (and %zu more processes)", t->nfrozen - 1) : "";

    s->severity = SEVERITY_WARNING;
    s->verdict = arena_printf(&s->arena,
                              "the cgroup of %s[%d]%s is frozen: none of its %d threads runs, "
                              "whatever it was blocked in",
                              t->frozen->comm, t->frozen->pid, more, t->frozen->threads);
}

static bool files_contended(const struct snapshot *s, const struct totals *t)
{
    double file = t->states[THREAD_FILELOCK];

    return s->looks >= ALARM_MIN_LOOKS &&
           (file >= CONTENTION_MIN_WAITERS ||
            (file > 0 && file >= CONTENTION_MIN_SHARE * t->threads));
}

/* Threads on futexes of which nothing is known: most likely idle, but that is not known. */
static double on_unknown_words(const struct snapshot *s)
{
    double n = 0;

    for (size_t i = 0; i < s->nlocks; i++) {
        const struct snap_lock *l = &s->locks[i];
        if (l->kind == KIND_FUTEX && l->confidence == CONF_UNKNOWN)
            n += l->waiters;
    }
    return n;
}

/* Who retries without waiting is never seen blocked. */
static const char *pollers(struct snapshot *s)
{
    struct arena *a = &s->arena;

    for (size_t i = 0; i < s->nlocks; i++) {
        const struct snap_lock *l = &s->locks[i];
        if (!l->only_held || l->nholders == 0)
            continue;
        return arena_printf(a, "; %s is held by %s[%d], and nobody is blocked in it%s",
                            file_lock_name(a, l), l->holders[0].comm, l->holders[0].pid,
                            isnan(l->refused_share)
                                ? ": who retries (LOCK_NB, F_SETLK) cannot be seen without --events"
                                : refusals(a, l));
    }
    return "";
}

static void no_contention(struct snapshot *s, const struct totals *t)
{
    struct arena *a = &s->arena;
    double unknown = on_unknown_words(s);
    const char *aside = "", *looks = "";

    if (unknown > UNREADABLE_MAX_SHARE * t->threads)
        aside = arena_printf(a, "; %.0f on words of unknown kind", unknown);
    if (s->looks < ALARM_MIN_LOOKS)
        looks = arena_printf(a, " in %" PRIu64 " look%s so far", s->looks,
                             s->looks == 1 ? "" : "s");
    s->verdict = arena_printf(a, "no contention%s (%s%s)%s", looks, where_they_are(a, t), aside,
                              pollers(s));
}

void diagnose_verdict(struct snapshot *s)
{
    struct totals t = sum(s);
    const struct snap_lock *l = worst(s, true), *maybe = worst(s, false);
    struct spread sp = spread_of(s, t.threads);
    size_t nstuck;
    const struct snap_chain *c = worst_chain(s, &nstuck);

    s->severity = SEVERITY_INFO;
    if (t.living == 0 && s->may_come) {
        s->verdict = "nobody holds or wants a lock on this file at this moment";
    } else if (t.living == 0) {
        s->verdict = "nothing is left to watch";
    } else if (t.threads == 0) {
        s->severity = SEVERITY_WARNING;
        s->verdict = "cannot tell: no thread could be looked at";
    } else if (c) {
        stuck(s, c, nstuck);
    } else if (t.frozen) {
        frozen(s, &t);
    } else if (t.states[THREAD_STOPPED] > t.threads / 2) {
        s->severity = SEVERITY_WARNING;
        s->verdict = arena_printf(&s->arena, "%.0f of %.0f threads are stopped (by a signal)",
                                  t.states[THREAD_STOPPED], t.threads);
    } else if (l) {
        contention(s, l);
    } else if (is_spread_contention(s, &sp)) {
        spread_contention(s, &sp);
    } else if (files_contended(s, &t)) {
        s->severity = SEVERITY_WARNING;
        s->verdict = arena_printf(&s->arena, "%.1f threads wait for file locks",
                                  t.states[THREAD_FILELOCK]);
    } else if (t.unreadable > UNREADABLE_MAX_SHARE * t.threads) {
        s->severity = SEVERITY_WARNING;
        s->verdict = arena_printf(&s->arena, "cannot tell: %.0f of %.0f threads may not be read",
                                  t.unreadable, t.threads);
    } else if (maybe) {
        possible_contention(s, maybe);
    } else {
        no_contention(s, &t);
    }
}

#include "source_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "caps.h"
#include "procfs.h"
#include "source_answers.h"
#include "source_bystanders.h"
#include "source_events.h"
#include "source_files.h"
#include "source_owners.h"
#include "source_process.h"
#include "source_relook.h"
#include "source_sems.h"
#include "xalloc.h"

#define WORDS_KEPT      (60 * NSEC_PER_SEC) /* after their last waiter */
#define RSS_READ_EVERY  NSEC_PER_SEC
#define LINKS_PER_SWEEP 128
#define WCHANS_PER_SWEEP 16
#define MAX_REQUESTS    128
#define FEW_PROCESSES   8   /* up to so many are all looked at in each sweep */
#define NAMES_PER_SECOND 32
#define OUTSIDER_THREADS 16 /* of a process that is not watched: all up to so many, else the 1st */
#define FILE_OUTSIDERS_MAX 32 /* processes that are followed as they hold locks on files */
#define REOPEN_EVERY    NSEC_PER_SEC
#define FDS_RESERVED    160 /* left for everything but processes and threads' files: the inspector
                               keeps one for each of 64 programs */

/* The arrays of a sample. */
struct output {
    struct process_fact *procs;
    struct word_fact *words;
    size_t procs_cap, words_cap;
};

struct source_proc {
    struct source base;
    struct source_proc_config cfg;
    int rootfd;
    struct process **procs;
    size_t n, cap;
    pid_t *followed; /* the target's list when it was last followed */
    size_t nfollowed, followed_cap;
    nsec_t incomplete_at; /* when one of these could not be opened; 0: all could */
    struct commons common;
    nsec_t self_at;
    struct request requests[MAX_REQUESTS]; /* to be served by the next sweep */
    size_t nrequests;
    struct bystanders bystanders;
    struct answers answers;
    struct owners owners;
    struct files files;
    struct sems sems;
    struct events events;
    struct relook relook;
    struct output out[2]; /* by sample kind: a probe leaves the last sweep's arrays alone */
};

/* Processes -------------------------------------------------------------------- */

static struct process *process_find(struct source_proc *s, pid_t pid)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->procs[i]->fact.pid == pid)
            return s->procs[i];
    }
    return NULL;
}

static struct process *process_add(struct source_proc *s, pid_t pid, bool outsider)
{
    struct process *p = process_open(&s->common, s->rootfd, pid, outsider);

    if (!p)
        return NULL;
    s->procs = xgrow(s->procs, &s->cap, s->n + 1, sizeof(*s->procs));
    s->procs[s->n++] = p;
    return p;
}

/* The list changes seldom, and both it and the processes may be many. */
static bool is_followed(const struct source_proc *s, nsec_t now, const pid_t *pids, size_t n)
{
    if (s->incomplete_at && now - s->incomplete_at >= REOPEN_EVERY)
        return false;
    return n == s->nfollowed && (n == 0 || memcmp(pids, s->followed, n * sizeof(*pids)) == 0);
}

static void remember_followed(struct source_proc *s, const pid_t *pids, size_t n)
{
    s->followed = xgrow(s->followed, &s->followed_cap, n, sizeof(*s->followed));
    if (n)
        memcpy(s->followed, pids, n * sizeof(*pids));
    s->nfollowed = n;
    s->incomplete_at = 0;
}

/* Follows the target's list: opens who joined, marks who left. */
static void follow_target(struct source_proc *s, nsec_t now)
{
    const pid_t *pids = s->cfg.pids;
    size_t n = s->cfg.npids;

    if (s->cfg.target) {
        n = target_list(s->cfg.target, now, &pids);
        s->common.self.denied = (uint32_t)target_denied(s->cfg.target);
        s->common.self.may_come = target_may_come(s->cfg.target);
    }
    if (is_followed(s, now, pids, n))
        return;
    remember_followed(s, pids, n);
    for (size_t i = 0; i < s->n; i++)
        s->procs[i]->listed = s->procs[i]->outsider;
    for (size_t i = 0; i < n; i++) {
        struct process *p = process_find(s, pids[i]);
        if (!p)
            p = process_add(s, pids[i], false);
        if (p) {
            p->listed = true;
            p->outsider = p->fact.outsider = false;
        } else {
            s->incomplete_at = now;
        }
    }
}

/* A process that ended appears once more, marked, and then no more; it is kept as long as the
 * target names it, so as not to be taken for a new one. */
static void drop_ended(struct source_proc *s)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->n; i++) {
        struct process *p = s->procs[i];
        if (p->told_end && (p->outsider || !p->listed)) {
            if (s->cfg.inspector)
                inspector_forget(s->cfg.inspector, p->fact.pid);
            process_free(p, &s->common);
        } else {
            s->procs[kept++] = p;
        }
    }
    s->n = kept;
}

/* Outsiders ---------------------------------------------------------------------- */

/* The process of thread TID, opened as an outsider when it is not watched; NULL when gone. */
static struct process *process_of_thread(struct source_proc *s, pid_t tid)
{
    char path[32];
    struct procfs_status st;

    snprintf(path, sizeof(path), "%d/status", tid);
    if (procfs_read_status(s->rootfd, path, &st) != 0 || st.tgid <= 0)
        return NULL;
    struct process *p = process_find(s, st.tgid);
    return p ? p : process_add(s, st.tgid, true);
}

static void serve_holder(struct source_proc *s, const struct request *r, nsec_t now)
{
    if (bystanders_has(&s->bystanders, r->tid, r->file, now))
        return;
    struct process *p = process_of_thread(s, r->tid);
    if (!p || p->fact.ended)
        return;
    if (words_maps_file(&p->words, r->file, now)) {
        if (p->outsider)
            process_want_thread(p, &s->common, r->tid, now);
        return;
    }
    if (p->words.maps_at == now) /* what was read before may have changed since */
        bystanders_add(&s->bystanders, r->tid, r->file, now);
    if (p->outsider && !p->wanted_at) { /* opened just now, and last */
        process_free(p, &s->common);
        s->n--;
    }
}

/* Who holds a lock on a file, or may have taken a semaphore, is looked at though nobody watches it:
 * all its threads where these are at most MAX, as any of them may be the one that matters. False
 * when it is watched, or gone. */
static bool follow_holder(struct source_proc *s, pid_t pid, size_t max, nsec_t now)
{
    struct process *p = process_find(s, pid);
    bool known = p;

    if (!p)
        p = process_add(s, pid, true);
    if (!p || !p->outsider || p->fact.ended)
        return false;
    process_keep(p, now);
    if (!known || now - p->listed_at >= NSEC_PER_SEC)
        process_want_threads(p, &s->common, max, now);
    return true;
}

/* Those that are watched need not be asked for, and are not counted. */
static void follow_holders(struct source_proc *s, nsec_t now)
{
    size_t i = 0, outsiders = 0;
    pid_t pid, last = 0;

    while (outsiders < FILE_OUTSIDERS_MAX && (pid = files_next_holder(&s->files, &i)) != 0) {
        if (pid != last)
            outsiders += follow_holder(s, pid, OUTSIDER_THREADS, now);
        last = pid;
    }
    for (i = 0; i < s->sems.n; i++) {
        if (s->sems.facts[i].last_pid > 0)
            follow_holder(s, s->sems.facts[i].last_pid, 1, now);
    }
}

/* Stacks and names are asked for at once: the sooner a sleeping thread is looked at, the more
 * likely it still sleeps. */
static void hand_on(struct source_proc *s, const struct request *r)
{
    const struct process *p = process_find(s, r->pid);

    if (!p)
        return;
    if (r->kind == REQUEST_OWNER)
        owners_ask(&s->owners, r->pid, p->fact.ppid, r->tid);
    else
        answers_ask(&s->answers, p, r);
}

/* Holders are served before the sweep looks at anybody: facts that were handed out must not move
 * before. */
static void serve_requests(struct source_proc *s, nsec_t now)
{
    for (size_t i = 0; i < s->nrequests; i++)
        serve_holder(s, &s->requests[i], now);
    s->nrequests = 0;
}

/* Samples ---------------------------------------------------------------------- */

static size_t count_words(const struct source_proc *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++)
        n += s->procs[i]->words.nwaited + s->procs[i]->words.nprobed;
    return n;
}

static void emit_word(struct output *out, size_t process, struct word *w, size_t *n)
{
    struct word_fact *f = &out->words[*n];

    w->index = (int32_t)(*n)++;
    f->process = (uint32_t)process;
    f->addr = w->addr;
    f->maybe_lock = w->maybe_lock;
    f->region = w->region;
    f->dev = w->dev;
    f->inode = w->inode;
    f->offset = w->offset;
    f->path = w->path;
    f->early = w->early;
    f->late = w->late;
    f->early_owner = w->has_early ? w->early_owner : 0;
    f->late_owner = w->has_late ? w->late_owner : 0;
    if (!w->has_early)
        f->early.lo = f->early.hi = 0;
    if (!w->has_late)
        f->late.lo = f->late.hi = 0;
}

static void emit_process(struct output *out, struct process *p, size_t i, enum sample_kind kind,
                         size_t *nwords)
{
    const struct words *w = &p->words;

    for (size_t k = 0; k < w->nprobed; k++)
        emit_word(out, i, w->probed[k], nwords);
    for (size_t k = 0; kind == SAMPLE_SWEEP && k < w->nwaited; k++) {
        if (w->waited[k]->probed)
            continue;
        if (w->waited[k]->maybe_lock || w->waited[k]->news)
            emit_word(out, i, w->waited[k], nwords);
        else
            w->waited[k]->index = -1;
    }
    p->fact.libc = p->words.libc;
    p->fact.shared = p->words.shared;
    p->fact.nshared = p->words.nshared;
    p->fact.threads = kind == SAMPLE_SWEEP ? p->threads.facts : NULL;
    p->fact.nthreads = kind == SAMPLE_SWEEP ? p->threads.n : 0;
    for (size_t t = 0; t < p->fact.nthreads; t++) {
        const struct word *on = p->threads.files[t].word;
        p->threads.facts[t].word = on ? on->index : -1;
    }
    out->procs[i] = p->fact;
}

static void read_self(struct source_proc *s, nsec_t now)
{
    char buf[128];
    long size, resident;

    s->common.self.cpu_ns = clock_process_cpu();
    answers_count(&s->answers, &s->common.self);
    if (s->self_at && now - s->self_at < RSS_READ_EVERY)
        return;
    s->self_at = now;
    if (procfs_slurp(AT_FDCWD, "/proc/self/statm", buf, sizeof(buf)) > 0 &&
        sscanf(buf, "%ld %ld", &size, &resident) == 2)
        s->common.self.rss_kb = resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* What is waited for outside the memory of processes. */
static void put_kernel_facts(struct source_proc *s, struct sample *sample, nsec_t now)
{
    answers_collect(&s->answers, sample);
    if (s->answers.scan)
        files_take(&s->files, s->answers.scan, now);
    files_look(&s->files, s->procs, s->n, now);
    files_put(&s->files, sample);
    s->common.self.malformed = sample->self.malformed;
    events_look(&s->events, sample, now, &s->common.self);
    sample->self = s->common.self; /* probes tell it too */
    sems_look(&s->sems, s->procs, s->n, s->rootfd, now);
    sems_put(&s->sems, sample);
}

static void emit(struct source_proc *s, struct sample *sample, enum sample_kind kind, nsec_t now)
{
    struct output *out = &s->out[kind];
    size_t nwords = 0, n = 0;

    out->procs = xgrow(out->procs, &out->procs_cap, s->n, sizeof(*out->procs));
    out->words = xgrow(out->words, &out->words_cap, count_words(s), sizeof(*out->words));
    for (size_t i = 0; i < s->n; i++) {
        struct process *p = s->procs[i];
        if (p->told_end)
            continue;
        emit_process(out, p, n++, kind, &nwords);
        p->told_end = p->fact.ended && kind == SAMPLE_SWEEP;
    }
    read_self(s, now);
    *sample = (struct sample){
        .kind = kind,
        .mono = now,
        .wall = clock_wall(),
        .processes = out->procs,
        .nprocesses = n,
        .words = out->words,
        .nwords = nwords,
        .self = s->common.self,
    };
    if (kind != SAMPLE_SWEEP)
        return;
    put_kernel_facts(s, sample, now);
    sample->owners = owners_serve(&s->owners, s->rootfd, &sample->nowners);
}

static void read_all_early(struct source_proc *s)
{
    for (size_t i = 0; i < s->n; i++)
        process_read_early(s->procs[i], &s->common);
}

static bool proc_wants_probe(const struct source *base)
{
    const struct source_proc *s = (const struct source_proc *)base;

    for (size_t i = 0; i < s->n; i++) {
        if (s->procs[i]->words.nprobed)
            return true;
    }
    return false;
}

/* What is told as of the last sweep. */
static void begin_self(struct commons *c)
{
    c->links_left = LINKS_PER_SWEEP;
    c->wchans_left = WCHANS_PER_SWEEP;
    c->self.sweeps++;
    c->self.unprobed = 0;
    c->self.denied_errno = 0;
    c->self.no_schedstat = c->self.no_memory = false;
}

/* What takes long and belongs to no moment comes first: the list of all processes, and the maps of
 * some. Nothing that was handed out is used any more. */
static void prepare_sweep(struct source_proc *s)
{
    nsec_t now = clock_mono();

    begin_self(&s->common);
    if (!s->incomplete_at)
        s->common.self.fds_short = false;
    drop_ended(s);
    follow_target(s, now);
    serve_requests(s, now);
    follow_holders(s, now);
}

/* All have ended. Where others may join by name, one that began since the last look (a service
 * that was restarted) goes on in their place. */
static size_t look_for_successors(struct source_proc *s, nsec_t now)
{
    size_t alive = 0;

    if (!s->cfg.target)
        return 0;
    target_look_anew(s->cfg.target);
    follow_target(s, now);
    for (size_t i = 0; i < s->n; i++) {
        process_sweep(s->procs[i], &s->common, now);
        alive += !s->procs[i]->fact.ended && !s->procs[i]->outsider;
    }
    return alive;
}

/* With many processes, those in which nobody waits are looked at about once a second. */
static void let_rest(struct source_proc *s, nsec_t now)
{
    s->common.names_each = MAX(NAMES_PER_SECOND / (int)MAX(s->n, 1), 1);
    for (size_t i = 0; i < s->n; i++)
        s->procs[i]->fact.resting = s->n > FEW_PROCESSES && process_rests(s->procs[i], now);
}

static size_t proc_sweep(struct source *base, struct sample *out)
{
    struct source_proc *s = (struct source_proc *)base;
    size_t alive = 0;

    prepare_sweep(s);
    nsec_t now = clock_mono();
    let_rest(s, now);
    for (size_t i = 0; i < s->n; i++) {
        if (!s->procs[i]->fact.resting)
            words_begin(&s->procs[i]->words, now, WORDS_KEPT);
    }
    read_all_early(s);
    for (size_t i = 0; i < s->n; i++) {
        if (!s->procs[i]->fact.resting)
            process_sweep(s->procs[i], &s->common, now);
        alive += !s->procs[i]->fact.ended && !s->procs[i]->outsider;
    }
    if (alive == 0)
        alive = look_for_successors(s, now);
    relook_sweep(&s->relook, s->procs, s->n, now);
    if (s->cfg.target && target_may_come(s->cfg.target))
        alive = MAX(alive, 1);
    for (size_t i = 0; i < s->n; i++)
        process_read_links(s->procs[i], &s->common, now);
    emit(s, out, SAMPLE_SWEEP, now);
    return alive;
}

static void proc_probe(struct source *base, struct sample *out)
{
    struct source_proc *s = (struct source_proc *)base;

    s->common.self.probes++;
    read_all_early(s);
    emit(s, out, SAMPLE_PROBE, clock_mono());
}

static nsec_t proc_relook_delay(const struct source *base)
{
    return relook_delay(&((const struct source_proc *)base)->relook);
}

static void proc_relook(struct source *base, struct sample *out)
{
    struct source_proc *s = (struct source_proc *)base;

    read_self(s, clock_mono());
    *out = (struct sample){
        .kind = SAMPLE_RELOOK,
        .mono = clock_mono(),
        .wall = clock_wall(),
        .self = s->common.self,
    };
    relook_take(&s->relook, s->procs, s->n, out);
}

static void proc_request(struct source *base, const struct request *r)
{
    struct source_proc *s = (struct source_proc *)base;

    if (r->kind == REQUEST_RELOOK)
        relook_want(&s->relook, r->delay, clock_mono());
    else if (r->kind != REQUEST_HOLDER)
        hand_on(s, r);
    else if (s->nrequests < MAX_REQUESTS)
        s->requests[s->nrequests++] = *r;
}

/* Life ------------------------------------------------------------------------------ */

static void proc_free(struct source *base)
{
    struct source_proc *s = (struct source_proc *)base;

    for (size_t i = 0; i < s->n; i++)
        process_free(s->procs[i], &s->common);
    free(s->procs);
    free(s->followed);
    slots_release(&s->common.slots);
    files_release(&s->files);
    events_close(&s->events);
    answers_release(&s->answers);
    for (size_t i = 0; i < ARRAY_SIZE(s->out); i++) {
        free(s->out[i].procs);
        free(s->out[i].words);
    }
    close(s->rootfd);
    free(s);
}

struct source *source_proc_new(const struct source_proc_config *cfg, int *err)
{
    static const struct source_ops ops = {
        .sweep = proc_sweep,
        .probe = proc_probe,
        .wants_probe = proc_wants_probe,
        .relook_delay = proc_relook_delay,
        .relook = proc_relook,
        .request = proc_request,
        .free = proc_free,
    };
    int rootfd = procfs_open_root(cfg->root);

    if (rootfd < 0) {
        *err = -rootfd;
        return NULL;
    }
    struct source_proc *s = xcalloc(1, sizeof(*s));
    s->base.ops = &ops;
    s->cfg = *cfg;
    s->answers.inspector = cfg->inspector;
    s->rootfd = s->common.rootfd = rootfd;
    s->bystanders.rootfd = rootfd;
    if (cfg->events)
        events_open(&s->events);
    files_init(&s->files, rootfd, cfg->inspector, &s->common.fds_left);
    s->common.read_memory = cfg->read_memory;
    s->common.fds_left = caps_raise_nofile() - FDS_RESERVED;
    return &s->base;
}

bool source_proc_permitted(struct source *base, char *why, size_t size)
{
    struct source_proc *s = (struct source_proc *)base;
    struct caps_facts facts;
    int err = 0;

    follow_target(s, clock_mono());
    for (size_t i = 0; i < s->n; i++) {
        struct process *p = s->procs[i];
        err = process_refusal(p);
        if (!err)
            return true;
        process_read_counters(p, &s->common, clock_mono());
        caps_collect(s->rootfd, p->fact.pid, &facts);
        caps_explain(why, size, p->fact.pid, p->fact.comm, err, &facts);
    }
    return err == 0;
}

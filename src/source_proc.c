#include "source_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "caps.h"
#include "procfs.h"
#include "source_process.h"
#include "xalloc.h"

#define WORDS_KEPT      (60 * NSEC_PER_SEC) /* after their last waiter */
#define RSS_READ_EVERY  NSEC_PER_SEC
#define LINKS_PER_SWEEP 128
#define MAX_REQUESTS    64
#define FDS_RESERVED    64 /* left for everything but processes and threads' files */

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
    struct commons common;
    nsec_t self_at;
    struct request requests[MAX_REQUESTS]; /* to be served by the next sweep */
    size_t nrequests;
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

/* Follows the target's list: opens who joined, marks who left. */
static void follow_target(struct source_proc *s, nsec_t now)
{
    const pid_t *pids = s->cfg.pids;
    size_t n = s->cfg.npids;

    if (s->cfg.target)
        n = target_list(s->cfg.target, now, &pids);
    for (size_t i = 0; i < s->n; i++)
        s->procs[i]->listed = s->procs[i]->outsider;
    for (size_t i = 0; i < n; i++) {
        struct process *p = process_find(s, pids[i]);
        if (!p)
            p = process_add(s, pids[i], false);
        if (p) {
            p->listed = true;
            p->outsider = p->fact.outsider = false;
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
        if (p->told_end && (p->outsider || !p->listed))
            process_free(p, &s->common);
        else
            s->procs[kept++] = p;
    }
    s->n = kept;
}

/* Outsiders ---------------------------------------------------------------------- */

/* The process of thread TID, opened as an outsider when it is not watched; NULL when gone. */
static struct process *process_of_thread(struct source_proc *s, pid_t tid)
{
    char path[32], buf[4096];
    struct procfs_status st;

    snprintf(path, sizeof(path), "%d/status", tid);
    if (procfs_slurp(s->rootfd, path, buf, sizeof(buf)) < 0 || !procfs_parse_status(buf, &st) ||
        st.tgid <= 0)
        return NULL;
    struct process *p = process_find(s, st.tgid);
    return p ? p : process_add(s, st.tgid, true);
}

static void serve(struct source_proc *s, const struct request *r, nsec_t now)
{
    struct process *p = process_of_thread(s, r->tid);

    if (!p || p->fact.ended)
        return;
    /* An outsider that is not wanted leaves with this sweep. */
    if (words_maps_file(&p->words, r->file, now) && p->outsider)
        process_want_thread(p, &s->common, r->tid, now);
}

/* Served before the sweep looks at anybody: facts that were handed out must not move before. */
static void serve_requests(struct source_proc *s, nsec_t now)
{
    for (size_t i = 0; i < s->nrequests; i++)
        serve(s, &s->requests[i], now);
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
    f->region = w->region;
    f->dev = w->dev;
    f->inode = w->inode;
    f->offset = w->offset;
    f->path = w->path;
    f->early = w->early;
    f->late = w->late;
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
        if (!w->waited[k]->maybe_lock)
            emit_word(out, i, w->waited[k], nwords);
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
    if (s->self_at && now - s->self_at < RSS_READ_EVERY)
        return;
    s->self_at = now;
    if (procfs_slurp(AT_FDCWD, "/proc/self/statm", buf, sizeof(buf)) > 0 &&
        sscanf(buf, "%ld %ld", &size, &resident) == 2)
        s->common.self.rss_kb = resident * (sysconf(_SC_PAGESIZE) / 1024);
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

static size_t proc_sweep(struct source *base, struct sample *out)
{
    struct source_proc *s = (struct source_proc *)base;
    nsec_t now = clock_mono();
    int links = LINKS_PER_SWEEP;
    size_t alive = 0;

    s->common.self.sweeps++;
    drop_ended(s);
    for (size_t i = 0; i < s->n; i++)
        words_begin(&s->procs[i]->words, now, WORDS_KEPT);
    read_all_early(s);
    follow_target(s, now);
    serve_requests(s, now);
    for (size_t i = 0; i < s->n; i++) {
        process_sweep(s->procs[i], &s->common, now, &links);
        alive += !s->procs[i]->fact.ended && !s->procs[i]->outsider;
    }
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

static void proc_request(struct source *base, const struct request *r)
{
    struct source_proc *s = (struct source_proc *)base;

    if (s->nrequests < MAX_REQUESTS)
        s->requests[s->nrequests++] = *r;
}

/* Life ------------------------------------------------------------------------------ */

static void proc_free(struct source *base)
{
    struct source_proc *s = (struct source_proc *)base;

    for (size_t i = 0; i < s->n; i++)
        process_free(s->procs[i], &s->common);
    free(s->procs);
    slots_release(&s->common.slots);
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
    s->rootfd = rootfd;
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

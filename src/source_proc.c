#include "source_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "caps.h"
#include "procfs.h"
#include "source_threads.h"
#include "xalloc.h"

#define REFRESH_EVERY    (900 * NSEC_PER_MSEC) /* counters, names, exec: twice within the first second */
#define WORDS_KEPT       (60 * NSEC_PER_SEC) /* after their last waiter */
#define OUTSIDER_KEPT    NSEC_PER_SEC        /* after the last request */
#define LINKS_PER_SWEEP  128
#define NAMES_PER_SECOND 32
#define SPLIT_PER_SECOND 32
#define MAX_REQUESTS     64
#define FDS_RESERVED     64 /* left for everything but threads' files */

struct process {
    struct process_fact fact;
    int dirfd;
    bool listed, outsider, stopped, no_schedstat;
    bool told_end; /* a sample has said that it ended */
    nsec_t refreshed_at, wanted_at;
    uint64_t stack_start, switches_seen;
    double voluntary, involuntary; /* sums so far */
    double voluntary_part;
    struct threads threads;
    struct words words;
};

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
    struct slots slots;
    long fds_left;
    struct self_fact self;
    nsec_t self_at;
    struct request requests[MAX_REQUESTS]; /* to be served by the next sweep */
    size_t nrequests;
    struct output out[2]; /* by sample kind: a probe leaves the last sweep's arrays alone */
};

static struct look look_of(struct source_proc *s, struct process *p, nsec_t now, int *links)
{
    return (struct look){
        .now = now,
        .dirfd = p->dirfd,
        .nested_pidns = p->fact.nested_pidns,
        .stopped = p->stopped,
        .no_schedstat = p->no_schedstat,
        .abi = p->fact.abi,
        .read_memory = s->cfg.read_memory,
        .words = &p->words,
        .slots = &s->slots,
        .fds_left = &s->fds_left,
        .links_left = links,
        .self = &s->self,
    };
}

/* Processes -------------------------------------------------------------------- */

static void read_abi(struct process *p)
{
    unsigned char ident[20];
    int fd = openat(p->dirfd, "exe", O_RDONLY | O_CLOEXEC);

    /* Not permitted, or deleted on a file system that forgot it: most likely as we are. */
    p->fact.abi = ABI_NATIVE;
    if (fd < 0)
        return;
    ssize_t n = pread(fd, ident, sizeof(ident), 0);
    close(fd);
    if (n == (ssize_t)sizeof(ident))
        p->fact.abi = syscalls_abi_from_elf(ident, sizeof(ident));
}

static void read_namespace(struct process *p)
{
    char buf[4096];
    struct procfs_status st;

    if (procfs_slurp(p->dirfd, "status", buf, sizeof(buf)) >= 0 && procfs_parse_status(buf, &st))
        p->fact.nested_pidns = st.ns_levels > 1;
}

static void process_free(struct source_proc *s, struct process *p)
{
    int links = 0;
    struct look l = look_of(s, p, 0, &links);

    threads_release(&p->threads, &l);
    words_release(&p->words);
    if (p->dirfd >= 0)
        close(p->dirfd);
    free(p);
}

/* Reads the counters of the whole process. Returns 0 or -errno. */
static int read_counters(struct source_proc *s, struct process *p, nsec_t now)
{
    char buf[1024];
    struct procfs_stat st;

    ssize_t len = procfs_slurp(p->dirfd, "stat", buf, sizeof(buf));
    if (len < 0)
        return (int)len;
    if (!procfs_parse_stat(buf, (size_t)len, &st)) {
        s->self.unreadable++;
        return 0;
    }
    struct process_fact *f = &p->fact;
    double tick_ns = 1e9 / (double)sysconf(_SC_CLK_TCK);
    snprintf(f->comm, sizeof(f->comm), "%.*s", COMM_LEN - 1, st.comm);
    f->start_ticks = st.start_ticks;
    f->cpu_ns = (uint64_t)((double)(st.utime_ticks + st.stime_ticks) * tick_ns);
    f->minflt = st.minflt;
    f->majflt = st.majflt;
    /* A leader that has exited has no memory; the process may still have. */
    f->rss_kb = st.state == 'Z' ? -1 : st.rss_pages * (sysconf(_SC_PAGESIZE) / 1024);
    f->read_at = now;
    bool stopped = st.state == 'T' || st.state == 't';
    if (stopped != p->stopped)
        threads_look_anew(&p->threads);
    p->stopped = stopped;

    /* A new program has a new stack, at a place of its own choice. */
    if (p->stack_start && st.start_stack && st.start_stack != p->stack_start) {
        f->execs++;
        words_release(&p->words);
        p->words.tid = p->fact.pid; /* the only thread that lives through it */
        threads_look_anew(&p->threads);
        for (size_t i = 0; i < p->threads.n; i++)
            p->threads.files[i].word = NULL;
        read_abi(p);
    }
    p->stack_start = st.start_stack;
    return 0;
}

static int allowed_cpus(pid_t pid)
{
    cpu_set_t set;

    return sched_getaffinity(pid, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

static void count_switches(struct process *p, const struct look *l)
{
    double part = threads_voluntary_part(&p->threads, l, SPLIT_PER_SECOND);
    if (part >= 0)
        p->voluntary_part = part;
    double fresh = (double)(p->threads.switches - p->switches_seen);
    p->switches_seen = p->threads.switches;
    if (p->no_schedstat || p->voluntary_part < 0) {
        p->fact.voluntary = p->fact.involuntary = -1;
        return;
    }
    p->voluntary += fresh * p->voluntary_part;
    p->involuntary += fresh * (1 - p->voluntary_part);
    p->fact.voluntary = (int64_t)p->voluntary;
    p->fact.involuntary = (int64_t)p->involuntary;
}

/* Once a second: what changes slowly. Returns false when the process is gone. */
static bool refresh(struct source_proc *s, struct process *p, nsec_t now, int *links)
{
    if (p->refreshed_at && now - p->refreshed_at < REFRESH_EVERY)
        return true;
    p->refreshed_at = now;
    int rc = read_counters(s, p, now);
    if (rc == -ESRCH || rc == -ENOENT)
        return false;
    struct look l = look_of(s, p, now, links);
    p->fact.cpus_allowed = allowed_cpus(p->fact.pid);
    threads_rename(&p->threads, &l, NAMES_PER_SECOND);
    count_switches(p, &l);
    return true;
}

static struct process *process_open(struct source_proc *s, pid_t pid, bool outsider)
{
    int dirfd = procfs_open_pid(s->rootfd, pid);
    if (dirfd < 0)
        return NULL;
    struct process *p = xcalloc(1, sizeof(*p));
    p->dirfd = dirfd;
    p->listed = true;
    p->outsider = p->fact.outsider = outsider;
    p->fact.pid = pid;
    p->words.dirfd = dirfd;
    p->words.tid = pid;
    p->fact.rss_kb = p->fact.voluntary = p->fact.involuntary = -1;
    p->voluntary_part = -1;
    read_abi(p);
    read_namespace(p);
    s->procs = xgrow(s->procs, &s->cap, s->n + 1, sizeof(*s->procs));
    s->procs[s->n++] = p;
    return p;
}

static struct process *process_find(struct source_proc *s, pid_t pid)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->procs[i]->fact.pid == pid)
            return s->procs[i];
    }
    return NULL;
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
            p = process_open(s, pids[i], false);
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
            process_free(s, p);
        else
            s->procs[kept++] = p;
    }
    s->n = kept;
}

/* The kernel counts run times unless it was built or booted otherwise: then every thread, though
 * it runs, shows zeros. */
static void check_schedstat(struct source_proc *s, struct process *p)
{
    bool any = false;

    for (size_t i = 0; i < p->threads.n && !any; i++)
        any = p->threads.facts[i].runs != 0 || p->threads.facts[i].run_ns != 0;
    p->no_schedstat = p->threads.n > 0 && !any;
    s->self.no_schedstat = p->no_schedstat;
}

static void note_memory(struct source_proc *s, int rc)
{
    if (rc == -EPERM || rc == -EACCES || rc == -ENOSYS) {
        s->self.no_memory = true;
        s->self.denied_errno = -rc;
    }
}

static void end_process(struct source_proc *s, struct process *p)
{
    int links = 0;
    struct look l = look_of(s, p, 0, &links);

    p->fact.ended = true;
    threads_release(&p->threads, &l);
    words_release(&p->words);
}

/* Finds a living thread through which memory can be read. False when there is none left: only
 * the remains of a leader, waiting to be reaped. */
static bool find_living(struct process *p)
{
    for (size_t i = 0; i < p->threads.n; i++) {
        if (p->threads.facts[i].seen != SEEN_DEAD) {
            p->words.tid = p->threads.facts[i].tid;
            return true;
        }
    }
    return false;
}

/* Returns false when the process is gone. A list that cannot be read for another reason (no
 * descriptor is left) stays as it was. */
static bool list_threads(struct source_proc *s, struct process *p, const struct look *l)
{
    ssize_t n = threads_list(&p->threads, l);

    if (n >= 0)
        return n > 0;
    if (n == -ESRCH || n == -ENOENT)
        return false;
    s->self.unreadable++;
    return true;
}

static void sweep_process(struct source_proc *s, struct process *p, nsec_t now, int *links)
{
    struct look l = look_of(s, p, now, links);

    if (p->fact.ended)
        return;
    if (!p->listed || (p->outsider && now - p->wanted_at > OUTSIDER_KEPT)) {
        end_process(s, p);
        return;
    }
    if (!p->outsider && !list_threads(s, p, &l)) {
        end_process(s, p);
        return;
    }
    if (p->threads.n == 0 && !p->outsider)
        return; /* the list could not be read */
    /* First what may change how threads are looked at: stopped, another program. */
    if (!refresh(s, p, now, links)) {
        end_process(s, p);
        return;
    }
    l = look_of(s, p, now, links);
    threads_look(&p->threads, &l);
    /* All that were known may have made room for others since they were listed. */
    if (!find_living(p) && p->threads.stale && !p->outsider && list_threads(s, p, &l))
        threads_look(&p->threads, &l);
    if (!find_living(p)) {
        end_process(s, p);
        return;
    }
    check_schedstat(s, p);
    note_memory(s, words_read_late(&p->words, s->cfg.read_memory));
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
    return p ? p : process_open(s, st.tgid, true);
}

static void serve(struct source_proc *s, const struct request *r, nsec_t now)
{
    int links = 0;
    struct process *p = process_of_thread(s, r->tid);
    if (!p || p->fact.ended)
        return;
    bool maps = words_maps_file(&p->words, r->file, now);
    if (!maps || !p->outsider)
        return; /* an outsider that is not wanted leaves at the next sweep */
    p->wanted_at = now;
    for (size_t i = 0; i < p->threads.n; i++) {
        if (p->threads.facts[i].tid == r->tid)
            return;
    }
    struct look l = look_of(s, p, now, &links);
    threads_add(&p->threads, &l, r->tid);
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

    s->self.cpu_ns = clock_process_cpu();
    if (s->self_at && now - s->self_at < REFRESH_EVERY)
        return;
    s->self_at = now;
    if (procfs_slurp(AT_FDCWD, "/proc/self/statm", buf, sizeof(buf)) > 0 &&
        sscanf(buf, "%ld %ld", &size, &resident) == 2)
        s->self.rss_kb = resident * (sysconf(_SC_PAGESIZE) / 1024);
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
        .self = s->self,
    };
}

static void read_all_early(struct source_proc *s)
{
    for (size_t i = 0; i < s->n; i++) {
        struct process *p = s->procs[i];
        note_memory(s, words_read_early(&p->words, s->cfg.read_memory));
    }
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

    s->self.sweeps++;
    drop_ended(s);
    for (size_t i = 0; i < s->n; i++)
        words_begin(&s->procs[i]->words, now, WORDS_KEPT);
    read_all_early(s);
    follow_target(s, now);
    serve_requests(s, now);
    for (size_t i = 0; i < s->n; i++) {
        sweep_process(s, s->procs[i], now, &links);
        alive += !s->procs[i]->fact.ended && !s->procs[i]->outsider;
    }
    emit(s, out, SAMPLE_SWEEP, now);
    return alive;
}

static void proc_probe(struct source *base, struct sample *out)
{
    struct source_proc *s = (struct source_proc *)base;

    s->self.probes++;
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
        process_free(s, s->procs[i]);
    free(s->procs);
    slots_release(&s->slots);
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
    s->fds_left = caps_raise_nofile() - FDS_RESERVED;
    return &s->base;
}

/* Returns 0 or the errno with which the kernel refuses. */
static int try_process(struct source_proc *s, pid_t pid)
{
    char path[64], buf[256];

    snprintf(path, sizeof(path), "%d/task/%d/syscall", pid, pid);
    ssize_t len = procfs_slurp(s->rootfd, path, buf, sizeof(buf));
    return len == -EPERM || len == -EACCES ? (int)-len : 0;
}

bool source_proc_permitted(struct source *base, char *why, size_t size)
{
    struct source_proc *s = (struct source_proc *)base;
    struct caps_facts facts;
    int err = 0;

    follow_target(s, clock_mono());
    for (size_t i = 0; i < s->n; i++) {
        struct process *p = s->procs[i];
        err = try_process(s, p->fact.pid);
        if (!err)
            return true;
        read_counters(s, p, clock_mono());
        caps_collect(s->rootfd, p->fact.pid, &facts);
        caps_explain(why, size, p->fact.pid, p->fact.comm, err, &facts);
    }
    return err == 0;
}

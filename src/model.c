#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chain.h"
#include "holder.h"
#include "locktab.h"
#include "model_files.h"
#include "model_internal.h"
#include "model_stacks.h"
#include "proctab.h"
#include "wait.h"
#include "xalloc.h"

struct model *model_new(const struct model_host *host)
{
    struct model *m = xcalloc(1, sizeof(*m));

    m->host = *host;
    m->builtin = signatures_new();
    m->stacks.signatures = m->builtin;
    m->rates.cpu_pct = m->rates.sweep_hz = m->rates.probe_hz = NAN;
    return m;
}

void model_configure(struct model *m, const struct model_config *cfg)
{
    m->stacks_mode = cfg->stacks;
    m->may_stop = cfg->may_stop;
    m->rules = cfg->names;
    if (cfg->signatures)
        m->stacks.signatures = cfg->signatures;
}

struct thread_set {
    const struct proctab *tab;
    pid_t pid;
    struct file_id file; /* for words in memory that is mapped shared */
};

static bool is_thread(const void *arg, pid_t tid)
{
    const struct thread_set *set = arg;

    return proctab_find(set->tab, set->pid, tid) != NULL;
}

/* For words that other processes map too, the owner may be a thread of any that maps the file. */
static bool is_thread_of_sharer(const void *arg, pid_t tid)
{
    const struct thread_set *set = arg;
    bool clear;

    return proctab_find_sharer(set->tab, set->file, tid, &clear) != NULL;
}

static void settle_row(struct model *m, struct thread *th, const struct process_fact *p,
                       const struct word_fact *word)
{
    const struct futex_wait *f = &th->fact->futex;
    bool shared = word && word->region == REGION_SHARED;
    struct thread_set set = {.tab = &m->procs, .pid = p->pid};
    if (shared)
        set.file = (struct file_id){.dev = word->dev, .inode = word->inode};
    struct wait_context ctx = {
        .abi = p->abi,
        .libc = p->libc,
        .word = word,
        .sp = th->fact->sp,
        .is_thread = shared ? is_thread_of_sharer : is_thread,
        .arg = &set,
    };
    struct wait_class c = wait_classify(f, &ctx);
    struct lock_row *linked = locktab_linked(&m->locks, p, word, f->addr);

    if (linked && !wait_suits(f, linked->kind)) {
        locktab_renew(linked, &c);
        linked = NULL;
    }
    /* A lock seen in the moment of a hand-over looks like less than it was known to be. */
    if (linked && linked->confidence > c.confidence) {
        th->row = linked;
        th->mode = linked->kind != KIND_RWLOCK ? c.mode
                   : word ? wait_rwlock_mode(f, locktab_object(linked, word))
                          : wait_rwlock_mode(f, linked->object);
    } else {
        th->row = locktab_row(&m->locks, p, word, f->addr, &c);
        th->mode = c.mode;
    }
    if (th->row->kind == KIND_JOIN)
        th->row->joined = (pid_t)f->val;
}

/* Whether the row found for a thread that has slept on since is the last word on it: its kind is
 * proved, and where its memory lies is known as it was then. */
static bool is_settled(const struct lock_row *r, const struct word_fact *word)
{
    bool shared = word && word->region == REGION_SHARED;

    if (!r || !word)
        return r != NULL; /* nothing new is known of its memory */
    return r->confidence == CONF_CONFIRMED && shared == (r->key.space == LOCKKEY_SHARED);
}

/* What TH waits for, into th->row. One that sleeps on waits for what it waited for. */
static void find_row(struct model *m, const struct sample *s, const struct process_fact *p,
                     struct thread *th)
{
    const struct thread_fact *f = th->fact;
    const struct word_fact *word = f->word >= 0 ? &s->words[f->word] : NULL;

    if (f->seen != SEEN_CALL || !f->futex.addr) {
        enum lock_mode mode;
        struct lock_row *row = model_file_row(m, p, th, &mode);
        if (row || f->fresh || f->seen != SEEN_CALL) {
            th->row = row;
            th->mode = mode;
        }
        if (f->seen != SEEN_CALL)
            return;
    } else if (f->fresh || !is_settled(th->row, word)) {
        settle_row(m, th, p, word);
    }
    model_apply_stack(m, p, th);
}

static enum thread_state state_of(const struct process_fact *p, const struct thread *th)
{
    /* Whatever it was blocked in when its cgroup was frozen. */
    if (p->frozen)
        return THREAD_STOPPED;
    /* A lock that is waited for in epoll is a lock all the same. */
    if (th->kind == KIND_MONITOR || th->kind == KIND_SYSV_SEM)
        return THREAD_LOCK;
    return th->kind == KIND_KERNEL ? THREAD_KERNEL : wait_state(th->fact, th->kind);
}

static void see_thread(struct model *m, const struct sample *s, const struct process_fact *p,
                       struct thread *th)
{
    find_row(m, s, p, th);
    th->kind = th->row ? th->row->kind : KIND_NONE;
    if (th->row) {
        model_name_row(m, th->row);
        locktab_wait(&m->locks, th->row, p);
    }
    proctab_count(&m->procs, th, state_of(p, th));
}

static void see_process(struct model *m, const struct sample *s, const struct process_fact *p)
{
    struct proc *proc = proctab_proc(&m->procs, p);

    for (size_t i = 0; i < p->nthreads; i++)
        see_thread(m, s, p, proctab_thread(&m->procs, proc, &p->threads[i]));
}

/* All threads are made known first: whether a word names a thread must not depend on the order
 * in which they are listed. */
static void meet_threads(struct model *m, const struct sample *s)
{
    for (size_t i = 0; i < s->nprocesses; i++) {
        const struct process_fact *p = &s->processes[i];
        if (p->ended)
            continue;
        struct proc *proc = proctab_proc(&m->procs, p);
        for (size_t k = 0; k < p->nthreads; k++)
            proctab_thread(&m->procs, proc, &p->threads[k]);
    }
}

void model_feed(struct model *m, const struct sample *s)
{
    if (m->locks.sample == 0)
        m->start = s->mono;
    m->self = s->self;
    m->wall = s->wall;
    m->now = s->mono - m->start;
    locktab_begin(&m->locks, s, m->start);
    if (s->kind == SAMPLE_SWEEP) {
        m->sweeps++;
        proctab_begin_sweep(&m->procs, s, m->start);
        meet_threads(m, s);
        proctab_take_owners(&m->procs, s);
        model_take_answers(m, s);
        model_take_files(m, s);
        for (size_t i = 0; i < s->nprocesses; i++)
            see_process(m, s, &s->processes[i]);
        proctab_end_sweep(&m->procs);
    }
    locktab_words(&m->locks, s);
    if (s->kind == SAMPLE_RELOOK)
        model_take_relook(m, s);
    if (s->kind == SAMPLE_SWEEP) {
        model_end_files(m, s->mono);
        locktab_end_sweep(&m->locks);
        model_expire_stacks(m);
        chain_note(&m->procs);
    }
}

size_t model_requests(struct model *m, struct request *out, size_t max)
{
    size_t n = 0;
    struct lock_row *r, *tmp;

    HASH_ITER(hh, m->locks.rows, r, tmp)
    {
        if (n < max && locktab_waiters(&m->locks, r) > 0 &&
            holder_request(&m->procs, r, m->now, &out[n]))
            n++;
    }
    n = model_request_files(m, out, n, max);
    return model_request_stacks(m, out, n, max);
}

void model_free(struct model *m)
{
    if (!m)
        return;
    locktab_release(&m->locks);
    proctab_release(&m->procs);
    stacktab_release(&m->stacks);
    signatures_free(m->builtin);
    free(m);
}

/*
 * model_build.h - memory as lock objects lay it out, and samples built sweep after sweep as a
 * source would give them. Include it behind cmocka.h.
 *
 * The arrays of a sample live until the next sweep and are then really freed, so that a model
 * that keeps a pointer too long is caught by AddressSanitizer.
 */
#ifndef LT_MODEL_BUILD_H
#define LT_MODEL_BUILD_H

#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/compiler.h"
#include "../src/layout.h"
#include "../src/model.h"
#include "../src/render.h"
#include "../src/sample.h"
#include "../src/xalloc.h"

/* Memory --------------------------------------------------------------------------------- */

static inline struct word_view blank_view(void)
{
    return (struct word_view){.lo = 0, .hi = WORD_WINDOW};
}

/* Writes at OFF bytes from the futex word; what falls outside the window is lost. */
static inline void put32(struct word_view *w, int off, uint32_t value)
{
    int at = WORD_BEFORE + off;

    if (at >= 0 && at + (int)sizeof(value) <= WORD_WINDOW)
        memcpy(w->bytes + at, &value, sizeof(value));
}

static inline void put64(struct word_view *w, int off, uint64_t value)
{
    put32(w, off, (uint32_t)value);
    put32(w, off + 4, (uint32_t)(value >> 32));
}

static inline void put_words(struct word_view *w, int off, const uint32_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put32(w, off + 4 * (int)i, words[i]);
}
#define PUT_WORDS(w, off, ...)                                                                     \
    put_words(w, off, (const uint32_t[]){__VA_ARGS__},                                             \
              sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* pthread_mutex_t, 64 bit: lock, count, owner, nusers, kind. */
static inline void put_mutex(struct word_view *w, uint32_t lock, uint32_t owner, uint32_t kind)
{
    PUT_WORDS(w, 0, lock, 0, owner, 1, kind);
}

/* pthread_rwlock_t, 64 bit, at OFF: readers, writers, wrphase_futex, writers_futex, two pads,
 * cur_writer, shared. */
static inline void put_rwlock(struct word_view *w, int off, uint32_t readers, uint32_t writer)
{
    PUT_WORDS(w, off, readers, 1, readers & 1 ? 3 : 2, 3, 0, 0, writer, 0);
}

/* pthread_cond_t of glibc 2.25 to 2.40 with N waiters, all of them in group G. */
static inline void put_cond(struct word_view *w, int off, uint32_t n, int g)
{
    PUT_WORDS(w, off, 2 * n + (uint32_t)g, 0, 0, 0, g ? 0 : 2 * n, g ? 2 * n : 0, 0, 0, 0, n << 3,
              0, 0);
}

/* One process and its threads ------------------------------------------------------------ */

#define TICK (20 * NSEC_PER_MSEC) /* between two sweeps at the default rate */

struct built_word {
    struct word_fact fact;   /* but EARLY and LATE */
    struct word_view memory; /* as the next early read finds it */
    struct word_view later;  /* as the late read after that finds it */
    bool changes;            /* LATER differs: becomes MEMORY after the sweep */
    bool known, hidden;      /* was in a sweep before; cannot be read */
};

struct built_thread {
    struct thread_fact fact;
    bool changed; /* the next sweep reads its call anew */
    uint64_t word;
};

struct built_process {
    struct process_fact fact;
    struct built_thread *threads;
    size_t n, cap;
    struct built_word *words;
    size_t nwords, words_cap;
    bool absent; /* not in the samples */
    struct file_id shared[4];
};

#define BUILT_PROCESSES 4
#define BUILT_ANSWERS   32

struct world {
    struct model *model;
    nsec_t mono;
    struct built_process procs[BUILT_PROCESSES];
    size_t n;
    struct self_fact self;
    uint32_t slots;
    struct process_fact *sweep_procs, *probe_procs;
    struct word_fact *sweep_words, *probe_words;
    struct thread_fact *sweep_threads;
    /* Answers that the next sweep brings, and no other. */
    struct stack_fact stacks[BUILT_ANSWERS];
    struct name_fact names[BUILT_ANSWERS];
    struct owner_fact owners[BUILT_ANSWERS];
    size_t nstacks, nnames, nowners;
};

static inline struct world *world_new(void)
{
    static const struct model_host host = {.name = "db1", .kernel = "6.18.44", .cpus = 2};
    struct world *w = xcalloc(1, sizeof(*w));

    w->model = model_new(&host);
    w->mono = 5000 * NSEC_PER_SEC;
    w->self.rss_kb = 5120;
    return w;
}

static inline void world_free(struct world *w)
{
    model_free(w->model);
    for (size_t i = 0; i < w->n; i++) {
        free(w->procs[i].threads);
        free(w->procs[i].words);
    }
    free(w->sweep_procs);
    free(w->probe_procs);
    free(w->sweep_words);
    free(w->probe_words);
    free(w->sweep_threads);
    free(w);
}

static inline struct built_process *add_process(struct world *w, pid_t pid)
{
    assert_true(w->n < BUILT_PROCESSES);
    struct built_process *p = &w->procs[w->n++];

    p->fact = (struct process_fact){
        .pid = pid,
        .start_ticks = 777,
        .comm = "service",
        .abi = ABI_NATIVE,
        .libc = LIBC_GLIBC,
        .rss_kb = 1024,
        .voluntary = 0,
        .involuntary = 0,
        .cpus_allowed = 2,
    };
    return p;
}

static inline struct built_thread *add_thread(struct world *w, struct built_process *p, pid_t tid)
{
    p->threads = xgrow(p->threads, &p->cap, p->n + 1, sizeof(*p->threads));
    struct built_thread *t = &p->threads[p->n++];
    *t = (struct built_thread){
        .fact = {.tid = tid,
                 .ns_tid = tid,
                 .start_ticks = 800,
                 .slot = w->slots++,
                 .seen = SEEN_ACTIVE,
                 .runs = 1,
                 .run_ns = 1000,
                 .word = -1,
                 .fd = -1},
        .changed = true,
    };
    snprintf(t->fact.comm, sizeof(t->fact.comm), "t%d", tid);
    return t;
}

/* The process with threads PID, PID + 1, ... PID + N - 1. */
static inline struct built_process *add_busy_process(struct world *w, pid_t pid, int n)
{
    struct built_process *p = add_process(w, pid);

    for (int i = 0; i < n; i++)
        add_thread(w, p, pid + i);
    return p;
}

static inline struct built_thread *thread_of(struct built_process *p, pid_t tid)
{
    for (size_t i = 0; i < p->n; i++) {
        if (p->threads[i].fact.tid == tid)
            return &p->threads[i];
    }
    fail_msg("no thread %d", tid);
    return NULL;
}

static inline void end_thread(struct built_process *p, pid_t tid)
{
    struct built_thread *t = thread_of(p, tid);

    *t = p->threads[--p->n];
}

static inline struct built_word *word_at(struct built_process *p, uint64_t addr)
{
    for (size_t i = 0; i < p->nwords; i++) {
        if (p->words[i].fact.addr == addr)
            return &p->words[i];
    }
    p->words = xgrow(p->words, &p->words_cap, p->nwords + 1, sizeof(*p->words));
    struct built_word *word = &p->words[p->nwords++];
    *word = (struct built_word){.fact = {.addr = addr, .region = REGION_ANON, .maybe_lock = true}};
    word->memory = blank_view();
    return word;
}

/* A word in a file that is mapped shared. */
static inline struct built_word *shared_word(struct built_process *p, uint64_t addr, uint64_t inode,
                                             uint64_t offset)
{
    struct built_word *word = word_at(p, addr);

    word->fact.region = REGION_SHARED;
    word->fact.dev = 0xfe00;
    word->fact.inode = inode;
    word->fact.offset = offset;
    word->fact.path = "/dev/shm/pool";
    p->shared[0] = (struct file_id){.dev = 0xfe00, .inode = inode};
    p->fact.shared = p->shared;
    p->fact.nshared = 1;
    return word;
}

/* What threads do -------------------------------------------------------------------------- */

static inline struct built_thread *wakes(struct built_process *p, pid_t tid)
{
    struct built_thread *t = thread_of(p, tid);

    t->changed = true;
    t->word = 0;
    t->fact.runs++;
    t->fact.seen = SEEN_ACTIVE;
    t->fact.futex = (struct futex_wait){0};
    t->fact.fd = -1;
    t->fact.fd_path = NULL;
    return t;
}

static inline void calls(struct built_process *p, pid_t tid, enum call call)
{
    struct built_thread *t = wakes(p, tid);

    t->fact.seen = SEEN_CALL;
    t->fact.call = call;
}

/* futex(ADDR, OP, VAL, ...), decoded as the source does. */
static inline void waits(struct built_process *p, pid_t tid, uint64_t addr, uint32_t op,
                         uint32_t val)
{
    struct built_thread *t = wakes(p, tid);
    const uint64_t arg[6] = {addr, op, val};

    t->fact.seen = SEEN_CALL;
    t->fact.call = CALL_futex;
    memcpy(t->fact.arg, arg, sizeof(arg));
    assert_true(futex_decode(CALL_futex, arg, &t->fact.futex));
    t->word = addr;
    word_at(p, addr);
}

/* A normal mutex at ADDR, held by OWNER, for which the N threads from FIRST on wait. */
static inline struct built_word *mutex_convoy(struct built_process *p, uint64_t addr, pid_t owner,
                                              pid_t first, int n)
{
    for (pid_t tid = first; tid < first + n; tid++)
        waits(p, tid, addr, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 2);
    struct built_word *word = word_at(p, addr);
    put_mutex(&word->memory, 2, (uint32_t)owner, 0);
    return word;
}

/* Answers -------------------------------------------------------------------------------- */

/* A frame in a function of a module that is a library of KIND: those of libc are exported. */
static inline struct frame_fact frame(const char *name, enum module_kind kind)
{
    uint64_t pc = 0x400000;

    for (const char *c = name; *c; c++)
        pc = pc * 31 + (unsigned char)*c;
    return (struct frame_fact){
        .pc = pc,
        .n = {.name = name,
              .exported = kind == MODULE_GLIBC,
              .module = kind == MODULE_GLIBC ? "libc.so.6" : "service",
              .kind = kind,
              .offset = pc & 0xffff},
    };
}

/* The next sweep tells that thread TID, as it is now, has these N frames (which must live until
 * then). */
static inline struct stack_fact *stack_comes(struct world *w, struct built_process *p, pid_t tid,
                                             const struct frame_fact *frames, size_t n)
{
    const struct thread_fact *f = &thread_of(p, tid)->fact;
    struct stack_fact *s = &w->stacks[w->nstacks++];

    assert_true(w->nstacks <= BUILT_ANSWERS);
    *s = (struct stack_fact){
        .pid = p->fact.pid,
        .tid = tid,
        .start_ticks = f->start_ticks,
        .slot = f->slot,
        .execs = p->fact.execs,
        .runs = f->runs,
        .sp = f->sp,
        .pc = f->pc,
        .word = f->futex.addr,
        .nr = f->nr,
        .taken = f->seen == SEEN_ACTIVE ? STACK_STOPPED : STACK_ASLEEP,
        .frames = frames,
        .nframes = n,
    };
    return s;
}

/* The next sweep tells that thread TID waits in the library's function for mutexes. */
static inline void mutex_stack_comes(struct world *w, struct built_process *p, pid_t tid)
{
    static struct frame_fact frames[3];

    frames[0] = frame("__lll_lock_wait", MODULE_GLIBC);
    frames[1] = frame("pthread_mutex_lock", MODULE_GLIBC);
    frames[2] = frame("main", MODULE_OTHER);
    thread_of(p, tid)->fact.sp = 0x7ffe0000;
    stack_comes(w, p, tid, frames, ARRAY_SIZE(frames));
}

/* Samples -------------------------------------------------------------------------------- */

static inline void emit_word(struct word_fact *out, struct built_word *b, size_t process, bool late)
{
    const struct word_view nothing = {.lo = 0, .hi = 0};

    *out = b->fact;
    out->process = (uint32_t)process;
    out->early = b->known && !b->hidden ? b->memory : nothing;
    out->late = !late || b->hidden ? nothing : b->changes ? b->later : b->memory;
    if (late) {
        if (b->changes)
            b->memory = b->later;
        b->changes = false;
        b->known = true;
    }
}

static inline int32_t index_of(const struct word_fact *words, size_t n, size_t process,
                               uint64_t addr)
{
    for (size_t i = 0; i < n; i++) {
        if (words[i].process == process && words[i].addr == addr)
            return (int32_t)i;
    }
    return -1;
}

static inline size_t emit_words(struct world *w, struct word_fact **out, bool late)
{
    size_t n = 0, at = 0;

    for (size_t i = 0; i < w->n; i++)
        n += w->procs[i].nwords;
    free(*out);
    *out = xcalloc(n, sizeof(**out));
    size_t process = 0;
    for (size_t i = 0; i < w->n; i++) {
        struct built_process *p = &w->procs[i];
        for (size_t k = 0; k < p->nwords && !p->absent; k++)
            emit_word(&(*out)[at++], &p->words[k], process, late);
        process += !p->absent;
    }
    return at;
}

static inline void emit_thread(struct world *w, struct thread_fact *out, struct built_thread *t)
{
    t->fact.fresh = t->changed;
    if (t->changed)
        t->fact.since = t->fact.seen == SEEN_ACTIVE ? 0 : w->mono;
    t->changed = t->fact.seen == SEEN_ACTIVE || t->fact.seen == SEEN_UNREADABLE;
    *out = t->fact;
}

static inline size_t emit_processes(struct world *w, struct process_fact **out)
{
    size_t n = 0;

    free(*out);
    *out = xcalloc(w->n, sizeof(**out));
    for (size_t i = 0; i < w->n; i++) {
        if (!w->procs[i].absent)
            (*out)[n++] = w->procs[i].fact;
    }
    return n;
}

static inline void emit_threads(struct world *w, size_t nwords)
{
    size_t n = 0, at = 0, process = 0;

    for (size_t i = 0; i < w->n; i++)
        n += w->procs[i].n;
    free(w->sweep_threads);
    w->sweep_threads = xcalloc(n, sizeof(*w->sweep_threads));
    for (size_t i = 0; i < w->n; i++) {
        struct built_process *p = &w->procs[i];
        if (p->absent)
            continue;
        struct process_fact *fact = &w->sweep_procs[process];
        fact->threads = &w->sweep_threads[at];
        fact->nthreads = fact->ended ? 0 : p->n;
        for (size_t k = 0; k < fact->nthreads; k++) {
            struct thread_fact *out = &w->sweep_threads[at++];
            emit_thread(w, out, &p->threads[k]);
            out->word = out->futex.addr
                            ? index_of(w->sweep_words, nwords, process, p->threads[k].word)
                            : -1;
        }
        process++;
    }
}

/* The next sweep, AFTER the last sample, fed to the model. */
static inline void sweep(struct world *w, nsec_t after)
{
    w->mono += after;
    w->self.sweeps++;
    for (size_t i = 0; i < w->n; i++) {
        if (!w->procs[i].fact.read_at || w->mono - w->procs[i].fact.read_at >= NSEC_PER_SEC)
            w->procs[i].fact.read_at = w->mono;
    }
    struct sample s = {.kind = SAMPLE_SWEEP, .mono = w->mono, .wall = w->mono, .self = w->self};
    s.nprocesses = emit_processes(w, &w->sweep_procs);
    s.nwords = emit_words(w, &w->sweep_words, true);
    emit_threads(w, s.nwords);
    s.processes = w->sweep_procs;
    s.words = w->sweep_words;
    s.stacks = w->stacks;
    s.nstacks = w->nstacks;
    s.names = w->names;
    s.nnames = w->nnames;
    s.owners = w->owners;
    s.nowners = w->nowners;
    model_feed(w->model, &s);
    w->nstacks = w->nnames = w->nowners = 0;
}

static inline void probe(struct world *w, nsec_t after)
{
    w->mono += after;
    w->self.probes++;
    struct sample s = {.kind = SAMPLE_PROBE, .mono = w->mono, .wall = w->mono, .self = w->self};
    s.nprocesses = emit_processes(w, &w->probe_procs);
    s.nwords = emit_words(w, &w->probe_words, false);
    s.processes = w->probe_procs;
    s.words = w->probe_words;
    model_feed(w->model, &s);
}

static inline void sweeps(struct world *w, int n, nsec_t every)
{
    for (int i = 0; i < n; i++)
        sweep(w, every);
}

static inline struct snapshot *snapshot_now(struct world *w)
{
    struct snapshot *s = model_snapshot(w->model);

    assert_non_null(s);
    return s;
}

/* The only lock of class lock; fails when there are more or none. */
static inline const struct snap_lock *only_lock(const struct snapshot *s)
{
    const struct snap_lock *found = NULL;

    for (size_t i = 0; i < s->nlocks; i++) {
        if (s->locks[i].class != CLASS_LOCK)
            continue;
        if (found)
            fail_msg("two locks: %s and %s", found->id, s->locks[i].id);
        found = &s->locks[i];
    }
    if (!found)
        fail_msg("no lock among %zu objects", s->nlocks);
    return found;
}

static inline char *json_of(const struct snapshot *s)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    assert_int_equal(render_json(out, s), 0);
    fclose(out);
    return text;
}

#endif

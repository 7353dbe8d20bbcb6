/*
 * file_build.h - threads that want locks on files and semaphores, and what a source tells of these.
 * Include it behind cmocka.h.
 */
#ifndef LT_FILE_BUILD_H
#define LT_FILE_BUILD_H

#include "model_build.h"

#define DEV 0xfe00

/* What the next sweeps say of files and semaphores. */
struct facts {
    struct file_fact files[4];
    struct file_holder holders[8];
    struct file_waiter waiters[8];
    struct sem_fact sems[4];
    size_t nfiles, nholders, nwaiters, nsems;
};

/* The next sweep, as sweep() of model_build.h, with what F says. */
static inline void look(struct world *w, const struct facts *f, nsec_t after)
{
    w->mono += after;
    w->self.sweeps++;
    for (size_t i = 0; i < w->n; i++)
        w->procs[i].fact.read_at = w->mono;
    struct sample s = {
        .kind = SAMPLE_SWEEP,
        .mono = w->mono,
        .wall = w->mono,
        .self = w->self,
        .files = f->files,
        .nfiles = f->nfiles,
        .file_holders = f->holders,
        .nfile_holders = f->nholders,
        .file_waiters = f->waiters,
        .nfile_waiters = f->nwaiters,
        .file_waiters_at = w->mono,
        .sems = f->sems,
        .nsems = f->nsems,
    };
    s.nprocesses = emit_processes(w, &w->sweep_procs);
    s.nwords = emit_words(w, &w->sweep_words, true);
    emit_threads(w, s.nwords);
    s.processes = w->sweep_procs;
    s.words = w->sweep_words;
    model_feed(w->model, &s);
}

static inline void looks(struct world *w, const struct facts *f, int n)
{
    for (int i = 0; i < n; i++)
        look(w, f, TICK);
}

static inline struct file_lock lock_of(enum filelock_kind kind, bool exclusive, uint64_t inode)
{
    return (struct file_lock){
        .kind = kind,
        .exclusive = exclusive,
        .file = {.dev = DEV, .inode = inode},
        .end = FILE_END,
    };
}

static inline struct file_fact *file(struct facts *f, uint64_t inode, const char *path)
{
    struct file_fact *out = &f->files[f->nfiles++];

    *out = (struct file_fact){
        .file = {.dev = DEV, .inode = inode}, .path = path, .searched = true};
    return out;
}

/* PID holds it since the model began, and took it itself. */
static inline struct file_holder *holds(struct facts *f, pid_t pid, struct file_lock l)
{
    struct file_holder *h = &f->holders[f->nholders++];

    *h = (struct file_holder){
        .lock = l, .pid = pid, .fd = 3, .taker = pid, .now = true, .since = 5000 * NSEC_PER_SEC};
    return h;
}

static inline void wants(struct built_process *p, pid_t tid, struct file_lock l)
{
    calls(p, tid, l.kind == FILELOCK_FLOCK ? CALL_flock : CALL_fcntl);
    thread_of(p, tid)->fact.wants = l;
    thread_of(p, tid)->fact.fd = 3;
}

static inline void wants_sem(struct built_process *p, pid_t tid, int id, bool undo)
{
    calls(p, tid, CALL_semop);
    thread_of(p, tid)->fact.wants = (struct file_lock){0};
    thread_of(p, tid)->fact.sem =
        (struct sem_wait){.id = id, .num = 0, .op = -1, .undo = undo, .nops = 1};
}

/* TID wants no lock any more, and runs. */
static inline void gives_up(struct built_process *p, pid_t tid)
{
    wakes(p, tid);
    thread_of(p, tid)->fact.wants = (struct file_lock){0};
}

static inline void expect_text(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("\"%s\" instead of \"...%s...\"", text ? text : "nothing", part);
}

static inline const struct snap_lock *lock_named(const struct snapshot *s, const char *id)
{
    const struct snap_lock *l = snapshot_lock(s, id);

    if (!l)
        fail_msg("no %s; first: %s", id, s->nlocks ? s->locks[0].id : "none");
    return l;
}

#define ID "flock:fe00:7"

static inline const struct snap_holder *only_holder(const struct snapshot *s)
{
    const struct snap_lock *l = lock_named(s, ID);

    assert_int_equal(l->nholders, 1);
    return l->holders;
}

/* 100 waits for an exclusive flock, which 200 holds where HELD. */
struct scene {
    struct world *w;
    struct facts f;
    struct built_process *waiter, *other;
    struct file_lock lock;
};

static inline struct scene scene_new(int threads_of_other)
{
    struct scene s = {.w = world_new(), .lock = lock_of(FILELOCK_FLOCK, true, 7)};

    s.waiter = add_busy_process(s.w, 100, 1);
    s.other = add_busy_process(s.w, 200, threads_of_other);
    snprintf(s.other->fact.comm, sizeof(s.other->fact.comm), "owner");
    wants(s.waiter, 100, s.lock);
    file(&s.f, 7, "/run/app.lock");
    return s;
}

static inline size_t cycles(struct world *w)
{
    struct snapshot *s = snapshot_now(w);
    size_t n = 0;

    for (size_t i = 0; i < s->nchains; i++)
        n += s->chains[i].cycle;
    assert_int_equal(n > 0, strncmp(s->verdict, "DEADLOCK", 8) == 0 ||
                                strncmp(s->verdict, "SELF-DEADLOCK", 13) == 0);
    assert_int_equal(n > 0, s->severity == SEVERITY_CRITICAL);
    snapshot_free(s);
    return n;
}

#endif

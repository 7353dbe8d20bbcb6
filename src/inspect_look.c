#include "inspect_look.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "freshness.h"
#include "hash.h"
#include "inspect_files.h"
#include "procfs.h"

#define MAX_PROGRAMS  64
#define REFRESH_EVERY NSEC_PER_SEC
#define COPIED        16384
#define STACKS_SOUGHT 256 /* threads asked for whose stack an address is on: some us each */

/* One program of one process. */
struct program {
    pid_t pid;
    uint64_t start_ticks;
    uint32_t execs;
    int dirfd;
    struct space *space;
    struct freshness fresh;
    bool disagrees; /* what stands in memory is not what the file says, though the map is new */
    nsec_t refreshed_at, used_at;
    UT_hash_handle hh;
};

struct looker {
    struct inspector_config cfg;
    nsec_t learnt; /* CPU time */
    int rootfd;
    struct module_set *modules;
    struct unwinder *unwinder;
    struct tracer *tracer;
    struct program *programs;
    struct tracer_look look; /* large: not on the stack of a thread */
    uint8_t bytes[COPIED];
};

/* Programs -------------------------------------------------------------------------- */

static void program_free(struct looker *l, struct program *p)
{
    HASH_DEL(l->programs, p);
    symbol_forget(p->pid);
    space_free(p->space);
    close(p->dirfd);
    free(p);
}

static struct program *program_find(const struct looker *l, pid_t pid)
{
    struct program *p;

    HASH_FIND(hh, l->programs, &pid, sizeof(pid), p);
    return p;
}

void looker_forget(struct looker *l, pid_t pid)
{
    struct program *p = program_find(l, pid);

    if (p)
        program_free(l, p);
}

static void make_room(struct looker *l)
{
    struct program *oldest = l->programs;

    if (HASH_COUNT(l->programs) < MAX_PROGRAMS)
        return;
    for (struct program *p = l->programs; p; p = p->hh.next) {
        if (p->used_at < oldest->used_at)
            oldest = p;
    }
    program_free(l, oldest);
}

static struct space *open_space(struct looker *l, const struct inspect_job *job, int dirfd)
{
    struct procfs_stat st;
    int err;

    if (procfs_read_stat(dirfd, "stat", &st) != 0 || st.start_ticks != job->process_start)
        return NULL;
    return space_new(l->modules, dirfd, job->pid, job->tid, l->cfg.read_memory, &err);
}

static struct program *program_open(struct looker *l, const struct inspect_job *job, nsec_t now)
{
    int dirfd = procfs_open_pid(l->rootfd, job->pid);

    if (dirfd < 0)
        return NULL;
    nsec_t before = clock_thread_cpu();
    struct space *space = open_space(l, job, dirfd);
    l->learnt += clock_thread_cpu() - before;
    if (!space) {
        close(dirfd);
        return NULL;
    }
    make_room(l);
    struct program *p = xcalloc(1, sizeof(*p));
    p->pid = job->pid;
    p->start_ticks = job->process_start;
    p->execs = job->execs;
    p->dirfd = dirfd;
    p->space = space;
    p->refreshed_at = now;
    HASH_ADD(hh, l->programs, pid, sizeof(p->pid), p);
    return p;
}

static struct program *program_of(struct looker *l, const struct inspect_job *job)
{
    nsec_t now = clock_mono();
    struct program *p = program_find(l, job->pid);

    if (p && (p->start_ticks != job->process_start || p->execs != job->execs)) {
        program_free(l, p);
        p = NULL;
    }
    if (!p)
        p = program_open(l, job, now);
    if (p)
        p->used_at = now;
    return p;
}

static bool read_map(struct looker *l, struct program *p, pid_t tid)
{
    p->refreshed_at = clock_mono();
    nsec_t before = clock_thread_cpu();
    int rc = space_refresh(p->space, tid);
    l->learnt += clock_thread_cpu() - before;
    return rc == 0;
}

/* Reads the map again, but not often: that is dear, and some addresses are in no map. */
static bool refresh(struct looker *l, struct program *p, pid_t tid)
{
    return clock_mono() - p->refreshed_at >= REFRESH_EVERY && read_map(l, p, tid);
}

/* Whether another file lies where one of these N addresses was; then the map is read again. Not
 * each time where that does not help: a packer may have changed in memory what is compared. */
static bool was_replaced(struct looker *l, struct program *p, pid_t tid, const uint64_t *addr,
                         size_t n)
{
    if (freshness_check(&p->fresh, p->space, tid, l->cfg.read_memory, addr, n))
        return false;
    bool read = p->disagrees ? refresh(l, p, tid) : read_map(l, p, tid);
    if (read)
        p->disagrees = !freshness_check(&p->fresh, p->space, tid, l->cfg.read_memory, addr, n);
    return read;
}

/* Stacks ---------------------------------------------------------------------------- */

static bool read_task(const struct program *p, pid_t tid, const char *file, char text[256])
{
    char path[64];

    snprintf(path, sizeof(path), "task/%d/%s", tid, file);
    return procfs_slurp(p->dirfd, path, text, 256) > 0;
}

static bool read_runs(const struct program *p, pid_t tid, uint64_t *runs)
{
    char text[256];
    struct procfs_schedstat sched;

    if (!read_task(p, tid, "schedstat", text) || !procfs_parse_schedstat(text, &sched))
        return false;
    *runs = sched.runs;
    return true;
}

/* False also when the thread runs. */
static bool read_sleep(const struct program *p, pid_t tid, struct procfs_syscall *call)
{
    char text[256];

    return read_task(p, tid, "syscall", text) && procfs_parse_syscall(text, call) &&
           call->kind != SYSCALL_RUNNING;
}

/* Whether the thread still sleeps as it did when the job was made. */
static bool still_sleeps(const struct program *p, const struct inspect_job *job)
{
    struct procfs_syscall call;
    uint64_t runs;

    if (!job->no_schedstat)
        return read_runs(p, job->tid, &runs) && runs == job->runs;
    return read_sleep(p, job->tid, &call) && call.sp == job->sp && call.pc == job->pc;
}

/* Copies the top of the stack, most are not larger, and of others the rest is read as the walk
 * comes there; and the word to be checked, *WORD. */
static struct stack_copy copy_stack(struct looker *l, const struct inspect_job *job,
                                    struct remote_item *word)
{
    struct remote_item items[2] = {
        {.addr = job->sp - STACK_RED_ZONE, .dst = l->bytes, .len = sizeof(l->bytes)}, *word};
    size_t n = word->addr ? 2 : 1;

    if (l->cfg.read_memory(job->tid, items, n) < 0 || items[0].got <= STACK_RED_ZONE) {
        items[0].addr = job->sp; /* the page below may be the guard's */
        if (l->cfg.read_memory(job->tid, items, n) < 0)
            items[0].got = items[1].got = 0;
    }
    *word = items[1];
    return (struct stack_copy){.base = items[0].addr, .bytes = l->bytes, .len = items[0].got};
}

/* Whether the thread held the lock it was asked for: WORD stood there at the time. */
static bool is_holder(const struct owner_check *c, bool has_word, uint32_t word)
{
    return !c->addr || (has_word && (word & c->mask) == c->value);
}

static bool has_unknown_code(const struct program *p, const struct stack *s)
{
    for (size_t i = 0; i < s->n; i++) {
        if (!space_is_code(p->space, s->pc[i]))
            return true;
    }
    return false;
}

static void unwind(struct looker *l, struct program *p, pid_t tid, const struct stack_regs *regs,
                   const struct stack_copy *copy, struct stack *out)
{
    stack_unwind(l->unwinder, p->space, regs, copy, out);
    if (was_replaced(l, p, tid, out->pc, out->n))
        stack_unwind(l->unwinder, p->space, regs, copy, out);
    if (out->end != STACK_COMPLETE && has_unknown_code(p, out) && refresh(l, p, tid))
        stack_unwind(l->unwinder, p->space, regs, copy, out);
}

/* Copies and walks the stack of a sleeping thread. False when it has run since. */
static bool walk_asleep(struct looker *l, struct program *p, const struct inspect_job *job,
                        struct stack *out, bool *holds)
{
    const struct stack_regs regs = {.pc = job->pc, .sp = job->sp};
    uint32_t value = 0;
    struct remote_item word = {.addr = job->check.addr, .dst = &value, .len = sizeof(value)};
    struct stack_copy copy = copy_stack(l, job, &word);

    if (!still_sleeps(p, job))
        return false;
    *holds = is_holder(&job->check, word.got == sizeof(value), value);
    unwind(l, p, job->tid, &regs, &copy, out);
    return !out->live || still_sleeps(p, job);
}

static const char *copy_string(struct arena *a, const char *s)
{
    return s ? arena_strdup(a, s) : NULL;
}

/* What a signal interrupted stands above the frame from which its handler returns. */
static void name_trampolines(const struct stack *s, struct frame_fact *f)
{
    for (size_t k = 1; k < s->n; k++) {
        if (s->exact[k] && !f[k - 1].n.name)
            f[k - 1].n.name = "<signal handler called>";
    }
}

static void name_frames(struct program *p, const struct stack *s, struct inspection *i)
{
    struct frame_fact *f = arena_zalloc(&i->arena, s->n * sizeof(*f));

    for (size_t k = 0; k < s->n; k++) {
        f[k].pc = s->pc[k];
        f[k].exact = s->exact[k];
        symbol_function(p->space, s->pc[k], s->exact[k], &f[k].n);
        /* Names live as long as the module, and the answer may outlive it. */
        f[k].n.name = copy_string(&i->arena, f[k].n.name);
        f[k].n.module = copy_string(&i->arena, f[k].n.module);
        f[k].n.file = copy_string(&i->arena, f[k].n.file);
    }
    name_trampolines(s, f);
    i->stack.frames = f;
    i->stack.nframes = s->n;
    i->stack.end = s->end;
    i->stack.guessed = s->guessed;
}

/* Names cost next to nothing once their tables have been read. */
#define NAMES_COST (100 * NSEC_PER_USEC)

static void keep(struct looker *l, struct program *p, const struct stack *s,
                 enum stack_taken taken, struct inspection *i)
{
    nsec_t before = clock_thread_cpu();

    i->stack.taken = taken;
    name_frames(p, s, i);
    nsec_t cost = clock_thread_cpu() - before;
    if (cost > NAMES_COST)
        l->learnt += cost - NAMES_COST;
}

static void take_stopped(struct looker *l, struct program *p, const struct inspect_job *job,
                         struct inspection *i)
{
    struct stack s;

    tracer_ask_word(l->tracer, job->check.addr);
    enum tracer_result r = tracer_look(l->tracer, p->dirfd, job->tid, &l->look);
    if (r == TRACER_OK) {
        i->stack.not_holder = !is_holder(&job->check, l->look.has_word, l->look.word);
        unwind(l, p, job->tid, &l->look.regs, &l->look.copy, &s);
        keep(l, p, &s, STACK_STOPPED, i);
        return;
    }
    i->stack.taken = r == TRACER_NOT_NOW ? STACK_NOT_NOW : STACK_DENIED;
    i->stack.why = tracer_result_text(r);
}

static void take_asleep(struct looker *l, struct program *p, const struct inspect_job *job,
                        struct inspection *i)
{
    struct stack s;
    bool holds;

    if (!walk_asleep(l, p, job, &s, &holds)) {
        i->stack.taken = STACK_MOVED;
        return;
    }
    i->stack.not_holder = !holds;
    keep(l, p, &s, STACK_ASLEEP, i);
}

/* Who was seen to run may sleep by now, and need not be stopped: makes JOB one for a sleeper. */
static bool fell_asleep(const struct program *p, struct inspect_job *job)
{
    struct procfs_syscall call;

    if (!read_runs(p, job->tid, &job->runs) || !read_sleep(p, job->tid, &call))
        return false;
    job->sp = call.sp;
    job->pc = call.pc;
    job->nr = call.nr;
    job->word = 0; /* not known to be one: nothing will be presumed */
    return true;
}

static void take_stack(struct looker *l, struct program *p, const struct inspect_job *asked,
                       struct inspection *i)
{
    struct inspect_job job = *asked;
    bool asleep = job.blocked || fell_asleep(p, &job);

    i->stack = (struct stack_fact){
        .pid = job.pid,
        .tid = job.tid,
        .start_ticks = job.start_ticks,
        .slot = job.slot,
        .execs = job.execs,
        .runs = job.runs,
        .sp = job.sp,
        .pc = job.pc,
        .word = job.word,
        .nr = job.nr,
    };
    if (asleep) {
        take_asleep(l, p, &job, i);
    } else if (l->cfg.may_stop && job.may_stop) {
        take_stopped(l, p, &job, i);
    } else {
        i->stack.taken = STACK_DENIED;
        i->stack.why = l->cfg.may_stop ? "it runs, and a stop might disturb it"
                                       : "it runs, and may not be stopped (--stop never)";
    }
}

/* Names ------------------------------------------------------------------------------ */

/* The thread on whose stack ADDR lies: the one whose stack pointer is in the same mapping. Only
 * stacks that glibc or musl mapped for a thread have a mapping of their own. */
static char *name_in_stack(const struct program *p, uint64_t addr)
{
    const struct map_entry *e = space_entry(p->space, addr);
    pid_t *ids = NULL;
    size_t cap = 0;
    char *name = NULL;

    if (!e || e->path[0] || !e->write || e->shared)
        return NULL;
    ssize_t n = procfs_list_ids(p->dirfd, "task", &ids, &cap);
    for (ssize_t i = 0; i < MIN(n, STACKS_SOUGHT) && !name; i++) {
        struct procfs_syscall call;
        if (read_sleep(p, ids[i], &call) && call.sp >= e->start && call.sp < e->end &&
            addr >= call.sp)
            name = xasprintf("stack of %d", ids[i]);
    }
    free(ids);
    return name;
}

static void take_name(struct looker *l, struct program *p, const struct inspect_job *job,
                      struct inspection *i)
{
    was_replaced(l, p, job->tid, &job->addr, 1);
    char *name = symbol_data(p->space, job->addr);

    if (!name && !space_entry(p->space, job->addr) && refresh(l, p, job->tid))
        name = symbol_data(p->space, job->addr);
    if (!name)
        name = name_in_stack(p, job->addr);
    i->name.pid = job->pid;
    i->name.start_ticks = job->process_start;
    i->name.execs = job->execs;
    i->name.addr = job->addr;
    i->name.name = name ? arena_strdup(&i->arena, name) : NULL;
    free(name);
}

/* Life -------------------------------------------------------------------------------- */

struct inspection *looker_answer(struct looker *l, const struct inspect_job *job)
{
    if (job->kind == INSPECT_FILES)
        return inspect_files(l->rootfd, job);
    if (job->kind == INSPECT_SOCKET)
        return inspect_socket(l->rootfd, job);
    struct program *p = program_of(l, job);
    if (!p)
        return NULL;
    struct inspection *i = xcalloc(1, sizeof(*i));
    i->kind = job->kind;
    if (job->kind == INSPECT_STACK)
        take_stack(l, p, job, i);
    else
        take_name(l, p, job, i);
    return i;
}

nsec_t looker_learnt(const struct looker *l)
{
    return l->learnt;
}

struct tracer_stats looker_stops(const struct looker *l)
{
    return tracer_stats(l->tracer);
}

struct looker *looker_new(const struct inspector_config *cfg, int *err)
{
    int rootfd = procfs_open_root(cfg->root);

    if (rootfd < 0) {
        *err = -rootfd;
        return NULL;
    }
    struct looker *l = xcalloc(1, sizeof(*l));
    l->cfg = *cfg;
    l->rootfd = rootfd;
    l->modules = module_set_new();
    l->unwinder = unwinder_new();
    struct tracer_limits stops = cfg->stops;
    stops.running_only = true;
    l->tracer = tracer_new(&stops);
    return l;
}

void looker_free(struct looker *l)
{
    struct program *p, *tmp;

    HASH_ITER(hh, l->programs, p, tmp)
    {
        program_free(l, p);
    }
    tracer_free(l->tracer);
    unwinder_free(l->unwinder);
    module_set_free(l->modules);
    close(l->rootfd);
    free(l);
}

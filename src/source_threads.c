#include "source_threads.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "procfs.h"
#include "source_links.h"
#include "tracer.h"
#include "xalloc.h"

#define LIST_EVERY   NSEC_PER_SEC
#define NAME_SETTLES NSEC_PER_SEC /* a thread names itself right after it starts */
#define RETRY_EVERY  NSEC_PER_SEC /* of a call that may not be read */

static uint32_t slot_take(struct slots *s)
{
    return s->nfree ? s->free[--s->nfree] : s->next++;
}

static void slot_give(struct slots *s, uint32_t slot)
{
    s->free = xgrow(s->free, &s->cap, s->nfree + 1, sizeof(*s->free));
    s->free[s->nfree++] = slot;
}

void slots_release(struct slots *s)
{
    free(s->free);
    *s = (struct slots){0};
}

/* -ESRCH and -ENOENT mean that the thread is gone; anything else that it may not be read. */
static bool is_gone(ssize_t err)
{
    return err == -ESRCH || err == -ENOENT;
}

static void task_path(char *dst, size_t size, pid_t tid, const char *file)
{
    snprintf(dst, size, "task/%d/%s", tid, file);
}

static ssize_t read_task_file(const struct look *l, pid_t tid, const char *file, char *buf,
                              size_t size)
{
    char path[64];

    task_path(path, sizeof(path), tid, file);
    return procfs_slurp(l->dirfd, path, buf, size);
}

static bool is_short(int fd)
{
    return fd == -EMFILE || fd == -ENFILE;
}

/* Opens a file to be kept, as long as descriptors last. Returns it, or -errno. */
static int open_kept(const struct look *l, pid_t tid, const char *file)
{
    char path[64];
    int fd = -EMFILE;

    task_path(path, sizeof(path), tid, file);
    if (*l->fds_left > 0) {
        fd = openat(l->dirfd, path, O_RDONLY | O_CLOEXEC);
        fd = fd < 0 ? -errno : fd;
    }
    if (fd >= 0)
        (*l->fds_left)--;
    l->self->fds_short |= is_short(fd);
    return fd;
}

static void close_kept(const struct look *l, int fd)
{
    if (fd < 0)
        return;
    close(fd);
    (*l->fds_left)++;
}

/* Keeps *FD open when it could not be before. */
static ssize_t read_kept(const struct look *l, int *fd, pid_t tid, const char *file, char *buf,
                         size_t size)
{
    if (*fd < 0)
        *fd = open_kept(l, tid, file);
    if (*fd >= 0)
        return procfs_reread(*fd, buf, size);
    return is_short(*fd) ? read_task_file(l, tid, file, buf, size) : *fd;
}

static int read_task_status(const struct look *l, pid_t tid, struct procfs_status *out)
{
    char path[64];

    task_path(path, sizeof(path), tid, "status");
    return procfs_read_status(l->dirfd, path, out);
}

static int read_task_stat(const struct look *l, pid_t tid, struct procfs_stat *out)
{
    char path[64];

    task_path(path, sizeof(path), tid, "stat");
    return procfs_read_stat(l->dirfd, path, out);
}

static pid_t ns_tid(const struct look *l, pid_t tid)
{
    struct procfs_status st;

    if (!l->nested_pidns)
        return tid;
    if (read_task_status(l, tid, &st) != 0 || st.ns_levels < 1)
        return 0;
    return st.ns_pid[st.ns_levels - 1];
}

static void copy_comm(char *dst, const char *src)
{
    snprintf(dst, COMM_LEN, "%.*s", COMM_LEN - 1, src);
}

int threads_add(struct threads *t, const struct look *l, pid_t tid)
{
    struct procfs_stat st;
    int rc = read_task_stat(l, tid, &st);

    if (rc != 0)
        return rc;
    t->facts = xgrow(t->facts, &t->cap, t->n + 1, sizeof(*t->facts));
    t->files = xgrow(t->files, &t->files_cap, t->n + 1, sizeof(*t->files));
    struct thread_fact *f = &t->facts[t->n];
    *f = (struct thread_fact){
        .tid = tid,
        .ns_tid = ns_tid(l, tid),
        .start_ticks = st.start_ticks,
        .slot = slot_take(l->slots),
        .seen = SEEN_ACTIVE,
        .word = -1,
        .fd = -1,
        .sem.id = -1,
    };
    copy_comm(f->comm, st.comm);
    t->files[t->n] = (struct thread_files){
        .schedstat = open_kept(l, tid, "schedstat"),
        .syscall = open_kept(l, tid, "syscall"),
        .named_at = l->now,
    };
    t->n++;
    return 0;
}

static void remove_at(struct threads *t, const struct look *l, size_t i)
{
    close_kept(l, t->files[i].schedstat);
    close_kept(l, t->files[i].syscall);
    free(t->files[i].fd_path);
    slot_give(l->slots, t->facts[i].slot);
    t->n--;
    t->facts[i] = t->facts[t->n];
    t->files[i] = t->files[t->n];
}

static int compare_fact_tid(const void *a, const void *b)
{
    pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

    return (x > y) - (x < y);
}

/* Adds those of IDS (sorted here) that are not known yet. */
static void merge(struct threads *t, const struct look *l, pid_t *ids, size_t n)
{
    bool *known = xcalloc(n, sizeof(*known));

    qsort(ids, n, sizeof(*ids), compare_fact_tid);
    for (size_t i = 0; i < t->n; i++) {
        const pid_t *hit = bsearch(&t->facts[i].tid, ids, n, sizeof(*ids), compare_fact_tid);
        if (hit)
            known[hit - ids] = true;
    }
    for (size_t i = 0; i < n; i++) {
        int rc = known[i] ? 0 : threads_add(t, l, ids[i]);
        l->self->vanished += is_gone(rc);
        l->self->unreadable += rc < 0 && !is_gone(rc);
    }
    free(known);
}

static bool list_is_due(struct threads *t, const struct look *l, long *links)
{
    struct stat st;

    *links = fstatat(l->dirfd, "task", &st, 0) == 0 ? (long)st.st_nlink : -1;
    return t->stale || !t->listed_at || *links != t->links || l->now - t->listed_at >= LIST_EVERY;
}

ssize_t threads_list(struct threads *t, const struct look *l)
{
    pid_t *ids = NULL;
    size_t cap = 0;
    long links;

    if (!list_is_due(t, l, &links))
        return (ssize_t)t->n;
    ssize_t n = procfs_list_ids(l->dirfd, "task", &ids, &cap);
    if (n > 0) {
        merge(t, l, ids, (size_t)n);
        t->links = links;
        t->listed_at = l->now;
        t->stale = false;
    }
    free(ids);
    return n <= 0 ? n : (ssize_t)t->n;
}

/* One look -------------------------------------------------------------------------------- */

/* restart_syscall says nothing about what is restarted: the same arguments as before, or the
 * kernel function it sleeps in, do. Names drift between kernels, so only prefixes count. */
static enum call restarted(const struct look *l, const struct thread_fact *before, pid_t tid,
                           const struct procfs_syscall *now)
{
    static const struct {
        const char *prefix;
        enum call call;
    } by_wchan[] = {
        {"futex", CALL_futex},
        {"hrtimer_nanosleep", CALL_nanosleep},
        {"do_nanosleep", CALL_nanosleep},
        {"poll_schedule", CALL_poll},
        {"do_sys_poll", CALL_poll},
        {"do_poll", CALL_poll},
    };
    char wchan[64];

    if (before->call != CALL_OTHER && before->call != CALL_restart_syscall &&
        memcmp(before->arg, now->arg, sizeof(now->arg)) == 0)
        return before->call;
    if (read_task_file(l, tid, "wchan", wchan, sizeof(wchan)) < 0)
        return CALL_restart_syscall;
    for (size_t i = 0; i < ARRAY_SIZE(by_wchan); i++) {
        if (strncmp(wchan, by_wchan[i].prefix, strlen(by_wchan[i].prefix)) == 0)
            return by_wchan[i].call;
    }
    return CALL_restart_syscall;
}

/* futex_waitv keeps its words in memory: the first of { u64 val, u64 addr, u32 flags, u32 }. */
static void fetch_waitv(struct futex_wait *f, const struct look *l, pid_t tid, uint64_t array)
{
    struct {
        uint64_t val, addr;
        uint32_t flags, reserved;
    } first;
    struct remote_item item = {.addr = array, .dst = &first, .len = sizeof(first)};

    if (l->read_memory(tid, &item, 1) != 1) {
        l->self->unreadable++;
        return;
    }
    f->addr = first.addr;
    f->val = (uint32_t)first.val;
    f->is_private = first.flags & FUTEX_PRIVATE_FLAG;
}

/* A link that was read for another file is not believed. */
static void take_waits(struct thread_fact *f, const struct look *l)
{
    struct file_id before = f->wants.file;

    waits_take(f, l);
    if (f->wants.kind != FILELOCK_NONE &&
        (f->wants.file.inode != before.inode || f->wants.file.dev != before.dev))
        links_none(f);
}

static void take_call(struct thread_fact *f, struct thread_files *k, const struct look *l,
                      const struct procfs_syscall *sc)
{
    enum call call = syscalls_lookup(l->abi, sc->nr);

    if (call == CALL_restart_syscall)
        call = restarted(l, f, f->tid, sc);
    f->call = call;
    f->nr = sc->nr;
    memcpy(f->arg, sc->arg, sizeof(f->arg));
    f->sp = sc->sp;
    f->pc = sc->pc;
    if (tracer_cuts_short(l->abi, sc))
        k->transferred_at = l->now;
    k->word = NULL;
    if (futex_decode(call, f->arg, &f->futex)) {
        if (call == CALL_futex_waitv)
            fetch_waitv(&f->futex, l, f->tid, f->arg[0]);
        l->words->tid = f->tid; /* this one lives */
        if (f->futex.addr)
            k->word = words_note(l->words, &f->futex, l->now);
    }
    take_waits(f, l);
    if (syscalls_has_fd(call) && (int)f->arg[0] >= 0)
        links_take(f, k, l);
    else
        links_none(f);
}

static enum seen seen_as(const struct procfs_syscall *sc)
{
    switch (sc->kind) {
    case SYSCALL_RUNNING:
        return SEEN_ACTIVE;
    case SYSCALL_NONE:
        /* The kernel has no stack to show for a leader that has exited. */
        return sc->sp == 0 && sc->pc == 0 ? SEEN_DEAD : SEEN_FAULT;
    case SYSCALL_BLOCKED:
        break;
    }
    return SEEN_CALL;
}

static void in_no_call(struct thread_fact *f, struct thread_files *k)
{
    k->word = NULL;
    f->futex.addr = 0;
    waits_none(f);
    links_none(f);
}

static bool is_refusal(ssize_t err)
{
    return err == -EPERM || err == -EACCES;
}

/* What may not be read is tried again now and then only. */
static bool may_try(const struct thread_files *k, const struct look *l)
{
    if (!k->refused)
        return true;
    if (*l->retries_left <= 0 || l->now - k->refused_at < RETRY_EVERY)
        return false;
    (*l->retries_left)--;
    return true;
}

static void not_readable(struct thread_fact *f, struct thread_files *k, const struct look *l,
                         int error)
{
    in_no_call(f, k);
    if (f->tid == l->dead_leader) { /* its files belong to root now */
        f->seen = SEEN_DEAD;
        return;
    }
    f->seen = SEEN_UNREADABLE;
    f->since = 0;
    l->self->denied_errno = error;
}

static void note_failure(struct thread_fact *f, struct thread_files *k, const struct look *l,
                         int error)
{
    not_readable(f, k, l, error);
    l->self->unreadable += f->seen == SEEN_UNREADABLE;
    if (is_refusal(-error)) {
        k->refused = error;
        k->refused_at = l->now;
    }
}

/* Where second looks are made. */
static bool waits_for_kernel(const struct thread_fact *f)
{
    return f->wants.kind != FILELOCK_NONE || f->sem.id >= 0;
}

/* Reads the call anew. Returns false when the thread is gone. */
static bool look_fresh(struct threads *t, size_t i, const struct look *l)
{
    struct thread_fact *f = &t->facts[i];
    struct thread_files *k = &t->files[i];
    char buf[256];
    struct procfs_syscall sc;

    f->fresh = true;
    f->word = -1;
    if (!may_try(k, l)) {
        not_readable(f, k, l, k->refused);
        return true;
    }
    ssize_t len = read_kept(l, &k->syscall, f->tid, "syscall", buf, sizeof(buf));
    if (is_gone(len))
        return false;
    if (len < 0 || !procfs_parse_syscall(buf, &sc)) {
        note_failure(f, k, l, len < 0 ? (int)-len : EINVAL);
        return true;
    }
    t->permitted |= k->refused != 0;
    k->refused = 0;
    enum seen seen = seen_as(&sc);
    nsec_t now = clock_mono(); /* what follows may take as long as a second look is put off */
    if (seen == SEEN_CALL)
        take_call(f, k, l, &sc);
    else
        in_no_call(f, k);
    if (waits_for_kernel(f))
        k->looked_at = now;
    if (l->stopped && seen != SEEN_DEAD)
        seen = SEEN_STOPPED;
    f->since = seen == SEEN_ACTIVE ? 0 : l->now;
    f->seen = seen;
    return true;
}

/* Whether the thread has slept on since it was last seen blocked. Without schedstat nothing
 * proves that, so every look is fresh. */
static bool sleeps_on(const struct thread_fact *f, const struct procfs_schedstat *ss,
                      const struct look *l)
{
    return !l->no_schedstat && ss->runs == f->runs && ss->runs != 0 &&
           (f->seen == SEEN_CALL || f->seen == SEEN_FAULT || f->seen == SEEN_STOPPED ||
            f->seen == SEEN_DEAD);
}

static bool look_one(struct threads *t, size_t i, const struct look *l)
{
    struct thread_fact *f = &t->facts[i];
    struct thread_files *k = &t->files[i];
    char buf[128];
    struct procfs_schedstat ss = {0};

    ssize_t len = read_kept(l, &k->schedstat, f->tid, "schedstat", buf, sizeof(buf));
    if (is_gone(len))
        return false;
    bool have = len >= 0 && procfs_parse_schedstat(buf, &ss);
    /* Counts never fall: without a kept file this is another thread that got the same TID. */
    if (have && (ss.runs < f->runs || ss.run_ns < f->run_ns))
        return false;
    if (have && sleeps_on(f, &ss, l)) {
        f->fresh = false;
        f->runq_ns = ss.wait_ns;
        if (k->word)
            words_wait(l->words, k->word, l->now);
        if (waits_for_kernel(f))
            k->looked_at = clock_mono();
        return true;
    }
    if (have) {
        if (f->runs && ss.runs > f->runs)
            t->switches += ss.runs - f->runs;
        f->run_ns = ss.run_ns;
        f->runq_ns = ss.wait_ns;
        f->runs = ss.runs;
    }
    return look_fresh(t, i, l);
}

static void vanish(struct threads *t, const struct look *l, size_t i)
{
    remove_at(t, l, i);
    l->self->vanished++;
    t->stale = true;
}

void threads_look(struct threads *t, const struct look *l)
{
    t->nwaits = 0;
    for (size_t i = t->n; i-- > 0;) {
        if (!look_one(t, i, l)) {
            vanish(t, l, i);
            continue;
        }
        links_read_first(t, i, l);
        waits_read_wchan(t, i, l);
        t->nwaits += waits_for_kernel(&t->facts[i]);
    }
    for (size_t i = 0; t->permitted && i < t->n; i++)
        t->files[i].refused = 0;
    t->permitted = false;
}

int threads_refusal(const struct threads *t)
{
    int error = 0;

    for (size_t i = 0; i < t->n; i++) {
        if (t->facts[i].seen == SEEN_DEAD)
            continue;
        if (!t->files[i].refused)
            return 0;
        error = t->files[i].refused;
    }
    return error;
}

/* Slow changes ---------------------------------------------------------------------------- */

/* Returns false when the TID is another thread's now: where its files are not kept open, the run
 * count need not have told. */
static bool rename_one(struct thread_fact *f, struct thread_files *k, const struct look *l)
{
    struct procfs_stat st;

    k->named_at = l->now;
    k->name_settled = true;
    if (read_task_stat(l, f->tid, &st) != 0)
        return true; /* the next look finds out why */
    copy_comm(f->comm, st.comm);
    return st.start_ticks == f->start_ticks;
}

/* Young threads first, as names settle soon after the start; later changes wait their turn. */
static bool name_is_due(const struct threads *t, const struct thread_files *k, nsec_t now, int many)
{
    nsec_t age = now - k->named_at;

    if (!k->name_settled)
        return age >= NAME_SETTLES;
    return age >= NAME_SETTLES * (1 + (nsec_t)t->n / many);
}

void threads_rename(struct threads *t, const struct look *l, int many)
{
    int left = many;

    for (size_t i = t->n; i-- > 0 && left > 0;) {
        if (!name_is_due(t, &t->files[i], l->now, many))
            continue;
        if (!rename_one(&t->facts[i], &t->files[i], l))
            vanish(t, l, i);
        left--;
    }
}

/* Adds what has come since the thread was last asked. */
static void ask_switches(const struct thread_fact *f, struct thread_files *k, const struct look *l,
                         int64_t *voluntary, int64_t *all)
{
    struct procfs_status st;

    if (read_task_status(l, f->tid, &st) != 0 || st.voluntary < 0)
        return;
    if (k->asked_runs) {
        *voluntary += st.voluntary - k->voluntary;
        *all += st.voluntary - k->voluntary + st.involuntary - k->involuntary;
    }
    k->asked_runs = f->runs;
    k->voluntary = st.voluntary;
    k->involuntary = st.involuntary;
}

double threads_voluntary_part(struct threads *t, const struct look *l, int many)
{
    int64_t voluntary = 0, all = 0;

    for (size_t i = 0; i < t->n && many > 0; i++) {
        size_t at = (t->next_asked + i) % t->n;
        if (t->facts[at].runs == t->files[at].asked_runs)
            continue;
        ask_switches(&t->facts[at], &t->files[at], l, &voluntary, &all);
        if (--many == 0)
            t->next_asked = at + 1;
    }
    return all > 0 ? (double)voluntary / (double)all : -1;
}

void threads_look_anew(struct threads *t)
{
    for (size_t i = 0; i < t->n; i++)
        t->facts[i].seen = SEEN_ACTIVE;
}

void threads_release(struct threads *t, const struct look *l)
{
    while (t->n)
        remove_at(t, l, t->n - 1);
    free(t->facts);
    free(t->files);
    *t = (struct threads){0};
}

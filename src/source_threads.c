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
#include "xalloc.h"

#define LIST_EVERY   NSEC_PER_SEC
#define LINK_TRUSTED NSEC_PER_SEC /* a descriptor's link is believed for so long */
#define NAME_SETTLES NSEC_PER_SEC /* a thread names itself right after it starts */

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

/* Opens a file to be kept, as long as descriptors last. */
static int open_kept(const struct look *l, pid_t tid, const char *file)
{
    char path[64];

    if (*l->fds_left <= 0) {
        l->self->fds_short = true;
        return -1;
    }
    task_path(path, sizeof(path), tid, file);
    int fd = openat(l->dirfd, path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        (*l->fds_left)--;
    else if (errno == EMFILE || errno == ENFILE)
        l->self->fds_short = true;
    return fd;
}

static void close_kept(const struct look *l, int fd)
{
    if (fd < 0)
        return;
    close(fd);
    (*l->fds_left)++;
}

static ssize_t read_kept(const struct look *l, int fd, pid_t tid, const char *file, char *buf,
                         size_t size)
{
    return fd >= 0 ? procfs_reread(fd, buf, size) : read_task_file(l, tid, file, buf, size);
}

static pid_t ns_tid(const struct look *l, pid_t tid)
{
    char buf[4096];
    struct procfs_status st;

    if (!l->nested_pidns)
        return tid;
    if (read_task_file(l, tid, "status", buf, sizeof(buf)) < 0 ||
        !procfs_parse_status(buf, &st) || st.ns_levels < 1)
        return 0;
    return st.ns_pid[st.ns_levels - 1];
}

static void copy_comm(char *dst, const char *src)
{
    snprintf(dst, COMM_LEN, "%.*s", COMM_LEN - 1, src);
}

int threads_add(struct threads *t, const struct look *l, pid_t tid)
{
    char buf[1024];
    struct procfs_stat st;

    ssize_t len = read_task_file(l, tid, "stat", buf, sizeof(buf));
    if (len < 0)
        return (int)len;
    if (!procfs_parse_stat(buf, (size_t)len, &st))
        return -EINVAL;

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
    };
    copy_comm(f->comm, st.comm);
    t->files[t->n] = (struct thread_files){
        .schedstat = open_kept(l, tid, "schedstat"),
        .syscall = open_kept(l, tid, "syscall"),
        .named_at = l->now,
        .mark = t->listing,
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

/* Marks the threads that are known already and adds the others of IDS (sorted here). */
static void merge(struct threads *t, const struct look *l, pid_t *ids, size_t n)
{
    bool *known = xcalloc(n, sizeof(*known));

    qsort(ids, n, sizeof(*ids), compare_fact_tid);
    for (size_t i = 0; i < t->n; i++) {
        const pid_t *hit = bsearch(&t->facts[i].tid, ids, n, sizeof(*ids), compare_fact_tid);
        if (hit) {
            known[hit - ids] = true;
            t->files[i].mark = t->listing;
        }
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
        t->listing++;
        merge(t, l, ids, (size_t)n);
        for (size_t i = t->n; i-- > 0;) {
            if (t->files[i].mark != t->listing) {
                remove_at(t, l, i);
                l->self->vanished++;
            }
        }
        t->links = links;
        t->listed_at = l->now;
        t->stale = false;
    }
    free(ids);
    return n <= 0 ? n : (ssize_t)t->n;
}

static bool has_prefix(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

static enum fd_kind fd_kind_of(const char *path)
{
    static const struct {
        const char *prefix;
        enum fd_kind kind;
    } kinds[] = {
        {"socket:", FD_SOCKET},   {"pipe:", FD_PIPE},      {"anon_inode:", FD_EVENT},
        {"/dev/pts/", FD_TTY},    {"/dev/tty", FD_TTY},    {"/dev/console", FD_TTY},
    };

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (has_prefix(path, kinds[i].prefix))
            return kinds[i].kind;
    }
    return path[0] == '/' ? FD_FILE : FD_UNKNOWN;
}

/* A FIFO has a path like a file. To ask for its type would ask its file system, which may hang;
 * the kernel function it sleeps in tells as well. */
static bool is_fifo(const struct look *l, pid_t tid)
{
    char wchan[64];

    return read_task_file(l, tid, "wchan", wchan, sizeof(wchan)) >= 0 &&
           (has_prefix(wchan, "anon_pipe_") || has_prefix(wchan, "pipe_"));
}

static void resolve_fd(struct thread_fact *f, struct thread_files *k, const struct look *l)
{
    char rel[64], path[4096];
    int fd = (int)f->arg[0];

    if (f->fd == fd && f->fd_path && l->now - k->linked_at < LINK_TRUSTED)
        return;
    f->fd = fd;
    f->fd_kind = FD_UNKNOWN;
    free(k->fd_path);
    f->fd_path = k->fd_path = NULL;
    if (*l->links_left <= 0)
        return;
    (*l->links_left)--;
    k->linked_at = l->now;
    snprintf(rel, sizeof(rel), "task/%d/fd/%d", f->tid, fd);
    if (procfs_readlink(l->dirfd, rel, path, sizeof(path)) < 0)
        return;
    f->fd_path = k->fd_path = xstrdup(path);
    f->fd_kind = fd_kind_of(path);
    if (f->fd_kind == FD_FILE && is_fifo(l, f->tid))
        f->fd_kind = FD_PIPE;
}

/* Whether the link could not be read when the thread fell asleep, and may be asked for now. */
static bool lacks_link(const struct thread_fact *f, const struct thread_files *k,
                       const struct look *l)
{
    return f->fd >= 0 && !f->fd_path && l->now - k->linked_at >= LINK_TRUSTED;
}

static void no_fd(struct thread_fact *f)
{
    f->fd = -1;
    f->fd_kind = FD_UNKNOWN;
    f->fd_path = NULL;
}

/* restart_syscall says nothing about what is restarted: the same arguments as before, or the
 * kernel function it sleeps in, do. Names drift between kernels, so only prefixes count. */
static enum call restarted(const struct look *l, const struct thread_fact *before, pid_t tid,
                           const struct procfs_syscall *now)
{
    char wchan[64];

    if (before->call != CALL_OTHER && before->call != CALL_restart_syscall &&
        memcmp(before->arg, now->arg, sizeof(now->arg)) == 0)
        return before->call;
    if (read_task_file(l, tid, "wchan", wchan, sizeof(wchan)) < 0)
        return CALL_restart_syscall;
    if (has_prefix(wchan, "futex"))
        return CALL_futex;
    if (has_prefix(wchan, "hrtimer_nanosleep") || has_prefix(wchan, "do_nanosleep"))
        return CALL_nanosleep;
    if (has_prefix(wchan, "poll_schedule") || has_prefix(wchan, "do_sys_poll") ||
        has_prefix(wchan, "do_poll"))
        return CALL_poll;
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
    k->word = NULL;
    if (futex_decode(call, f->arg, &f->futex)) {
        if (call == CALL_futex_waitv)
            fetch_waitv(&f->futex, l, f->tid, f->arg[0]);
        l->words->tid = f->tid; /* this one lives */
        if (f->futex.addr)
            k->word = words_note(l->words, &f->futex, l->now);
    }
    if (syscalls_has_fd(call) && (int)f->arg[0] >= 0)
        resolve_fd(f, k, l);
    else
        no_fd(f);
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
    no_fd(f);
}

static void note_failure(struct thread_fact *f, const struct look *l, ssize_t err)
{
    f->seen = SEEN_UNREADABLE;
    f->since = 0;
    l->self->unreadable++;
    l->self->denied_errno = (int)-err;
}

/* Reads the call anew. Returns false when the thread is gone. */
static bool look_fresh(struct thread_fact *f, struct thread_files *k, const struct look *l)
{
    char buf[256];
    struct procfs_syscall sc;

    f->fresh = true;
    f->word = -1;
    ssize_t len = read_kept(l, k->syscall, f->tid, "syscall", buf, sizeof(buf));
    if (is_gone(len))
        return false;
    if (len < 0 || !procfs_parse_syscall(buf, &sc)) {
        in_no_call(f, k);
        if (f->tid == l->dead_leader) /* its files belong to root now */
            f->seen = SEEN_DEAD;
        else
            note_failure(f, l, len < 0 ? len : -EINVAL);
        return true;
    }
    enum seen seen = seen_as(&sc);
    if (seen == SEEN_CALL)
        take_call(f, k, l, &sc);
    else
        in_no_call(f, k);
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

    ssize_t len = read_kept(l, k->schedstat, f->tid, "schedstat", buf, sizeof(buf));
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
        if (lacks_link(f, k, l))
            resolve_fd(f, k, l);
        return true;
    }
    if (have) {
        if (f->runs && ss.runs > f->runs)
            t->switches += ss.runs - f->runs;
        f->run_ns = ss.run_ns;
        f->runq_ns = ss.wait_ns;
        f->runs = ss.runs;
    }
    return look_fresh(f, k, l);
}

void threads_look(struct threads *t, const struct look *l)
{
    for (size_t i = t->n; i-- > 0;) {
        if (look_one(t, i, l))
            continue;
        remove_at(t, l, i);
        l->self->vanished++;
        t->stale = true;
    }
}

static void rename_one(struct thread_fact *f, struct thread_files *k, const struct look *l)
{
    char buf[64];

    ssize_t len = read_task_file(l, f->tid, "comm", buf, sizeof(buf));
    if (len <= 0)
        return;
    buf[len - 1] = '\0'; /* the newline that the kernel adds; the name may hold others */
    copy_comm(f->comm, buf);
    k->named_at = l->now;
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

    for (size_t i = 0; i < t->n && left > 0; i++) {
        if (!name_is_due(t, &t->files[i], l->now, many))
            continue;
        rename_one(&t->facts[i], &t->files[i], l);
        t->files[i].name_settled = true;
        left--;
    }
}

/* Adds what has come since the thread was last asked. */
static void ask_switches(const struct thread_fact *f, struct thread_files *k, const struct look *l,
                         int64_t *voluntary, int64_t *all)
{
    char buf[4096];
    struct procfs_status st;

    if (read_task_file(l, f->tid, "status", buf, sizeof(buf)) < 0 ||
        !procfs_parse_status(buf, &st) || st.voluntary < 0)
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

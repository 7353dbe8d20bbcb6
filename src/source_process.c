#include "source_process.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "procfs.h"
#include "source_links.h"
#include "xalloc.h"

#define REFRESH_EVERY    (900 * NSEC_PER_MSEC) /* twice within the first second */
#define OUTSIDER_KEPT    NSEC_PER_SEC          /* after the last request */
#define RESTS_FOR        NSEC_PER_SEC
#define BUSY_SHARE       0.05
#define SPLIT_PER_SECOND 32
#define RETRY_EVERY      NSEC_PER_SEC
#define RETRIES          2 /* a leader that has exited is refused for that alone */

static struct look look_of(struct commons *s, struct process *p, nsec_t now)
{
    return (struct look){
        .now = now,
        .dirfd = p->dirfd,
        .nested_pidns = p->fact.nested_pidns,
        .stopped = p->stopped,
        .no_schedstat = p->fact.no_schedstat,
        .dead_leader = p->leader_dead ? p->fact.pid : 0,
        .abi = p->fact.abi,
        .read_memory = s->read_memory,
        .words = &p->words,
        .slots = &s->slots,
        .fds_left = &s->fds_left,
        .links_left = &s->links_left,
        .wchans_left = &s->wchans_left,
        .rootfd = s->rootfd,
        .waits = &p->waits,
        .self = &s->self,
    };
}

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
    struct procfs_status st;

    if (procfs_read_status(p->dirfd, "status", &st) == 0)
        p->fact.nested_pidns = st.ns_levels > 1;
}

/* All 0 where it may not be seen. */
static struct file_id read_exe(const struct process *p)
{
    struct stat st;

    if (procfs_stat_link(p->dirfd, "exe", &st) != 0)
        return (struct file_id){0};
    return (struct file_id){.dev = st.st_dev, .inode = st.st_ino};
}

void process_free(struct process *p, struct commons *s)
{
    struct look l = look_of(s, p, 0);

    threads_release(&p->threads, &l);
    words_release(&p->words);
    waits_release(&p->waits);
    close(p->dirfd);
    s->fds_left++;
    free(p);
}

/* A new program is mostly another file, and mostly its stack lies elsewhere: where addresses are not
 * randomised, only if its arguments have another length. What is not known changes nothing. */
static bool is_other_program(struct process *p, uint64_t stack_start)
{
    struct file_id exe = read_exe(p), before = p->exe;
    bool moved = p->stack_start && stack_start && stack_start != p->stack_start;
    bool other = before.inode && exe.inode &&
                 (exe.inode != before.inode || exe.dev != before.dev);

    if (stack_start)
        p->stack_start = stack_start;
    if (exe.inode)
        p->exe = exe;
    return moved || other;
}

static void start_anew(struct process *p)
{
    p->fact.execs++;
    words_release(&p->words);
    waits_release(&p->waits);
    for (size_t i = 0; i < p->threads.n; i++)
        p->threads.facts[i].wchan = NULL;
    p->words.tid = p->fact.pid; /* the only thread that lives through it */
    threads_look_anew(&p->threads);
    for (size_t i = 0; i < p->threads.n; i++)
        p->threads.files[i].word = NULL;
    read_abi(p);
}

int process_read_counters(struct process *p, struct commons *s, nsec_t now)
{
    struct procfs_stat st;
    int rc = procfs_read_stat(p->dirfd, "stat", &st);

    if (rc == -EINVAL) {
        s->self.unreadable++;
        return 0;
    }
    if (rc != 0)
        return rc;
    struct process_fact *f = &p->fact;
    double tick_ns = 1e9 / (double)sysconf(_SC_CLK_TCK);
    snprintf(f->comm, sizeof(f->comm), "%.*s", COMM_LEN - 1, st.comm);
    f->ppid = st.ppid;
    f->start_ticks = st.start_ticks;
    uint64_t cpu_ns = (uint64_t)((double)(st.utime_ticks + st.stime_ticks) * tick_ns);
    p->busy = f->read_at && (double)(cpu_ns - f->cpu_ns) > BUSY_SHARE * (double)(now - f->read_at);
    f->cpu_ns = cpu_ns;
    f->minflt = st.minflt;
    f->majflt = st.majflt;
    /* A leader that has exited has no memory; the process may still have. */
    p->leader_dead = st.state == 'Z' || st.state == 'X';
    f->rss_kb = p->leader_dead ? -1 : st.rss_pages * (sysconf(_SC_PAGESIZE) / 1024);
    f->read_at = now;
    bool stopped = st.state == 'T' || st.state == 't';
    if (stopped != p->stopped)
        threads_look_anew(&p->threads);
    p->stopped = stopped;
    p->state = st.state;
    p->fact.nthreads_all = (int)st.num_threads;
    if (is_other_program(p, st.start_stack))
        start_anew(p);
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
    if (p->fact.no_schedstat || (fresh > 0 && p->voluntary_part < 0)) {
        p->fact.voluntary = p->fact.involuntary = -1;
        return;
    }
    if (fresh > 0) {
        p->voluntary += fresh * p->voluntary_part;
        p->involuntary += fresh * (1 - p->voluntary_part);
    }
    p->fact.voluntary = (int64_t)p->voluntary;
    p->fact.involuntary = (int64_t)p->involuntary;
}

/* One of its threads that lives stands for all. It was woken to be frozen, so what it slept in
 * before that is no longer of interest; but of version 1 it need not have been, and its state
 * tells. */
static bool looks_frozen(struct process *p)
{
    char rel[64];

    if (!p->asked_frozen || p->fact.no_schedstat) {
        p->asked_frozen = true;
        snprintf(rel, sizeof(rel), "task/%d/wchan", p->words.tid);
        if (procfs_slurp(p->dirfd, rel, p->wchan, sizeof(p->wchan)) <= 0)
            p->wchan[0] = '\0';
    }
    return freezer_suspects(p->state, p->wchan);
}

/* Once a second. The threads of a frozen process do not run, so nothing is read of one whose
 * threads do, and of one whose threads all sleep on just once. */
static bool is_frozen(struct commons *s, struct process *p)
{
    bool ran = p->threads.switches != p->rested_at;

    p->rested_at = p->threads.switches;
    p->asked_frozen &= !ran;
    return !ran && looks_frozen(p) &&
           freezer_is_frozen(&s->freezer, s->rootfd, p->dirfd, p->state, p->wchan);
}

/* Once a second: what changes slowly. Returns false when the process is gone. */
static bool refresh_process(struct commons *s, struct process *p, nsec_t now)
{
    int rc = process_read_counters(p, s, now);

    if (rc == -ESRCH || rc == -ENOENT)
        return false;
    p->fact.cpus_allowed = allowed_cpus(p->fact.pid);
    p->fact.frozen = is_frozen(s, p);
    return true;
}

/* What changes slowly of its threads; after a look, so that their run counts are known. */
static void refresh_threads(struct process *p, const struct look *l, int names)
{
    threads_rename(&p->threads, l, names);
    count_switches(p, l);
}

struct process *process_open(struct commons *s, int rootfd, pid_t pid, bool outsider)
{
    int dirfd = procfs_open_pid(rootfd, pid);

    if (dirfd < 0) {
        s->self.fds_short |= dirfd == -EMFILE || dirfd == -ENFILE;
        return NULL;
    }
    s->fds_left--;
    struct process *p = xcalloc(1, sizeof(*p));
    p->dirfd = dirfd;
    p->listed = true;
    p->outsider = p->fact.outsider = outsider;
    p->fact.pid = pid;
    p->words.dirfd = dirfd;
    p->words.tid = pid;
    p->fact.rss_kb = p->fact.voluntary = p->fact.involuntary = -1;
    p->voluntary_part = -1;
    p->exe = read_exe(p);
    read_abi(p);
    read_namespace(p);
    return p;
}

/* The kernel counts run times unless it was built or booted otherwise: then every thread, though
 * it runs, shows zeros. */
static void check_schedstat(struct process *p)
{
    bool any = false;

    for (size_t i = 0; i < p->threads.n && !any; i++)
        any = p->threads.facts[i].runs != 0 || p->threads.facts[i].run_ns != 0;
    p->fact.no_schedstat = p->threads.n > 0 && !any;
}

/* What this process takes from the picture. Of an outsider nothing is promised. */
static void note_limits(struct process *p, struct commons *s)
{
    p->fact.no_memory = p->words.memory_errno != 0;
    p->fact.refused_errno = threads_refusal(&p->threads);
    if (p->outsider)
        return;
    s->self.unprobed += p->words.unprobed;
    s->self.no_schedstat |= p->fact.no_schedstat;
    s->self.no_memory |= p->fact.no_memory;
    if (p->fact.no_memory)
        s->self.denied_errno = p->words.memory_errno;
}

static void end_process(struct commons *s, struct process *p)
{
    struct look l = look_of(s, p, 0);

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
static bool list_threads(struct commons *s, struct process *p, const struct look *l)
{
    ssize_t n = threads_list(&p->threads, l);

    if (n >= 0)
        return n > 0;
    if (n == -ESRCH || n == -ENOENT)
        return false;
    s->self.unreadable++;
    return true;
}

/* How many threads whose calls may not be read are tried again in this sweep: the whole process is
 * mostly refused, and may be large. */
static int retries_now(struct process *p, nsec_t now)
{
    if (now - p->retried_at < RETRY_EVERY)
        return 0;
    p->retried_at = now;
    return RETRIES;
}

void process_sweep(struct process *p, struct commons *s, nsec_t now)
{
    struct look l = look_of(s, p, now);

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
    bool due = !p->refreshed_at || now - p->refreshed_at >= REFRESH_EVERY;
    if (due)
        p->refreshed_at = now;
    if (due && !refresh_process(s, p, now)) {
        end_process(s, p);
        return;
    }
    int retries = retries_now(p, now);
    l = look_of(s, p, now);
    l.retries_left = &retries;
    threads_look(&p->threads, &l);
    /* All that were known may have made room for others since they were listed. */
    if (!find_living(p) && p->threads.stale && !p->outsider && list_threads(s, p, &l))
        threads_look(&p->threads, &l);
    if (!find_living(p)) {
        end_process(s, p);
        return;
    }
    check_schedstat(p);
    if (!p->outsider)
        p->fact.nthreads_all = (int)p->threads.n;
    if (due)
        refresh_threads(p, &l, s->names_each);
    words_read_late(&p->words, s->read_memory);
    note_limits(p, s);
}

static bool waits_for_lock(const struct process *p)
{
    for (size_t i = 0; i < p->threads.n; i++) {
        const struct thread_fact *f = &p->threads.facts[i];
        const struct word *w = p->threads.files[i].word;
        if ((w && w->maybe_lock) || f->wants.kind != FILELOCK_NONE || f->sem.id >= 0 || f->wchan)
            return true;
    }
    return false;
}

bool process_rests(struct process *p, nsec_t now)
{
    if (now < p->rests_until)
        return true;
    bool was_resting = p->rests_until;
    p->rests_until = 0;
    if (was_resting || p->outsider || !p->listed || p->fact.ended || !p->refreshed_at ||
        p->busy || now - p->refreshed_at > RESTS_FOR || waits_for_lock(p))
        return false;
    for (size_t i = 0; i < p->threads.n; i++)
        p->threads.facts[i].fresh = false;
    /* Each at its own time, so that not all are looked at in one sweep. */
    p->rests_until = now + RESTS_FOR / 2 + RESTS_FOR / 1024 * ((nsec_t)p->fact.pid * 619 % 1024);
    return true;
}

void process_read_links(struct process *p, struct commons *s, nsec_t now)
{
    struct look l = look_of(s, p, now);

    links_read_rest(&p->threads, &l);
}

void process_read_early(struct process *p, struct commons *s)
{
    words_read_early(&p->words, s->read_memory);
}

void process_keep(struct process *p, nsec_t now)
{
    p->wanted_at = now;
}

void process_want_threads(struct process *p, struct commons *s, size_t max, nsec_t now)
{
    pid_t *ids = NULL;
    size_t cap = 0;
    ssize_t n = procfs_list_ids(p->dirfd, "task", &ids, &cap);

    p->listed_at = now;
    p->fact.nthreads_all = n > 0 ? (int)n : p->fact.nthreads_all;
    if (n > 0 && (size_t)n > max)
        process_want_thread(p, s, p->fact.pid, now);
    for (ssize_t i = 0; n <= (ssize_t)max && i < n; i++)
        process_want_thread(p, s, ids[i], now);
    free(ids);
}

void process_want_thread(struct process *p, struct commons *s, pid_t tid, nsec_t now)
{
    p->wanted_at = now;
    for (size_t i = 0; i < p->threads.n; i++) {
        if (p->threads.facts[i].tid == tid)
            return;
    }
    struct look l = look_of(s, p, now);
    threads_add(&p->threads, &l, tid);
}

/* A leader that has exited may not be looked at though others may: two threads tell. */
int process_refusal(const struct process *p)
{
    char path[64], buf[256];
    pid_t *ids = NULL;
    size_t cap = 0;
    ssize_t n = procfs_list_ids(p->dirfd, "task", &ids, &cap), len = 0;

    for (ssize_t i = 0; i < MIN(n, 2); i++) {
        snprintf(path, sizeof(path), "task/%d/syscall", ids[i]);
        len = procfs_slurp(p->dirfd, path, buf, sizeof(buf));
        if (len != -EPERM && len != -EACCES)
            break;
    }
    free(ids);
    return len == -EPERM || len == -EACCES ? (int)-len : 0;
}

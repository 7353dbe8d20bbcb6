#include "target_find.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "err.h"
#include "filescan.h"
#include "fmt.h"
#include "mounts.h"
#include "procfs.h"
#include "xalloc.h"

#define COMM_MAX    15                  /* what the kernel keeps of a name */
#define LOCKER_KEPT (10 * NSEC_PER_SEC) /* who locks for moments is not met at each look */
#define SEARCH_EACH 4 /* one in so many looks at a file that is locked searches everybody */

/* What was found out about a process once. One that starts another program may change its user, so
 * that the name counts as well. */
struct known {
    pid_t pid;
    uint64_t start_ticks;
    char comm[COMM_MAX + 1];
    bool denied;
};

/* A process that held or wanted a lock on the file at the look at AT. */
struct locker {
    pid_t pid;
    uint64_t start_ticks;
    nsec_t at;
};

struct finder {
    struct target_spec spec; /* its strings are borrowed */
    struct proclist *procs;
    int rootfd;
    uid_t user;
    struct file_id file;
    pid_t *pids;
    size_t npids, cap;
    struct known *known; /* by PID */
    size_t nknown, known_cap;
    size_t denied;
    struct locker *lockers; /* of the file, lately */
    size_t nlockers, lockers_cap;
    unsigned looks;    /* at the file while it has a lock that can be passed on */
    size_t unresolved; /* locks whose holders the last search through everybody did not find */
};

bool finder_wanted(const struct target_spec *spec)
{
    return spec->name || spec->user || spec->file || spec->all;
}

static void found(struct finder *f, pid_t pid)
{
    f->pids = xgrow(f->pids, &f->cap, f->npids + 1, sizeof(*f->pids));
    f->pids[f->npids++] = pid;
}

/* By name ----------------------------------------------------------------------------- */

static bool name_matches(const char *pattern, const char *comm)
{
    if (strcmp(pattern, comm) == 0 || fnmatch(pattern, comm, 0) == 0)
        return true;
    return strlen(pattern) > COMM_MAX && !strpbrk(pattern, "*?[\\") && strlen(comm) == COMM_MAX &&
           strncmp(pattern, comm, COMM_MAX) == 0;
}

/* The library puts '?' or '.' for bytes that it does not like, so names with these are read
 * again as they are. */
static bool has_name(const struct finder *f, const struct proc_entry *e)
{
    char path[32], comm[64];

    if (!strpbrk(e->comm, "?."))
        return name_matches(f->spec.name, e->comm);
    snprintf(path, sizeof(path), "%d/comm", (int)e->pid);
    ssize_t n = procfs_slurp(f->rootfd, path, comm, sizeof(comm));
    if (n > 0 && comm[n - 1] == '\n')
        comm[n - 1] = '\0';
    return n >= 0 && name_matches(f->spec.name, comm);
}

/* By user ----------------------------------------------------------------------------- */

static bool is_number(const char *s)
{
    return *s && s[strspn(s, "0123456789")] == '\0';
}

static bool find_user(struct finder *f, char *err, size_t size)
{
    const char *name = f->spec.user;
    char quoted[256];

    errno = 0;
    const struct passwd *pw = getpwnam(name);
    if (pw) {
        f->user = pw->pw_uid;
        return true;
    }
    unsigned long id = is_number(name) ? strtoul(name, NULL, 10) : 0;
    if (is_number(name) && errno == 0 && id < (uid_t)-1) {
        f->user = (uid_t)id;
        return true;
    }
    fmt_safe(quoted, sizeof(quoted), name, strlen(name), true);
    snprintf(err, size, "no user '%s' here; give a name that 'getent passwd' knows, or a number",
             quoted);
    return false;
}

static bool is_of_user(const struct finder *f, const struct proc_entry *e)
{
    char path[32];
    struct procfs_status st;

    snprintf(path, sizeof(path), "%d/status", (int)e->pid);
    return procfs_read_status(f->rootfd, path, &st) == 0 && st.euid == (long)f->user;
}

/* What may not be looked at ------------------------------------------------------------- */

static int compare_known(const void *a, const void *b)
{
    pid_t x = ((const struct known *)a)->pid, y = ((const struct known *)b)->pid;

    return (x > y) - (x < y);
}

/* The kernel decides when the file is read, not when it is opened. */
static bool is_refused(const struct finder *f, pid_t pid)
{
    char path[32], buf[256];

    snprintf(path, sizeof(path), "%d/syscall", (int)pid);
    ssize_t n = procfs_slurp(f->rootfd, path, buf, sizeof(buf));
    return n == -EACCES || n == -EPERM;
}

/* What is known of a process as it is now; NULL when it was not asked yet. */
static const struct known *find_known(const struct finder *f, const struct known *now)
{
    const struct known *k =
        f->nknown ? bsearch(now, f->known, f->nknown, sizeof(*now), compare_known) : NULL;

    return k && k->start_ticks == now->start_ticks && strcmp(k->comm, now->comm) == 0 ? k : NULL;
}

/* Asked once of each process; the answers of this look go to NEXT. */
static bool is_denied(const struct finder *f, const struct proc_entry *e, struct known *next)
{
    *next = (struct known){.pid = e->pid, .start_ticks = e->start_ticks};
    memcpy(next->comm, e->comm, strnlen(e->comm, COMM_MAX));
    const struct known *k = find_known(f, next);
    next->denied = k ? k->denied : is_refused(f, e->pid);
    return next->denied;
}

static bool fits(const struct finder *f, const struct proc_entry *e)
{
    if (f->spec.name)
        return has_name(f, e);
    return f->spec.all || is_of_user(f, e);
}

static ssize_t look_through(struct finder *f)
{
    const struct proc_entry *all;
    ssize_t n = proclist_all(f->procs, &all);
    pid_t self = getpid();

    /* This process is always there: an empty list is a failed look, and no news. */
    if (n <= 0)
        return -1;
    struct known *next = xcalloc((size_t)n, sizeof(*next));
    size_t nnext = 0;
    f->npids = f->denied = 0;
    for (ssize_t i = 0; i < n; i++) {
        const struct proc_entry *e = &all[i];
        if (e->kernel || proc_entry_dead(e) || e->pid == self || !fits(f, e))
            continue;
        /* One that was asked for by its name is shown as what it is: not readable. */
        if (!f->spec.name && is_denied(f, e, &next[nnext++]))
            f->denied++;
        else
            found(f, e->pid);
    }
    qsort(next, nnext, sizeof(*next), compare_known);
    free(f->known);
    f->known = next;
    f->nknown = nnext;
    return (ssize_t)f->npids;
}

/* By file ----------------------------------------------------------------------------- */

/* The device as the kernel's list of locks has it, which is not always that of stat(). */
static struct file_id id_of(const struct finder *f, int fd, const struct stat *st)
{
    char rel[48], text[1024];
    struct file_id id = {.dev = st->st_dev, .inode = st->st_ino};
    struct fdinfo info;
    struct mount m;

    snprintf(rel, sizeof(rel), "self/fdinfo/%d", fd);
    if (procfs_slurp(f->rootfd, rel, text, sizeof(text)) <= 0)
        return id;
    filelocks_fdinfo(text, &info);
    int self = openat(f->rootfd, "self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (self < 0)
        return id;
    if (info.mount >= 0 && mounts_find(self, info.mount, 0, &m)) {
        id.dev = m.dev;
        id.inode = info.inode ? info.inode : id.inode;
    }
    close(self);
    return id;
}

static bool find_file(struct finder *f, char *err, size_t size)
{
    char quoted[512];
    struct stat st;
    /* Only a handle: nothing is opened that could block, or take part in locking. */
    int fd = open(f->spec.file, O_PATH | O_CLOEXEC);

    fmt_safe(quoted, sizeof(quoted), f->spec.file, strlen(f->spec.file), true);
    if (fd < 0 || fstat(fd, &st) != 0) {
        snprintf(err, size,
                 "cannot look at the file '%s': %s; give the path of a file that is there (lslocks "
                 "lists those that are locked)",
                 quoted, strerror(errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    f->file = id_of(f, fd, &st);
    close(fd);
    return true;
}

static void found_once(struct finder *f, pid_t pid)
{
    if (pid <= 0 || pid == getpid())
        return;
    for (size_t i = 0; i < f->npids; i++) {
        if (f->pids[i] == pid)
            return;
    }
    found(f, pid);
}

/* Takers that have ended are not among the processes any more, and a file server in the kernel
 * takes locks for others. */
static bool can_be_watched(const struct finder *f, pid_t pid)
{
    struct proc_entry e;

    return pid > 0 && proclist_one(f->procs, pid, &e) == 0 && !e.kernel && !proc_entry_dead(&e);
}

/* Whether the lock of line L was seen in a descriptor. The process that took it need not be one of
 * those that hold it: it may have passed the descriptor on. */
static bool is_seen_held(const struct scan_result *r, const struct lock_line *l)
{
    for (size_t i = 0; i < r->nfds; i++) {
        const struct scan_fd *fd = &r->fds[i];
        if (fd->holds && fd->taker == l->pid && fd->lock.kind == l->lock.kind &&
            fd->lock.start == l->lock.start && fd->lock.end == l->lock.end)
            return true;
    }
    return false;
}

/* Locks of which nobody is known to hold them: the kernel names no process for an OFD lock, and for
 * a flock one that may have ended since. */
static size_t count_unresolved(const struct finder *f, const struct scan_result *r)
{
    size_t n = 0;

    for (size_t i = 0; i < r->nheld; i++)
        n += !is_seen_held(r, &r->held[i]) && !can_be_watched(f, r->held[i].pid);
    return n;
}

static int scan_file(struct finder *f, bool everybody, struct scan_result *r)
{
    struct scan_wish wish = {
        .files = &f->file,
        .nfiles = 1,
        .pids = f->pids, /* holders by a descriptor are looked at again though no line names them */
        .npids = f->npids,
        .everybody = everybody,
    };

    return filescan_look(f->rootfd, &wish, r);
}

/* A descriptor with such a lock can be inherited and sent; a POSIX lock is of one process. */
static bool can_be_passed_on(const struct scan_result *r)
{
    for (size_t i = 0; i < r->nheld; i++) {
        if (r->held[i].lock.kind != FILELOCK_POSIX)
            return true;
    }
    return false;
}

/* To search the descriptors of everybody costs most, so it is done now and then, for holders that
 * got theirs from a taker who holds it as well, and at once when a lock has no known holder; not
 * each time when the search does not find one either. */
static bool is_search_due(struct finder *f, const struct scan_result *r)
{
    if (!can_be_passed_on(r)) {
        f->looks = 0;
        f->unresolved = 0;
        return false;
    }
    return f->looks++ % SEARCH_EACH == 0 || count_unresolved(f, r) > f->unresolved;
}

static int scan_as_needed(struct finder *f, struct scan_result *r)
{
    int rc = scan_file(f, false, r);

    if (rc != 0 || !is_search_due(f, r))
        return rc;
    filescan_release(r);
    rc = scan_file(f, true, r);
    if (rc == 0)
        f->unresolved = count_unresolved(f, r);
    return rc;
}

static void take_lockers(struct finder *f, const struct scan_result *r)
{
    f->npids = 0;
    for (size_t i = 0; i < r->nfds; i++) {
        if (r->fds[i].holds)
            found_once(f, r->fds[i].pid);
    }
    for (size_t i = 0; i < r->nheld; i++) {
        if (!is_seen_held(r, &r->held[i]) && can_be_watched(f, r->held[i].pid))
            found_once(f, r->held[i].pid);
    }
    for (size_t i = 0; i < r->nwaiters; i++)
        found_once(f, r->waiters[i].pid);
}

static void remember(struct finder *f, pid_t pid, uint64_t start_ticks, nsec_t now)
{
    for (size_t i = 0; i < f->nlockers; i++) {
        if (f->lockers[i].pid == pid) {
            f->lockers[i] = (struct locker){pid, start_ticks, now};
            return;
        }
    }
    f->lockers = xgrow(f->lockers, &f->lockers_cap, f->nlockers + 1, sizeof(*f->lockers));
    f->lockers[f->nlockers++] = (struct locker){pid, start_ticks, now};
}

/* Adds those of the last looks that live on to those of this one. */
static void add_lately(struct finder *f, nsec_t now)
{
    struct proc_entry e;
    size_t kept = 0;

    for (size_t i = 0; i < f->npids; i++) {
        if (proclist_one(f->procs, f->pids[i], &e) == 0)
            remember(f, f->pids[i], e.start_ticks, now);
    }
    for (size_t i = 0; i < f->nlockers; i++) {
        struct locker *l = &f->lockers[i];
        if (now - l->at >= LOCKER_KEPT || proclist_one(f->procs, l->pid, &e) != 0 ||
            proc_entry_dead(&e) || e.start_ticks != l->start_ticks)
            continue;
        found_once(f, l->pid);
        f->lockers[kept++] = *l;
    }
    f->nlockers = kept;
}

static ssize_t look_at_file(struct finder *f)
{
    struct scan_result r;
    int rc = scan_as_needed(f, &r);

    if (rc == 0) {
        take_lockers(f, &r);
        add_lately(f, clock_mono());
    }
    filescan_release(&r);
    return rc == 0 ? (ssize_t)f->npids : -1;
}

/* All of them ------------------------------------------------------------------------- */

struct finder *finder_new(const struct target_spec *spec, struct proclist *procs, char *err,
                          size_t size, int *status)
{
    struct finder *f = xcalloc(1, sizeof(*f));
    bool ok = true;

    f->spec = *spec;
    f->procs = procs;
    f->rootfd = procfs_open_root("/proc");
    *status = spec->user ? EXIT_USAGE : EXIT_NOTHING;
    if (spec->user)
        ok = find_user(f, err, size);
    else if (spec->file)
        ok = find_file(f, err, size);
    if (ok)
        return f;
    finder_free(f);
    return NULL;
}

ssize_t finder_look(struct finder *f, const pid_t **pids)
{
    ssize_t n = f->spec.file ? look_at_file(f) : look_through(f);

    *pids = f->pids;
    return n;
}

size_t finder_denied(const struct finder *f)
{
    return f->denied;
}

bool finder_may_come(const struct finder *f)
{
    return f->spec.file != NULL;
}

void finder_free(struct finder *f)
{
    if (!f)
        return;
    if (f->rootfd >= 0)
        close(f->rootfd);
    free(f->pids);
    free(f->known);
    free(f->lockers);
    free(f);
}

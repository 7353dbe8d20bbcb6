#include "filescan.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler.h"
#include "mounts.h"
#include "procfs.h"

#define LOCKS_MAX   (16u << 20)
#define FDINFO_SIZE 2048 /* most fit; one with many locks does not */
#define FDINFO_MAX  (4u << 20)

/* A file that is looked for. */
struct sought {
    struct file_fact fact;
    bool added;     /* not of the wish: somebody has it locked */
    bool waited;    /* somebody waits for a lock on it */
    bool elsewhere; /* a watched process has it open and no lock on it */
};

/* Where to find a file in the list of those; sorted. */
struct file_key {
    struct file_id id;
    size_t at;
};

/* A process that has /dev/fuse open, and the file system that it serves through it. */
struct fuse_server {
    pid_t pid;
    uint64_t dev;
};

/* What one look gathers; arrays grow on the heap, and what is kept of them goes to the arena. */
struct scan {
    int rootfd;
    const struct scan_wish *wish;
    struct scan_result *out;
    struct lock_line *lines; /* all of /proc/locks */
    size_t nlines, lines_cap;
    struct sought *files;
    size_t nfiles, files_cap;
    struct file_key *keys;
    size_t nkeys;
    struct scan_fd *fds;
    size_t nfds, fds_cap;
    struct mount *mounts; /* those that were asked for */
    size_t nmounts, mounts_cap;
    struct fuse_server *servers;
    size_t nservers, servers_cap;
    pid_t *pids; /* to be looked through, each once */
    size_t npids, pids_cap;
};

/* The process that is looked through. */
struct looked {
    pid_t pid;
    int dirfd, fd, fdinfo; /* its directories */
    bool watched;
};

/* The files that are looked for ----------------------------------------------------------- */

static int by_inode(const void *pa, const void *pb)
{
    const struct file_key *a = pa, *b = pb;

    if (a->id.inode != b->id.inode)
        return a->id.inode < b->id.inode ? -1 : 1;
    if (a->id.dev != b->id.dev)
        return a->id.dev < b->id.dev ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* The first key of that inode; NKEYS when there is none. */
static size_t first_key(const struct scan *s, uint64_t inode)
{
    size_t i = COUNT_FIRST(s->nkeys, k, s->keys[k].id.inode < inode);

    return i < s->nkeys && s->keys[i].id.inode == inode ? i : s->nkeys;
}

static struct sought *find_file(const struct scan *s, struct file_id id)
{
    for (size_t i = first_key(s, id.inode); i < s->nkeys && s->keys[i].id.inode == id.inode; i++) {
        if (s->keys[i].id.dev == id.dev)
            return &s->files[s->keys[i].at];
    }
    return NULL;
}

static void seek_file(struct scan *s, struct file_id id, bool added)
{
    s->files = xgrow(s->files, &s->files_cap, s->nfiles + 1, sizeof(*s->files));
    s->files[s->nfiles++] = (struct sought){.fact.file = id, .added = added};
}

/* Of one that was named twice the first stays: those of the wish come first. */
static void sort_files(struct scan *s)
{
    s->keys = xreallocarray(s->keys, s->nfiles, sizeof(*s->keys));
    for (size_t i = 0; i < s->nfiles; i++)
        s->keys[i] = (struct file_key){s->files[i].fact.file, i};
    qsort(s->keys, s->nfiles, sizeof(*s->keys), by_inode);
    s->nkeys = 0;
    for (size_t i = 0; i < s->nfiles; i++) {
        if (i == 0 || !file_id_equal(s->keys[i].id, s->keys[s->nkeys - 1].id))
            s->keys[s->nkeys++] = s->keys[i];
    }
}

/* Somebody who polls for a lock of that kind would not be seen waiting. Who holds a lease is not
 * meant to keep others from anything. */
static bool may_be_polled(const struct lock_line *l)
{
    return l->level == 0 && l->lock.exclusive && l->lock.kind != FILELOCK_LEASE &&
           l->lock.file.inode != 0;
}

static void choose_files(struct scan *s)
{
    for (size_t i = 0; i < s->wish->nfiles; i++)
        seek_file(s, s->wish->files[i], false);
    for (size_t i = 0; s->wish->held_elsewhere && i < s->nlines; i++) {
        if (may_be_polled(&s->lines[i]))
            seek_file(s, s->lines[i].lock.file, true);
    }
    sort_files(s);
    for (size_t i = 0; i < s->nlines; i++) {
        struct sought *f = s->lines[i].level > 0 ? find_file(s, s->lines[i].lock.file) : NULL;
        if (f)
            f->waited = true;
    }
}

/* Whether it is to stand in the result. Who waits for one that was not wished for is not a matter
 * of the watched processes. */
static bool is_kept(const struct sought *f)
{
    return !f->added || (f->elsewhere && !f->waited);
}

static const struct sought *find_kept(const struct scan *s, struct file_id id)
{
    const struct sought *f = find_file(s, id);

    return f && is_kept(f) ? f : NULL;
}

/* /proc/locks ----------------------------------------------------------------------------- */

static void parse_lines(struct scan *s, const char *text)
{
    struct lock_line line, root = {0};
    enum line_result got;

    while ((got = filelocks_next(&text, &line)) != LINE_END) {
        if (got == LINE_MALFORMED) {
            s->out->malformed++;
            continue;
        }
        if (line.level == 0)
            root = line;
        else if (line.lock.file.inode == 0 && line.nr == root.nr)
            line.lock.file = root.lock.file; /* not told of who waits for a lease */
        s->lines = xgrow(s->lines, &s->lines_cap, s->nlines + 1, sizeof(*s->lines));
        s->lines[s->nlines++] = line;
    }
}

static int read_lines(struct scan *s)
{
    char *text;
    ssize_t n = procfs_slurp_alloc(s->rootfd, "locks", &text, LOCKS_MAX);

    s->out->at = clock_mono();
    if (n < 0)
        return (int)n;
    parse_lines(s, text);
    free(text);
    return 0;
}

/* Whose descriptors ----------------------------------------------------------------------- */

static bool has_pid(const pid_t *pids, size_t n, pid_t pid)
{
    for (size_t i = 0; i < n; i++) {
        if (pids[i] == pid)
            return true;
    }
    return false;
}

static void add_pid(struct scan *s, pid_t pid)
{
    if (pid <= 0 || has_pid(s->pids, s->npids, pid))
        return;
    s->pids = xgrow(s->pids, &s->pids_cap, s->npids + 1, sizeof(*s->pids));
    s->pids[s->npids++] = pid;
}

/* A descriptor is inherited, and a flock with it. */
static void add_children(struct scan *s)
{
    const size_t parents = s->npids;
    pid_t *all = NULL;
    size_t cap = 0;
    ssize_t n = procfs_list_ids(s->rootfd, ".", &all, &cap);

    for (ssize_t i = 0; i < n; i++) {
        char rel[32];
        struct procfs_stat st;
        snprintf(rel, sizeof(rel), "%d/stat", all[i]);
        if (procfs_read_stat(s->rootfd, rel, &st) == 0 && has_pid(s->pids, parents, st.ppid))
            add_pid(s, all[i]);
    }
    free(all);
}

static void choose_processes(struct scan *s)
{
    if (s->wish->everybody) {
        ssize_t n = procfs_list_ids(s->rootfd, ".", &s->pids, &s->pids_cap);
        s->npids = n < 0 ? 0 : (size_t)n;
        s->out->searched = n >= 0;
        return;
    }
    for (size_t i = 0; i < s->wish->npids; i++)
        add_pid(s, s->wish->pids[i]);
    for (size_t i = 0; i < s->nlines; i++) {
        const struct sought *f = find_file(s, s->lines[i].lock.file);
        if (s->lines[i].level == 0 && f && !f->added)
            add_pid(s, s->lines[i].pid);
    }
    if (s->wish->nfiles > 0)
        add_children(s);
}

/* Which file, by fdinfo alone: to ask the file itself could hang on a file server --------- */

/* A mount that one process has is not another one of that number for the next. */
static const struct mount *find_mount(struct scan *s, const struct looked *p, int id)
{
    for (size_t i = 0; i < s->nmounts; i++) {
        if (s->mounts[i].id == id)
            return &s->mounts[i];
    }
    s->mounts = xgrow(s->mounts, &s->mounts_cap, s->nmounts + 1, sizeof(*s->mounts));
    if (id < 0 || !mounts_find(p->dirfd, id, 0, &s->mounts[s->nmounts]))
        return NULL;
    return &s->mounts[s->nmounts++];
}

static struct sought *identify(struct scan *s, const struct looked *p, const char *rel,
                               const struct fdinfo *info, const struct mount **mount)
{
    struct file_id id = {.inode = info->inode};
    struct stat st = {0};

    if (id.inode && first_key(s, id.inode) == s->nkeys)
        return NULL; /* as nearly all: no more is asked */
    *mount = find_mount(s, p, info->mount);
    if (!id.inode || !*mount) { /* Linux before 5.14, or a mount that is in no list */
        if (procfs_stat_link(p->fd, rel, &st) != 0)
            return NULL;
        id.inode = st.st_ino;
    }
    id.dev = *mount ? (*mount)->dev : st.st_dev;
    return find_file(s, id);
}

static void learn_file(struct scan *s, struct sought *f, const char *link, const struct mount *m)
{
    if (f->fact.path)
        return;
    char *path = arena_strdup(&s->out->arena, link);
    f->fact.deleted = procfs_strip_deleted(path);
    f->fact.path = path;
    if (!m || m->fs == FS_LOCAL)
        return;
    f->fact.fs = m->fs;
    const char *server = m->fs == FS_FUSE ? m->point : m->source;
    f->fact.server = *server ? arena_strdup(&s->out->arena, server) : NULL;
}

/* Descriptors ----------------------------------------------------------------------------- */

static void add_fd(struct scan *s, const struct scan_fd *fd)
{
    s->fds = xgrow(s->fds, &s->fds_cap, s->nfds + 1, sizeof(*s->fds));
    s->fds[s->nfds++] = *fd;
}

/* Takes the locks that are held through descriptor FD; false when there are none. */
static bool take_locks(struct scan *s, struct scan_fd fd, const char *info)
{
    struct lock_line line;
    enum line_result got;

    while ((got = filelocks_next_of_fd(&info, &line)) != LINE_END) {
        if (got == LINE_MALFORMED)
            continue;
        fd.holds = true;
        fd.lock = line.lock;
        fd.lock.file = fd.file;
        fd.taker = line.pid;
        add_fd(s, &fd);
    }
    return fd.holds;
}

static void note_server(struct scan *s, pid_t pid, const struct fdinfo *info)
{
    if (!info->fuse)
        return;
    s->servers = xgrow(s->servers, &s->servers_cap, s->nservers + 1, sizeof(*s->servers));
    s->servers[s->nservers++] = (struct fuse_server){pid, info->fuse};
}

static void look_at_info(struct scan *s, const struct looked *p, int fd, const char *link,
                         const char *text)
{
    struct scan_fd out = {.pid = p->pid, .fd = fd};
    const struct mount *mount = NULL;
    struct fdinfo info;
    char rel[32];

    filelocks_fdinfo(text, &info);
    if (strcmp(link, "/dev/fuse") == 0)
        note_server(s, p->pid, &info);
    snprintf(rel, sizeof(rel), "%d", fd);
    struct sought *f = identify(s, p, rel, &info, &mount);
    if (!f)
        return;
    out.file = f->fact.file;
    learn_file(s, f, link, mount);
    if (!take_locks(s, out, text) && p->watched)
        add_fd(s, &out);
}

/* False when no descriptor of the process may be looked at. */
static bool look_at_fd(struct scan *s, const struct looked *p, int fd)
{
    char rel[16], link[PATH_MAX], text[FDINFO_SIZE], *longer = NULL;

    snprintf(rel, sizeof(rel), "%d", fd);
    ssize_t n = procfs_readlink(p->fd, rel, link, sizeof(link));
    if (n <= 0 || link[0] != '/')
        return n != -EACCES;
    n = procfs_slurp(p->fdinfo, rel, text, sizeof(text));
    if (n == FDINFO_SIZE - 1)
        n = procfs_slurp_alloc(p->fdinfo, rel, &longer, FDINFO_MAX);
    if (n > 0)
        look_at_info(s, p, fd, link, longer ? longer : text);
    free(longer);
    return true;
}

static bool holds_one(const struct scan *s, size_t from, struct file_id file)
{
    for (size_t i = from; i < s->nfds; i++) {
        if (s->fds[i].holds && file_id_equal(s->fds[i].file, file))
            return true;
    }
    return false;
}

/* Of the descriptors of one process, which begin at FROM: those to files that another has locked.
 */
static void find_elsewhere(struct scan *s, size_t from)
{
    for (size_t i = from; i < s->nfds; i++) {
        struct sought *f = find_file(s, s->fds[i].file);
        if (f->added && !f->elsewhere && !s->fds[i].holds && !holds_one(s, from, s->fds[i].file))
            f->elsewhere = true;
    }
}

/* Returns an fd or -errno. */
static int open_dir(int dirfd, const char *rel)
{
    int fd = openat(dirfd, rel, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

/* Who could not be looked through for want of descriptors of our own was not looked through. */
static void note_want(struct scan *s, int fd)
{
    if (fd == -EMFILE || fd == -ENFILE)
        s->out->searched = false;
}

static void look_at_fds(struct scan *s, const struct looked *p)
{
    pid_t *fds = NULL;
    size_t cap = 0;
    ssize_t n = procfs_list_ids(p->fd, ".", &fds, &cap);

    for (ssize_t i = 0; i < n && look_at_fd(s, p, fds[i]); i++)
        continue;
    free(fds);
}

static void look_through(struct scan *s, pid_t pid)
{
    struct looked p = {.pid = pid, .dirfd = procfs_open_pid(s->rootfd, pid)};
    const size_t from = s->nfds;

    note_want(s, p.dirfd);
    if (p.dirfd < 0)
        return;
    p.watched = has_pid(s->wish->pids, s->wish->npids, pid);
    p.fd = open_dir(p.dirfd, "fd");
    p.fdinfo = open_dir(p.dirfd, "fdinfo");
    note_want(s, MIN(p.fd, p.fdinfo));
    if (p.fd >= 0 && p.fdinfo >= 0)
        look_at_fds(s, &p);
    if (p.watched)
        find_elsewhere(s, from);
    if (p.fd >= 0)
        close(p.fd);
    if (p.fdinfo >= 0)
        close(p.fdinfo);
    close(p.dirfd);
}

/* Those who took the locks of the files that were added. */
static void look_through_takers(struct scan *s)
{
    for (size_t i = 0; i < s->nlines; i++) {
        const struct lock_line *l = &s->lines[i];
        const struct sought *f = l->level == 0 ? find_kept(s, l->lock.file) : NULL;
        if (!f || !f->added || l->pid <= 0 || has_pid(s->pids, s->npids, l->pid))
            continue;
        add_pid(s, l->pid);
        look_through(s, l->pid);
    }
}

static void look_at_processes(struct scan *s)
{
    choose_processes(s);
    if (s->nkeys == 0)
        return; /* there is nothing to find */
    const size_t n = s->npids;
    for (size_t i = 0; i < n; i++)
        look_through(s, s->pids[i]);
    if (!s->wish->everybody)
        look_through_takers(s);
}

/* The result ------------------------------------------------------------------------------ */

static pid_t server_of(const struct scan *s, const struct file_fact *f)
{
    for (size_t i = 0; f->fs == FS_FUSE && i < s->nservers; i++) {
        if (s->servers[i].dev == f->file.dev)
            return s->servers[i].pid;
    }
    return 0;
}

static void keep_files(struct scan *s)
{
    struct scan_result *r = s->out;

    r->files = arena_zalloc(&r->arena, s->nfiles * sizeof(*r->files));
    for (size_t i = 0; i < s->nfiles; i++) {
        struct sought *f = &s->files[i];
        if (f != find_kept(s, f->fact.file))
            continue; /* not kept, or named before */
        f->fact.open_elsewhere = f->added;
        f->fact.searched = r->searched;
        f->fact.fuse_daemon = server_of(s, &f->fact);
        r->files[r->nfiles++] = f->fact;
    }
}

static void keep_fds(struct scan *s)
{
    struct scan_result *r = s->out;

    r->fds = arena_zalloc(&r->arena, s->nfds * sizeof(*r->fds));
    for (size_t i = 0; i < s->nfds; i++) {
        if (find_kept(s, s->fds[i].file))
            r->fds[r->nfds++] = s->fds[i];
    }
}

/* The nearest one above level LEVEL among the last waiter and those that it waits behind. */
static int32_t waits_behind(const struct scan_result *r, size_t first, int level)
{
    int32_t at = r->nwaiters > first ? (int32_t)r->nwaiters - 1 : -1;

    while (at >= 0 && r->waiters[at].level >= level)
        at = r->waiters[at].behind;
    return at;
}

/* The waiters of the lock in line AT. They bear its number: those of a line that was malformed are
 * not taken for its. */
static void keep_waiters(struct scan *s, size_t at)
{
    struct scan_result *r = s->out;
    const size_t first = r->nwaiters;

    for (size_t i = at + 1; i < s->nlines && s->lines[i].level > 0; i++) {
        const struct lock_line *l = &s->lines[i];
        if (l->nr != s->lines[at].nr)
            continue;
        r->waiters[r->nwaiters] = (struct file_waiter){
            .lock = l->lock,
            .held = s->lines[at].lock,
            .pid = l->pid,
            .level = l->level,
            .behind = waits_behind(r, first, l->level),
        };
        r->nwaiters++;
    }
}

static void keep_lines(struct scan *s)
{
    struct scan_result *r = s->out;

    r->held = arena_zalloc(&r->arena, s->nlines * sizeof(*r->held));
    r->waiters = arena_zalloc(&r->arena, s->nlines * sizeof(*r->waiters));
    for (size_t i = 0; i < s->nlines; i++) {
        if (s->lines[i].level > 0 || !find_kept(s, s->lines[i].lock.file))
            continue;
        r->held[r->nheld++] = s->lines[i];
        keep_waiters(s, i);
    }
}

int filescan_look(int rootfd, const struct scan_wish *wish, struct scan_result *out)
{
    struct scan s = {.rootfd = rootfd, .wish = wish, .out = out};

    *out = (struct scan_result){0};
    int rc = read_lines(&s);
    if (rc == 0) {
        choose_files(&s);
        look_at_processes(&s);
        keep_files(&s);
        keep_fds(&s);
        keep_lines(&s);
    }
    free(s.lines);
    free(s.files);
    free(s.keys);
    free(s.fds);
    free(s.mounts);
    free(s.servers);
    free(s.pids);
    return rc;
}

void filescan_release(struct scan_result *r)
{
    arena_release(&r->arena);
    *r = (struct scan_result){0};
}

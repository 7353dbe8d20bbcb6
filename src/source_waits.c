#include "source_waits.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sem.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mounts.h"
#include "procfs.h"
#include "source_threads.h"
#include "xalloc.h"

#define SEMBUFS_MAX   16
#define FDINFO_SIZE   1024 /* what is wanted of it stands in its first lines */
#define MOUNT_TRUSTED (10 * NSEC_PER_SEC)

/* Commands of fcntl as the kernel sees them: what <fcntl.h> calls F_SETLKW is either of the first
 * two where programs have 32 bits. */
enum { SETLKW = 7, SETLKW64 = 14, OFD_SETLKW = 38 };

/* Files ---------------------------------------------------------------------------------- */

/* In the mountinfo of the process; or in ours, which may know mounts that lie outside the root
 * directory of the process. */
static bool find_mount(const struct look *l, int id, struct mount *m)
{
    if (mounts_find(l->dirfd, id, 0, m))
        return true;
    int self = openat(l->rootfd, "self", O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool found = self >= 0 && mounts_find(self, id, 0, m);
    if (self >= 0)
        close(self);
    return found;
}

static struct kept_mount *place_of_mount(struct waits *w, int id)
{
    for (size_t i = 0; i < w->nmounts; i++) {
        if (w->mounts[i].id == id)
            return &w->mounts[i];
    }
    size_t at = w->nmounts < KEPT_MOUNTS ? w->nmounts++ : w->next_mount++ % KEPT_MOUNTS;
    w->mounts[at] = (struct kept_mount){.id = id};
    return &w->mounts[at];
}

static const struct kept_mount *mount_of(const struct look *l, int id)
{
    struct kept_mount *k = place_of_mount(l->waits, id);
    struct mount m = {0};

    if (!k->read_at || l->now - k->read_at >= MOUNT_TRUSTED) {
        k->found = find_mount(l, id, &m);
        k->dev = m.dev;
        k->fs = m.fs;
        k->read_at = l->now;
    }
    return k;
}

/* The file behind descriptor FD of thread TID. Nothing looks the file itself up, which could hang
 * on a file server. Linux before 5.14 does not tell the inode, and some mounts are in nobody's
 * list: then by what the kernel has in memory, where the device of btrfs and overlayfs is another
 * one. */
static struct file_id file_of_fd(const struct look *l, pid_t tid, int fd, struct fdinfo *info)
{
    char rel[64], text[FDINFO_SIZE];
    struct stat st;

    *info = (struct fdinfo){.mount = -1, .pos = -1};
    snprintf(rel, sizeof(rel), "task/%d/fdinfo/%d", tid, fd);
    if (procfs_slurp(l->dirfd, rel, text, sizeof(text)) <= 0)
        return (struct file_id){0};
    filelocks_fdinfo(text, info);
    const struct kept_mount *m = info->mount >= 0 ? mount_of(l, info->mount) : NULL;
    bool mounted = m && m->found;
    if (info->inode && mounted)
        return (struct file_id){.dev = m->dev, .inode = info->inode};
    snprintf(rel, sizeof(rel), "task/%d/fd/%d", tid, fd);
    if (procfs_stat_link(l->dirfd, rel, &st) != 0)
        return (struct file_id){0};
    return (struct file_id){.dev = mounted ? m->dev : st.st_dev, .inode = st.st_ino};
}

/* struct flock as programs pass it, by the width of its offsets. */
struct wide_flock {
    int16_t type, whence;
    int32_t pad;
    int64_t start, len;
};
struct narrow_flock {
    int16_t type, whence;
    int32_t start, len;
};
struct packed_flock { /* i386: struct flock64, whose offsets are aligned to 4 bytes */
    int16_t type, whence;
    int64_t start, len;
} __attribute__((packed));

struct asked_range {
    int type, whence;
    int64_t start, len;
};

static bool read_one(const struct look *l, pid_t tid, uint64_t addr, void *dst, size_t size)
{
    struct remote_item item = {.addr = addr, .dst = dst, .len = (uint32_t)size};

    if (l->read_memory(tid, &item, 1) == 1 && item.got == size)
        return true;
    l->self->unreadable++;
    return false;
}

static bool has_32_bits(const struct look *l)
{
    return l->abi == ABI_COMPAT || sizeof(void *) == 4;
}

static uint64_t pointer(const struct look *l, uint64_t arg)
{
    return has_32_bits(l) ? (uint32_t)arg : arg;
}

static bool read_range(const struct look *l, const struct thread_fact *f, struct asked_range *out)
{
    struct wide_flock w;
    struct narrow_flock n;
    struct packed_flock p;
    uint64_t at = pointer(l, f->arg[2]);

    if (!has_32_bits(l)) {
        if (!read_one(l, f->tid, at, &w, sizeof(w)))
            return false;
        *out = (struct asked_range){w.type, w.whence, w.start, w.len};
    } else if ((uint32_t)f->arg[1] == SETLKW) {
        if (!read_one(l, f->tid, at, &n, sizeof(n)))
            return false;
        *out = (struct asked_range){n.type, n.whence, n.start, n.len};
    } else {
        if (!read_one(l, f->tid, at, &p, sizeof(p)))
            return false;
        *out = (struct asked_range){p.type, p.whence, p.start, p.len};
    }
    return true;
}

/* Where the range is counted from: position and size as they are now, which may have changed since
 * the call began. False when that is not known. */
static bool base_of_range(const struct look *l, const struct thread_fact *f, int whence,
                          const struct fdinfo *info, int64_t *base)
{
    char rel[64];
    struct stat st;

    switch (whence) {
    case SEEK_SET:
        *base = 0;
        return true;
    case SEEK_CUR:
        *base = info->pos;
        return info->pos >= 0;
    case SEEK_END: /* the kernel takes the size that it has in memory, too */
        snprintf(rel, sizeof(rel), "task/%d/fd/%d", f->tid, (int)f->arg[0]);
        if (procfs_stat_link(l->dirfd, rel, &st) != 0)
            return false;
        *base = st.st_size;
        return true;
    default:
        return false;
    }
}

/* As the kernel does it, flock_to_posix_lock() in fs/locks.c. What it would have refused (another
 * thread has written over the structure since) is a range that is not known: the whole file. */
static void place_range(struct file_lock *lock, const struct asked_range *r, int64_t base)
{
    int64_t first, last = INT64_MAX;

    if (__builtin_add_overflow(base, r->start, &first) || first < 0)
        return;
    if (r->len > 0 && __builtin_add_overflow(first, r->len - 1, &last))
        return;
    if (r->len < 0) {
        last = first - 1;
        if (__builtin_add_overflow(first, r->len, &first) || first < 0)
            return;
    }
    lock->start = (uint64_t)first;
    lock->end = last == INT64_MAX ? FILE_END : (uint64_t)last;
}

static enum filelock_kind kind_of(const struct thread_fact *f)
{
    uint32_t cmd = (uint32_t)f->arg[1];

    if (f->call == CALL_flock) /* nobody has to wait to give one up */
        return cmd == LOCK_EX || cmd == LOCK_SH ? FILELOCK_FLOCK : FILELOCK_NONE;
    if (f->call != CALL_fcntl && f->call != CALL_fcntl64)
        return FILELOCK_NONE;
    if (cmd == OFD_SETLKW)
        return FILELOCK_OFD;
    return cmd == SETLKW || cmd == SETLKW64 ? FILELOCK_POSIX : FILELOCK_NONE;
}

/* Range and mode; where the memory may not be read, all that it can be: the whole file,
 * exclusively. Returns false when no lock is wanted: giving one up can take its time on a file
 * server. */
static bool take_range(struct file_lock *lock, const struct look *l, const struct thread_fact *f,
                       const struct fdinfo *info)
{
    struct asked_range range;
    int64_t base;

    lock->exclusive = true;
    if (!read_range(l, f, &range))
        return true;
    lock->exclusive = range.type != F_RDLCK;
    if (base_of_range(l, f, range.whence, info, &base))
        place_range(lock, &range, base);
    return range.type != F_UNLCK;
}

static void take_file_lock(struct thread_fact *f, const struct look *l)
{
    struct file_lock lock = {.kind = kind_of(f), .end = FILE_END};
    struct fdinfo info;

    if (lock.kind == FILELOCK_NONE)
        return;
    lock.exclusive = (uint32_t)f->arg[1] == LOCK_EX;
    lock.file = file_of_fd(l, f->tid, (int)f->arg[0], &info);
    if (lock.kind == FILELOCK_FLOCK || take_range(&lock, l, f, &info))
        f->wants = lock;
}

/* Semaphores ----------------------------------------------------------------------------- */

struct semop_call {
    int id;
    uint64_t ops;
    uint32_t nops;
    bool timed;
};

/* i386 also has one call for all of System V IPC: ipc(call, first, second, third, ptr, fifth). On
 * success F is in the call that it stands for. */
static bool take_ipc(struct thread_fact *f, struct semop_call *out)
{
    enum { IPC_SEMOP = 1, IPC_SEMTIMEDOP = 4 };
    uint32_t which = (uint32_t)f->arg[0] & 0xffff; /* above: a version */

    if (which != IPC_SEMOP && which != IPC_SEMTIMEDOP)
        return false;
    *out = (struct semop_call){
        .id = (int)f->arg[1],
        .ops = f->arg[4],
        .nops = (uint32_t)f->arg[2],
        .timed = which == IPC_SEMTIMEDOP && f->arg[5],
    };
    f->call = which == IPC_SEMOP ? CALL_semop : CALL_semtimedop;
    return true;
}

static bool take_semop(struct thread_fact *f, struct semop_call *out)
{
    switch (f->call) {
    case CALL_ipc:
        return take_ipc(f, out);
    case CALL_semop:
    case CALL_semtimedop:
    case CALL_semtimedop_time64:
        *out = (struct semop_call){
            .id = (int)f->arg[0],
            .ops = f->arg[1],
            .nops = (uint32_t)f->arg[2],
            .timed = f->call != CALL_semop && f->arg[3],
        };
        return true;
    default:
        return false;
    }
}

static bool take_sem(struct thread_fact *f, const struct look *l)
{
    struct semop_call c;
    struct sembuf ops[SEMBUFS_MAX];
    size_t at = 0;

    if (!take_semop(f, &c))
        return false;
    size_t n = MIN(c.nops, (size_t)SEMBUFS_MAX);
    f->sem = (struct sem_wait){.id = c.id, .timed = c.timed};
    if (n == 0 || !read_one(l, f->tid, pointer(l, c.ops), ops, n * sizeof(*ops)))
        return true;
    while (at < n && ops[at].sem_op > 0)
        at++;
    at = at < n ? at : 0;
    f->sem.num = ops[at].sem_num;
    f->sem.op = ops[at].sem_op;
    f->sem.undo = ops[at].sem_flg & SEM_UNDO;
    f->sem.nops = c.nops;
    return true;
}

void waits_none(struct thread_fact *f)
{
    f->wants = (struct file_lock){0};
    f->sem = (struct sem_wait){.id = -1};
    f->wchan = NULL;
    f->uninterruptible = false;
}

void waits_take(struct thread_fact *f, const struct look *l)
{
    waits_none(f);
    if (!take_sem(f, l))
        take_file_lock(f, l);
}

/* Inside the kernel ---------------------------------------------------------------------- */

static const char *keep_name(struct waits *w, const char *name)
{
    for (size_t i = 0; i < w->nwchans; i++) {
        if (strcmp(w->wchans[i], name) == 0)
            return w->wchans[i];
    }
    w->wchans = xgrow(w->wchans, &w->wchans_cap, w->nwchans + 1, sizeof(*w->wchans));
    w->wchans[w->nwchans] = xstrdup(name);
    return w->wchans[w->nwchans++];
}

/* A lock on a local file is waited for in one place; on a file server's, who is asked tells. */
static bool is_local(const struct waits *w, uint64_t dev)
{
    for (size_t i = 0; i < w->nmounts; i++) {
        if (w->mounts[i].found && w->mounts[i].dev == dev)
            return w->mounts[i].fs == FS_LOCAL;
    }
    return false;
}

/* When the kernel function tells more than the call. */
enum telling {
    NEVER,
    LATER,  /* when it sleeps long */
    AT_ONCE,
};

static enum telling telling(const struct thread_fact *f, const struct look *l)
{
    if (f->seen == SEEN_FAULT)
        return AT_ONCE;
    if (f->seen != SEEN_CALL)
        return NEVER;
    if (f->wants.kind != FILELOCK_NONE)
        return is_local(l->waits, f->wants.file.dev) ? NEVER : LATER;
    switch (syscalls_wait(f->call)) {
    case WAIT_KERNEL:
    case WAIT_DISK: /* these waits are short */
        return AT_ONCE;
    case WAIT_FD:
        return f->fd_kind == FD_FILE ? AT_ONCE : NEVER;
    case WAIT_FILELOCK:
        return LATER;
    case WAIT_FCNTL:
        return f->fd_kind == FD_FILE ? LATER : NEVER;
    default:
        return f->call == CALL_OTHER || f->call == CALL_vfork ? LATER : NEVER;
    }
}

static ssize_t read_of(const struct thread_fact *f, const struct look *l, const char *file,
                       char *buf, size_t size)
{
    char rel[64];

    snprintf(rel, sizeof(rel), "task/%d/%s", f->tid, file);
    return procfs_slurp(l->dirfd, rel, buf, size);
}

/* Whether what has just been read belongs to the sleep that the look saw. */
static bool has_slept_on(const struct thread_fact *f, const struct look *l)
{
    char buf[128];
    struct procfs_schedstat ss;

    return l->no_schedstat || (read_of(f, l, "schedstat", buf, sizeof(buf)) > 0 &&
                               procfs_parse_schedstat(buf, &ss) && ss.runs == f->runs);
}

static void read_wchan(struct thread_fact *f, const struct look *l)
{
    char name[64], stat[1024];
    struct procfs_stat st;

    /* "0": it runs, or may not be told. */
    if (read_of(f, l, "wchan", name, sizeof(name)) <= 0 || strcmp(name, "0") == 0)
        return;
    ssize_t len = read_of(f, l, "stat", stat, sizeof(stat));
    if (len <= 0 || !procfs_parse_stat(stat, (size_t)len, &st) || !has_slept_on(f, l))
        return;
    f->uninterruptible = st.state == 'D';
    /* Of a call that is not known to wait for a file only that is of interest. */
    if (f->uninterruptible || f->seen == SEEN_FAULT || syscalls_wait(f->call) != WAIT_OTHER)
        f->wchan = keep_name(l->waits, name);
}

void waits_read_wchan(struct threads *t, size_t i, const struct look *l)
{
    struct thread_fact *f = &t->facts[i];
    struct thread_files *k = &t->files[i];

    if (*l->wchans_left <= 0 || f->since == 0 || k->wchan_since == f->since)
        return;
    enum telling when = telling(f, l);
    /* Where run counts are not known, every look is the first. */
    if (when == NEVER || (when == LATER && f->fresh && !l->no_schedstat))
        return;
    (*l->wchans_left)--;
    k->wchan_since = f->since;
    read_wchan(f, l);
}

void waits_release(struct waits *w)
{
    for (size_t i = 0; i < w->nwchans; i++)
        free(w->wchans[i]);
    free(w->wchans);
    *w = (struct waits){0};
}

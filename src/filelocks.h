/*
 * filelocks.h - locks on files as the kernel tells them: /proc/locks, and the "lock:" lines of
 * /proc/PID/fdinfo/FD. Parsers that are pure functions of a text.
 *
 * Linux 6.18 fs/locks.c lock_get_status(): "NR: [ *-> ]KIND MSNFS|ADVISORY TYPE PID MAJ:MIN:INO
 * START END", device numbers in hexadecimal, END "EOF" where it has none. Waiters follow the lock
 * that blocks them with "->", one more blank before it for each level of a tree: who waits behind a
 * waiter is blocked by that one. Older kernels show the first level only.
 */
#ifndef LT_FILELOCKS_H
#define LT_FILELOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A file, by the device of its file system as mountinfo and /proc/locks have it (makedev()), which
 * on btrfs and overlayfs is not the st_dev of stat(), and its inode. */
struct file_id {
    uint64_t dev, inode;
};

static inline bool file_id_equal(struct file_id a, struct file_id b)
{
    return a.inode == b.inode && a.dev == b.dev;
}

enum filelock_kind {
    FILELOCK_NONE,
    FILELOCK_FLOCK, /* flock(2): of an open file description */
    FILELOCK_POSIX, /* fcntl F_SETLK: of a process */
    FILELOCK_OFD,   /* fcntl F_OFD_SETLK: of an open file description */
    FILELOCK_LEASE, /* F_SETLEASE, and delegations of a file server */
};
/* "flock" "posix" "ofd" "lease" */
const char *filelock_kind_name(enum filelock_kind k);

#define FILE_END UINT64_MAX /* a range without an end */

/* A lock on a file or a part of it, wanted or held. */
struct file_lock {
    enum filelock_kind kind;
    bool exclusive;      /* true, too, of a lease that is being taken back: it is in the way */
    struct file_id file; /* inode 0: not known which */
    uint64_t start, end; /* bytes, both included; of a flock or lease 0..FILE_END */
};

/* Whether one is in the way of the other: the same file, and known which; ranges that meet, not
 * both shared, and of kinds that know each other (flock among themselves; POSIX and OFD with each
 * other). Who owns them is not asked. */
bool filelock_conflict(const struct file_lock *a, const struct file_lock *b);

/* A line of either file. */
struct lock_line {
    uint32_t nr; /* waiters bear the number of the lock that blocks them in the end */
    int level;   /* 0: held; 1: waits for it; 2: waits for the last one of level 1 before it, ... */
    struct file_lock lock;
    pid_t pid;   /* who asked for it, a tgid in the reader's PID namespace; -1 an OFD lock, 0 one
                    of another namespace or machine */
    bool breaking; /* a lease that is being taken back */
};

enum line_result { LINE_TAKEN, LINE_MALFORMED, LINE_END };

/* Parses the line at *TEXT and moves *TEXT behind it. A line without its newline, which was cut
 * off, and one that the kernel would not have written are MALFORMED; *OUT is then of no use. The
 * kernel does not name the file in the line of one who waits for a lease: it is that of the lease.
 */
enum line_result filelocks_next(const char **text, struct lock_line *out);

/* As that, from a text of fdinfo: other lines are passed over. *INFO gets what these say. */
struct fdinfo {
    uint64_t inode; /* "ino:", 0: not told (Linux before 5.14) */
    int mount;      /* "mnt_id:", -1 not told */
    int64_t pos;    /* -1 not told */
    uint64_t fuse;  /* "fuse_connection:" of a descriptor of /dev/fuse: the device of the file
                       system that is served through it; 0 not told */
};
enum line_result filelocks_next_of_fd(const char **text, struct lock_line *out);
void filelocks_fdinfo(const char *text, struct fdinfo *out);

#endif

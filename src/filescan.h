/*
 * filescan.h - one search for the locks on files: /proc/locks, and through which descriptors of
 * which processes they are held.
 *
 * Reading /proc/locks makes all file locking of the machine wait for a moment and takes up to some
 * 15 ms (percpu_down_write), so it is done seldom and in a thread of its own; it needs little CPU.
 * Paths are read as links and never looked up, so that no file server is asked.
 */
#ifndef LT_FILESCAN_H
#define LT_FILESCAN_H

#include <stdbool.h>
#include <stddef.h>

#include "filefacts.h"
#include "xalloc.h"

struct scan_wish {
    const struct file_id *files; /* those of interest */
    size_t nfiles;
    const pid_t *pids; /* watched processes: their descriptors are looked through */
    size_t npids;
    bool everybody; /* look through the descriptors of all processes; else of PIDS, the takers that
                       /proc/locks names, and the children of all these */
    bool held_elsewhere; /* also find the files that one process has locked (exclusively, no lease)
                            while one of PIDS has them open, holds no lock on them, and nobody
                            waits: they are added to FILES of the result */
};

/* A descriptor through which a lock is held, one for each lock; or a watched process's to such a
 * file. The kernel shows a flock or OFD lock in each descriptor of the open file description, in
 * whatever process; a POSIX lock only in the process that took it, and there in those of the
 * description through which it was taken (Linux 6.18 fs/locks.c __show_fd_locks()): that another
 * one does not hold says nothing of its process. */
struct scan_fd {
    pid_t pid;
    int fd;
    struct file_id file;
    bool holds; /* fdinfo shows LOCK */
    struct file_lock lock;
    pid_t taker; /* as in /proc/locks; 0, too, one that has ended, where lock-top is in a
                    PID namespace of its own: /proc/locks then lacks the lock */
};

struct scan_result {
    struct file_fact *files;
    size_t nfiles;
    struct scan_fd *fds;
    size_t nfds;
    struct lock_line *held; /* of FILES, as in /proc/locks */
    size_t nheld;
    struct file_waiter *waiters;
    size_t nwaiters;
    size_t malformed;   /* lines of /proc/locks */
    bool searched;      /* everybody who may be was looked through */
    nsec_t at;          /* when /proc/locks was read (clock_mono) */
    struct arena arena; /* holds all of it */
};

/* Looks, below ROOTFD. What vanishes or may not be read is left out. Returns 0 or -errno (of
 * /proc/locks); the result is then empty but valid. Costs, with EVERYBODY, some 8 us for each
 * descriptor on the machine. The FUSE daemon of a file is known when it was looked through and the
 * kernel tells (Linux 6.18 does). */
int filescan_look(int rootfd, const struct scan_wish *wish, struct scan_result *out);
void filescan_release(struct scan_result *r);

#endif

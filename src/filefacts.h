/*
 * filefacts.h - what a sample says of locks beyond a process's memory: on files, System V
 * semaphores, sockets at the end of a chain. Values; who owns their strings is said in sample.h.
 */
#ifndef LT_FILEFACTS_H
#define LT_FILEFACTS_H

#include "clock.h"
#include "filelocks.h"

/* What kind of file system a file lies on. */
enum fs_kind { FS_LOCAL, FS_NFS, FS_FUSE, FS_REMOTE /* another network file system */ };

/* A file on which somebody wants a lock, or wanted one within the last minute, or on which another
 * process holds one while a watched process has it open. Stands in each sweep. */
struct file_fact {
    struct file_id file;
    const char *path; /* as the descriptor's link says, without " (deleted)"; NULL unknown */
    bool deleted;
    enum fs_kind fs;
    const char *server;   /* NFS: "10.0.0.5:/export"; FUSE: source or mount point; NULL unknown */
    pid_t fuse_daemon;    /* process that serves it, 0 unknown */
    bool searched;        /* all readable processes were searched for holders since somebody
                             waits */
    bool open_elsewhere;  /* nobody waits; a watched process that does not hold the lock has the
                             file open */
};

/* A process that holds a lock on such a file. */
struct file_holder {
    struct file_lock lock;
    pid_t pid;       /* has a descriptor through which the lock is held; 0: none was found */
    int fd;          /* that descriptor; -1 unknown */
    pid_t taker;     /* who took it, as the kernel keeps it: for a flock it may have ended, and PID
                        have got the descriptor from it; -1 OFD, 0 of another PID namespace */
    bool taker_gone; /* there is no such process any more */
    bool now;        /* its descriptor was looked at in this very sweep; false: as /proc/locks said
                        up to a second ago */
    nsec_t since;    /* first look that found it so, without a break; the clock of MONO */
};

/* Somebody who waits, as /proc/locks has it, from top to bottom of the trees. */
struct file_waiter {
    struct file_lock lock;
    struct file_lock held; /* the lock at the root of its tree */
    pid_t pid;      /* process; -1 OFD, 0 of another PID namespace */
    int level;      /* 1: waits for the holder, 2: behind a waiter, ... */
    int32_t behind; /* index of that waiter, or -1 */
};

/* One semaphore of a System V set for which somebody waits. */
struct sem_fact {
    int id;
    uint16_t num;
    bool known;     /* false: another IPC namespace, removed, or not permitted: the rest is 0 */
    int value;      /* GETVAL */
    pid_t last_pid; /* GETPID: who operated on it last; 0 nobody, or of another PID namespace */
    int nwait, zwait; /* GETNCNT, GETZCNT */
    int nsems;      /* in the set */
    uint32_t key;   /* IPC key, 0: private */
};

/* What a socket is connected to. */
struct socket_fact {
    pid_t pid;
    uint64_t inode;
    const char *text; /* "tcp 127.0.0.1:5432" (the peer), "unix /run/x.sock"; NULL: not found */
};

/* Attempts at locks on a file, counted by kernel tracepoints since MONO = SINCE. */
struct attempt_fact {
    struct file_id file;
    nsec_t since, until;
    uint64_t attempts; /* at getting a lock, whatever became of them */
    uint64_t refused;  /* of these: refused as it is held (EAGAIN); they did not want to wait */
};

#endif

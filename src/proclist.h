/*
 * proclist.h - the list of processes, from libproc2 or from libprocps 3.3.x: the only place
 * that knows either. The build defines HAVE_LIBPROC2 or HAVE_LIBPROCPS.
 */
#ifndef LT_PROCLIST_H
#define LT_PROCLIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_entry {
    pid_t pid;
    pid_t tgid; /* its process; another number than PID when PID is a thread's */
    pid_t ppid;
    char state;  /* the kernel's letter */
    bool kernel; /* a kernel thread */
    bool execed; /* has left the program that forked it and the new one is in place; false, too,
                    where we may not see that */
    int threads;
    uint64_t start_ticks; /* since boot; with the PID it names a process for ever */
    char comm[64];        /* as the library shows it: odd bytes may have become '?' or '.' */
};

struct proclist;

/* Returns NULL with errno set when there is no list of processes to read. */
struct proclist *proclist_open(void);

/* All processes visible here, in no order. The array belongs to L and lives until the next
 * call with L. Returns how many, or -errno. */
ssize_t proclist_all(struct proclist *l, const struct proc_entry **all);

/* The process or thread PID. Returns 0, or -errno: -ESRCH when there is none to be seen. */
int proclist_one(struct proclist *l, pid_t pid, struct proc_entry *out);

/* True when all of the process has ended and only its parent's wait is missing. False for a
 * main thread that ended before its siblings. */
bool proc_entry_dead(const struct proc_entry *e);

/* NULL is allowed. */
void proclist_close(struct proclist *l);

/* "libproc2" or "libprocps", with the version if the build knows it. */
const char *proclist_library(void);

#endif

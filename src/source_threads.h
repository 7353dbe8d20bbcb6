/*
 * source_threads.h - the threads of one process: listing them, and one look at each.
 * Part of source_proc; nothing else includes it.
 */
#ifndef LT_SOURCE_THREADS_H
#define LT_SOURCE_THREADS_H

#include "sample.h"
#include "source_waits.h"
#include "source_words.h"

/* What is kept beside the facts of a thread. Index i belongs to facts[i]. */
struct thread_files {
    int schedstat, syscall; /* kept open; negative: not, and opened for each read where there are
                               too few descriptors */
    struct word *word;      /* that it waits on, or NULL */
    int refused;            /* errno with which its call may not be read, 0: it may */
    nsec_t refused_at;
    nsec_t named_at;        /* when its name was read */
    bool name_settled;      /* it was read a second time, after the thread could name itself */
    nsec_t linked_at;       /* when the link of its descriptor was read; 0: not for this one */
    char *fd_path;          /* owned; facts[i].fd_path points to it */
    nsec_t transferred_at;  /* when it was last seen in a transfer that a stop would cut short; 0:
                               never */
    nsec_t looked_at;       /* when it was last seen to wait for a file's lock or a semaphore */
    nsec_t wchan_since;     /* SINCE of the sleep whose WCHAN was read; 0: none */
    uint64_t asked_runs;    /* run count when its context switches were read; 0: never */
    int64_t voluntary, involuntary; /* as read then */
};

struct threads {
    struct thread_fact *facts;
    struct thread_files *files;
    size_t n, cap, files_cap;
    long links;         /* st_nlink of the task directory at that time */
    nsec_t listed_at;
    bool stale;         /* a thread vanished: list again */
    bool unlinked;      /* the last look left descriptors without their link */
    size_t nwaits;      /* how many it saw blocked for a file lock or a System V semaphore */
    bool permitted;     /* what was refused before may be read now: try all again */
    uint64_t switches;  /* times that any of them was put on a CPU while watched */
    size_t next_asked;  /* whose turn it is in threads_voluntary_part */
};

/* What a look at the threads needs to know and counts. */
struct look {
    nsec_t now;
    int dirfd; /* of the process, below which "task" lies */
    bool nested_pidns, stopped, no_schedstat;
    pid_t dead_leader; /* its TID when it has exited, or 0 */
    enum abi abi;
    memory_reader read_memory;
    struct words *words;
    struct slots *slots;
    long *fds_left;    /* descriptors that may still be kept open */
    int *links_left;   /* descriptor links that may still be read in this sweep */
    int *wchans_left;  /* names of kernel functions that may still be read in this sweep */
    int rootfd;        /* in which "self" is lock-top */
    struct waits *waits;
    int *retries_left; /* refused threads that may be tried again in this sweep */
    struct self_fact *self;
};

/* Small numbers for threads, used again. */
struct slots {
    uint32_t *free;
    size_t nfree, cap;
    uint32_t next;
};
void slots_release(struct slots *s);

/* Adds new threads when the kernel's count of threads differs, a thread vanished, or a second has
 * passed. Takes none away: the kernel's list can leave out a living thread when another ends, and
 * threads_look() finds who is gone. Returns how many threads there are, or -errno (-ENOENT,
 * -ESRCH: the process is gone). */
ssize_t threads_list(struct threads *t, const struct look *l);

/* Adds just the thread TID (of a process that is not watched). Returns 0 or -errno. */
int threads_add(struct threads *t, const struct look *l, pid_t tid);

/* Looks at every thread; those that have vanished are taken off and counted. Reads the links of
 * descriptors on which the thread's state depends. */
void threads_look(struct threads *t, const struct look *l);

/* 0 when some thread's call may be read, else the errno with which all are refused. */
int threads_refusal(const struct threads *t);

/* Once a second: reads names anew, of young threads once, of old ones in turn, at most MANY. A TID
 * that turns out to be another thread's by now counts as vanished. */
void threads_rename(struct threads *t, const struct look *l, int many);

/* How the context switches split: asks at most MANY of the threads that ran since they were last
 * asked, in turn. Returns the voluntary part, 0..1, or -1 when none could be asked twice. */
double threads_voluntary_part(struct threads *t, const struct look *l, int many);

/* The next look at each thread reads its call anew, whatever its run count says. */
void threads_look_anew(struct threads *t);

/* Closes and frees everything. */
void threads_release(struct threads *t, const struct look *l);

#endif

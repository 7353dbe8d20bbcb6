/*
 * source_process.h - one process: its counters, its threads and the words they wait on.
 * Part of source_proc; nothing else includes it.
 */
#ifndef LT_SOURCE_PROCESS_H
#define LT_SOURCE_PROCESS_H

#include "freezer.h"
#include "sample.h"
#include "source_threads.h"
#include "source_words.h"

/* What the processes of a source have in common. */
struct commons {
    memory_reader read_memory;
    struct slots slots; /* numbers for the threads of all processes */
    int names_each;     /* threads of each process whose names are read anew each second */
    long fds_left;      /* descriptors that may still be kept open; below 0 when even the processes
                           themselves have taken more */
    int wchans_left;    /* names of kernel functions likewise */
    int rootfd;         /* below which processes lie */
    struct freezer freezer;
    int links_left;     /* descriptor links that may still be read in this sweep; the source sets it
                           anew before each */
    struct self_fact self; /* what is told as of the last sweep begins anew with each, by the
                              source; processes only add */
};

struct process {
    struct process_fact fact; /* THREADS, SHARED and LIBC are filled in for each sample */
    int dirfd;
    bool listed;      /* the target names it; set by the source, and always for an outsider */
    bool outsider;    /* as in FACT */
    bool stopped;     /* as of the last reading of its counters, as the next one */
    bool leader_dead;
    char state;       /* of its first thread, then */
    bool asked_frozen;    /* WCHAN was read since any thread ran last */
    char wchan[32];       /* kernel function that a thread sleeps in; "" unknown */
    uint64_t rested_at;   /* THREADS.switches when its counters were read last */
    bool told_end;    /* a sample has said that it ended; set by the source */
    nsec_t refreshed_at; /* when what changes slowly was read; 0: never */
    nsec_t retried_at;   /* when threads that were refused could last be tried again */
    nsec_t rests_until;  /* 0: it does not rest */
    bool busy;           /* it used much CPU between the last two readings of its counters */
    nsec_t listed_at;    /* when all threads of an outsider were asked for */
    nsec_t wanted_at;    /* when a thread of an outsider was last asked for; 0: never */
    uint64_t stack_start;    /* of the program that runs; 0 unknown */
    struct file_id exe;      /* its file; all 0 unknown */
    uint64_t switches_seen;  /* how far THREADS.switches is split into the two sums */
    double voluntary, involuntary; /* context switches so far */
    double voluntary_part;   /* how they split lately, 0..1; -1 unknown */
    struct threads threads;
    struct words words;
    struct waits waits;
    bool ipc_ours;    /* its IPC namespace is ours, as of IPC_AT (0: not asked yet) */
    nsec_t ipc_at;
};

/* Opens process PID below ROOTFD; NULL when it is gone. */
struct process *process_open(struct commons *s, int rootfd, pid_t pid, bool outsider);
void process_free(struct process *p, struct commons *s);

/* Reads the counters of the whole process. Returns 0 or -errno. */
int process_read_counters(struct process *p, struct commons *s, nsec_t now);

/* Returns 0, or the errno with which the kernel refuses to show what its threads do. */
int process_refusal(const struct process *p);

/* Reads the lock words that are known, before the threads are looked at. */
void process_read_early(struct process *p, struct commons *s);

/* Looks at the threads and their words. Marks the process as ended when it is, or when nobody wants
 * it any more; then its threads, words and descriptors are gone, and it does nothing until it is
 * freed, which is to be when a sample has told its end. */
void process_sweep(struct process *p, struct commons *s, nsec_t now);

/* Where there are many processes: lets one rest in which nobody waits for a lock and which hardly
 * runs. True when it is not to be looked at at NOW; its facts then stand as they were. */
bool process_rests(struct process *p, nsec_t now);

/* After process_sweep() of all: reads what is only for show, while there are LINKS_LEFT. */
void process_read_links(struct process *p, struct commons *s, nsec_t now);

/* An outsider is kept for a while from NOW on. */
void process_keep(struct process *p, nsec_t now);

/* Adds the threads of an outsider, if there are at most MAX of them, else its first. */
void process_want_threads(struct process *p, struct commons *s, size_t max, nsec_t now);

/* Adds thread TID of an outsider, which is kept for a while. */
void process_want_thread(struct process *p, struct commons *s, pid_t tid, nsec_t now);

#endif

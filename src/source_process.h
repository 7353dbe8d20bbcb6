/*
 * source_process.h - one process: its counters, its threads and the words they wait on.
 * Part of source_proc; nothing else includes it.
 */
#ifndef LT_SOURCE_PROCESS_H
#define LT_SOURCE_PROCESS_H

#include "sample.h"
#include "source_threads.h"
#include "source_words.h"

/* What the processes of a source have in common. */
struct commons {
    memory_reader read_memory;
    struct slots slots;
    long fds_left; /* descriptors that may still be kept open */
    struct self_fact self;
};

struct process {
    struct process_fact fact;
    int dirfd;
    bool listed, outsider, stopped, leader_dead, no_schedstat;
    bool told_end; /* a sample has said that it ended */
    nsec_t refreshed_at, wanted_at;
    uint64_t stack_start, switches_seen;
    double voluntary, involuntary; /* sums so far */
    double voluntary_part;
    struct threads threads;
    struct words words;
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

/* Looks at the threads and their words; marks the process as ended when it is. At most *LINKS links
 * of descriptors are read. */
void process_sweep(struct process *p, struct commons *s, nsec_t now, int *links);

/* Adds thread TID of an outsider, which is kept for a while. */
void process_want_thread(struct process *p, struct commons *s, pid_t tid, nsec_t now);

#endif

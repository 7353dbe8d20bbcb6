/*
 * proctab.h - the watched processes and their threads: who is in which state for how long, and
 * how the process uses CPU and memory.
 *
 * Part of the model: a pure function of the samples. Pointers to facts are those of the last
 * sweep and as short-lived.
 */
#ifndef LT_PROCTAB_H
#define LT_PROCTAB_H

#include "hash.h"
#include "locktab.h"
#include "sample.h"
#include "snapshot.h"

struct proc;

struct thread {
    pid_t tid, pid;
    uint32_t slot;
    uint64_t start_ticks;
    uint64_t sweep; /* last one that saw it */
    struct proc *proc;
    const struct thread_fact *fact; /* of that sweep */
    enum thread_state state;
    nsec_t state_since;   /* model time of the first sweep that saw it so without a break */
    struct lock_row *row; /* object it waits for, or NULL */
    enum lock_kind kind;  /* of that, KIND_NONE if none */
    enum lock_mode mode;
    uint64_t run_ns, runq_ns; /* schedstat at the last sweep */
    nsec_t at;                /* model time of the last sweep */
    /* Since it was last folded into its process. */
    uint32_t seen[THREAD_STATES]; /* sweeps that saw it in each state */
    uint64_t ran_ns, queued_ns;   /* by the kernel's clocks */
    nsec_t from;                  /* model time of the sweep before the first of these */
    struct thread_key {
        uint64_t pid, ns_tid;
    } key;
    UT_hash_handle hh;
};

/* Rates of the counters that the kernel keeps, from two readings; NaN before the second. */
struct proc_rates {
    double cpu_cores, voluntary, involuntary, minflt, majflt;
};

/* The counters of a process as of READ_AT (sample.h has their meaning). */
struct proc_counters {
    nsec_t read_at;
    char comm[COMM_LEN];
    uint64_t cpu_ns, minflt, majflt;
    int64_t rss_kb, voluntary, involuntary;
    int cpus_allowed;
};

struct proc {
    pid_t pid;
    uint64_t start_ticks;
    uint32_t execs;
    int refused_errno; /* as in its last fact */
    const struct process_fact *fact; /* of the last sweep; NULL when that had it not */
    struct proc_counters last_read;
    struct proc_rates rates;
    int64_t first_rss_kb;
    uint64_t sweep; /* last one that saw it */
    bool ended, outsider;
    double states[THREAD_STATES]; /* as last told */
    /* Since the last snapshot. */
    double spent[THREAD_STATES]; /* by threads that were folded, in sweeps */
    uint64_t sweeps;
    int threads, unreadable;  /* at the last sweep */
    UT_hash_handle hh;
};

struct proctab {
    struct thread **by_slot; /* NULL: free */
    size_t nslots;
    struct thread *by_tid; /* hash */
    struct proc *procs;    /* hash */
    uint64_t sweep;
    nsec_t start, now; /* model time as in locktab */
};

void proctab_begin_sweep(struct proctab *t, const struct sample *s, nsec_t start);

/* The process of this fact, made if new; takes its counters (once a sweep). */
struct proc *proctab_proc(struct proctab *t, const struct process_fact *f);

/* The process PID, if it is known. */
struct proc *proctab_proc_of(const struct proctab *t, pid_t pid);

/* The thread of this fact, made if new; its slot's former owner goes. */
struct thread *proctab_thread(struct proctab *t, struct proc *p, const struct thread_fact *f);

/* Counts the thread in STATE for this sweep (running is told from queueing here). */
void proctab_count(struct proctab *t, struct thread *th, enum thread_state state);

/* Threads that were not seen in this sweep go. */
void proctab_end_sweep(struct proctab *t);

/* The thread that calls itself NS_TID in process PID, if it was seen in the last sweep. */
struct thread *proctab_find(const struct proctab *t, pid_t pid, pid_t ns_tid);

/* The thread that calls itself NS_TID in a process known to map FILE shared. *CLEAR is false when
 * there are several such: PID namespaces give the same number twice. */
struct thread *proctab_find_sharer(const struct proctab *t, struct file_id file, pid_t ns_tid,
                                   bool *clear);

/* Before proctab_states(): books what each thread did since the last time. */
void proctab_fold(struct proctab *t);

/*
 * Mean threads per state since the last call, into OUT; they sum to the threads of the process.
 * Per thread, running and queueing come from the kernel's clocks (schedstat) where it has them,
 * and samples only split the rest. Starts a new span; without a sweep since the last call, what
 * was told then stands. NaN before the first.
 */
void proctab_states(struct proc *p, double out[THREAD_STATES]);

/* Takes off processes that have ended (after they have been shown once). */
void proctab_drop_ended(struct proctab *t);

void proctab_release(struct proctab *t);

#endif

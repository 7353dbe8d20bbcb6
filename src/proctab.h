/*
 * proctab.h - the watched processes and their threads: who is in which state for how long, and
 * how the process uses CPU and memory.
 *
 * Part of the model: a pure function of the samples. Pointers to facts are those of the last
 * sweep and as short-lived.
 */
#ifndef LT_PROCTAB_H
#define LT_PROCTAB_H

#include "filetab.h"
#include "hash.h"
#include "locktab.h"
#include "sample.h"
#include "snapshot.h"

struct proc;
struct kept_stack;

/* A stack of a thread as it was taken, and in which sleep. */
struct taken_stack {
    struct kept_stack *kept;     /* NULL: none */
    uint64_t runs, sp, pc, word; /* of that sleep */
    long nr;
    bool stopped;    /* the thread ran, and was stopped for it */
    nsec_t taken_at; /* model time */
};

/* Threads go to and fro between a few places in which they sleep. */
#define STACKS_PER_THREAD 4

struct thread_stacks {
    struct taken_stack taken[STACKS_PER_THREAD];
    nsec_t asked_at; /* model time of the last request; 0: answered, or none was made */
    const char *why; /* the last attempt, in the sleep FAILED_RUNS, gave none: why; NULL */
    uint64_t failed_runs;
    bool for_profile; /* what is asked for counts in the profile of PROFILED when it comes */
    struct lockkey profiled;
};

/* Whom a waiting thread waits for: its edge in the wait-for graph, kept by chain_note(). */
struct edge {
    struct thread *to; /* holds what it waits for, as of the last sweep; NULL: nobody is known to */
    bool firm;         /* the lock names that thread at both reads (a join always does) */
    nsec_t since;      /* model time of the first sweep that saw it so, without a break since */
    uint32_t looks;    /* sweeps since then */
    /* What must stay as it is meanwhile: the same sleep of the waiter, behind the same thread. */
    const struct lock_row *row;
    pid_t to_tid;
    uint64_t to_start, runs, sp;
    nsec_t asleep;
};

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
    struct edge edge;
    struct peer {       /* what the socket that it sleeps on is connected to */
        char *text;     /* NULL: not known; owned */
        uint64_t inode;
        nsec_t asked_at; /* model time; 0: never */
    } peer;
    uint64_t run_ns, runq_ns; /* schedstat at the last sweep */
    nsec_t at;                /* model time of the last sweep */
    struct thread_stacks stack;
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

/* A TID that a lock names and that is no thread of the process which waits. */
struct named_tid {
    struct named_tid_key {
        uint64_t pid, tid; /* process that waits, TID in the word */
    } key;
    struct owner_fact fact; /* as last told */
    bool told;
    nsec_t asked_at; /* model time */
    UT_hash_handle hh;
};

struct proctab {
    struct thread **by_slot; /* NULL: free */
    size_t nslots;
    struct thread *by_tid; /* hash */
    struct proc *procs;    /* hash */
    struct named_tid *named; /* hash; those of interest */
    struct filetab files;
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

/* What TID, named by a lock that process PID waits for, belongs to, as far as the source has told
 * lately; or NULL. */
const struct owner_fact *proctab_owner(const struct proctab *t, pid_t pid, pid_t tid);

/* Whether the source should be asked that (again); then it counts as asked. What is not asked any
 * more is forgotten. */
bool proctab_ask_owner(struct proctab *t, pid_t pid, pid_t tid);

/* Takes the answers of a sweep. */
void proctab_take_owners(struct proctab *t, const struct sample *s);

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

/*
 * snapshot.h - what lock-top knows at one moment: an immutable value, and all that any
 * renderer (screen, text, JSON, diff) sees. It owns its memory and refers to nothing else.
 *
 * Numbers that are unknown, or rest on too few samples, are NaN (doubles), -1 (integers that
 * cannot be negative) or NULL (strings); renderers print "-" and null. Names are raw bytes of
 * the target: renderers escape them (fmt_safe).
 */
#ifndef LT_SNAPSHOT_H
#define LT_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sample.h"
#include "xalloc.h"

/* THREAD_RUNNING, ... one per row of states.def. */
enum thread_state {
#define STATE(id, name, label, help) THREAD_##id,
#include "states.def"
#undef STATE
    THREAD_STATES
};
const char *thread_state_name(enum thread_state s);  /* "running" */
const char *thread_state_label(enum thread_state s); /* "run", for a narrow screen */

enum lock_class { CLASS_LOCK, CLASS_FILELOCK, CLASS_KERNEL, CLASS_SYNC };
const char *lock_class_name(enum lock_class c); /* "lock" "filelock" "kernel" "sync" */

/* KIND_MUTEX, ... one per row of kinds.def. */
enum lock_kind {
#define KIND(id, name, class) KIND_##id,
#include "kinds.def"
#undef KIND
    LOCK_KINDS
};
const char *lock_kind_name(enum lock_kind k);        /* "mutex-recursive" */
enum lock_class lock_kind_class(enum lock_kind k);
/* Whether somebody holds such a thing while others wait: classes lock and filelock. */
bool lock_kind_has_holder(enum lock_kind k);

/* How a holder, kind or name is known. */
enum confidence {
    CONF_UNKNOWN,   /* not known, or only a guess that is not shown as more */
    CONF_LIKELY,    /* one source says so */
    CONF_CONFIRMED, /* a holder: two reads of the lock, before and after its waiters were seen,
                       name the same living thread; a kind: call, value and memory agree, and
                       the memory names a living thread or counts this waiter */
};
const char *confidence_name(enum confidence c);

/* How a thread waits for or holds a lock. */
enum lock_mode { MODE_NONE, MODE_EXCLUSIVE, MODE_SHARED };
const char *lock_mode_name(enum lock_mode m); /* NULL for MODE_NONE */

/* Who must act for the waiters to go on. */
struct snap_holder {
    pid_t pid, tid;          /* -1 unknown; TID as seen from here */
    char comm[COMM_LEN];     /* "" unknown */
    enum lock_mode mode;
    bool gone;               /* the recorded holder does not exist (any more) */
    bool unrecorded;         /* locks of this kind never record who holds them so */
    enum thread_state state; /* what it is doing; meaningless when STATE_KNOWN is false */
    bool state_known;
    const char *detail;      /* "fsync fd 12 /data/ibdata1", "not recorded by this lock", or NULL */
    enum confidence confidence;
    double age_ms;           /* in that state for at least so long, NaN */
    const char *waits_for;   /* id of the lock it waits for itself, or NULL */
    int fd;                  /* of a file lock: its descriptor that holds the lock; -1 */
    double held_ms;          /* of a file lock: it has held it for at least so long; NaN */
};

struct snap_waiter {
    pid_t pid, tid;
    char comm[COMM_LEN];
    enum lock_mode mode;
    double age_ms;          /* has slept at least so long */
    const char *blocked_by; /* "hard" (by the holder), "soft" (by the queue), NULL unknown */
    int level;              /* of a file lock: 1 right behind the holder, 2 behind such a waiter,
                               and so on; 0 unknown */
    pid_t behind;           /* LEVEL 2 and more: process of that waiter; -1 */
};

/* One frame of a stack, innermost first. */
struct snap_frame {
    const char *name;   /* function, demangled; NULL unknown */
    uint64_t into;      /* bytes into it */
    const char *module; /* file name; NULL: code in no file */
    uint64_t offset;    /* in the module; without one the address itself */
    const char *file;   /* source, or NULL */
    int line;           /* 0 unknown */
};

/* Whose stack. */
enum stack_role {
    ROLE_WAITER,  /* threads that wait now, together by stack */
    ROLE_HOLDER,  /* what the holder does now */
    ROLE_PROFILE, /* where holders were seen while others waited, in the last minutes */
};
const char *stack_role_name(enum stack_role r); /* "waiter" "holder" "profile" */

struct snap_stack {
    enum stack_role role;
    int count;    /* threads; PROFILE: sightings */
    double share; /* 0..1 of all of this role */
    pid_t pid, tid;  /* one of them; -1 */
    bool complete;   /* the walk reached the thread's start */
    bool guessed;    /* a frame without unwind table was left by what looked like its caller */
    bool presumed;   /* not taken in this very sleep: same thread, call, word and stack pointer */
    const char *note; /* without frames: why; PROFILE: the holder's state; or NULL */
    const struct snap_frame *frames;
    size_t nframes;
};

/* A thread on its way to the root of a chain. */
struct snap_link {
    pid_t pid, tid;
    char comm[COMM_LEN];
    enum thread_state state;
    const char *lock; /* id of what it waits for; NULL at the root */
    /* How surely the next one on the path is whom it waits for, as of a holder; UNKNOWN where
     * nobody is known. */
    enum confidence confidence;
};

/* How a chain ends. */
enum chain_end {
    CHAIN_RUNS,      /* its root runs, or is ready to */
    CHAIN_OUTSIDE,   /* its root is blocked outside locks: net, pipe, disk, sleep, ... */
    CHAIN_HAND_OFF,  /* in a condition variable, semaphore, ...: nobody holds it */
    CHAIN_UNNAMED,   /* at a lock that does not record who holds it */
    CHAIN_GONE,      /* at a lock whose owner is no thread any more */
    CHAIN_CYCLE,     /* deadlock */
    CHAIN_CYCLE_TIMED, /* in a circle that ends by itself: somebody in it waits with a timeout */
};
/* "runs" "outside" "hand-off" "unnamed" "gone" "cycle" "cycle-timed" */
const char *chain_end_name(enum chain_end e);

/* Who all of them finally wait for. */
struct snap_chain {
    enum chain_end end;
    /* CONFIRMED: each holder on the path is, and so is the end: a deadlock, or an owner that is
     * gone, is then proved. */
    enum confidence confidence;
    struct snap_link root;   /* in a circle, the one with the lowest TID; GONE, UNNAMED: the last
                                waiter */
    const char *detail;      /* what the root does: "recvfrom fd 7 socket:[123]", or NULL */
    int depth;               /* locks on the longest way to the root, or in the circle */
    int blocked;             /* threads that wait for the root, directly or not; those in a circle
                                included */
    bool cycle;              /* a proved deadlock: the same edges, none of which has a timeout,
                                stood for 50 ms and no thread in it ran; an inferred one has the
                                end CYCLE only */
    const struct snap_link *path; /* the longest way, from the far end to the root, or around */
    size_t npath;
    const char *text;        /* in one line */
};

/* With --stacks all: every thread. */
struct snap_thread {
    pid_t pid, tid;
    char comm[COMM_LEN];
    enum thread_state state;
    double age_ms;           /* blocked for at least so long; NaN when not */
    const char *lock;        /* id of what it waits for, or NULL */
    struct snap_stack stack; /* role WAITER; NFRAMES 0 with a NOTE when there is none */
};

#define SNAP_HISTORY 60         /* seconds */
#define SNAP_NO_DATA UINT16_MAX /* in the history: a second in which nobody looked */

struct snap_lock {
    const char *id; /* stable while the lock lives: selection and references go by it */
    enum lock_class class;
    enum lock_kind kind;
    enum confidence confidence; /* of the kind */
    const char *name;           /* symbol, place or the like, or NULL */
    const char *site;           /* function through which most waiters came, the innermost outside
                                   the lock library; or NULL */
    pid_t pid;                  /* of the process it lives in; -1 when several share it */
    uint64_t address;           /* of the object, in PID; 0 unknown */
    const char *path;           /* file behind a shared lock or a file lock, or NULL */
    bool deleted;               /* that file has no name any more */
    bool ranged;                /* a file lock on a part of the file: */
    uint64_t range_start, range_end; /* these bytes, both included; UINT64_MAX: no end */

    /* Windows: mean over the sweeps of the last 1, 10, 60 s (or since start, if shorter). */
    int waiters; /* threads blocked on it at the last sweep */
    int held;    /* at the last look: 1 held, 0 free, -1 unknown */
    double waiters_avg_1s, waiters_avg_10s, waiters_avg_60s;
    int waiters_max;      /* in the last 60 s */
    double wait_share;    /* 0..1, part of all thread-time of its process(es) in 10 s */
    double busy;          /* 0..1, share of looks at the word that said held, last 10 s */
    double wait_ms, wait_ms_p99, wait_ms_max; /* length of one sleep, ms */
    double contended_per_s, acquired_per_s;
    double hold_us, ceiling_per_s, model_wait_ms;
    int queue_depth;        /* of a file lock: levels of its tree of waiters; -1 */
    double attempts_per_s;  /* --events: attempts at a file lock, of the last half second; NaN */
    double refused_share;   /* 0..1: of these, refused as it was held; NaN */
    bool only_held;         /* nobody waits; a watched process has the file open that another has
                               locked: such as poll for it cannot be seen */

    const struct snap_holder *holders;
    size_t nholders;
    const struct snap_waiter *waiter_threads; /* the longest sleepers first, at most */
    size_t nwaiter_threads;                   /* SNAP_MAX_WAITERS of them */
    uint16_t history[SNAP_HISTORY]; /* rounded mean waiters of each second, oldest first, or
                                       SNAP_NO_DATA */
    size_t nhistory;                /* how many of them are valid (the last ones) */
    const struct snap_stack *stacks; /* by role in the order above, then the most frequent first */
    size_t nstacks;
};

#define SNAP_MAX_WAITERS 256

struct snap_process {
    pid_t pid;
    char comm[COMM_LEN];
    int threads;
    bool ended;
    bool frozen;          /* its cgroup is frozen */
    double cpu_cores;     /* CPUs used, mean of the last second or so */
    int cpus_allowed;     /* -1 */
    int64_t rss_kb;       /* -1 */
    int64_t rss_growth_kb; /* since lock-top began; INT64_MIN unknown */
    double voluntary_per_s, involuntary_per_s, minflt_per_s, majflt_per_s;
    double states[THREAD_STATES]; /* mean number of threads in each over the last delay or so;
                                     they sum to THREADS */
    int unreadable;       /* threads whose state may not be read now */
};

struct snap_self {
    double cpu_pct; /* of one CPU, since the last snapshot */
    int64_t rss_kb;
    double sweep_hz, probe_hz; /* reached since the last snapshot */
    uint64_t samples, stops, unreadable, vanished;
    long denied; /* processes of the target that may not be looked at */
    double stop_us_max;
    const char *const *degraded; /* sentences: what is not measured as it should be */
    size_t ndegraded;
};

enum severity { SEVERITY_INFO, SEVERITY_WARNING, SEVERITY_CRITICAL };
const char *severity_name(enum severity s);

struct snapshot {
    nsec_t wall, elapsed; /* elapsed: since the first sample */
    char host[65], kernel[65];
    int cpus; /* online */
    struct snap_self self;
    const struct snap_process *processes; /* watched ones, by PID */
    size_t nprocesses;
    bool may_come;  /* where no process is watched: some may come, and lock-top goes on */
    uint64_t looks; /* sweeps behind the means over 10 s */
    /* Objects of class sync that are waited for now, and the threads on them by kind: all of them,
     * also those that LOCKS has no room for. */
    long sync_objects, sync_threads[LOCK_KINDS];
    const struct snap_lock *locks; /* all classes; sorted by waiters_avg_10s, most first */
    size_t nlocks;
    const struct snap_chain *chains; /* cycles first, then those that block most */
    size_t nchains;
    const struct snap_thread *threads; /* --stacks all; by PID, then TID */
    size_t nthreads;
    bool has_stacks; /* false: stacks are off, and those of locks unknown */
    enum severity severity; /* of the verdict */
    const char *verdict;    /* one line, no newline */
    struct arena arena;
};

/* Frees it all; NULL is allowed. */
void snapshot_free(struct snapshot *s);

/* The lock with this id, or NULL. */
const struct snap_lock *snapshot_lock(const struct snapshot *s, const char *id);

#endif

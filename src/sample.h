/*
 * sample.h - what one look at the target gave: raw facts, errors and lateness included.
 *
 * A sample is a value. The model is a function of the samples so far and of nothing else,
 * so a stored stream of samples gives the same snapshots again. Arrays and strings belong
 * to the source that filled the sample; those of a sweep live until the next sweep, those of a
 * probe until the next probe or sweep. Whoever wants to keep something copies it.
 */
#ifndef LT_SAMPLE_H
#define LT_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "clock.h"
#include "filefacts.h"
#include "inspector.h"
#include "syscalls.h"

#define COMM_LEN 16 /* TASK_COMM_LEN: 15 bytes and a NUL */

/* How a thread was seen. */
enum seen {
    SEEN_ACTIVE,     /* on a CPU or runnable */
    SEEN_CALL,       /* blocked in a system call: CALL, NR, ARG are valid */
    SEEN_FAULT,      /* blocked outside a call (page fault) */
    SEEN_STOPPED,    /* stopped by a signal or a debugger; the call fields may be valid */
    SEEN_DEAD,       /* a leader that has exited while other threads go on: no thread any more */
    SEEN_UNREADABLE, /* the read failed (not permitted, ...): counted */
};

/* What kind of thing a descriptor is. */
enum fd_kind {
    FD_UNKNOWN, /* not known (yet), or a device that is none of these */
    FD_FILE,    /* file, directory or block device */
    FD_SOCKET,
    FD_PIPE, /* named ones too */
    FD_TTY,
    FD_EVENT, /* eventfd, timerfd, signalfd, inotify, epoll and the like */
};

/* Linux 5.14: not in older headers. */
#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif

/* What a thread hands to the kernel when it sleeps on a futex, whichever call it uses. */
struct futex_wait {
    uint64_t addr; /* 0: not a futex wait */
    uint32_t cmd;  /* FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_LOCK_PI, ...: op without its flags */
    uint32_t val;  /* 32 bits: the rest of the register is noise */
    bool is_private, realtime; /* FUTEX_PRIVATE_FLAG, FUTEX_CLOCK_REALTIME */
    bool timed;                /* a timeout was given */
    uint32_t words;            /* futex_waitv: how many words it waits on (ADDR is the first) */
};

/* What a thread hands to the kernel when it sleeps in semop or semtimedop. */
struct sem_wait {
    int id;         /* of the set; -1: no such wait */
    uint16_t num;   /* of its first operation that takes or waits for zero; where none does, of
                       its first */
    int16_t op;     /* below 0: takes so many; 0: waits until it is 0; above: gives */
    bool undo;      /* SEM_UNDO */
    uint32_t nops;  /* 0: they could not be read */
    bool timed;
};

struct thread_fact {
    pid_t tid;            /* as seen from here */
    pid_t ns_tid;         /* as the target itself sees it: what lock words hold */
    uint64_t start_ticks; /* with TID the thread's identity: TIDs are used again */
    uint32_t slot;        /* small number, stable while the thread lives, then reused */
    char comm[COMM_LEN];  /* raw bytes */
    enum seen seen;
    bool fresh;  /* the call was read in this sweep; false: run count unchanged since the thread
                    was last seen blocked, so it is still in that very call */
    nsec_t since; /* first sweep that saw it blocked with this run count; 0 when active */
    uint64_t run_ns, runq_ns, runs; /* schedstat; all 0 where the kernel does not count */
    enum call call; /* a restarted call stands as what it was (futex, poll, nanosleep) where
                       known */
    long nr;
    uint64_t arg[6];
    uint64_t sp, pc;
    struct futex_wait futex; /* valid when ADDR is not 0 */
    int32_t word; /* index into sample.words of the futex word it waits on, or -1. A thread that is
                     not FRESH mostly has one only when the word MAYBE_LOCK: what is no lock does
                     not change under a waiter that sleeps on, so what was told before holds (FUTEX
                     stays valid). Such a word stands here when somebody comes to it, once more in
                     the next sweep (whom it names may be listed only then), and when it has been
                     found in the map after all */
    struct file_lock wants; /* blocked in flock, or in fcntl for a lock; else of FILELOCK_NONE */
    struct sem_wait sem;
    const char *wchan; /* kernel function in which it sleeps, where that tells more than the call:
                          in the state D, outside a call, or in a call on a file; NULL: not asked,
                          or not permitted */
    bool uninterruptible; /* WCHAN is given: whether its state is D */
    int fd;            /* argument 0 when that is a descriptor, or -1 */
    enum fd_kind fd_kind;
    const char *fd_path; /* target of the link, or NULL */
};

/* Whether it is blocked, and where on its stack is known: that can be copied. */
static inline bool thread_is_asleep(const struct thread_fact *f)
{
    return (f->seen == SEEN_CALL || f->seen == SEEN_FAULT || f->seen == SEEN_STOPPED) && f->sp;
}

/* Which C library the process runs. */
enum libc_kind { LIBC_UNKNOWN, LIBC_GLIBC, LIBC_MUSL };

struct process_fact {
    pid_t pid;
    uint64_t start_ticks;
    uint32_t execs; /* how many times it was seen to start another program */
    pid_t ppid; /* of its parent; 0 unknown */
    char comm[COMM_LEN];
    enum abi abi;
    enum libc_kind libc;
    bool nested_pidns; /* TIDs inside differ from those here */
    bool outsider;     /* not watched: here only because it holds a lock that is waited for;
                          THREADS then lists just the threads asked for */
    bool ended;        /* gone: this is its last appearance, without threads */
    bool frozen;       /* its cgroup is frozen: its threads do not run, whatever they sleep in */
    bool resting;      /* it was not looked at in this sweep (nothing in it waits, and there are
                          many processes): its threads stand as they were seen last */
    int nthreads_all;  /* of an outsider: how many threads it has; else NTHREADS */
    bool no_schedstat; /* the kernel does not count its threads' run times: every look is FRESH */
    bool no_memory;    /* its memory may not be read: kinds and holders are unknown */
    int refused_errno; /* 0: its threads may be looked at; else the errno with which the kernel
                          refuses all of them (EPERM, EACCES): they stand as SEEN_UNREADABLE, and
                          only about once a second one of them is tried again */
    const struct thread_fact *threads;
    size_t nthreads;
    const struct file_id *shared; /* files that it is known to map shared: those in which words */
    size_t nshared;               /* of its threads lie, and those asked for and found */
    /* Counters since the process began, renewed about once a second (READ_AT: when). */
    nsec_t read_at;
    uint64_t cpu_ns;      /* utime + stime, exited threads included */
    uint64_t minflt, majflt;
    int64_t rss_kb;       /* -1 unknown */
    int64_t voluntary, involuntary; /* context switches of the living threads; -1 unknown */
    int cpus_allowed;     /* 0 unknown */
};

/* Where an address lies, told by /proc/PID/maps. */
enum region {
    REGION_UNKNOWN, /* not looked up (yet) */
    REGION_ANON,    /* heap, mmap, stacks, .bss */
    REGION_FILE,    /* private mapping of a file: .data of a program or library */
    REGION_LIBC,    /* the C library's own writable data */
    REGION_SHARED,  /* shared mapping: DEV, INODE, OFFSET identify the word for all processes */
};

/* Bytes around a futex word: [addr - WORD_BEFORE, addr + WORD_AFTER). The longest look back is
 * a condition variable's (+44), the longest ahead a mutex's kind (+16). */
#define WORD_BEFORE 48
#define WORD_AFTER  48
#define WORD_WINDOW (WORD_BEFORE + WORD_AFTER)

struct word_view {
    uint8_t bytes[WORD_WINDOW];
    uint8_t lo, hi; /* valid part of BYTES; lo == hi: nothing could be read */
};

/* The value at OFF bytes from the futex word (-WORD_BEFORE <= OFF < WORD_AFTER); false, and *OUT
 * untouched, when it lies outside what could be read. */
bool word_u32(const struct word_view *w, int off, uint32_t *out);
bool word_u64(const struct word_view *w, int off, uint64_t *out);

/* Whether W surrounds the word of a lock of glibc's stdio: { int lock, count; void *owner; }.
 * *OWNER is then the address of its owner's thread descriptor (struct pthread). */
bool word_stdio_owner(const struct word_view *w, uint64_t *owner);

/*
 * What the thread waits for when it is blocked in CALL with ARG. False when CALL is no futex
 * wait. For futex_waitv the words stand in the target's memory: then ADDR and VAL are left 0
 * for the caller to fill in, WORDS says how many.
 */
bool futex_decode(enum call call, const uint64_t arg[6], struct futex_wait *out);

/* A futex word and what stood around it, read twice: EARLY right after waking, before the
 * threads were looked at, and LATE after that. A holder that stands in both held the lock
 * while the waiters were seen. */
struct word_fact {
    uint32_t process; /* index into sample.processes */
    uint64_t addr;
    bool maybe_lock; /* what its waiters passed may be a wait for a lock. False: a hand-off or
                        anything else that nobody holds; it stands only in some sweeps (see
                        thread_fact), and there is no state to follow in it (EARLY is empty) */
    enum region region;
    uint64_t dev, inode, offset; /* REGION_SHARED: of the word itself */
    const char *path;            /* the mapping's file, or NULL */
    struct word_view early, late; /* a word that is new in this sweep has no EARLY */
    pid_t early_owner, late_owner; /* of a stdio lock: the owner's TID in the target's PID
                                      namespace, which stands in its thread descriptor; 0: none,
                                      unknown */
};

/* What lock-top itself costs and missed: the counters since it began, the rest as of the last
 * sweep. */
struct self_fact {
    nsec_t cpu_ns; /* the whole of lock-top: sampling, model and rendering */
    int64_t rss_kb;
    uint64_t sweeps, probes;
    uint64_t unreadable; /* reads that failed though the thread lives */
    uint64_t vanished;   /* threads that ended between two looks or in the middle of one */
    uint64_t late;       /* sweeps that began more than half an interval late */
    uint64_t stops;      /* times a thread was stopped (ptrace) */
    nsec_t stop_max;     /* longest of these; 0 when there were none */
    uint64_t stops_harmed; /* stops that ended a transfer of the target early */
    uint32_t unprobed;   /* words of now that may be locks and are not probed, as there are too
                            many: of these no utilisation is known, and no EARLY */
    uint64_t malformed;  /* lines of /proc/locks not understood at the last search */
    bool may_come;       /* the target goes on though it has no process now */
    uint32_t denied;     /* processes of the target that may not be looked at (of other users) */
    bool attempts_counted; /* tracepoints count attempts at file locks */
    const char *attempts_why; /* they were asked for and cannot: why (static); NULL */
    int denied_errno;    /* errno of a read that the last sweep was refused, 0: none */
    bool budget_limited; /* the rates are lowered to keep the budget */
    bool fds_short;      /* too few descriptors: files are opened anew for each read */
    bool no_schedstat;   /* the kernel does not count the run times of a watched process */
    bool no_memory;      /* a watched process's memory may not be read: there kinds and holders are
                            unknown */
};

enum sample_kind {
    SAMPLE_SWEEP, /* all threads and the words they wait on */
    SAMPLE_PROBE, /* words only, and of these only EARLY; processes stand without their threads */
    SAMPLE_RELOOK, /* RAN only: a second look at threads that the last sweep saw waiting */
};

/* A second look at one thread, a short time after a sweep. */
struct ran_fact {
    uint32_t slot;
    uint64_t start_ticks; /* of the thread */
    nsec_t delay;         /* between the two looks */
    bool left;            /* it is not in the call any more in which the sweep saw it asleep. Who
                             was woken, found the lock taken by another and sleeps on has not left
                             it */
};

/* What a TID that a lock word names, and that is no thread of the process, belongs to. */
struct owner_fact {
    pid_t pid; /* of the process whose lock names it */
    pid_t tid;
    pid_t tgid;           /* 0: there is no such thread */
    uint64_t start_ticks; /* of that thread, on the same clock as those of processes */
    char comm[COMM_LEN];  /* of its process */
    bool parent;          /* TGID is the parent of PID */
};

struct sample {
    enum sample_kind kind;
    nsec_t mono; /* when it began: the model's clock */
    nsec_t wall;
    const struct process_fact *processes;
    size_t nprocesses;
    const struct word_fact *words;
    size_t nwords;
    /* Answers to requests that came in since the last sweep; sweeps only. */
    const struct stack_fact *stacks;
    size_t nstacks;
    const struct name_fact *names;
    size_t nnames;
    const struct owner_fact *owners;
    size_t nowners;
    /* Locks on files; sweeps only. */
    const struct file_fact *files;
    size_t nfiles;
    const struct file_holder *file_holders; /* of FILES */
    size_t nfile_holders;
    const struct file_waiter *file_waiters; /* of FILES, as /proc/locks said last */
    size_t nfile_waiters;
    nsec_t file_waiters_at; /* when that was; 0: never */
    const struct sem_fact *sems;
    size_t nsems;
    const struct socket_fact *sockets; /* answers */
    size_t nsockets;
    const struct attempt_fact *attempts;
    size_t nattempts;
    /* SAMPLE_RELOOK */
    const struct ran_fact *ran;
    size_t nran;
    struct self_fact self;
};

/* What the model asks of the source between sweeps. */
enum request_kind {
    REQUEST_HOLDER, /* thread TID may hold a lock in the file INODE on DEV: see whether its process
                       maps that file, and if it is not watched, look at that thread; asked again
                       at each sweep while it is of interest */
    REQUEST_STACK,  /* the stack of thread TID of process PID; a stack_fact answers */
    REQUEST_NAME,   /* the name of ADDR in process PID; a name_fact answers */
    REQUEST_SOCKET, /* what the socket ADDR (its inode) of process PID is connected to; a
                       socket_fact answers */
    REQUEST_RELOOK, /* after coming sweeps, look again after DELAY at the threads that wait for a
                       lock and have not run since; holds for a second */
    REQUEST_OWNER,  /* what TID, named by a lock in the private memory of PID, belongs to; an
                       owner_fact answers */
};
struct request {
    enum request_kind kind;
    pid_t pid, tid;
    struct file_id file;
    uint64_t addr;
    nsec_t delay;  /* REQUEST_RELOOK */
    bool may_stop; /* REQUEST_STACK: it may be stopped if it runs */
    struct owner_check check; /* REQUEST_STACK: whether it holds a lock at that moment */
};

#endif

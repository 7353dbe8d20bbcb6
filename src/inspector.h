/*
 * inspector.h - stacks and names on request, in a thread of its own: the sampler never waits for
 * files, symbols or a stop.
 *
 * The stack of a blocked thread is copied and believed only when the thread's run count is the
 * same before and after as when it was seen to block. Answers are values: they own their strings
 * and come back in any order.
 */
#ifndef LT_INSPECTOR_H
#define LT_INSPECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "clock.h"
#include "filefacts.h"
#include "filescan.h"
#include "remote.h"
#include "stack.h"
#include "symbol.h"
#include "tracer.h"
#include "xalloc.h"

/* What tells whether a thread holds a lock at the very moment of the look: the 32 bits at ADDR,
 * masked, are VALUE. ADDR 0: nothing is asked. */
struct owner_check {
    uint64_t addr;
    uint32_t mask, value;
};

/* One frame of a stack, innermost first. */
struct frame_fact {
    uint64_t pc;
    bool exact; /* as in stack.h */
    struct frame_name n;
};

enum stack_taken {
    STACK_ASLEEP,  /* copied while the thread slept: its run count RUNS did not change */
    STACK_STOPPED, /* the thread was stopped for it; RUNS is as when it was asked for */
    STACK_MOVED,   /* it ran in the meantime: there are no frames */
    STACK_NOT_NOW, /* it runs, and the budget of stops is used up: no frames */
    STACK_DENIED,  /* it could not be taken; WHY says why: no frames */
};

/* The stack of one thread. */
struct stack_fact {
    pid_t pid, tid;
    uint64_t start_ticks; /* of the thread */
    uint32_t slot;        /* of the thread, as in its fact */
    uint32_t execs;       /* of the process, as when it was asked for */
    uint64_t runs;        /* run count at which it was taken */
    uint64_t sp, pc, word; /* as in the job */
    long nr;
    enum stack_taken taken;
    bool not_holder; /* the check that was asked for failed, or could not be made */
    enum stack_end end;   /* when there are frames */
    bool guessed;         /* as in stack.h */
    const char *why;      /* a static sentence, or NULL */
    const struct frame_fact *frames;
    size_t nframes;
};

/* The name of an address. */
struct name_fact {
    pid_t pid;
    uint64_t start_ticks; /* of the process */
    uint32_t execs;
    uint64_t addr;
    const char *name; /* NULL: it has none */
};

enum inspect_kind {
    INSPECT_STACK,
    INSPECT_NAME,
    INSPECT_FILES,  /* who holds locks on files: of no process */
    INSPECT_SOCKET, /* what the socket ADDR (its inode) of PID is connected to */
};

struct inspect_job {
    enum inspect_kind kind;
    pid_t pid, tid; /* INSPECT_NAME: TID is any living thread */
    uint32_t slot;  /* handed back */
    uint64_t start_ticks;   /* of the thread, or for INSPECT_NAME of the process */
    uint64_t process_start; /* start_ticks of the process: with PID and EXECS which program it is */
    uint32_t execs;
    bool blocked;        /* SP, PC, RUNS hold */
    bool no_schedstat;   /* run counts are not kept: the syscall line must do */
    bool may_stop;       /* a running thread may be stopped for it */
    uint64_t sp, pc, runs;
    uint64_t word;       /* futex word it sleeps on, and its call: handed back */
    long nr;
    struct owner_check check;
    uint64_t addr;       /* INSPECT_NAME, INSPECT_SOCKET */
    struct scan_wish *wish; /* INSPECT_FILES: of inspect_wish(); the inspector's once queued */
};

/* A copy of WISH, arrays included, for free(). */
struct scan_wish *inspect_wish(const struct scan_wish *wish);

/* One answer. */
struct inspection {
    enum inspect_kind kind;
    struct stack_fact stack;
    struct name_fact name;
    struct socket_fact socket;
    struct scan_result files; /* released with it */
    struct arena arena; /* holds what the fact points to */
};
void inspection_free(struct inspection *i);

struct inspector_config {
    const char *root;  /* "/proc" */
    int (*read_memory)(pid_t, struct remote_item *, size_t); /* remote_read */
    double cpu_share;  /* of one CPU, 0..1, that it may use in the mean; loading files apart */
    bool may_stop;     /* false: no thread is ever stopped */
    struct tracer_limits stops;
    /* Run by its thread first and last; NULL: nothing. For a stack to handle faults on. */
    void (*enter)(void *arg), (*leave)(void *arg);
    void *arg;
};

struct inspector;

/* Starts its thread, which inherits the caller's signal mask. NULL and *ERR = errno on failure. */
struct inspector *inspector_new(const struct inspector_config *cfg, int *err);

/* Queues a job; false when the queue is full (ask again later). Never waits. */
bool inspector_ask(struct inspector *in, const struct inspect_job *job);

/* Takes at most MAX answers that are ready; each is the caller's to free. Never waits. */
size_t inspector_take(struct inspector *in, struct inspection **out, size_t max);

/* The process ended: what is kept of it goes. */
void inspector_forget(struct inspector *in, pid_t pid);

/* The stops that were made for it so far. */
struct tracer_stats inspector_stops(struct inspector *in);

/* CPU that its thread has used up to this moment. */
nsec_t inspector_cpu(const struct inspector *in);

/* Ends the thread; answers not taken are lost. A thread that hangs in the kernel with the target
 * is left behind after two seconds, with all that it may still touch: then returns false. NULL is
 * allowed. */
bool inspector_free(struct inspector *in);

#endif

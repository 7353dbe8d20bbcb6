/*
 * owner.h - whom a lock's memory names as its owner, and whether that is a thread.
 *
 * Part of the model. A TID in a lock word is a holder only if it is a thread of the process that
 * waits (or, for memory that is mapped shared, of one known to map it).
 */
#ifndef LT_OWNER_H
#define LT_OWNER_H

#include "locktab.h"
#include "proctab.h"

/* An owner that is not among the threads for so long is gone, not merely new. */
#define GONE_AFTER (500 * NSEC_PER_MSEC)

enum owner_is {
    OWNER_NONE,       /* nobody holds it now */
    OWNER_THREAD,     /* THREAD holds it, or is the one that is joined */
    OWNER_DIED,       /* the lock itself is marked: its owner died, or it cannot be recovered */
    OWNER_ENDED,      /* TID does not exist any more */
    OWNER_ELSEWHERE,  /* TID is an older thread of another process: a lock held across fork */
    OWNER_MISSING,    /* TID is not found, and it is not (yet) known why */
    OWNER_UNPROVED,   /* TID is no thread, but that this lock names its owner there is not proved */
    OWNER_FOREIGN,    /* TID is one of a PID namespace that cannot be told */
    OWNER_READERS,    /* held for reading; readers are not recorded */
    OWNER_UNNAMED,    /* held, and nobody is named */
    OWNER_UNREADABLE, /* its memory could not be read */
    /* Locks on files and System V semaphores only: */
    OWNER_PROCESS,    /* a process (HOLDER) of several threads, which of them is not recorded */
    OWNER_TAKER_ENDED, /* who took it has ended, and no process was found that got the descriptor */
    OWNER_UNSEEN,     /* held, and no process that may be looked at holds it */
    OWNER_REMOTE,     /* a file server keeps it: the holder may be on another machine */
    OWNER_UNSEARCHED, /* its holders are still being looked for */
    OWNER_HINT,       /* HINT operated on the semaphore last; who took it is not recorded */
};

struct owner {
    enum owner_is is;
    struct thread *thread; /* OWNER_THREAD */
    pid_t tid;             /* as the lock names it (in the target's PID namespace); 0: none */
    bool agreed;           /* both reads of the last sweep say the same (a join: always) */
    bool sure;             /* of OWNER_DIED, OWNER_ENDED, OWNER_ELSEWHERE: it is so; else likely */
    const struct owner_fact *fact; /* OWNER_ELSEWHERE, and OWNER_ENDED where it was looked up */
    const struct file_holder *holder; /* of a file lock: the one meant, or NULL */
    int holders;                      /* how many processes hold it */
    pid_t hint;                       /* OWNER_HINT; 0 nobody */
};

/* The owner of R, which is of class lock or filelock or a join, as of the last sweep.
 * OWNER_ENDED and
 * OWNER_ELSEWHERE are only said of a lock whose kind is proved, by its call, memory and stack. */
struct owner owner_of(const struct proctab *procs, const struct lock_row *r);

/* Of a lock on a file or a System V semaphore: what owner_of() says. Where several hold it, one of
 * which it is known what it does. */
struct owner owner_of_file(const struct proctab *procs, const struct lock_row *r);

/* The thread through which process H->pid holds: its only one; NULL where there are several. */
struct thread *owner_thread_of(const struct proctab *procs, pid_t pid);

/* The thread that holds R (that is joined), as R names it, or NULL; *AGREED as above. */
struct thread *holder_of(const struct proctab *procs, const struct lock_row *r, bool *agreed);

/* Whether the word of R says free though somebody sleeps on it for long: since when (model time) it
 * has said so at every look; -1 when not so. */
nsec_t owner_free_since(const struct proctab *procs, struct lock_row *r);

/* Of the threads that wait for R (in MODE, or MODE_NONE: in any), the one that has slept longest,
 * or NULL; *N is how many there are. Looks through all threads. */
const struct thread *owner_first_waiter(const struct proctab *procs, const struct lock_row *r,
                                        enum lock_mode mode, int *n);

/* What the source should look up to find the owner of R, if anything; then *REQ says it. */
bool holder_request(struct proctab *procs, struct lock_row *r, nsec_t now, struct request *req);

#endif

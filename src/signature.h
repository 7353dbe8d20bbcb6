/*
 * signature.h - what a stack says about a wait: through which function of the C library it came,
 * and whether its frames are known to be a lock's or an idle pool's.
 *
 * Part of the model: pure functions of named frames.
 */
#ifndef LT_SIGNATURE_H
#define LT_SIGNATURE_H

#include "sample.h"
#include "snapshot.h"

enum sig_role {
    SIG_NONE,
    SIG_LOCK, /* a wait for a lock of a runtime or server: contention */
    SIG_IDLE, /* waiting for work, or for time to pass; of what is known to wait for a lock it says
                 nothing: a pool's queue has a lock as well */
    SIG_PARKED, /* waits for work on a lock on which the server parks its workers */
};

/* The tables of signatures.def and what the user added. */
struct signatures;
struct signatures *signatures_new(void);
void signatures_free(struct signatures *s); /* NULL is allowed */

/*
 * Adds the lines of TEXT (--signatures FILE), which go before those built in, the first that
 * matches a frame deciding:
 *     lock|idle|parked|none  FUNCTION-PATTERN  [@MODULE-PATTERN[|MODULE-PATTERN...]]  [LABEL...]
 * Patterns are shell patterns without blanks, against the demangled name, whole or without its
 * parameters, template arguments and return type (plain_name()). '#' begins a comment. "none"
 * takes away what is built in. Without LABEL the function pattern is the label. Returns true, or
 * false with a message "line N: ..." in ERR; then nothing was added.
 */
bool signatures_add(struct signatures *s, const char *text, char *err, size_t size);

struct sig_match {
    enum sig_role role;
    const char *label; /* "InnoDB row lock"; lives as long as the table. NULL when NONE, but for
                          waits that are shown together though nothing can be told of them */
    size_t frame;      /* that matched; N when NONE and no LABEL */
    bool by_caller;    /* LOCK: a process has many locks with LABEL, and their callers tell them
                          apart; false: it has one, or the callers do not tell which */
    size_t caller;     /* LOCK: the innermost frame outside the functions of the lock's own library,
                          which called it; N when there is none, and for all other roles */
};

/*
 * What the C (or C++, Rust, Go) library's functions on the stack say, for a thread that waits on a
 * futex. Frames are looked at from the system call outwards as long as they belong to libraries of
 * locks, and the innermost that says something decides: a mutex locked by a callback of
 * dl_iterate_phdr is no lock of the loader.
 *
 * KIND is what was called, not what was found: MUTEX stands for all mutexes, FUTEX for a wait
 * until some value changes, and pthread_cond_wait is COND also while it takes its mutex again.
 * The call's value and the memory refine it (wait_classify): where these are confirmed to be of
 * another kind of class lock, they are right; where they are only likely, the stack is.
 */
struct api_match {
    enum lock_kind kind; /* KIND_NONE: nothing */
    enum lock_mode mode; /* of a rwlock or other lock with readers; NONE unknown */
    const char *inside;  /* a lock inside the library: "malloc arena", "stdio stream", "time
                            zone (tzset_lock)", "loader", ...; or NULL. KIND is LIBC, or MUTEX or
                            RWLOCK where the library uses one of these for it */
    size_t frame;        /* the library function that decided; N when none did */
    size_t caller;       /* the innermost frame outside lock libraries; N when there is none */
    bool in_handler;     /* a signal handler runs on this stack, above another frame for which
                            INSIDE holds as well: the lock may be wanted by its own holder */
    bool other_call;     /* it sleeps in a call that is known not to be futex (read, epoll_wait):
                            then KIND is NONE, and INSIDE what it may hold meanwhile */
};
struct api_match api_classify(const struct frame_fact *frames, size_t n);

/*
 * The innermost frame that matches a signature decides. Holds for a thread that sleeps, and is
 * needed where the call and the memory do not show what it waits for: LOCK makes a lock of a
 * condition variable, a semaphore, an unknown futex or a wait in epoll, IDLE an idle thread of one
 * that waits for such, and PARKED of one that waits for a lock as well. A built-in LOCK is not
 * given for a thread in another call than futex (disk, network), except those of which it is known
 * that they wait so (PostgreSQL, SQLite). API is what api_classify() says of the same frames.
 */
struct sig_match signatures_match(const struct signatures *s, const struct frame_fact *frames,
                                  size_t n, const struct api_match *api);

/* Who knows what cannot be seen of the waits with LABEL ("jcmd PID Thread.print -l tells"), or
 * NULL. */
const char *signature_who_tells(const char *label);

/* Names that the user gives (--names FILE): lines "PATTERN NAME...", the shell pattern (without
 * blanks) against a lock's own name, its site (whole or as plain_name()) and its address in hex.
 * '#' begins a comment. On an error ERR says "line N: ...". */
struct name_rules;
struct name_rules *name_rules_new(const char *text, char *err, size_t size); /* NULL on error */
void name_rules_free(struct name_rules *r);                                  /* NULL is allowed */
/* The name for a lock, or NULL; the first rule that matches any of the three (each may be NULL). */
const char *name_rules_find(const struct name_rules *r, const char *name, const char *site,
                            const char *address);

#endif

/*
 * locktab.h - one row per lock: who waits how much, is it held, by whom.
 *
 * Part of the model: a pure function of the samples.
 */
#ifndef LT_LOCKTAB_H
#define LT_LOCKTAB_H

#include "hash.h"
#include "layout.h"
#include "lockkey.h"
#include "sample.h"
#include "snapshot.h"
#include "wait.h"
#include "estimate.h"
#include "window.h"

/* What two reads of the lock's memory in one sweep say about its holder. */
struct holder_view {
    bool known;             /* the memory could be read */
    bool held;              /* at the later read */
    struct lock_state late; /* the later read */
    bool agreed;            /* both reads name the same owner (or both the same absence of one) */
    nsec_t since;           /* first sweep of an unbroken run in which LATE named this owner */
};

#define LOCK_PIDS 16

struct profile;

struct busy_windows {
    struct window held, looks; /* looks at the word, and those of them that said held */
};

struct lock_row {
    struct lockkey key;
    char id[96];
    enum lock_kind kind;
    enum confidence confidence;
    enum lock_layout layout;
    pid_t pid;       /* of the process whose waiter was seen first */
    pid_t pids[LOCK_PIDS]; /* of the processes whose threads have waited for it, at most so many */
    int npids;
    uint64_t object; /* in PID */
    char *path;      /* of a shared lock's file, or NULL; owned */
    char *name;      /* symbol or place; NULL; owned */
    const char *inside; /* which lock of a library it is, by its waiters' stacks ("loader"); static;
                           NULL: none */
    char *given;     /* what the user calls it (--names); NULL; owned */
    bool by_stack;   /* that KIND is likely is known from a stack alone, not from memory */
    bool given_sought;
    bool parking;    /* a server parks its workers on it */
    bool name_known; /* it was asked for and answered */
    nsec_t name_asked_at; /* model time, 0: never */
    char *site;      /* function through which most waiters came, of those whose stacks are known;
                        NULL; owned */
    struct profile *profile; /* of its holders; NULL before the first sighting; owned */
    uint64_t dev, inode;
    struct file_lock file; /* key FILE: what its waiters want; exclusive when any of them does */
    bool deleted;          /* PATH has no name any more */
    struct sem_wait sem;   /* key SEM: what the last of its waiters wants */
    uint64_t only_held;    /* sweep in which a watched process had the file open that another had
                              locked, and nobody waited */
    struct estimate *estimate; /* of its sleeps; NULL: not kept for such locks; owned */
    struct attempts {      /* --events */
        double per_s, refused; /* NaN */
        struct attempt_fact last;
    } *attempts; /* NULL: not counted; owned */
    uint32_t now;    /* threads waiting in the last sweep */
    uint64_t counted; /* sweep in which NOW was counted */
    bool seen_held, seen_free; /* the word was found so at some look */
    bool crowded;              /* several threads were seen waiting at once */
    bool held;                 /* and so at the last (meaningless before the first) */
    uint64_t looked; /* sample in which it was looked at for BUSY */
    uint64_t viewed; /* sweep in which HOLDER was seen */
    nsec_t last_waited;
    struct holder_view holder;
    pid_t joined;    /* KIND_JOIN: the thread waited for, in the target's PID namespace */
    nsec_t asked_at; /* when its holder was asked for; model time, 0: never */
    struct window waiters;
    struct busy_windows *busy; /* class lock only, from the first look on; owned */
    UT_hash_handle hh;
};

/* A futex word of a process and the row of the object that it belongs to. */
struct word_link {
    struct word_link_key {
        uint64_t pid, addr;
    } key;
    struct lock_row *row;
    UT_hash_handle hh;
};

struct locktab {
    struct lock_row *rows;
    struct word_link *links;
    uint64_t sweep, sample; /* numbers of the running ones */
    nsec_t start, now;      /* model time: NOW is since START */
    struct window sweeps;
};

/* Begins a sample (a sweep or a probe). */
void locktab_begin(struct locktab *t, const struct sample *s, nsec_t start);

/* The row of the lock that a waiter of process P, classified as C, waits for on WORD (may be
 * NULL) at ADDR; made if new. A better classification improves the row. */
struct lock_row *locktab_row(struct locktab *t, const struct process_fact *p,
                             const struct word_fact *word, uint64_t addr,
                             const struct wait_class *c);

/* The row of the waits NAME (copied) of process P under a SITE key, whose id is ID; made if new, of
 * KIND. */
struct lock_row *locktab_site_row(struct locktab *t, const struct process_fact *p,
                                  const struct lockkey *key, const char *id, enum lock_kind kind,
                                  const char *name);

/* The row of KEY, whose id is lockkey_text()'s; made if new, of KIND. */
struct lock_row *locktab_keyed_row(struct locktab *t, const struct process_fact *p,
                                   const struct lockkey *key, enum lock_kind kind,
                                   enum confidence confidence);

/* The row with this key, or NULL. */
struct lock_row *locktab_find(const struct locktab *t, const struct lockkey *key);

/* R's memory has become an object of class C: nothing that was counted before is about it. */
void locktab_renew(struct lock_row *r, const struct wait_class *c);

/* The row that the word at ADDR of process P was last found to belong to, or NULL: unless it is
 * known that other memory lies there now (exec, another mapping). WORD may be NULL. */
struct lock_row *locktab_linked(const struct locktab *t, const struct process_fact *p,
                                const struct word_fact *word, uint64_t addr);

/* The address of R's object in the process whose word W belongs to it. */
uint64_t locktab_object(const struct lock_row *r, const struct word_fact *w);

/* One more thread of process P waits for R in this sweep. */
void locktab_wait(struct locktab *t, struct lock_row *r, const struct process_fact *p);

/* Takes what the sample's words say: busy for every row, the holder for rows with waiters. */
void locktab_words(struct locktab *t, const struct sample *s);

/* One look at whether R is held, where no word tells. */
void locktab_count_busy(struct locktab *t, struct lock_row *r, bool held);

/* Ends a sweep: windows move on; rows that nobody has waited for during a minute go. */
void locktab_end_sweep(struct locktab *t);

/* Mean waiters over the last SECONDS (1, 10, 60). */
double locktab_mean(struct locktab *t, struct lock_row *r, int seconds);

/* Share of looks of the last 10 s that found it held, NaN below BUSY_MIN_LOOKS of them. */
#define BUSY_MIN_LOOKS 10
double locktab_busy(struct locktab *t, struct lock_row *r);

/* Whether R was held at the last look: 1, 0; -1 unknown. */
int locktab_held(const struct locktab *t, const struct lock_row *r);

/* Mean waiters of the whole second AGO (1..60) seconds back. */
double locktab_second(struct locktab *t, struct lock_row *r, int ago);

/* Threads waiting for R at the last sweep. */
uint32_t locktab_waiters(const struct locktab *t, const struct lock_row *r);

void locktab_release(struct locktab *t);

#endif

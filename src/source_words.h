/*
 * source_words.h - the futex words of one process: where they lie and what stands there.
 * Part of source_proc; nothing else includes it.
 */
#ifndef LT_SOURCE_WORDS_H
#define LT_SOURCE_WORDS_H

#include "hash.h"
#include "maps.h"
#include "remote.h"
#include "sample.h"

/* Reads memory of a process; remote_read(), or a stand-in for captured trees. */
typedef int (*memory_reader)(pid_t pid, struct remote_item *items, size_t n);

/* How many words of one process probes read. */
#define MAX_PROBED 512

struct word {
    uint64_t addr;
    enum region region;
    uint64_t dev, inode, offset;
    const char *path;     /* owned; NULL: of no file */
    bool maybe_lock;      /* some waiter's op and val can belong to a lock */
    bool lock_if_shared;  /* they can when it lies in memory that is mapped shared */
    bool contended;       /* some waiter's val is what locks in use write when others wait */
    bool probed;          /* it stands in words.probed */
    bool has_early, has_late;
    uint32_t waiters;     /* in the running sweep */
    nsec_t last_waited;
    nsec_t came_at;       /* when somebody last came, rather than slept on */
    int news;             /* sweeps in which it is still to be shown though it is no lock */
    pid_t early_owner, late_owner; /* as in word_fact */
    int32_t index;        /* in the sample being built; -1: not in it */
    struct word_view early, late;
    UT_hash_handle hh;
};

/* What reading many words at once works with; kept from one time to the next. */
struct word_batch {
    struct word **list;
    struct window_items *plan;
    struct remote_item *items;
    size_t list_cap, plan_cap, items_cap;
};

struct words {
    int dirfd; /* of the process; borrowed */
    pid_t tid; /* a living thread: its memory and map are read, for a leader may have exited */
    nsec_t now; /* of the running (or last) sweep */
    struct word *by_addr;
    struct word **waited; /* those with waiters in the running (or last) sweep */
    size_t nwaited, waited_cap;
    struct word **probed; /* those that may be a lock, waited for lately: at most MAX_PROBED */
    size_t nprobed, probed_cap;
    uint32_t unprobed;    /* waited for in the last sweep, maybe a lock, and not among them */
    bool crowded;         /* somebody has come to one of those */
    nsec_t chosen_at;
    nsec_t pruned_at;
    struct file_id *shared; /* files mapped shared that are of interest */
    size_t nshared, shared_cap;
    struct maps maps;
    nsec_t maps_at;   /* when they were read; 0: never */
    nsec_t maps_next; /* not before that again */
    enum libc_kind libc;
    uint32_t tid_offset;  /* of the TID in a thread descriptor of glibc; 0 unknown */
    nsec_t tid_sought_at; /* MAPS_AT when it was looked for; 0: never */
    int memory_errno; /* with which the memory was last refused; 0 once it could be read */
    struct word_batch batch;
};

/* The word at ADDR for a waiter that came with F; made on first sight. Never NULL. Counts the
 * waiter, as words_wait() does. */
struct word *words_note(struct words *w, const struct futex_wait *f, nsec_t now);

/* One more thread waits on WORD in this sweep. */
void words_wait(struct words *w, struct word *word, nsec_t now);

/* Reads EARLY of the probed words in one batch. Returns 0 or -errno of the whole. */
int words_read_early(struct words *w, memory_reader read);

/* Reads LATE of the words that have waiters in this sweep and are new or may be a lock. Settles
 * which words are probed from now on, where too many may be locks: locks that others wait for
 * first, then those to which somebody came last. Returns 0 or -errno of the whole. */
int words_read_late(struct words *w, memory_reader read);

/* Before a sweep: no waiters yet; words that nobody has waited for during KEEP go. */
void words_begin(struct words *w, nsec_t now, nsec_t keep);

/* Whether the process maps the file shared; remembered. May read the map, at most once a second
 * and less often where that is dear; MAPS_AT tells when. */
bool words_maps_file(struct words *w, struct file_id file, nsec_t now);

/* Forgets everything but whose words these are (exec, end). */
void words_release(struct words *w);

#endif

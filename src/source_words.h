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

struct word {
    uint64_t addr;
    enum region region;
    uint64_t dev, inode, offset;
    const char *path; /* owned by the table's maps generation: copied */
    bool maybe_lock;  /* some waiter's op and val can belong to a lock: probe it */
    bool has_early, has_late;
    uint32_t waiters;    /* in the running sweep */
    nsec_t last_waited;
    int32_t index;       /* in the sample being built */
    struct word_view early, late;
    UT_hash_handle hh;
};

struct words {
    int dirfd; /* of the process; borrowed */
    pid_t tid; /* a living thread: its memory and map are read, for a leader may have exited */
    struct word *by_addr;
    struct word **waited; /* those with waiters in the running (or last) sweep */
    size_t nwaited, waited_cap;
    struct word **probed; /* those that may be a lock, waited for lately: at most MAX_PROBED */
    size_t nprobed, probed_cap;
    nsec_t pruned_at;
    struct file_id *shared; /* files mapped shared that are of interest */
    size_t nshared, shared_cap;
    struct maps maps;
    nsec_t maps_at; /* when they were read; 0: never */
    enum libc_kind libc;
};

/* The word at ADDR for a waiter that came with F; made on first sight. Never NULL. Counts the
 * waiter, as words_wait() does. */
struct word *words_note(struct words *w, const struct futex_wait *f, nsec_t now);

/* One more thread waits on WORD in this sweep. */
void words_wait(struct words *w, struct word *word, nsec_t now);

/* Reads EARLY of the probed words in one batch. Returns 0 or -errno of the whole. */
int words_read_early(struct words *w, memory_reader read);

/* Reads LATE of the words that have waiters in this sweep and are new or may be a lock. */
int words_read_late(struct words *w, memory_reader read);

/* Before a sweep: no waiters yet; words that nobody has waited for during KEEP go. */
void words_begin(struct words *w, nsec_t now, nsec_t keep);

/* Whether the process maps the file shared; remembered. May read the map (at most once a second
 * unless it is known). */
bool words_maps_file(struct words *w, struct file_id file, nsec_t now);

/* Forgets everything but whose words these are (exec, end). */
void words_release(struct words *w);

#endif

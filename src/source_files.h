/*
 * source_files.h - the files on which somebody wants a lock, and who holds them. Part of
 * source_proc; nothing else includes it.
 *
 * Who holds is found by a search in the inspector's thread (filescan.h) now and then; at every
 * sweep just the descriptors that it found, and those of who waits, are read again.
 */
#ifndef LT_SOURCE_FILES_H
#define LT_SOURCE_FILES_H

#include "inspector.h"
#include "sample.h"
#include "source_holders.h"
#include "source_process.h"

#define FILES_MAX        64 /* of interest at once */
#define FILES_MAX_POLLED 32 /* of these such that nobody waits for */

struct known_file {
    struct file_fact fact; /* PATH and SERVER owned */
    nsec_t last_waited;    /* 0: never */
    nsec_t polled_at;      /* when a search last found it OPEN_ELSEWHERE */
    nsec_t searched_at;    /* when all processes were asked to be searched; 0: never */
    bool asked;            /* a search has been asked for since somebody waits */
    bool asked_all;        /* one through all processes has */
};

struct files {
    struct inspector *inspector; /* borrowed; NULL: nothing is searched */
    struct known_file known[FILES_MAX];
    size_t nknown;
    bool waited; /* somebody waits in this sweep */
    struct holders holders;
    bool pending;           /* a search has been asked for and not answered: */
    bool pending_waited;    /* for files that somebody waits for, */
    bool pending_elsewhere; /* for those that somebody may poll */
    nsec_t asked_at, elsewhere_at; /* of the last; when the next for polled files is due */
    uint64_t malformed;     /* lines of /proc/locks, at the last search */
    struct file_waiter *waiters; /* as the last search said */
    size_t nwaiters, waiters_cap;
    nsec_t waiters_at;
    pid_t *pids; /* of the search that is asked for */
    size_t pids_cap;
    struct file_fact out[FILES_MAX]; /* the array of the sample */
    nsec_t now; /* of the last look */
};

/* Below ROOTFD, with the inspector IN; descriptors that are kept open are taken from *FDS_LEFT. All
 * three are borrowed. */
void files_init(struct files *f, int rootfd, struct inspector *in, long *fds_left);

/* After all threads were looked at: which files matter now, who holds them; asks for a search where
 * that is due. */
void files_look(struct files *f, struct process *const *procs, size_t n, nsec_t now);

/* Takes the result of the search; what it needs of it is copied. */
void files_take(struct files *f, const struct scan_result *r, nsec_t now);

/* Puts all of it into S; the arrays live until the next files_look(). */
void files_put(struct files *f, struct sample *s);

/* The next process from index *I on that holds one of these, or 0; *I moves behind it. One may come
 * more than once. */
pid_t files_next_holder(const struct files *f, size_t *i);

void files_release(struct files *f);

#endif

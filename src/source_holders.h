/*
 * source_holders.h - who holds locks on the files of interest: descriptors that held one or may
 * soon, whose fdinfo is read again at each sweep, and lines of /proc/locks that no descriptor
 * explains. Part of source_proc; only source_files includes it.
 */
#ifndef LT_SOURCE_HOLDERS_H
#define LT_SOURCE_HOLDERS_H

#include "filescan.h"
#include "sample.h"

#define CANDIDATES_MAX      256 /* descriptors that may hold a lock */
#define CANDIDATES_PER_FILE 64
#define HOLDERS_MAX         256
#define LINES_MAX           256
#define TAKERS_MAX          64

/* Why a descriptor is followed; where there are too many, the lowest make room. */
enum candidate_why {
    CANDIDATE_OPEN,  /* a watched process's to such a file */
    CANDIDATE_WAITS, /* somebody waits through it, or did: it will hold the lock soon */
    CANDIDATE_HOLDS, /* it holds one */
};

struct candidate {
    pid_t pid;
    int fd;
    int info; /* its fdinfo, kept open; -1: not */
    struct file_id file;
    enum candidate_why why;
    nsec_t used_at;   /* when it was last found to matter */
    nsec_t looked_at; /* 0: never */
    nsec_t waited_at; /* the last sweep that saw somebody wait through it */
    bool stirred;     /* one of these had run since the sweep before */
};

/* A held lock that stands in /proc/locks but in no descriptor. */
struct unexplained {
    struct lock_line line;
    bool gone;    /* its taker was no more when it was found */
    bool believed; /* it stood there twice, or its taker's descriptors may not be looked at */
    nsec_t since, seen_at; /* MONO of the first and the last search that saw it */
};

/* Whether a process that took a lock still lives. */
struct taker {
    pid_t pid;
    uint64_t start_ticks; /* 0: it was never seen alive */
    bool gone;
    nsec_t asked_at;
};

struct holders {
    int rootfd;
    long *fds_left; /* descriptors that may still be kept open */
    struct candidate candidates[CANDIDATES_MAX];
    size_t ncandidates;
    struct unexplained lines[LINES_MAX], lines_before[LINES_MAX];
    size_t nlines;
    struct taker takers[TAKERS_MAX];
    size_t ntakers;
    struct file_holder now[HOLDERS_MAX], before[HOLDERS_MAX]; /* of this sweep and the last */
    size_t nnow, nbefore;
};

/* How a file matters in this sweep. */
enum file_interest {
    FILE_FORGOTTEN, /* not at all: descriptors to it are dropped */
    FILE_KEPT,      /* descriptors are kept for when it matters again */
    FILE_POLLED,    /* nobody is seen to wait: they are read about once a second */
    FILE_WAITED,    /* somebody waits or did a moment ago: they are read in each sweep */
};
typedef enum file_interest (*file_interest_fn)(const void *arg, struct file_id file);

/* Somebody waits through descriptor FD of process PID; FRESH: has run since the sweep before. */
void holders_note_waiter(struct holders *h, pid_t pid, int fd, struct file_id file, bool fresh,
                         nsec_t now);

/* Takes what a search found of files that are of interest. */
void holders_take(struct holders *h, const struct scan_result *r, file_interest_fn interest,
                  const void *arg, nsec_t now);

/* Reads the descriptors again; NOW and NNOW of H are then who holds. What is held without a break
 * keeps its SINCE. */
void holders_look(struct holders *h, file_interest_fn interest, const void *arg, nsec_t now);

void holders_release(struct holders *h);

#endif

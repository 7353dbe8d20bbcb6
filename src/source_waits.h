/*
 * source_waits.h - what a blocked thread wants that no futex word tells: a lock on a file, a System
 * V semaphore; and where in the kernel it sleeps. Part of source_proc; nothing else includes it.
 */
#ifndef LT_SOURCE_WAITS_H
#define LT_SOURCE_WAITS_H

#include "sample.h"

struct threads;
struct look;

/* What is kept of a process: the mounts that its descriptors lie on, and the names of kernel
 * functions that were seen (owned; facts point to them). */
#define KEPT_MOUNTS 16
struct kept_mount {
    int id;       /* mnt_id of fdinfo */
    bool found;   /* false: it is in no mountinfo that was read, and DEV and FS mean nothing */
    uint64_t dev; /* as in file_id */
    enum fs_kind fs;
    nsec_t read_at; /* IDs are used again */
};
struct waits {
    struct kept_mount mounts[KEPT_MOUNTS];
    size_t nmounts, next_mount; /* the latter's place is taken next when all are */
    char **wchans;
    size_t nwchans, wchans_cap;
};
void waits_release(struct waits *w);

/* Fills WANTS and SEM of a thread that has just been seen in its call; no more than reading what it
 * passed, and its fdinfo. */
void waits_take(struct thread_fact *f, const struct look *l);

/* It waits for neither. */
void waits_none(struct thread_fact *f);

/* Reads WCHAN of the thread at index I where that tells more than its call, once a sleep. Of calls
 * that may just wait for a disk, only when it is still there at the second look; while there are
 * WCHANS_LEFT. */
void waits_read_wchan(struct threads *t, size_t i, const struct look *l);

#endif

/*
 * filetab.h - what the last sweep said of locks on files and of System V semaphores, and which rows
 * these waits make.
 *
 * Part of the model. Pointers are those of the last sweep and as short-lived.
 */
#ifndef LT_FILETAB_H
#define LT_FILETAB_H

#include "locktab.h"
#include "sample.h"

struct filetab {
    const struct file_fact *files;
    const struct file_holder *holders;
    const struct file_waiter *waiters;
    const struct sem_fact *sems;
    size_t nfiles, nholders, nwaiters, nsems;
};

/* Takes what a sweep says. */
void filetab_take(struct filetab *t, const struct sample *s);

/* NULL: nothing is known of it. */
const struct file_fact *filetab_file(const struct filetab *t, struct file_id file);

/* The next holder from index *I on that is in the way of WANT, or NULL; *I moves behind it. */
const struct file_holder *filetab_next_holder(const struct filetab *t,
                                              const struct file_lock *want, size_t *i);

/* Whether H is in nobody's way: a POSIX lock of the only process that waits for R. */
bool filetab_is_own(const struct lock_row *r, const struct file_holder *h);

/* The place in the queue of somebody in process PID who wants WANT, or NULL. */
const struct file_waiter *filetab_place(const struct filetab *t, pid_t pid,
                                        const struct file_lock *want);

/* Levels of the trees of those who wait for R; -1: not known. */
int filetab_depth(const struct filetab *t, const struct lock_row *r);

/* NULL: not known. */
const struct sem_fact *filetab_sem(const struct filetab *t, int id, uint16_t num);

/* The row of the lock WANT, for which thread F of process P waits; made if new. Its range is the
 * one that is wanted: whoever wants the same bytes stands in the same row. NULL when the file is
 * not known. */
struct lock_row *filetab_row(struct filetab *t, struct locktab *locks,
                             const struct process_fact *p, const struct file_lock *want);

/* The row of a semaphore. One whose waiters take it with SEM_UNDO is used as a lock; else it is a
 * hand-off, for which nobody can be blamed. NULL when the operations could not be read. */
struct lock_row *filetab_sem_row(struct locktab *locks, const struct process_fact *p,
                                 const struct sem_wait *w);

/* At the end of a sweep: whether each lock is held, for its utilisation; rows for files that a
 * watched process has open while another holds the lock. */
void filetab_end_sweep(const struct filetab *t, struct locktab *locks);

/* What a range of a database of SQLite is called ("RESERVED", "WAL write"), or NULL: by its bytes,
 * which nothing else uses. */
const char *filetab_sqlite_name(const char *path, const struct file_lock *l);

#endif

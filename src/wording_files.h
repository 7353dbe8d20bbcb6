/*
 * wording_files.h - what is said of locks on files, System V semaphores and locks inside the
 * kernel. Part of the model; texts live in the arena.
 */
#ifndef LT_WORDING_FILES_H
#define LT_WORDING_FILES_H

#include "owner.h"
#include "xalloc.h"

/* "app.db RESERVED" (SQLite), "set 3[0]"; NULL: it has no name but its path. */
const char *wording_file_name(struct arena *a, const struct lock_row *r);

/* "flock on /run/app.lock", "posix lock on /srv/data bytes 100-199". */
const char *wording_file_lock(struct arena *a, const struct lock_row *r);

/* Who must act where no thread can be named; NULL: nothing is known yet. */
const char *wording_file_owner(struct arena *a, const struct proctab *procs,
                               const struct lock_row *r, const struct owner *o);

/* How H came to hold: "; through a descriptor of 11739, which has ended"; "" when it took it. */
const char *wording_inherited(struct arena *a, const struct file_holder *h);

#endif

/*
 * lockkey.h - which lock: an identity that is the same for every thread and process that waits
 * for it, and for as long as it lives.
 */
#ifndef LT_LOCKKEY_H
#define LT_LOCKKEY_H

#include <stddef.h>
#include <stdint.h>

#include "sample.h"

enum lockkey_space {
    LOCKKEY_PRIVATE, /* process and address */
    LOCKKEY_SHARED,  /* device, inode and offset of the mapping it lies in */
    LOCKKEY_SITE,    /* process, and the code that waits: where each waiter sleeps on a word of its
                        own */
    LOCKKEY_SITE_SHARED, /* the same for all processes: where these words lie in memory that is
                            mapped shared */
    LOCKKEY_FILE,   /* file, range, and flock or not: these two kinds do not know each other */
    LOCKKEY_SEM,    /* System V set and number in it */
    LOCKKEY_KERNEL, /* family of kernel functions, and the inode or process where that is known */
};

/* Compared as bytes: always made by lockkey_make(), which clears the padding. */
struct lockkey {
    uint32_t space;
    uint32_t execs; /* PRIVATE: another program has other locks at the same address */
    uint64_t a, b, c, d;
};

/*
 * The key of the object at address OBJECT of process P, told by the word it has at WORD (may be
 * NULL). Only memory that is mapped shared makes a key that other processes have too: a robust
 * mutex in private memory also uses the process-shared call.
 */
struct lockkey lockkey_make(const struct process_fact *p, const struct word_fact *word,
                            uint64_t object);

/* The key of all waits of process P that are of one sort, LABEL, and come from the function CALLER
 * (its address; 0: from anywhere). SHARED: P stands for all processes. */
struct lockkey lockkey_site(const struct process_fact *p, bool shared, const char *label,
                            uint64_t caller);

/* The id of a SITE key: "16147@CPython GIL", "@PostgreSQL lock" when shared, "+0x8ab10" behind it
 * when it has a caller. */
void lockkey_site_text(char *dst, size_t size, const struct lockkey *key, const char *label,
                       uint64_t caller);

/* The key of a lock on the range of L, for all who want these bytes in whatever mode. */
struct lockkey lockkey_file(const struct file_lock *l);

/* The key of semaphore NUM of the System V set ID. */
struct lockkey lockkey_sem(int id, uint16_t num);

/* The key of a lock inside the kernel: of the family FAMILY (any number that stands for it) and of
 * PLACE, a path; or, where PLACE is NULL, of process P. */
struct lockkey lockkey_kernel(int family, const struct process_fact *p, const char *place);

/* A short text for any other, the lock's id: "16147:0x7f12..." ("16147.1:..." after an exec),
 * "shm:fe00:1234+0x40", "flock:fe00:1234", "posix:fe00:1234:0-99", "sysv:3[0]". */
void lockkey_text(char *dst, size_t size, const struct lockkey *key);

#endif

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
};

/* Compared as bytes: always made by lockkey_make(), which clears the padding. */
struct lockkey {
    uint32_t space;
    uint32_t execs; /* PRIVATE: another program has other locks at the same address */
    uint64_t a, b, c;
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

/* A short text for any other, the lock's id: "16147:0x7f12..." ("16147.1:..." after an exec) or
 * "shm:fe00:1234+0x40". */
void lockkey_text(char *dst, size_t size, const struct lockkey *key);

#endif

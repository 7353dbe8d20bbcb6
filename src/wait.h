/*
 * wait.h - what a blocked thread waits for: classification by system call, futex operation,
 * value and memory.
 *
 * Several kinds pass the same operation and value (a condition variable and a semaphore; a
 * write-lock and a timed mutex), so memory decides, and what memory cannot decide is not
 * called a lock with certainty.
 */
#ifndef LT_WAIT_H
#define LT_WAIT_H

#include "layout.h"
#include "sample.h"
#include "snapshot.h"

struct wait_class {
    enum lock_kind kind;
    enum confidence confidence;
    enum lock_layout layout;
    enum lock_mode mode; /* how the waiter wants it */
    uint64_t object;     /* address of the object the word belongs to */
};

/* What is known besides the call itself. */
struct wait_context {
    enum abi abi;
    enum libc_kind libc;
    const struct word_fact *word; /* the futex word, or NULL: memory is unknown */
    uint64_t sp;                  /* of the waiter */
    /* Whether TID (in the target's PID namespace) is a thread that may own the word's locks. */
    bool (*is_thread)(const void *arg, pid_t tid);
    const void *arg;
};

/* Always gives an answer; the weakest is KIND_FUTEX (sync, unknown). KIND_FUTEX_LOCK comes with
 * CONF_UNKNOWN: a counter that somebody waits to move on from 2 looks the same; only a word that
 * is seen both held and free behaves like a lock (locktab). */
struct wait_class wait_classify(const struct futex_wait *f, const struct wait_context *ctx);

/* Whether a thread that waits with F can wait for an object of KIND: other values or operations
 * mean that the memory has become something else. */
bool wait_suits(const struct futex_wait *f, enum lock_kind kind);

/* How a waiter with F wants the rwlock at OBJECT: its word and value tell. */
enum lock_mode wait_rwlock_mode(const struct futex_wait *f, uint64_t object);

/* The state of a thread: KIND is that of the futex it waits on, KIND_NONE if none. A thread that
 * is active counts as running here; run-queue times are told apart elsewhere. */
enum thread_state wait_state(const struct thread_fact *f, enum lock_kind kind);

#endif

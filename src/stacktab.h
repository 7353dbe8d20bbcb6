/*
 * stacktab.h - the stacks that were taken: each kept once, however many threads share it, with
 * what its frames say about the wait.
 *
 * Part of the model. A thread's stack holds for the sleep in which it was taken. It is presumed to
 * hold for a later sleep of the same thread in the same call, on the same futex word and with the
 * same program counter and stack pointer: a path of another depth has another one.
 */
#ifndef LT_STACKTAB_H
#define LT_STACKTAB_H

#include "hash.h"
#include "proctab.h"
#include "sample.h"
#include "signature.h"

/* A presumption is checked again after so long. */
#define PRESUMED_FOR (10 * NSEC_PER_SEC)

struct kept_stack {
    struct stack_key {
        uint64_t pid, start_ticks, execs, n, hash; /* of the process; of the frames' addresses */
    } key;
    struct frame_fact *frames; /* owned, with their strings */
    size_t n;
    enum stack_end end;
    bool guessed;
    uint64_t path; /* the same for stacks of the same functions, wherever in them */
    struct sig_match sig;
    struct api_match api;
    char *site;     /* "queue_push", or "libfoo.so+0x1234": the innermost frame outside lock
                       libraries; NULL when there is none; owned */
    nsec_t used_at; /* model time */
    /* As it stands in the snapshot of this number (model_show_stacks). */
    const struct snap_frame *shown;
    uint64_t shown_in;
    UT_hash_handle hh;
};

struct stacktab {
    struct kept_stack *stacks;
    const struct signatures *signatures; /* borrowed */
    nsec_t now;
};

/* From time to time, first: somebody keeps a pointer to S (NULL is allowed). Then: stacks to which
 * nobody has kept one for a while go. */
void stacktab_use(const struct stacktab *t, struct kept_stack *s);
void stacktab_expire(struct stacktab *t);

void stacktab_release(struct stacktab *t);

/* Takes the answer to a request for TH's stack; returns that, or NULL. */
struct kept_stack *stacktab_answer(struct stacktab *t, struct thread *th,
                                   const struct stack_fact *f);

/* TH keeps pointers to its stacks, those that may still be shown. */
void stacktab_use_all(const struct stacktab *t, struct thread *th);

/* The stack of TH's present sleep, or NULL. *PRESUMED: it was taken in an earlier one. */
struct kept_stack *stack_of(const struct thread *th, nsec_t now, bool *presumed);

/* The stack of TH when it was last stopped for a look, if that was not longer AGO; or NULL. */
struct kept_stack *stack_when_stopped(const struct thread *th, nsec_t now, nsec_t ago);

#endif

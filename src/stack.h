/*
 * stack.h - stacks of threads, from a copy of the stack: the thread is not stopped.
 *
 * The kernel tells the stack pointer and program counter of a blocked thread; the other
 * registers come out of the copy as the walk goes on, by libunwind and the module's unwind
 * tables. Where a frame is found through rbp and no inner frame has saved it (frame-pointer
 * builds), rbp is recovered: a value A above SP such that [A + 8] is an address right behind a
 * call instruction that calls the running function (or calls indirectly); the lowest from which
 * the rest of the walk reaches the thread's start.
 *
 * Not thread-safe: one thread uses an unwinder.
 */
#ifndef LT_STACK_H
#define LT_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "module.h"

#define STACK_MAX_FRAMES 64
#define STACK_RED_ZONE   256 /* bytes below SP that are copied too */

/* What is known when the walk begins. */
struct stack_regs {
    uint64_t pc, sp;
    bool full;        /* all others are known too (the thread was stopped) */
    uint64_t gpr[17]; /* in libunwind's numbering for this architecture; valid when FULL */
};

/* Part of a stack: LEN bytes from BASE, read at one moment. */
struct stack_copy {
    uint64_t base;
    const uint8_t *bytes;
    size_t len;
};

enum stack_end {
    STACK_COMPLETE,    /* the walk reached the thread's start */
    STACK_CUT,         /* more than STACK_MAX_FRAMES frames, or the copy ends too early */
    STACK_BROKEN,      /* a frame could not be left: no unwind table, an unknown register */
    STACK_UNKNOWN_ABI, /* a 32-bit program: libunwind unwinds only its own architecture here */
};

struct stack {
    enum stack_end end;
    bool guessed; /* a frame without unwind table was left by a call before it or an rbp chain */
    bool live;    /* memory beyond the copy was read (never of a thread that was stopped): the
                     stack holds if the thread has not run until now */
    size_t n;
    uint64_t pc[STACK_MAX_FRAMES]; /* innermost first; of a caller: where it goes on */
    bool exact[STACK_MAX_FRAMES];  /* pc is the very instruction (innermost, or below a signal
                                      handler); else the call is just before it */
};

struct unwinder;
struct unwinder *unwinder_new(void);
void unwinder_free(struct unwinder *u); /* NULL is allowed */

/* Walks the stack. Always fills *OUT; at least the innermost frame stands in it. */
void stack_unwind(struct unwinder *u, const struct space *s, const struct stack_regs *regs,
                  const struct stack_copy *copy, struct stack *out);

#endif

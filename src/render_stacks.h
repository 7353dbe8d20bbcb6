/*
 * render_stacks.h - stacks and chains in words, for the screen and the text alike. All of it is
 * escaped (fmt_safe); what returns a string returns DST.
 */
#ifndef LT_RENDER_STACKS_H
#define LT_RENDER_STACKS_H

#include <stdbool.h>
#include <stdio.h>

#include "snapshot.h"

/* "#3  queue_push+0x1c2  shop queue.c:45", or "#0  libc.so.6+0x8b482" where the function has no
 * name, in at most WIDTH cells: a long name is cut first (funcname_fit). WIDTH 0: as many as
 * needed, but names of more than 80 cells are cut. */
char *render_frame(char *dst, size_t size, const struct snap_frame *f, size_t index, int width,
                   bool ascii);

/* Its text, "DEADLOCK 2 threads: ..." or "31 wait for ...", as render_sentence(). */
char *render_chain(char *dst, size_t size, const struct snapshot *s, const struct snap_chain *c,
                   bool ascii);

/* Whether a chain tells more than the list of locks does: a deadlock, a lost lock, or more than one
 * lock in a row. */
bool render_chain_counts(const struct snap_chain *c);

/* Where the lines of a lock's stacks go. */
enum stack_line {
    STACK_TITLE, /* "Waiters by stack" */
    STACK_GROUP, /* "24 threads, such as 16160" */
    STACK_FRAME,
    STACK_NOTE,  /* "+2 more stacks (3 threads)" */
};
struct stack_sink {
    void (*line)(void *arg, enum stack_line kind, const char *text);
    void *arg;
    int width;  /* cells for a frame, 0: any */
    bool brief; /* a profile's paths in one line each, and of other stacks not every frame */
    bool ascii;
};

/* The stack of the holder, the profile of holders (merge_stacks()), and the waiters by stack, at
 * most five of each. Nothing for what is not known. */
void render_lock_stacks(const struct stack_sink *sink, const struct snap_lock *l);

/* What is to be known about a stack before it is believed: " (partly guessed)" or "". */
char *render_doubt(char *dst, size_t size, const struct snap_stack *st);

/* Text: the chains that count, one line each, but for those that the verdict tells; the stacks of
 * all locks. */
void render_chains(FILE *out, const struct snapshot *s, bool ascii);
void render_stacks_of_locks(FILE *out, const struct snapshot *s, bool ascii);

/* Text: through which code the waiters of a lock come and where its holders were seen, at most
 * three lines; and the lock for which that is worth telling: the one with most waiters, when these
 * are contention. NULL: none. */
void render_code(FILE *out, const struct snap_lock *l, bool ascii);
const struct snap_lock *render_code_lock(const struct snapshot *s);

#endif

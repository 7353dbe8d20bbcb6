/*
 * stack_walk.h - one walk along a stack, by libunwind and unwind tables. Where these do not tell,
 * stack_leave.c finds the way on.
 */
#ifndef LT_STACK_WALK_H
#define LT_STACK_WALK_H

#include <libunwind.h>

#include "ehframe.h"
#include "stack.h"

#define WALK_WORK_MAX  20000 /* for one stack, wrong ways included: about a millisecond */
#define WALK_WORK_STEP 16    /* of which a frame takes this, and a word of the stack 1 */
#define WALK_BLOCK     4096
#define GPRS           (sizeof(((struct stack_regs *)0)->gpr) / sizeof(uint64_t))

/* What is known where a walk begins; it begins anew behind a frame that has no table. */
struct view {
    uint64_t pc, sp, rbp;
    bool rbp_known;
    const uint64_t *gpr; /* all, or NULL */
};

struct walk {
    const struct space *space;
    const struct stack_copy *copy;
    const struct map_entry *stack; /* the mapping that SP is in */
    unw_addr_space_t as;
    struct view view;
    struct stack *out;
    bool stopped; /* the thread was, and has gone on: only the copy is of that moment */
    unsigned work;
    unsigned sure; /* frames in a row that were not found by scanning the stack */
    bool scanned;
    struct eh_entry entry; /* the unwind entry that libunwind is SEARCHING */
    bool searching;
    /* Why the last step failed: */
    bool no_table, no_rbp, no_copy;
    /* The last memory read outside of the copy. */
    uint64_t block;
    size_t block_len;
    uint8_t bytes[WALK_BLOCK];
};

/* A cache of unwind tables, for walks of one process. */
unw_addr_space_t walk_addr_space_new(void);

/* Reads LEN bytes at ADDR: from the copy, from files, or from a thread that was not stopped. */
bool walk_read(struct walk *w, uint64_t addr, void *dst, size_t len);

bool walk_is_stack(const struct walk *w, uint64_t addr);

/* Whether code can go on at PC; a caller's last instruction may be its call. */
bool walk_can_be_code(const struct walk *w, uint64_t pc, bool exact);

/* False when there is no room. */
bool walk_add_frame(struct stack *out, uint64_t pc, bool exact);

/* The end where there is no room for more: good unless it was reached by scanning alone. */
enum stack_end walk_end_full(const struct walk *w);

/* From the frame at C, the last one of OUT, as far as it goes. */
enum stack_end walk_on(struct walk *w, unw_cursor_t *c);

#endif

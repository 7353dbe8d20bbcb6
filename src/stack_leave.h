/*
 * stack_leave.h - leaving frames that libunwind cannot leave with what is known: by recovering rbp,
 * by Go's tables, by chains of frame pointers, by the calls before return addresses.
 */
#ifndef LT_STACK_LEAVE_H
#define LT_STACK_LEAVE_H

#include "stack_walk.h"

/* The way on from FRAME, the last one of OUT: when it is found through rbp, which is not known, and
 * when its code is in no table. On STACK_BROKEN nothing was added. */
enum stack_end walk_without_rbp(struct walk *w, const unw_cursor_t *frame);
enum stack_end walk_without_table(struct walk *w, unw_cursor_t *frame);

#endif

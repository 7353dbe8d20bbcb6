/*
 * view_locks.h - the first page: verdict, processes, states, the list of locks.
 */
#ifndef LT_VIEW_LOCKS_H
#define LT_VIEW_LOCKS_H

#include "draw.h"
#include "state.h"

/* Which line of the page shows what, counted from its first; -1: left out. */
struct locks_layout {
    int verdict, nverdict; /* so many lines */
    int process, nprocess; /* one line each; 1 of several processes: their sum */
    int states, titles;
    int list, nlist;
    int fold, notes;
};

/* Shares H lines out: what matters least goes first when they are few. WANT: what there would be
 * to show (NVERDICT, NPROCESS, NLIST, and TITLES, FOLD and NOTES as 0 or 1). A verdict of more than
 * two lines takes only what the list does not need. */
struct locks_layout locks_layout(int h, const struct locks_layout *want);

/* Draws it and tells ST where the rows are. S may be NULL: nothing has been seen yet. */
void view_locks_draw(const struct area *a, struct ui_state *st, const struct snapshot *s,
                     const struct column_set *columns);

#endif

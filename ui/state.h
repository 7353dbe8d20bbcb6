/*
 * state.h - what the user has chosen: page, selection, sorting, pause. No curses, no drawing:
 * a key's action goes in, the views read it.
 *
 * The selection is a lock, not a row: it stays on its lock when the rows re-sort. As long as
 * the user has not moved it (or has sent it home), it stays on the first row instead.
 */
#ifndef LT_STATE_H
#define LT_STATE_H

#include <stdbool.h>
#include <stddef.h>

#include "../src/column.h"

/* ACTION_HELP, ... one per row of keys.def. */
enum action {
    ACTION_NONE,
#define KEY(action, ...) ACTION_##action,
#include "keys.def"
#undef KEY
};

enum page { PAGE_LOCKS, PAGE_LOCK, PAGE_CHAINS, PAGE_SORT, PAGE_HELP, PAGES };

/* A place in ROWS rows of which VISIBLE fit the screen. A list has a ROW under its bar; a text
 * is only scrolled, its ROW is the first line shown. */
struct cursor {
    size_t row, top;
    size_t rows, visible; /* as last told by the view */
};

struct ui_state {
    enum page stack[PAGES]; /* pages open, the lock list lowest; no page twice */
    size_t depth;           /* stack[depth] is shown */
    struct cursor cursor[PAGES];
    enum column sort;
    bool reverse;
    bool sync; /* sync objects stand in the list */
    bool paused;
    bool quit;   /* the user wants to leave */
    bool picked; /* the selection follows SELECTED; otherwise it keeps to the first row */
    char *selected, *opened; /* ids of the locks under the bar and on the detail page; owned,
                                NULL: none */
    char *link, *link_lock;  /* on the page of chains: the row under the bar, and the id of the lock
                                that it leads to; owned, NULL: none */
};

/* A row of the page of chains. */
struct link_row {
    char id[64];      /* the same thread of the same chain, whatever its row */
    const char *lock; /* id of the lock that it leads to, or NULL */
};

void ui_state_init(struct ui_state *st, enum column sort);
void ui_state_release(struct ui_state *st);

enum page ui_state_page(const struct ui_state *st);

/* Does what the key asks for. COLUMNS: those on screen, for stepping through them. */
void ui_state_apply(struct ui_state *st, enum action action, const struct column_set *columns);

/* Tells the state the N rows of the lock list in their order, and how many fit: finds the
 * selected lock's row again (or, if it is gone, the lock that now stands there) and scrolls
 * so that it can be seen. */
void ui_state_place_locks(struct ui_state *st, const struct snap_lock *const *locks, size_t n,
                          size_t visible);

/* The same for the N rows of the page of chains. */
void ui_state_place_links(struct ui_state *st, const struct link_row *rows, size_t n,
                          size_t visible);

/* The same for the other pages, which are N lines long. */
void ui_state_place_lines(struct ui_state *st, enum page page, size_t n, size_t visible);

#endif

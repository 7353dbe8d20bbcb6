/*
 * view_chains.h - the page of chains: who finally waits for whom, deadlocks first.
 */
#ifndef LT_VIEW_CHAINS_H
#define LT_VIEW_CHAINS_H

#include "draw.h"
#include "state.h"

/* Its lines, and for each of them the row it is. Zero is the empty page. */
struct chains_page {
    struct text_page text;
    struct link_row *rows;
    size_t cap;
};

/* For each chain what it tells, and below it each thread on the way to its root, wrapped to the
 * width of TEXT. */
void view_chains_build(struct chains_page *p, const struct snapshot *s, bool ascii);
void view_chains_release(struct chains_page *p);

void view_chains_draw(const struct area *a, struct ui_state *st, const struct snapshot *s);

#endif

/*
 * view_lock.h - the page of one lock: what it is, who holds it, who waits, the last minute.
 */
#ifndef LT_VIEW_LOCK_H
#define LT_VIEW_LOCK_H

#include "draw.h"
#include "state.h"

/* Builds its lines; ID is the lock's, S may lack it or be NULL. */
void view_lock_build(struct text_page *p, const struct snapshot *s, const char *id, bool ascii);

void view_lock_draw(const struct area *a, struct ui_state *st, const struct snapshot *s);

#endif

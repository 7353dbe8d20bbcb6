/*
 * view_stacks.h - the part of a lock's page that shows stacks: of its holder, of its holders while
 * others waited, and of its waiters.
 */
#ifndef LT_VIEW_STACKS_H
#define LT_VIEW_STACKS_H

#include "../src/snapshot.h"
#include "draw.h"

void view_stacks_add(struct text_page *p, const struct snapshot *s, const struct snap_lock *l,
                     bool ascii);

#endif

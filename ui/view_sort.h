/*
 * view_sort.h - the list of columns, to choose the one to sort by.
 */
#ifndef LT_VIEW_SORT_H
#define LT_VIEW_SORT_H

#include "draw.h"
#include "state.h"

void view_sort_draw(const struct area *a, struct ui_state *st);

#endif

/*
 * view_help.h - the help page: keys, columns, thread states, each from its table.
 */
#ifndef LT_VIEW_HELP_H
#define LT_VIEW_HELP_H

#include "draw.h"
#include "state.h"

void view_help_build(struct text_page *p);

void view_help_draw(const struct area *a, struct ui_state *st);

#endif

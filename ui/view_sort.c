#include "view_sort.h"

#include <stdio.h>

void view_sort_draw(const struct area *a, struct ui_state *st)
{
    const struct cursor *c = &st->cursor[PAGE_SORT];
    char line[160];

    if (a->h <= 0)
        return;
    ui_state_place_lines(st, PAGE_SORT, COLUMNS_COUNT, (size_t)MAX(a->h - 1, 1));
    draw_line(a, a->y, STYLE_TITLE, "Sort by");
    for (size_t row = c->top; row < c->rows && (int)(row - c->top) + 1 < a->h; row++) {
        const struct column_info *info = column_info((enum column)row);
        snprintf(line, sizeof(line), "%c %-8s %s", row == st->sort ? '*' : ' ', info->name,
                 info->help);
        draw_line(a, a->y + 1 + (int)(row - c->top), row == c->row ? STYLE_SELECTED : STYLE_PLAIN,
                  line);
    }
}

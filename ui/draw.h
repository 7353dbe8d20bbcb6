/*
 * draw.h - what every view draws with: styles, text fitted to cells, pages of text. Text that
 * comes in here has already been made safe (fmt_safe or the render and column helpers).
 */
#ifndef LT_DRAW_H
#define LT_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../src/compiler.h"

enum style {
    STYLE_PLAIN,
    STYLE_BOLD,
    STYLE_DIM,
    STYLE_TITLE,    /* the line above a list */
    STYLE_SELECTED, /* the bar of a list; labels in the bottom bar */
    STYLE_GOOD,
    STYLE_WARNING,
    STYLE_CRITICAL,
    STYLE_ALARM, /* as critical, for a row of a list: it never looks like the bar */
};

/* Part of the screen, full width. H may be 0 or less: nothing is drawn then. */
struct area {
    int y, h, w;
    bool ascii; /* draw nothing outside ASCII */
};

/* Prepares the styles; without COLOR they are told apart by bold, reverse and underline. */
void draw_init(bool color);

/* TEXT at line Y, column X, in WIDTH cells: cut, or padded with blanks of that style. What lies
 * outside the screen is left out. */
void draw_text(const struct area *a, int y, int x, int width, enum style style, const char *text);

/* TEXT over the whole line Y of the screen. */
void draw_line(const struct area *a, int y, enum style style, const char *text);

/* Bytes of the longest beginning of TEXT that takes at most WIDTH cells; broken at a blank when
 * there is one after the middle, and at least one character long. All of it when it fits. */
size_t draw_break(const char *text, int width);

/* Lines of text, built first and then shown from any line on. Zero is the empty page. */
struct text_page {
    struct text_line *lines;
    size_t n, cap;
    int width; /* longer lines are wrapped to this many cells, if it is not 0 */
};
struct text_line {
    char *text; /* owned */
    enum style style;
};
void text_page_add(struct text_page *p, enum style style, const char *fmt, ...) PRINTF_LIKE(3, 4);
void text_page_draw(const struct text_page *p, const struct area *a, size_t top);
/* Leaves the first N lines; where there were more, the last of them shows that. */
void text_page_cut(struct text_page *p, size_t n, bool ascii);
void text_page_release(struct text_page *p);

/* Adds a plot of N numbers, one cell each, ROWS lines high, PEAK reaching the top: block elements,
 * or ".:-=+*#%@" with ASCII. Numbers that are not 0 are never invisible. The scale stands at the
 * left. */
void text_page_plot(struct text_page *p, const uint16_t *v, size_t n, int rows, unsigned peak,
                    bool ascii);

#endif

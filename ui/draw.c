#include "draw.h"

#include <curses.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/fmt.h"
#include "../src/snapshot.h"
#include "../src/xalloc.h"

/* Styles ----------------------------------------------------------------------------------- */

enum pair { PAIR_DEFAULT, PAIR_TITLE, PAIR_SELECTED, PAIR_GOOD, PAIR_WARNING, PAIR_CRITICAL };

static bool colored; /* curses has one set of pairs, so there is one of these */

void draw_init(bool color)
{
    colored = color && has_colors() && start_color() == OK && use_default_colors() == OK;
    if (!colored)
        return;
    init_pair(PAIR_TITLE, COLOR_BLACK, COLOR_GREEN);
    init_pair(PAIR_SELECTED, COLOR_BLACK, COLOR_CYAN);
    init_pair(PAIR_GOOD, COLOR_GREEN, -1);
    init_pair(PAIR_WARNING, COLOR_YELLOW, -1);
    init_pair(PAIR_CRITICAL, COLOR_RED, -1);
}

static attr_t style_attr(enum style style)
{
    static const struct {
        attr_t plain, color; /* without and with colours */
        enum pair pair;
    } looks[] = {
        [STYLE_PLAIN] = {A_NORMAL, A_NORMAL, PAIR_DEFAULT},
        [STYLE_BOLD] = {A_BOLD, A_BOLD, PAIR_DEFAULT},
        [STYLE_DIM] = {A_DIM, A_DIM, PAIR_DEFAULT},
        [STYLE_TITLE] = {A_BOLD | A_UNDERLINE, A_NORMAL, PAIR_TITLE},
        [STYLE_SELECTED] = {A_REVERSE, A_NORMAL, PAIR_SELECTED},
        [STYLE_GOOD] = {A_NORMAL, A_NORMAL, PAIR_GOOD},
        [STYLE_WARNING] = {A_BOLD, A_BOLD, PAIR_WARNING},
        [STYLE_CRITICAL] = {A_BOLD | A_REVERSE, A_BOLD, PAIR_CRITICAL},
        [STYLE_ALARM] = {A_BOLD, A_BOLD, PAIR_CRITICAL},
    };

    return colored ? looks[style].color | (attr_t)COLOR_PAIR(looks[style].pair)
                   : looks[style].plain;
}

/* Text ------------------------------------------------------------------------------------- */

/* Replaces what curses cannot show as it stands: it would spell it out and shift the line. */
static void only_printable(char *s)
{
    char *to = s;

    while (*s) {
        int cells;
        size_t len = text_next(s, &cells);
        if (cells < 0)
            *to++ = '?';
        else
            to = (char *)memmove(to, s, len) + len;
        s += len;
    }
    *to = '\0';
}

void draw_text(const struct area *a, int y, int x, int width, enum style style, const char *text)
{
    char line[2048];

    width = MIN(width, a->w - x);
    if (y < 0 || x < 0 || width <= 0)
        return;
    snprintf(line, sizeof(line), "%s", text);
    only_printable(line);
    text_cut(line, sizeof(line), width, a->ascii);
    attrset(style_attr(style));
    mvaddstr(y, x, line);
    int pad = width - text_cells(line);
    if (pad > 0)
        printw("%*s", pad, "");
    attrset(A_NORMAL);
}

void draw_line(const struct area *a, int y, enum style style, const char *text)
{
    draw_text(a, y, 0, a->w, style, text);
}

size_t draw_break(const char *text, int width)
{
    size_t fits = 0, blank = 0;

    for (int cells = 0, wide; text[fits]; cells += wide < 0 ? 1 : wide) {
        size_t n = text_next(text + fits, &wide);
        if (cells + (wide < 0 ? 1 : wide) > width)
            return blank > fits / 2 ? blank : MAX(fits, n);
        if (text[fits] == ' ')
            blank = fits + 1;
        fits += n;
    }
    return fits;
}

/* Pages of text ---------------------------------------------------------------------------- */

static void add_line(struct text_page *p, enum style style, const char *text, size_t len,
                     int indent)
{
    p->lines = xgrow(p->lines, &p->cap, p->n + 1, sizeof(p->lines[0]));
    p->lines[p->n++] = (struct text_line){.text = xasprintf("%*s%.*s", indent, "", (int)len, text),
                                          .style = style};
}

void text_page_add(struct text_page *p, enum style style, const char *fmt, ...)
{
    char text[4096];
    va_list ap;
    const char *rest = text;
    int indent = 0;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    do {
        size_t len = p->width > 0 ? draw_break(rest, p->width - indent) : strlen(rest);
        add_line(p, style, rest, len, indent);
        rest += len;
        indent = MIN(4, p->width / 4);
    } while (*rest);
}

void text_page_draw(const struct text_page *p, const struct area *a, size_t top)
{
    for (int i = 0; i < a->h && top + (size_t)i < p->n; i++) {
        const struct text_line *line = &p->lines[top + (size_t)i];
        draw_line(a, a->y + i, line->style, line->text);
    }
}

void text_page_cut(struct text_page *p, size_t n, bool ascii)
{
    if (n == 0 || p->n <= n)
        return;
    while (p->n > n)
        free(p->lines[--p->n].text);
    struct text_line *last = &p->lines[n - 1];
    char *line = xasprintf("%s%s", last->text, ascii ? "~" : "\u2026");
    if (p->width > 0)
        text_cut(line, strlen(line) + 1, p->width, ascii);
    free(last->text);
    last->text = line;
}

void text_page_release(struct text_page *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->lines[i].text);
    free(p->lines);
    *p = (struct text_page){.width = p->width};
}

/* Plots ------------------------------------------------------------------------------------ */

static const char *const blocks[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                     "\u2585", "\u2586", "\u2587", "\u2588"};
static const char *const shades[] = {" ", ".", ":", "-", "=", "+", "*", "#", "%", "@"};

/* How full the cell of row ROW (0: lowest) is, 0..LEVELS. */
static int plot_level(unsigned v, unsigned peak, int rows, int row, int levels)
{
    uint64_t steps = (uint64_t)v * (uint64_t)(rows * levels) / peak;

    if (v > 0 && steps == 0)
        steps = 1;
    int64_t level = (int64_t)MIN(steps, (uint64_t)(rows * levels)) - (int64_t)row * levels;
    return (int)MAX(MIN(level, levels), 0);
}

void text_page_plot(struct text_page *p, const uint16_t *v, size_t n, int rows, unsigned peak,
                    bool ascii)
{
    const char *const *cells = ascii ? shades : blocks;
    int levels = (int)(ascii ? ARRAY_SIZE(shades) : ARRAY_SIZE(blocks)) - 1;

    peak = MAX(peak, 1u);
    for (int row = rows - 1; row >= 0; row--) {
        char line[512] = "";
        size_t len = 0;
        for (size_t i = 0; i < n && len + 4 < sizeof(line); i++)
            len += (size_t)snprintf(line + len, sizeof(line) - len, "%s",
                                    v[i] != SNAP_NO_DATA
                                        ? cells[plot_level(v[i], peak, rows, row, levels)]
                                    : row ? " "
                                          : "?");
        if (row == rows - 1)
            text_page_add(p, STYLE_PLAIN, "%5u |%s", peak, line);
        else
            text_page_add(p, STYLE_PLAIN, "%5s |%s", row ? "" : "0", line);
    }
}

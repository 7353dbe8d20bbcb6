#include "view_chains.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/fmt.h"
#include "../src/render_stacks.h"
#include "../src/xalloc.h"

/* Adds the row of thread INDEX on the way of C, or with -1 that of all of it. */
static void add_row(struct chains_page *p, const struct snap_chain *c, int index, const char *lock,
                    enum style style, const char *text)
{
    p->rows = xgrow(p->rows, &p->cap, p->text.n + 1, sizeof(p->rows[0]));
    struct link_row *row = &p->rows[p->text.n];

    snprintf(row->id, sizeof(row->id), "%s %d %d %d", chain_end_name(c->end), c->root.pid,
             c->root.tid, index >= 0 ? c->path[index].tid : 0);
    row->lock = lock;
    text_page_add(&p->text, style, "%s", text);
}

static void add_link(struct chains_page *p, const struct snapshot *s, const struct snap_chain *c,
                     int index, bool ascii)
{
    const struct snap_link *link = &c->path[index];
    const struct snap_lock *l = link->lock ? snapshot_lock(s, link->lock) : NULL;
    char comm[4 * COMM_LEN + 1], what[2048] = "", line[2400];

    fmt_safe(comm, sizeof(comm), link->comm, strnlen(link->comm, COMM_LEN), ascii);
    if (l)
        column_text(what, sizeof(what), COL_LOCK, l, ascii);
    else if (!link->lock && c->detail)
        fmt_safe(what, sizeof(what), c->detail, strlen(c->detail), ascii);
    snprintf(line, sizeof(line), "    %s %d %s%s%s%s%s", comm[0] ? comm : "?", link->tid,
             thread_state_name(link->state), l ? "  waits for " : "",
             l ? lock_kind_name(l->kind) : "", *what ? " " : "", what);
    add_row(p, c, index, link->lock, c->cycle ? STYLE_ALARM : STYLE_PLAIN, line);
}

/* The lock nearest to the root: all of them wait for it. */
static const char *last_lock(const struct snap_chain *c)
{
    for (size_t i = c->npath; i > 0; i--)
        if (c->path[i - 1].lock)
            return c->path[i - 1].lock;
    return NULL;
}

void view_chains_build(struct chains_page *p, const struct snapshot *s, bool ascii)
{
    char line[4096];

    for (size_t i = 0; i < s->nchains; i++) {
        const struct snap_chain *c = &s->chains[i];
        add_row(p, c, -1, last_lock(c), c->cycle ? STYLE_ALARM : STYLE_BOLD,
                render_chain(line, sizeof(line), c, ascii));
        for (size_t k = 0; k < c->npath; k++)
            add_link(p, s, c, (int)k, ascii);
    }
}

void view_chains_release(struct chains_page *p)
{
    text_page_release(&p->text);
    free(p->rows);
    *p = (struct chains_page){0};
}

static void draw_rows(const struct area *a, const struct cursor *c, const struct text_page *p)
{
    for (int i = 0; i < a->h && c->top + (size_t)i < p->n; i++) {
        size_t row = c->top + (size_t)i;
        draw_line(a, a->y + i, row == c->row ? STYLE_SELECTED : p->lines[row].style,
                  p->lines[row].text);
    }
}

void view_chains_draw(const struct area *a, struct ui_state *st, const struct snapshot *s)
{
    struct chains_page p = {0};

    if (s)
        view_chains_build(&p, s, a->ascii);
    ui_state_place_links(st, p.rows, p.text.n, (size_t)MAX(a->h, 0));
    if (p.text.n > 0)
        draw_rows(a, &st->cursor[PAGE_CHAINS], &p.text);
    else if (a->h > 0)
        draw_line(a, a->y, STYLE_DIM, "no thread is known to wait for another");
    view_chains_release(&p);
}

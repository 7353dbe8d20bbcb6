#include "view_chains.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/fmt.h"
#include "../src/render.h"
#include "../src/render_path.h"
#include "../src/render_stacks.h"
#include "../src/xalloc.h"

#define TEXT_SIZE 2048

/* Adds what there is to say about thread INDEX on the way of C, or with -1 about all of it. Each
 * line that it takes is a row of its own. */
static void add_row(struct chains_page *p, const struct snap_chain *c, int index, const char *lock,
                    enum style style, const char *text)
{
    size_t first = p->text.n;

    text_page_add(&p->text, style, "%s", text);
    p->rows = xgrow(p->rows, &p->cap, p->text.n, sizeof(p->rows[0]));
    for (size_t i = first; i < p->text.n; i++) {
        struct link_row *row = &p->rows[i];
        snprintf(row->id, sizeof(row->id), "%s %d %d %d.%zu", chain_end_name(c->end), c->root.pid,
                 c->root.tid, index >= 0 ? c->path[index].tid : 0, i - first);
        row->lock = lock;
    }
}

static char *thread_text(char *dst, size_t size, const struct snap_link *link, bool ascii)
{
    char comm[4 * COMM_LEN + 1];

    fmt_safe(comm, sizeof(comm), link->comm, strnlen(link->comm, COMM_LEN), ascii);
    snprintf(dst, size, "%s[%d]", comm[0] ? comm : "?", link->tid);
    return dst;
}

static bool is_last(const struct snap_chain *c, int index)
{
    bool circle = c->end == CHAIN_CYCLE || c->end == CHAIN_CYCLE_TIMED;

    return !circle && (size_t)index + 1 == c->npath;
}

/* ": waits for mutex 0x7f... in push", and where nobody can be named as its holder, why. */
static void wait_text(char *dst, size_t size, const struct snap_chain *c, int index,
                      const struct snap_lock *l, bool ascii)
{
    char what[TEXT_SIZE], why[TEXT_SIZE] = "";
    bool ends = is_last(c, index);

    if (l->kind == KIND_JOIN && !ends) {
        thread_text(what, sizeof(what), &c->path[((size_t)index + 1) % c->npath], ascii);
        snprintf(dst, size, ": waits for %s to end (join)", what);
        return;
    }
    if (ends && c->detail)
        fmt_safe(why, sizeof(why), c->detail, strlen(c->detail), ascii);
    snprintf(dst, size, ": waits for %s%s%s", column_title(what, sizeof(what), l, ascii),
             *why ? "; " : "", why);
}

/* The stack of TID where it holds L, or NULL. */
static const struct snap_stack *holder_stack(const struct snap_lock *l, pid_t tid)
{
    for (size_t i = 0; l && i < l->nstacks; i++)
        if (l->stacks[i].role == ROLE_HOLDER && l->stacks[i].tid == tid && l->stacks[i].nframes > 0)
            return &l->stacks[i];
    return NULL;
}

/* The lock nearest to the root: all of them wait for it. */
static const char *last_lock(const struct snap_chain *c)
{
    for (size_t i = c->npath; i > 0; i--)
        if (c->path[i - 1].lock)
            return c->path[i - 1].lock;
    return NULL;
}

/* What the thread at the end does: ": fsync fd 7 /data/x, in fsync < flush < worker". */
static void root_text(char *dst, size_t size, const struct snapshot *s, const struct snap_chain *c,
                      bool ascii)
{
    const char *id = last_lock(c), *detail = c->detail;
    const struct snap_stack *st = id ? holder_stack(snapshot_lock(s, id), c->root.tid) : NULL;
    char does[TEXT_SIZE] = "", path[TEXT_SIZE] = "";

    if (!detail && c->end == CHAIN_HAND_OFF)
        detail = "waits to be woken (a hand-off: nobody holds it)";
    if (detail)
        fmt_safe(does, sizeof(does), detail, strlen(detail), ascii);
    if (st)
        render_path(path, sizeof(path), st, ascii);
    snprintf(dst, size, "%s%s%s%s", *does ? ": " : "", does, *path ? ", in " : "", path);
}

static void add_link(struct chains_page *p, const struct snapshot *s, const struct snap_chain *c,
                     int index, bool ascii)
{
    const struct snap_link *link = &c->path[index];
    const struct snap_lock *l = link->lock ? snapshot_lock(s, link->lock) : NULL;
    char who[4 * COMM_LEN + 16], what[2 * TEXT_SIZE] = "", line[2 * TEXT_SIZE + 200];

    if (l)
        wait_text(what, sizeof(what), c, index, l, ascii);
    else if (!link->lock)
        root_text(what, sizeof(what), s, c, ascii);
    snprintf(line, sizeof(line), "  %s %s%s", thread_text(who, sizeof(who), link, ascii),
             thread_state_name(link->state), what);
    add_row(p, c, index, link->lock, c->cycle ? STYLE_ALARM : STYLE_PLAIN, line);
}

void view_chains_build(struct chains_page *p, const struct snapshot *s, bool ascii)
{
    char line[4096];

    for (size_t i = 0; i < s->nchains; i++) {
        const struct snap_chain *c = &s->chains[i];
        add_row(p, c, -1, last_lock(c), c->cycle ? STYLE_ALARM : STYLE_BOLD,
                render_chain(line, sizeof(line), s, c, ascii));
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

static void draw_none(const struct area *a, const struct snapshot *s)
{
    char line[128];

    if (a->h > 0)
        draw_line(a, a->y, STYLE_DIM,
                  s ? render_no_chains(line, sizeof(line), s) : "waiting for the first look");
}

void view_chains_draw(const struct area *a, struct ui_state *st, const struct snapshot *s)
{
    struct chains_page p = {.text.width = a->w};

    if (s)
        view_chains_build(&p, s, a->ascii);
    ui_state_place_links(st, p.rows, p.text.n, (size_t)MAX(a->h, 0));
    if (p.text.n > 0)
        draw_rows(a, &st->cursor[PAGE_CHAINS], &p.text);
    else
        draw_none(a, s);
    view_chains_release(&p);
}

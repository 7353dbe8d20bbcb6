#include "view_locks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/render.h"
#include "../src/xalloc.h"

/* Room for a line: a path of PATH_MAX bytes. */
#define LINE_SIZE 4096

#define VERDICT_MAX 4 /* lines */

/* The list keeps so many rows before anything optional is shown. */
#define LIST_MIN 3

/* Layout ----------------------------------------------------------------------------------- */

/* Takes up to WANT lines from *LEFT so that KEEP remain; returns how many. */
static int take(int *left, int want, int keep)
{
    int n = MAX(MIN(want, *left - keep), 0);

    *left -= n;
    return n;
}

/* The next N lines from *Y on, or -1 when there are none. */
static int place(int *y, int n)
{
    int at = n > 0 ? *y : -1;

    *y += n;
    return at;
}

struct locks_layout locks_layout(int h, const struct locks_layout *want)
{
    int left = MAX(h, 0), y = 0;
    struct locks_layout at = {0};

    /* In the order of their weight ... */
    at.nverdict = take(&left, MIN(want->nverdict, 1), 0);
    int list = take(&left, 1, 0);
    int titles = take(&left, want->titles, 0);
    int states = take(&left, 1, LIST_MIN - 1);
    at.nprocess = take(&left, MIN(want->nprocess, 1), LIST_MIN - 1);
    int fold = take(&left, want->fold, LIST_MIN - 1);
    int notes = take(&left, want->notes, LIST_MIN);
    if (want->nprocess > 1 && want->nprocess - 1 <= left / 3)
        at.nprocess += take(&left, want->nprocess - 1, LIST_MIN);
    at.nverdict += take(&left, MIN(want->nverdict, 2) - at.nverdict, 2 * LIST_MIN);
    at.nverdict += take(&left, want->nverdict - at.nverdict, MAX(2 * LIST_MIN, want->nlist));

    /* ... and of their place. */
    at.verdict = place(&y, at.nverdict);
    at.process = place(&y, at.nprocess);
    at.states = place(&y, states);
    at.titles = place(&y, titles);
    at.nlist = list + left;
    at.list = place(&y, at.nlist);
    at.fold = place(&y, fold);
    at.notes = place(&y, notes);
    return at;
}

/* Lines above and below the list ------------------------------------------------------------- */

static enum style verdict_style(const struct snapshot *s)
{
    switch (s->severity) {
    case SEVERITY_CRITICAL:
        return STYLE_CRITICAL;
    case SEVERITY_WARNING:
        return STYLE_WARNING;
    default:
        return STYLE_GOOD;
    }
}

static void draw_verdict(const struct area *a, const struct locks_layout *at,
                         struct text_page *verdict)
{
    struct area part = *a;

    if (at->nverdict <= 0)
        return;
    part.y += at->verdict;
    part.h = at->nverdict;
    text_page_cut(verdict, (size_t)at->nverdict, a->ascii);
    text_page_draw(verdict, &part, 0);
}

static void draw_processes(const struct area *a, const struct locks_layout *at,
                           const struct snapshot *s)
{
    char line[LINE_SIZE];
    bool summed = at->nprocess == 1 && s->nprocesses > 1;

    for (int i = 0; i < at->nprocess; i++)
        draw_line(a, a->y + at->process + i, STYLE_PLAIN,
                  render_process(line, sizeof(line), s, summed ? -1 : i));
    if (at->states >= 0)
        draw_line(a, a->y + at->states, STYLE_PLAIN, render_states(line, sizeof(line), s, -1));
}

static void draw_notes(const struct area *a, const struct locks_layout *at,
                       const struct snapshot *s)
{
    char line[LINE_SIZE];

    if (at->fold >= 0)
        draw_line(a, a->y + at->fold, STYLE_DIM, render_sync_fold(line, sizeof(line), s));
    if (at->notes >= 0)
        draw_line(a, a->y + at->notes, STYLE_DIM,
                  render_degraded(line, sizeof(line), s, -1, a->ascii));
}

/* The list ----------------------------------------------------------------------------------- */

/* A lock's row, or the titles with L NULL. */
static void draw_row(const struct area *a, int y, enum style style, const struct column_set *set,
                     const struct snapshot *s, const struct snap_lock *l)
{
    char cell[LINE_SIZE];
    int x = 0;

    draw_line(a, y, style, "");
    for (size_t i = 0; i < set->n && x < a->w; i++) {
        int width = column_width(set, i);
        if (width == 0 || i + 1 == set->n)
            width = MAX(width, a->w - x);
        column_cell(cell, sizeof(cell), set->cols[i], s, l, width, a->ascii);
        draw_text(a, y, x, width, style, cell);
        x += width + 1;
    }
}

static bool in_deadlock(const struct snapshot *s, const char *id)
{
    for (size_t i = 0; i < s->nchains && s->chains[i].cycle; i++)
        for (size_t k = 0; k < s->chains[i].npath; k++)
            if (s->chains[i].path[k].lock && !strcmp(s->chains[i].path[k].lock, id))
                return true;
    return false;
}

static void draw_list(const struct area *a, const struct locks_layout *at,
                      const struct ui_state *st, const struct column_set *set,
                      const struct snapshot *s, const struct snap_lock *const *locks, size_t n)
{
    const struct cursor *c = &st->cursor[PAGE_LOCKS];

    if (at->titles >= 0)
        draw_row(a, a->y + at->titles, STYLE_TITLE, set, s, NULL);
    if (n == 0 && at->list >= 0)
        draw_line(a, a->y + at->list, STYLE_DIM, render_no_locks());
    for (int i = 0; i < at->nlist && c->top + (size_t)i < n; i++) {
        size_t row = c->top + (size_t)i;
        draw_row(a, a->y + at->list + i,
                 row == c->row                    ? STYLE_SELECTED
                 : in_deadlock(s, locks[row]->id) ? STYLE_ALARM
                                                  : STYLE_PLAIN,
                 set, s, locks[row]);
    }
}

static size_t sort_locks(const struct ui_state *st, const struct snapshot *s,
                         const struct snap_lock **locks)
{
    size_t n = column_sorted(s, st->sort, st->sync, locks);

    for (size_t i = 0; st->reverse && i < n / 2; i++) {
        const struct snap_lock *l = locks[i];
        locks[i] = locks[n - 1 - i];
        locks[n - 1 - i] = l;
    }
    return n;
}

/* All of it ---------------------------------------------------------------------------------- */

static struct locks_layout lay_out(const struct area *a, const struct ui_state *st,
                                   const struct snapshot *s, const struct text_page *verdict,
                                   size_t nlocks)
{
    char fold[LINE_SIZE];
    struct locks_layout want = {
        .nverdict = (int)MIN(verdict->n, (size_t)VERDICT_MAX),
        .nprocess = (int)MIN(s->nprocesses, (size_t)1000),
        .titles = nlocks > 0, /* none above an empty list */
        .nlist = (int)MIN(nlocks, (size_t)1000),
        .fold = !st->sync && render_sync_fold(fold, sizeof(fold), s)[0],
        .notes = s->self.ndegraded > 0,
    };

    return locks_layout(a->h, &want);
}

static void draw_snapshot(const struct area *a, struct ui_state *st, const struct snapshot *s,
                          const struct column_set *columns)
{
    const struct snap_lock **locks = xcalloc(s->nlocks, sizeof(locks[0]));
    struct text_page verdict = {.width = a->w};
    char text[LINE_SIZE];

    text_page_add(&verdict, verdict_style(s), "%s",
                  render_verdict(text, sizeof(text), s, a->ascii));
    size_t n = sort_locks(st, s, locks);
    struct locks_layout at = lay_out(a, st, s, &verdict, n);
    ui_state_place_locks(st, locks, n, (size_t)at.nlist);

    draw_verdict(a, &at, &verdict);
    draw_processes(a, &at, s);
    draw_list(a, &at, st, columns, s, locks, n);
    draw_notes(a, &at, s);
    text_page_release(&verdict);
    free(locks);
}

void view_locks_draw(const struct area *a, struct ui_state *st, const struct snapshot *s,
                     const struct column_set *columns)
{
    if (s)
        draw_snapshot(a, st, s, columns);
    else if (a->h > 0)
        draw_line(a, a->y, STYLE_DIM, "waiting for the first look");
}

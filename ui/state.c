#include "state.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../src/compiler.h"
#include "../src/xalloc.h"

void ui_state_init(struct ui_state *st, enum column sort)
{
    *st = (struct ui_state){.stack = {PAGE_LOCKS}, .sort = sort};
}

void ui_state_release(struct ui_state *st)
{
    free(st->selected);
    free(st->opened);
    free(st->link);
    free(st->link_lock);
    st->selected = st->opened = st->link = st->link_lock = NULL;
}

enum page ui_state_page(const struct ui_state *st)
{
    return st->stack[st->depth];
}

static void set_id(char **id, const char *to)
{
    if (*id && to && !strcmp(*id, to))
        return;
    char *copy = to ? xstrdup(to) : NULL;
    free(*id);
    *id = copy;
}

static bool is_list(enum page page)
{
    return page == PAGE_LOCKS || page == PAGE_CHAINS || page == PAGE_SORT;
}

/* Brings the cursor back inside, and the bar of a list into view. */
static void settle(struct cursor *c, bool list)
{
    size_t visible = MAX(c->visible, (size_t)1);
    size_t last_top = c->rows > visible ? c->rows - visible : 0;

    if (!list) {
        c->row = c->top = MIN(c->row, last_top);
        return;
    }
    c->row = MIN(c->row, c->rows ? c->rows - 1 : 0);
    if (c->row < c->top)
        c->top = c->row;
    if (c->row >= c->top + visible)
        c->top = c->row - visible + 1;
    c->top = MIN(c->top, last_top);
}

static size_t moved(const struct cursor *c, enum action action)
{
    size_t page = MAX(c->visible, (size_t)2) - 1;

    switch (action) {
    case ACTION_UP:
        return c->row ? c->row - 1 : 0;
    case ACTION_DOWN:
        return c->row + 1;
    case ACTION_PAGE_UP:
        return c->row > page ? c->row - page : 0;
    case ACTION_PAGE_DOWN:
        return c->row + page;
    case ACTION_END:
        return c->rows;
    default:
        return 0;
    }
}

/* The bar's new lock is found when the view places the rows: until then only the row is known. */
static void move(struct ui_state *st, enum action action)
{
    enum page page = ui_state_page(st);
    struct cursor *c = &st->cursor[page];

    c->row = moved(c, action);
    settle(c, is_list(page));
    if (page == PAGE_LOCKS) {
        set_id(&st->selected, NULL);
        st->picked = action != ACTION_HOME;
    } else if (page == PAGE_CHAINS) {
        set_id(&st->link, NULL);
    }
}

static void open_page(struct ui_state *st, enum page page)
{
    for (size_t i = 0; i <= st->depth; i++)
        if (st->stack[i] == page) {
            st->depth = i;
            return;
        }
    st->stack[++st->depth] = page;
    st->cursor[page].row = st->cursor[page].top = 0;
}

static void back(struct ui_state *st)
{
    if (st->depth)
        st->depth--;
}

static void step_sort(struct ui_state *st, const struct column_set *set, bool right)
{
    size_t i = 0;

    if (!set->n)
        return;
    while (i < set->n && set->cols[i] != st->sort)
        i++;
    if (i == set->n)
        i = right ? 0 : set->n - 1;
    else
        i = (i + (right ? 1 : set->n - 1)) % set->n;
    st->sort = set->cols[i];
    st->reverse = false;
}

static void open_lock(struct ui_state *st)
{
    if (!st->selected)
        return;
    set_id(&st->opened, st->selected);
    st->picked = true;
    open_page(st, PAGE_LOCK);
}

static void follow_link(struct ui_state *st)
{
    if (!st->link_lock)
        return;
    set_id(&st->opened, st->link_lock);
    open_page(st, PAGE_LOCK);
}

static void toggle_chains(struct ui_state *st)
{
    if (ui_state_page(st) == PAGE_CHAINS) {
        back(st);
        return;
    }
    set_id(&st->link, NULL);
    open_page(st, PAGE_CHAINS);
}

static void open_sort(struct ui_state *st)
{
    open_page(st, PAGE_SORT);
    st->cursor[PAGE_SORT].row = st->sort;
}

static void choose_sort(struct ui_state *st)
{
    if (st->cursor[PAGE_SORT].row < COLUMNS_COUNT)
        st->sort = (enum column)st->cursor[PAGE_SORT].row;
    st->reverse = false;
    back(st);
}

static void toggle_help(struct ui_state *st)
{
    if (ui_state_page(st) == PAGE_HELP)
        back(st);
    else
        open_page(st, PAGE_HELP);
}

void ui_state_apply(struct ui_state *st, enum action action, const struct column_set *columns)
{
    switch (action) {
    case ACTION_NONE:
    case ACTION_REDRAW:
        break;
    case ACTION_HELP:
        toggle_help(st);
        break;
    case ACTION_OPEN:
        open_lock(st);
        break;
    case ACTION_CHAINS:
        toggle_chains(st);
        break;
    case ACTION_FOLLOW:
        follow_link(st);
        break;
    case ACTION_SORT:
        open_sort(st);
        break;
    case ACTION_CHOOSE:
        choose_sort(st);
        break;
    case ACTION_BACK:
        back(st);
        break;
    case ACTION_CLOSE:
        st->quit = !st->depth;
        back(st);
        break;
    case ACTION_QUIT:
        st->quit = true;
        break;
    case ACTION_PAUSE:
        st->paused = !st->paused;
        break;
    case ACTION_SYNC:
        st->sync = !st->sync;
        break;
    case ACTION_SORT_PREV:
    case ACTION_SORT_NEXT:
        step_sort(st, columns, action == ACTION_SORT_NEXT);
        break;
    case ACTION_INVERT:
        st->reverse = !st->reverse;
        break;
    case ACTION_UP:
    case ACTION_DOWN:
    case ACTION_PAGE_UP:
    case ACTION_PAGE_DOWN:
    case ACTION_HOME:
    case ACTION_END:
        move(st, action);
        break;
    }
}

static bool find_row(const struct snap_lock *const *locks, size_t n, const char *id, size_t *row)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(locks[i]->id, id)) {
            *row = i;
            return true;
        }
    return false;
}

void ui_state_place_locks(struct ui_state *st, const struct snap_lock *const *locks, size_t n,
                          size_t visible)
{
    struct cursor *c = &st->cursor[PAGE_LOCKS];

    c->rows = n;
    c->visible = visible;
    if (!st->picked)
        c->row = 0;
    else if (st->selected)
        find_row(locks, n, st->selected, &c->row);
    settle(c, true);
    set_id(&st->selected, n ? locks[c->row]->id : NULL);
}

void ui_state_place_links(struct ui_state *st, const struct link_row *rows, size_t n,
                          size_t visible)
{
    struct cursor *c = &st->cursor[PAGE_CHAINS];

    c->rows = n;
    c->visible = visible;
    for (size_t i = 0; st->link && i < n; i++)
        if (!strcmp(rows[i].id, st->link)) {
            c->row = i;
            break;
        }
    settle(c, true);
    set_id(&st->link, n ? rows[c->row].id : NULL);
    set_id(&st->link_lock, n ? rows[c->row].lock : NULL);
}

void ui_state_place_lines(struct ui_state *st, enum page page, size_t n, size_t visible)
{
    struct cursor *c = &st->cursor[page];

    c->rows = n;
    c->visible = visible;
    settle(c, is_list(page));
}

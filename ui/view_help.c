#include "view_help.h"

#include "keys.h"

static const struct {
    const char *label, *help;
} states[] = {
#define STATE(id, name, label, help) {label, help},
#include "../src/states.def"
#undef STATE
};

static void add_keys(struct text_page *p, const struct key_place *place)
{
    size_t n;
    const struct key *keys = keys_table(&n);

    text_page_add(p, STYLE_BOLD, "%s", place->title);
    for (size_t i = 0; i < n; i++)
        if (keys[i].pages == place->pages)
            text_page_add(p, STYLE_PLAIN, "  %-14s %s", keys[i].shown, keys[i].help);
}

void view_help_build(struct text_page *p)
{
    size_t n;
    const struct key_place *places = keys_places(&n);

    for (size_t i = 0; i < n; i++)
        add_keys(p, &places[i]);
    text_page_add(p, STYLE_PLAIN, "%s", "");
    text_page_add(p, STYLE_BOLD, "Columns");
    for (size_t c = 0; c < COLUMNS_COUNT; c++)
        text_page_add(p, STYLE_PLAIN, "  %-14s %s", column_info((enum column)c)->header,
                      column_info((enum column)c)->help);
    text_page_add(p, STYLE_PLAIN, "%s", "");
    text_page_add(p, STYLE_BOLD, "Threads by what they do, mean since the last refresh");
    for (size_t i = 0; i < ARRAY_SIZE(states); i++)
        text_page_add(p, STYLE_PLAIN, "  %-14s %s", states[i].label, states[i].help);
}

void view_help_draw(const struct area *a, struct ui_state *st)
{
    struct text_page p = {.width = a->w};

    view_help_build(&p);
    ui_state_place_lines(st, PAGE_HELP, p.n, (size_t)MAX(a->h, 0));
    text_page_draw(&p, a, st->cursor[PAGE_HELP].top);
    text_page_release(&p);
}

#include "view_stacks.h"

#include "../src/render_stacks.h"

#define FRAME_INDENT 4

static void add_line(void *page, enum stack_line kind, const char *text)
{
    struct text_page *p = page;

    switch (kind) {
    case STACK_TITLE:
        text_page_add(p, STYLE_PLAIN, "%s", "");
        text_page_add(p, STYLE_BOLD, "%s", text);
        break;
    case STACK_GROUP:
        text_page_add(p, STYLE_PLAIN, "  %s", text);
        break;
    case STACK_FRAME:
        text_page_add(p, STYLE_PLAIN, "%*s%s", FRAME_INDENT, "", text);
        break;
    case STACK_NOTE:
        text_page_add(p, STYLE_DIM, "  %s", text);
        break;
    }
}

void view_stacks_add(struct text_page *p, const struct snapshot *s, const struct snap_lock *l,
                     bool ascii)
{
    const struct stack_sink sink = {.line = add_line,
                                    .arg = p,
                                    .width = p->width > 0 ? MAX(p->width - FRAME_INDENT, 1) : 0,
                                    .brief = true,
                                    .ascii = ascii};

    if (s->has_stacks)
        render_lock_stacks(&sink, l);
    else
        text_page_add(p, STYLE_DIM, "  no stacks are taken (--stacks off)");
}

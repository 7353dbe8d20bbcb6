#include "stack.h"

#include <stdlib.h>

#include "compiler.h"
#include "stack_walk.h"
#include "xalloc.h"

#define SPACES 16 /* processes whose tables are cached at a time */

/* libunwind caches by address, so every process has an address space of its own. */
struct cached {
    const struct space *space;
    uint64_t generation, used;
    unw_addr_space_t as;
};

struct unwinder {
    struct cached cached[SPACES];
    uint64_t clock;
};

struct unwinder *unwinder_new(void)
{
    return xcalloc(1, sizeof(struct unwinder));
}

void unwinder_free(struct unwinder *u)
{
    if (!u)
        return;
    for (size_t i = 0; i < SPACES; i++) {
        if (u->cached[i].as)
            unw_destroy_addr_space(u->cached[i].as);
    }
    free(u);
}

/* The address space of S; the one used longest ago makes room for a new one. */
static unw_addr_space_t addr_space_of(struct unwinder *u, const struct space *s)
{
    struct cached *c = &u->cached[0];

    for (size_t i = 0; i < SPACES; i++) {
        if (u->cached[i].as && u->cached[i].space == s) {
            c = &u->cached[i];
            break;
        }
        if (u->cached[i].used < c->used)
            c = &u->cached[i];
    }
    if (!c->as || c->space != s || c->generation != space_generation(s)) {
        if (c->as)
            unw_destroy_addr_space(c->as);
        *c = (struct cached){.space = s, .generation = space_generation(s)};
        c->as = walk_addr_space_new();
    }
    c->used = ++u->clock;
    return c->as;
}

void stack_unwind(struct unwinder *u, const struct space *s, const struct stack_regs *regs,
                  const struct stack_copy *copy, struct stack *out)
{
    struct walk w = {
        .space = s,
        .copy = copy,
        .stack = space_entry(s, regs->sp),
        .view = {.pc = regs->pc, .sp = regs->sp, .gpr = regs->full ? regs->gpr : NULL},
        .out = out,
        .stopped = regs->full,
    };
    unw_cursor_t c;

    out->end = STACK_BROKEN;
    out->guessed = out->live = false;
    out->n = 0;
    walk_add_frame(out, regs->pc, true);
    if (space_elf_class(s) == 32) {
        out->end = STACK_UNKNOWN_ABI;
        return;
    }
    w.as = addr_space_of(u, s);
    if (unw_init_remote(&c, w.as, &w) == 0)
        out->end = walk_on(&w, &c);
}

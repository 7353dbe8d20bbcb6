#include "symbol_index.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "xalloc.h"

#define NESTED_MAX  64                  /* how many symbols before an address are looked at */
#define TABLE_SHIFT 30                  /* of an id: the table, above the number within it */
#define SYMBOLS_MAX (1u << TABLE_SHIFT) /* of a table */
#define DISTANCE(k) ((k) >> 32)
#define ID(k)       ((uint32_t)(k))

static bool in_segment(const struct module *m, uint64_t vaddr, bool *exec)
{
    for (size_t i = 0; i < m->nsegments; i++) {
        const struct segment *s = &m->segments[i];
        if (vaddr >= s->vaddr && vaddr - s->vaddr < s->memsz) {
            *exec = s->exec;
            return true;
        }
    }
    return false;
}

/* Hand-written assembly often has no type: where it lies decides. */
static bool belongs(const struct module *m, const struct elf_symbol *s, bool functions)
{
    bool exec;

    if (s->section == SHN_UNDEF || s->section == SHN_ABS || s->size == 0)
        return false;
    switch (s->type) {
    case STT_FUNC:
    case STT_GNU_IFUNC:
        return functions && in_segment(m, s->value, &exec);
    case STT_OBJECT:
        return !functions && in_segment(m, s->value, &exec);
    case STT_NOTYPE:
        return in_segment(m, s->value, &exec) && exec == functions;
    default:
        return false;
    }
}

static void add_table(struct symbol_index *ix, size_t *cap, const struct module *m, unsigned which,
                      bool functions)
{
    const struct symtab *t = &ix->tables[which];
    struct elf_symbol s;

    for (size_t i = 1; i < t->n && i < SYMBOLS_MAX; i++) {
        symtab_get(t, i, &s);
        if (!belongs(m, &s, functions) || s.value - ix->base > UINT32_MAX)
            continue;
        ix->keys = xgrow(ix->keys, cap, ix->n + 1, sizeof(*ix->keys));
        ix->keys[ix->n++] = (s.value - ix->base) << 32 | which << TABLE_SHIFT | (uint32_t)i;
    }
}

/* By the distances, a byte at a time: a library has 100,000 symbols, for which comparing takes
 * several times as long. */
static void sort(uint64_t *keys, size_t n)
{
    uint64_t *from = keys, *to = xreallocarray(NULL, n, sizeof(*to)), *spare = to;

    for (unsigned shift = 32; shift < 64; shift += 8) {
        size_t at[257] = {0};
        for (size_t i = 0; i < n; i++)
            at[(from[i] >> shift & 0xff) + 1]++;
        for (unsigned i = 1; i < 256; i++)
            at[i] += at[i - 1];
        for (size_t i = 0; i < n; i++)
            to[at[from[i] >> shift & 0xff]++] = from[i];
        uint64_t *other = from;
        from = to;
        to = other;
    }
    free(spare); /* after four rounds everything is back in KEYS */
}

void symbol_index_build(struct symbol_index *ix, const struct module *m,
                        const struct symtab tables[TABLE_COUNT], bool functions)
{
    size_t cap = 0;

    *ix = (struct symbol_index){
        .tables = tables, .base = UINT64_MAX, .global_first = m->kind == MODULE_VDSO};
    for (size_t i = 0; i < m->nsegments; i++)
        ix->base = MIN(ix->base, m->segments[i].vaddr);
    for (unsigned which = 0; which < TABLE_COUNT; which++)
        add_table(ix, &cap, m, which, functions);
    if (ix->n == 0)
        return;
    sort(ix->keys, ix->n);
    ix->keys = xreallocarray(ix->keys, ix->n, sizeof(*ix->keys));
}

void symbol_index_free(struct symbol_index *ix)
{
    free(ix->keys);
    *ix = (struct symbol_index){0};
}

/* A symbol at an address that was asked for. */
struct candidate {
    const char *name;
    size_t name_len;
    uint32_t id;
    uint8_t type, bind;
};

static size_t underscores(const struct candidate *c)
{
    size_t n = 0;

    while (n < c->name_len && c->name[n] == '_')
        n++;
    return n;
}

static int rank_of_type(uint8_t type)
{
    return type == STT_FUNC || type == STT_OBJECT ? 0 : type == STT_GNU_IFUNC ? 1 : 2;
}

static bool name_better(const struct candidate *a, const struct candidate *b)
{
    size_t ua = underscores(a), ub = underscores(b);

    if (ua != ub)
        return ua < ub;
    if (a->name_len != b->name_len)
        return a->name_len < b->name_len;
    return memcmp(a->name, b->name, a->name_len) < 0;
}

static bool is_dynamic(uint32_t id)
{
    return id >> TABLE_SHIFT == TABLE_DYNAMIC;
}

static bool better(const struct symbol_index *ix, const struct candidate *a,
                   const struct candidate *b)
{
    bool ga = a->bind == STB_GLOBAL, gb = b->bind == STB_GLOBAL;

    if (is_dynamic(a->id) != is_dynamic(b->id))
        return is_dynamic(a->id);
    if (ix->global_first && ga != gb)
        return ga;
    if (rank_of_type(a->type) != rank_of_type(b->type))
        return rank_of_type(a->type) < rank_of_type(b->type);
    return name_better(a, b);
}

/* The symbol of KEY, if it has a name and DISTANCE is within its size. */
static bool holds(const struct symbol_index *ix, uint64_t key, uint64_t distance,
                  struct candidate *out)
{
    const struct symtab *t = &ix->tables[ID(key) >> TABLE_SHIFT];
    struct elf_symbol s;

    symtab_get(t, ID(key) & (SYMBOLS_MAX - 1), &s);
    if (s.value - ix->base != DISTANCE(key) || distance - DISTANCE(key) >= s.size)
        return false;
    *out = (struct candidate){.id = ID(key), .type = s.type, .bind = s.bind};
    out->name = symtab_name(t, &s, &out->name_len);
    return out->name != NULL;
}

bool symbol_index_find(const struct symbol_index *ix, uint64_t vaddr, struct symbol_found *out)
{
    uint64_t distance = vaddr - ix->base;
    struct candidate best = {0}, c;
    bool found = false;

    *out = (struct symbol_found){0};
    if (ix->n == 0 || vaddr < ix->base || distance > UINT32_MAX)
        return false;
    size_t i = COUNT_FIRST(ix->n, k, DISTANCE(ix->keys[k]) <= distance);
    for (size_t n = 0; i-- > 0 && n < NESTED_MAX; n++) {
        uint64_t key = ix->keys[i];
        if (found && ix->base + DISTANCE(key) != out->start)
            break;
        if (!holds(ix, key, distance, &c))
            continue;
        if (!found || better(ix, &c, &best))
            best = c;
        found = true;
        out->start = ix->base + DISTANCE(key);
        out->exported |= is_dynamic(c.id);
    }
    out->name = best.name;
    out->name_len = best.name_len;
    out->id = best.id;
    return found;
}

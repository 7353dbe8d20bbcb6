#include "symbol.h"

#include <elf.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "symbol_debug.h"
#include "symbol_elf.h"
#include "symbol_index.h"
#include "symbol_inline.h"
#include "symbol_lines.h"
#include "symbol_perfmap.h"
#include "xalloc.h"

#define CACHED_MAX 16384 /* addresses of a module whose answers are kept */

/* A symbol whose name was asked for. */
struct symbol_name {
    uint32_t id; /* key: struct symbol_found */
    const char *name;
    UT_hash_handle hh;
};

/* What is known of the code at one address of a module's file. */
struct location {
    uint64_t vaddr;                 /* key */
    const struct symbol_name *name; /* NULL: none */
    uint64_t start;
    bool exported;
    const char *file;
    int line;
    UT_hash_handle hh;
};

/* What is known of a module. */
struct symbols {
    const struct module *m;
    struct elf_view image;
    struct debug_file debug, embedded;
    struct symtab tables[TABLE_COUNT];
    struct symbol_index functions, data;
    bool complete; /* debug files were looked for */
    bool data_indexed;
    struct line_tables *lines;
    struct inline_info *inlined;
    struct symbol_name *names;
    struct location *locations;
    struct arena strings;
};

/* Loading ---------------------------------------------------------------------------------- */

static void forget_locations(struct symbols *y)
{
    struct location *l, *next;

    HASH_ITER (hh, y->locations, l, next) {
        HASH_DEL(y->locations, l);
        free(l);
    }
}

static void forget_names(struct symbols *y)
{
    struct symbol_name *n, *next;

    HASH_ITER (hh, y->names, n, next) {
        HASH_DEL(y->names, n);
        free(n);
    }
}

static void symbols_free(struct symbols *y)
{
    forget_locations(y);
    forget_names(y);
    inline_info_free(y->inlined);
    line_tables_free(y->lines);
    symbol_index_free(&y->functions);
    symbol_index_free(&y->data);
    debug_file_close(&y->debug);
    debug_file_close(&y->embedded);
    arena_release(&y->strings);
    free(y);
}

/* What stands in the module itself. */
static struct symbols *symbols_of(struct module *m)
{
    if (m->symbols)
        return m->symbols;
    struct symbols *y = xcalloc(1, sizeof(*y));
    y->m = m;
    m->symbols = y;
    m->free_symbols = symbols_free;
    if (m->elf_class == 0 || !elf_view_init(&y->image, m->image, m->size))
        return y;
    /* A copy from memory has no section headers; where they would be, there is something else. */
    if (m->copied)
        y->image.shnum = 0;
    if (!symtab_of_section(&y->image, SHT_DYNSYM, &y->tables[TABLE_DYNAMIC]))
        symtab_of_dynamic(&y->image, 0, &y->tables[TABLE_DYNAMIC]);
    symtab_of_section(&y->image, SHT_SYMTAB, &y->tables[TABLE_FULL]);
    return y;
}

/* Finds the fullest table of functions that there is. */
static void add_tables(struct symbols *y)
{
    if (y->tables[TABLE_FULL].n > 0 ||
        symtab_of_section(&y->debug.view, SHT_SYMTAB, &y->tables[TABLE_FULL]))
        return;
    if (debug_file_embedded(&y->image, &y->embedded))
        symtab_of_section(&y->embedded.view, SHT_SYMTAB, &y->tables[TABLE_EMBEDDED]);
}

/* Finds the lines of the module, in its own file or else the one for debugging. Nobody looks for a
 * fault in the C library's, and to unpack its debugging information takes 16 MB and 60 ms. */
static void add_lines(struct symbols *y)
{
    const struct elf_view *v = &y->image;

    if (y->m->kind == MODULE_GLIBC || y->m->kind == MODULE_MUSL)
        return;

    y->inlined = inline_info_open(v);
    if (!y->inlined && y->debug.mapped) {
        v = &y->debug.view;
        y->inlined = inline_info_open(v);
    }
    if (y->inlined)
        y->lines = line_tables_open(v);
}

/* All that is known of the module of MP, which a process maps whose space is S. */
static struct symbols *complete_symbols(struct space *s, const struct mapped *mp)
{
    struct symbols *y = symbols_of(mp->module);

    if (y->complete)
        return y;
    y->complete = true;
    if (y->image.data && y->tables[TABLE_DYNAMIC].n == 0)
        symtab_of_dynamic(&y->image, mp->bias, &y->tables[TABLE_DYNAMIC]);
    if (y->image.data && !y->m->copied)
        debug_file_find(s, y->m, &y->image, &y->debug);
    add_tables(y);
    add_lines(y);
    symbol_index_build(&y->functions, y->m, y->tables, true);
    return y;
}

/* Names ------------------------------------------------------------------------------------ */

static char *keep(struct symbols *y, const char *s, size_t len)
{
    char *copy = arena_zalloc(&y->strings, len + 1);

    memcpy(copy, s, len);
    return copy;
}

/* Without the version that static tables have behind it ("@@GLIBC_2.34"), and demangled. */
static const char *readable(struct symbols *y, const char *raw)
{
    const char *version = strchr(raw, '@');
    const char *plain = version && version != raw ? keep(y, raw, (size_t)(version - raw)) : raw;
    char *demangled = symbol_demangle(plain);

    if (!demangled)
        return plain;
    const char *name = keep(y, demangled, strlen(demangled));
    free(demangled);
    return name;
}

static const struct symbol_name *name_of(struct symbols *y, const struct symbol_found *found)
{
    struct symbol_name *n;

    HASH_FIND(hh, y->names, &found->id, sizeof(found->id), n);
    if (n)
        return n;
    n = xcalloc(1, sizeof(*n));
    n->id = found->id;
    n->name = readable(y, keep(y, found->name, found->name_len));
    HASH_ADD(hh, y->names, id, sizeof(n->id), n);
    return n;
}

/* Functions -------------------------------------------------------------------------------- */

static const struct location *locate(struct symbols *y, uint64_t vaddr)
{
    struct symbol_found found;
    struct source_line line;
    struct location *l;

    HASH_FIND(hh, y->locations, &vaddr, sizeof(vaddr), l);
    if (l)
        return l;
    if (HASH_COUNT(y->locations) >= CACHED_MAX)
        forget_locations(y);
    l = xcalloc(1, sizeof(*l));
    l->vaddr = vaddr;
    if (symbol_index_find(&y->functions, vaddr, &found)) {
        l->name = name_of(y, &found);
        l->start = found.start;
        l->exported = found.exported;
    }
    if (inline_info_find(y->inlined, y->lines, vaddr, &line)) {
        l->file = line.file;
        l->line = line.line;
    }
    HASH_ADD(hh, y->locations, vaddr, sizeof(l->vaddr), l);
    return l;
}

static void name_generated(struct space *s, uint64_t pc, uint64_t at, struct frame_name *out)
{
    uint64_t start;
    const char *name = perf_map_name(s, at, &start);

    if (!name)
        return;
    out->name = name;
    out->into = pc - start;
}

void symbol_function(struct space *s, uint64_t pc, bool exact, struct frame_name *out)
{
    const struct mapped *mp = space_find(s, pc);
    uint64_t at = exact || pc == 0 ? pc : pc - 1;

    *out = (struct frame_name){.kind = MODULE_OTHER, .offset = pc};
    /* Behind a call that never comes back may lie the end of the module. */
    if (!mp && at != pc)
        mp = space_find(s, at);
    if (mp) {
        out->module = mp->module->name;
        out->kind = mp->module->kind;
        out->offset = pc - mp->bias;
    }
    if (!mp || mp->module->elf_class == 0) {
        name_generated(s, pc, at, out);
        return;
    }
    const struct location *l = locate(complete_symbols(s, mp), at - mp->bias);
    if (l->name) {
        out->name = l->name->name;
        out->into = out->offset - l->start;
    }
    out->exported = l->exported;
    out->file = l->file;
    out->line = l->line;
}

/* Data --------------------------------------------------------------------------------------- */

static char *data_of_module(struct space *s, const struct mapped *mp, uint64_t addr)
{
    struct symbol_found found;
    struct symbols *y = complete_symbols(s, mp);
    uint64_t vaddr = addr - mp->bias;

    if (!y->data_indexed)
        symbol_index_build(&y->data, y->m, y->tables, false);
    y->data_indexed = true;
    if (!symbol_index_find(&y->data, vaddr, &found))
        return xasprintf("%s+0x%" PRIx64, mp->module->name, vaddr);
    const char *name = name_of(y, &found)->name;
    uint64_t into = vaddr - found.start;
    return into ? xasprintf("%s+0x%" PRIx64, name, into) : xstrdup(name);
}

static char *data_of_file(const struct map_entry *e, uint64_t addr)
{
    static const char gone[] = " (deleted)";
    size_t len = strlen(e->path), n = sizeof(gone) - 1;

    if (len > n && strcmp(e->path + len - n, gone) == 0)
        len -= n;
    return xasprintf("%.*s+0x%" PRIx64, (int)len, e->path, addr - e->start + e->offset);
}

char *symbol_data(struct space *s, uint64_t addr)
{
    const struct map_entry *e = space_entry(s, addr);
    const struct mapped *mp = e ? space_find(s, addr) : NULL;

    if (mp && mp->module->elf_class)
        return data_of_module(s, mp, addr);
    if (!e)
        return NULL;
    if (e->path[0] == '/')
        return data_of_file(e, addr);
    if (strcmp(e->path, "[heap]") == 0 || strcmp(e->path, "[stack]") == 0)
        return xasprintf("%s+0x%" PRIx64, e->path, addr - e->start);
    return NULL;
}

void symbol_forget(pid_t pid)
{
    perf_map_forget(pid);
}

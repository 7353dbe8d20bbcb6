#include "symbol_inline.h"

#include <dwarf.h>
#include <elf.h>
#include <elfutils/libdw.h>
#include <libelf.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "symbol_extract.h"
#include "xalloc.h"

#define UNPACKED_MAX (32u << 20) /* bytes: about 150 ms, once for a file */
#define ENTRIES_MAX  2000000     /* of a unit, or within a function: about 100 ms */
#define NESTED_MAX   64
#define UNITS_KEPT   64 /* that libdw knows the forms of entries of */

/* Code of one function. */
struct code {
    uint64_t low, high;
    Dwarf_Off function;
};

/* A compile unit. */
struct unit {
    uint64_t lines; /* its line table */
    Dwarf_Off die;
    bool read;
    struct code *codes; /* by LOW; when it was READ */
    size_t n, cap;
};

struct inline_info {
    char *file; /* NULL: the bytes of V serve */
    Elf *elf;
    Dwarf *dwarf;
    unsigned looked; /* units, with DWARF */
    struct unit *units;
    size_t n, cap;
};

/* Units ------------------------------------------------------------------------------------ */

static bool starts(const struct elf_section *strings, uint32_t at, const char *with)
{
    size_t len = strlen(with);

    return at < strings->size && strings->size - at >= len &&
           memcmp(strings->data + at, with, len) == 0;
}

/* Whether libdw will use the file's own bytes, and of no other file. */
static bool serves_as_it_is(const struct elf_view *v)
{
    struct elf_section strings, s;

    if (!elf_section(v, v->shstrndx, &strings) || !strings.data)
        return false;
    for (unsigned i = 1; elf_section(v, i, &s); i++) {
        if ((s.flags & SHF_COMPRESSED) || starts(&strings, s.name, ".zdebug") ||
            starts(&strings, s.name, ".gnu_debugaltlink") || starts(&strings, s.name, ".debug_sup"))
            return false;
    }
    return elf_section_named(v, ".debug_info", &s);
}

static bool open_elf(struct inline_info *t, const struct elf_view *v)
{
    static const char *const wanted[] = {".debug_info",     ".debug_abbrev", ".debug_ranges",
                                         ".debug_rnglists", ".debug_addr",   ".debug_line"};
    char *bytes = (char *)(uintptr_t)v->data; /* elf_memory only reads */
    size_t len = v->size;

    if (!serves_as_it_is(v))
        bytes = t->file = elf_extract(v, wanted, ARRAY_SIZE(wanted), UNPACKED_MAX, &len);
    elf_version(EV_CURRENT);
    t->elf = bytes ? elf_memory(bytes, len) : NULL;
    return t->elf != NULL;
}

static Dwarf *open_dwarf(struct inline_info *t)
{
    if (t->dwarf && t->looked < UNITS_KEPT)
        return t->dwarf;
    if (t->dwarf)
        dwarf_end(t->dwarf);
    t->looked = 0;
    t->dwarf = dwarf_begin_elf(t->elf, DWARF_C_READ, NULL);
    return t->dwarf;
}

static bool number(Dwarf_Die *die, unsigned name, uint64_t *out)
{
    Dwarf_Attribute attr;
    Dwarf_Word word;

    if (dwarf_formudata(dwarf_attr(die, name, &attr), &word) != 0)
        return false;
    *out = word;
    return true;
}

static void add_unit(struct inline_info *t, Dwarf_Off at)
{
    Dwarf_Die die;
    uint64_t lines;

    if (!dwarf_offdie(t->dwarf, at, &die) || dwarf_tag(&die) != DW_TAG_compile_unit ||
        !number(&die, DW_AT_stmt_list, &lines))
        return;
    t->units = xgrow(t->units, &t->cap, t->n + 1, sizeof(*t->units));
    t->units[t->n++] = (struct unit){.lines = lines, .die = at};
}

static int by_lines(const void *a, const void *b)
{
    const struct unit *x = a, *y = b;

    return (x->lines > y->lines) - (x->lines < y->lines);
}

static void index_units(struct inline_info *t)
{
    Dwarf_Off at = 0, next;
    size_t header;

    while (dwarf_next_unit(t->dwarf, at, &next, &header, NULL, NULL, NULL, NULL, NULL, NULL) == 0) {
        add_unit(t, at + header);
        if (next <= at)
            break;
        at = next;
    }
    if (t->n > 0)
        qsort(t->units, t->n, sizeof(*t->units), by_lines);
    t->looked = UNITS_KEPT; /* what libdw knows of all units goes at the next look */
}

struct inline_info *inline_info_open(const struct elf_view *v)
{
    struct inline_info *t = xcalloc(1, sizeof(*t));

    if (open_elf(t, v) && open_dwarf(t))
        index_units(t);
    if (t->n > 0)
        return t;
    inline_info_free(t);
    return NULL;
}

void inline_info_free(struct inline_info *t)
{
    if (!t)
        return;
    if (t->dwarf)
        dwarf_end(t->dwarf);
    if (t->elf)
        elf_end(t->elf);
    free(t->file);
    for (size_t i = 0; i < t->n; i++)
        free(t->units[i].codes);
    free(t->units);
    free(t);
}

/* Functions of a unit ------------------------------------------------------------------------ */

static void add_codes(struct unit *u, Dwarf_Die *die, unsigned *budget)
{
    Dwarf_Addr base, low, high;
    ptrdiff_t at = 0;

    while (*budget > 0 && (at = dwarf_ranges(die, at, &base, &low, &high)) > 0) {
        --*budget;
        if (low == 0 || high <= low) /* 0: the linker left it out */
            continue;
        u->codes = xgrow(u->codes, &u->cap, u->n + 1, sizeof(*u->codes));
        u->codes[u->n++] = (struct code){low, high, dwarf_dieoffset(die)};
    }
}

static bool may_hold_functions(int tag)
{
    return tag == DW_TAG_namespace || tag == DW_TAG_module || tag == DW_TAG_structure_type ||
           tag == DW_TAG_class_type;
}

static void add_functions(struct unit *u, Dwarf_Die *die, unsigned depth, unsigned *budget)
{
    Dwarf_Die child;

    if (depth == NESTED_MAX || dwarf_child(die, &child) != 0)
        return;
    do {
        int tag = dwarf_tag(&child);
        if (*budget == 0)
            return;
        --*budget;
        if (tag == DW_TAG_subprogram)
            add_codes(u, &child, budget);
        else if (may_hold_functions(tag))
            add_functions(u, &child, depth + 1, budget);
    } while (dwarf_siblingof(&child, &child) == 0);
}

static int by_low(const void *a, const void *b)
{
    const struct code *x = a, *y = b;

    return (x->low > y->low) - (x->low < y->low);
}

static void read_unit(struct unit *u, Dwarf *dwarf)
{
    unsigned budget = ENTRIES_MAX;
    Dwarf_Die die;

    u->read = true;
    if (!dwarf_offdie(dwarf, u->die, &die))
        return;
    add_functions(u, &die, 0, &budget);
    /* Older assemblers describe a whole file at once; nothing is inlined in it. */
    if (u->n == 0 && dwarf_srclang(&die) == DW_LANG_Mips_Assembler)
        add_codes(u, &die, &budget);
    if (u->n > 0)
        qsort(u->codes, u->n, sizeof(*u->codes), by_low);
}

static const struct code *find_code(const struct unit *u, uint64_t vaddr)
{
    size_t n = COUNT_FIRST(u->n, i, u->codes[i].low <= vaddr);

    return n > 0 && vaddr < u->codes[n - 1].high ? &u->codes[n - 1] : NULL;
}

/* What is inlined in a function -------------------------------------------------------------- */

/* What is looked for. */
struct search {
    uint64_t vaddr;
    unsigned budget;
};

/* The outermost inlined function below DIE whose code VADDR is in. */
static bool find_inlined(struct search *s, Dwarf_Die *die, unsigned depth, Dwarf_Die *out)
{
    Dwarf_Die child;

    if (depth == NESTED_MAX || dwarf_child(die, &child) != 0)
        return false;
    do {
        int tag = dwarf_tag(&child);
        if (s->budget == 0)
            return false;
        s->budget--;
        if (tag == DW_TAG_inlined_subroutine && dwarf_haspc(&child, s->vaddr) == 1) {
            *out = child;
            return true;
        }
        if (tag == DW_TAG_lexical_block && find_inlined(s, &child, depth + 1, out))
            return true;
    } while (dwarf_siblingof(&child, &child) == 0);
    return false;
}

static bool same_file(Dwarf_Attribute *file, struct line_tables *lines,
                      const struct source_line *at)
{
    Dwarf_Die unit;
    Dwarf_Word n;
    uint64_t table;

    if (dwarf_formudata(file, &n) != 0 ||
        !dwarf_cu_die(file->cu, &unit, NULL, NULL, NULL, NULL, NULL, NULL) ||
        !number(&unit, DW_AT_stmt_list, &table))
        return false;
    return line_tables_file(lines, table, n) == at->file;
}

/* Beside inlined code there are instructions for which the table has the inlined function's line
 * as well. That function is mostly in another file, or above. */
static bool is_own(Dwarf_Die *function, struct line_tables *lines, const struct source_line *at)
{
    Dwarf_Attribute attr;
    Dwarf_Word line;

    if (!dwarf_attr_integrate(function, DW_AT_decl_file, &attr)) /* assembly, or made up */
        return true;
    return same_file(&attr, lines, at) &&
           (dwarf_formudata(dwarf_attr_integrate(function, DW_AT_decl_line, &attr), &line) != 0 ||
            (Dwarf_Word)at->line >= line);
}

/* Makes of OUT, a line in LINES that code of FUNCTION comes from, one of the function itself. */
static bool move_out(Dwarf_Die *function, struct line_tables *lines, uint64_t vaddr,
                     struct source_line *out)
{
    struct search s = {vaddr, ENTRIES_MAX};
    Dwarf_Die call;
    uint64_t file, line;

    if (!find_inlined(&s, function, 0, &call))
        return s.budget > 0 && is_own(function, lines, out);
    if (!number(&call, DW_AT_call_file, &file) || !number(&call, DW_AT_call_line, &line) ||
        line == 0 || line > INT32_MAX)
        return false;
    out->line = (int)line;
    out->file = line_tables_file(lines, out->table, file);
    return out->file != NULL;
}

bool inline_info_find(struct inline_info *t, struct line_tables *lines, uint64_t vaddr,
                      struct source_line *out)
{
    Dwarf_Die function;

    if (!t || !lines || !line_tables_find(lines, vaddr, out) || !open_dwarf(t))
        return false;
    for (size_t i = COUNT_FIRST(t->n, k, t->units[k].lines < out->table);
         i < t->n && t->units[i].lines == out->table; i++) {
        t->looked += !t->units[i].read;
        if (!t->units[i].read)
            read_unit(&t->units[i], t->dwarf);
        const struct code *code = find_code(&t->units[i], vaddr);
        if (code)
            return dwarf_offdie(t->dwarf, code->function, &function) &&
                   move_out(&function, lines, vaddr, out);
    }
    return false;
}

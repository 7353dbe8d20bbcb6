#include "symbol_lines.h"

#include <elfutils/libdw.h>
#include <libelf.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "hash.h"
#include "symbol_extract.h"
#include "xalloc.h"

#define BYTES_MAX    (128u << 20) /* of all line tables, decompressed */
#define DECODED_ROWS 8000         /* of the tables that are kept decoded */

/* The sections that line tables consist of. */
static const char *const wanted[] = {".debug_line", ".debug_line_str", ".debug_str"};

/* Code without gaps, described by the table at TABLE. */
struct sequence {
    uint64_t low, high;
    Dwarf_Off table;
};

struct file_name {
    UT_hash_handle hh;
    char name[];
};

struct line_tables {
    char *file; /* an ELF file of the wanted sections only */
    Elf *elf;
    Dwarf *dwarf;               /* holds what is decoded */
    size_t rows;                /* in it, about */
    struct sequence *sequences; /* ascending */
    size_t n, cap;
    struct file_name *names;
};

/* One table, decoded. */
struct table {
    Dwarf_Lines *lines;
    size_t n;
    Dwarf_Files *files;
};

/* The index ------------------------------------------------------------------------------ */

static void forget_decoded(struct line_tables *t)
{
    if (t->dwarf)
        dwarf_end(t->dwarf);
    t->dwarf = NULL;
    t->rows = 0;
}

/* Decodes the table at AT. Returns 0, 1 at the end, -1 when it cannot be read; *NEXT is where the
 * next one begins, or AT when that is not known. */
static int decode(struct line_tables *t, Dwarf_Off at, Dwarf_Off *next, struct table *out)
{
    Dwarf_CU *cu = NULL; /* there is none without .debug_info */
    size_t nfiles;

    *out = (struct table){0};
    *next = at;
    if (t->rows > DECODED_ROWS)
        forget_decoded(t);
    if (!t->dwarf)
        t->dwarf = dwarf_begin_elf(t->elf, DWARF_C_READ, NULL);
    if (!t->dwarf)
        return -1;
    int rc = dwarf_next_lines(t->dwarf, at, next, &cu, &out->files, &nfiles, &out->lines, &out->n);
    t->rows += out->n;
    return rc;
}

/* A row of the table as far as it matters here. */
struct row {
    Dwarf_Line *line;
    Dwarf_Addr addr;
    int number;
    bool statement, end;
};

static bool get_row(const struct table *table, size_t i, struct row *out)
{
    out->line = dwarf_onesrcline(table->lines, i);
    return dwarf_lineaddr(out->line, &out->addr) == 0 &&
           dwarf_lineno(out->line, &out->number) == 0 &&
           dwarf_linebeginstatement(out->line, &out->statement) == 0 &&
           dwarf_lineendsequence(out->line, &out->end) == 0;
}

static void add_sequence(struct line_tables *t, const struct sequence *s)
{
    if (s->low == 0 || s->high <= s->low) /* 0: of a function that the linker left out */
        return;
    t->sequences = xgrow(t->sequences, &t->cap, t->n + 1, sizeof(*t->sequences));
    t->sequences[t->n++] = *s;
}

/*
 * libdw sorts the rows of a table by address and puts the end of a sequence before the rows at the
 * same address. These may begin the next sequence, or be the last rows of the one that ends, which
 * describe nothing; up to the next row may be code of another table, or of none.
 */
static void add_table(struct line_tables *t, const struct table *table, Dwarf_Off at)
{
    struct sequence s = {.table = at};
    bool inside = false;
    struct row r;

    for (size_t i = 0; i < table->n; i++) {
        if (!get_row(table, i, &r))
            continue;
        if (r.end) {
            s.high = r.addr;
            if (inside)
                add_sequence(t, &s);
            inside = false;
        } else if (!inside && r.addr != s.high) {
            s.low = r.addr;
            inside = true;
        }
    }
}

static int by_address(const void *a, const void *b)
{
    const struct sequence *x = a, *y = b;

    return (x->low > y->low) - (x->low < y->low);
}

static void index_tables(struct line_tables *t)
{
    struct table table;
    Dwarf_Off at = 0, next;
    int rc;

    while ((rc = decode(t, at, &next, &table)) != 1) {
        if (rc == 0)
            add_table(t, &table, at);
        if (next <= at)
            break;
        at = next;
    }
    forget_decoded(t);
    if (t->n > 0) {
        qsort(t->sequences, t->n, sizeof(*t->sequences), by_address);
        t->sequences = xreallocarray(t->sequences, t->n, sizeof(*t->sequences));
    }
}

struct line_tables *line_tables_open(const struct elf_view *v)
{
    size_t len;
    char *file = elf_extract(v, wanted, ARRAY_SIZE(wanted), BYTES_MAX, &len);

    if (!file)
        return NULL;
    struct line_tables *t = xcalloc(1, sizeof(*t));
    t->file = file;
    elf_version(EV_CURRENT);
    t->elf = elf_memory(file, len);
    if (t->elf)
        index_tables(t);
    if (t->n > 0)
        return t;
    line_tables_free(t);
    return NULL;
}

void line_tables_free(struct line_tables *t)
{
    struct file_name *f, *next;

    if (!t)
        return;
    forget_decoded(t);
    if (t->elf)
        elf_end(t->elf);
    HASH_ITER (hh, t->names, f, next) {
        HASH_DEL(t->names, f);
        free(f);
    }
    free(t->file);
    free(t->sequences);
    free(t);
}

/* Looking up ----------------------------------------------------------------------------- */

static const struct sequence *find_sequence(const struct line_tables *t, uint64_t vaddr)
{
    size_t n = COUNT_FIRST(t->n, i, t->sequences[i].low <= vaddr);

    return n > 0 && vaddr < t->sequences[n - 1].high ? &t->sequences[n - 1] : NULL;
}

static bool begins_until(const struct table *table, size_t i, uint64_t vaddr)
{
    Dwarf_Addr addr;

    return dwarf_lineaddr(dwarf_onesrcline(table->lines, i), &addr) == 0 && addr <= vaddr;
}

/* The last row that begins at or before VADDR, as debuggers see it: without those of no line, and
 * of several at one address the last that begins a statement. */
static bool find_row(const struct table *table, uint64_t vaddr, struct row *out)
{
    struct row r;
    bool found = false;

    *out = (struct row){0};
    for (size_t i = COUNT_FIRST(table->n, k, begins_until(table, k, vaddr)); i-- > 0;) {
        if (!get_row(table, i, &r) || r.end || (found && r.addr != out->addr))
            break;
        if (r.number <= 0 || (found && !r.statement))
            continue;
        *out = r;
        found = true;
        if (r.statement)
            break;
    }
    return found;
}

static const char *keep_name(struct line_tables *t, const char *name)
{
    size_t len = strlen(name);
    struct file_name *f;

    HASH_FIND(hh, t->names, name, len, f);
    if (f)
        return f->name;
    f = xcalloc(1, sizeof(*f) + len + 1);
    memcpy(f->name, name, len);
    HASH_ADD_KEYPTR(hh, t->names, f->name, len, f);
    return f->name;
}

bool line_tables_find(struct line_tables *t, uint64_t vaddr, struct source_line *out)
{
    const struct sequence *s = find_sequence(t, vaddr);
    struct table table;
    struct row row;
    Dwarf_Off next;

    if (!s || decode(t, s->table, &next, &table) != 0)
        return false;
    if (!find_row(&table, vaddr, &row))
        return false;
    const char *name = dwarf_linesrc(row.line, NULL, NULL);
    if (!name)
        return false;
    *out = (struct source_line){keep_name(t, name), row.number, s->table};
    return true;
}

const char *line_tables_file(struct line_tables *t, uint64_t at, uint64_t number)
{
    struct table table;
    Dwarf_Off next;

    if (decode(t, at, &next, &table) != 0 || !table.files)
        return NULL;
    const char *name = dwarf_filesrc(table.files, number, NULL, NULL);
    return name ? keep_name(t, name) : NULL;
}

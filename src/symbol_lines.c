#include "symbol_lines.h"

#include <elfutils/libdw.h>
#include <gelf.h>
#include <libelf.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "xalloc.h"

#define BYTES_MAX    (128u << 20) /* of all line tables, decompressed */
#define DECODED_ROWS 8000         /* of the tables that are kept decoded */

#define DOUBTFUL_MAX 256 /* bytes */

/* The sections that line tables consist of. */
static const char *const wanted[] = {".debug_line", ".debug_line_str", ".debug_str"};

/* Code without gaps, described by the table at TABLE. */
struct sequence {
    uint64_t low, high;
    Dwarf_Off table;
    bool doubtful;
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
};

/* A file of its own --------------------------------------------------------------------- */

static uint64_t unpacked_size(const struct elf_view *v, const struct elf_section *s)
{
    Elf64_Chdr h;
    Elf32_Chdr h32;

    if (!(s->flags & SHF_COMPRESSED))
        return s->size;
    if (v->is64 && s->size >= sizeof(h)) {
        memcpy(&h, s->data, sizeof(h));
        return h.ch_size;
    }
    if (!v->is64 && s->size >= sizeof(h32)) {
        memcpy(&h32, s->data, sizeof(h32));
        return h32.ch_size;
    }
    return UINT64_MAX;
}

/* A file that is built up: header, section headers, names, then the sections' bytes. */
struct builder {
    char *bytes;
    size_t len, cap;
    Elf64_Shdr headers[ARRAY_SIZE(wanted) + 2];
    size_t n;
};

static size_t append(struct builder *b, const void *data, size_t len)
{
    size_t at = (b->len + 7) & ~(size_t)7;

    b->bytes = xgrow(b->bytes, &b->cap, at + len, 1);
    memset(b->bytes + b->len, 0, at - b->len);
    if (data)
        memcpy(b->bytes + at, data, len);
    else
        memset(b->bytes + at, 0, len);
    b->len = at + len;
    return at;
}

static void add_section(struct builder *b, uint32_t type, uint64_t flags, size_t name,
                        const void *data, size_t len)
{
    b->headers[b->n++] = (Elf64_Shdr){
        .sh_name = (uint32_t)name,
        .sh_type = type,
        .sh_flags = flags,
        .sh_offset = append(b, data, len),
        .sh_size = len,
        .sh_addralign = flags & SHF_COMPRESSED ? 8 : 1,
    };
}

/* Writes the section headers and the file header in the class of V. */
static void add_headers64(struct builder *b, const struct elf_view *v)
{
    Elf64_Ehdr h;

    memcpy(&h, v->data, sizeof(h));
    h.e_phoff = 0;
    h.e_phnum = 0;
    h.e_shoff = append(b, b->headers, b->n * sizeof(*b->headers));
    h.e_shentsize = sizeof(*b->headers);
    h.e_shnum = (Elf64_Half)b->n;
    h.e_shstrndx = (Elf64_Half)(b->n - 1);
    memcpy(b->bytes, &h, sizeof(h));
}

static void add_headers32(struct builder *b, const struct elf_view *v)
{
    Elf32_Shdr headers[ARRAY_SIZE(wanted) + 2];
    Elf32_Ehdr h;

    for (size_t i = 0; i < b->n; i++) {
        const Elf64_Shdr *s = &b->headers[i];
        headers[i] = (Elf32_Shdr){.sh_name = s->sh_name,
                                  .sh_type = s->sh_type,
                                  .sh_flags = (Elf32_Word)s->sh_flags,
                                  .sh_offset = (Elf32_Off)s->sh_offset,
                                  .sh_size = (Elf32_Word)s->sh_size,
                                  .sh_addralign = (Elf32_Word)s->sh_addralign};
    }
    memcpy(&h, v->data, sizeof(h));
    h.e_phoff = 0;
    h.e_phnum = 0;
    h.e_shoff = (Elf32_Off)append(b, headers, b->n * sizeof(*headers));
    h.e_shentsize = sizeof(*headers);
    h.e_shnum = (Elf32_Half)b->n;
    h.e_shstrndx = (Elf32_Half)(b->n - 1);
    memcpy(b->bytes, &h, sizeof(h));
}

/* libdw unpacks every section of debug information it finds, so it is shown only these. */
static bool extract(const struct elf_view *v, struct builder *b)
{
    char names[128] = "";
    size_t name = 1;
    uint64_t total = 0;
    struct elf_section s;

    append(b, NULL, v->is64 ? sizeof(Elf64_Ehdr) : sizeof(Elf32_Ehdr));
    b->n = 1; /* section 0 is empty */
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        bool there = elf_section_named(v, wanted[i], &s);
        if (!there && i == 0)
            return false;
        if (!there)
            continue;
        uint64_t size = unpacked_size(v, &s);
        if (size > BYTES_MAX - total)
            return false;
        total += size;
        add_section(b, SHT_PROGBITS, s.flags & SHF_COMPRESSED, name, s.data, s.size);
        strcpy(names + name, wanted[i]);
        name += strlen(wanted[i]) + 1;
    }
    strcpy(names + name, ".shstrtab");
    add_section(b, SHT_STRTAB, 0, name, names, sizeof(names));
    if (v->is64)
        add_headers64(b, v);
    else
        add_headers32(b, v);
    return true;
}

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
    Dwarf_Files *files;
    size_t nfiles;

    *out = (struct table){0};
    *next = at;
    if (t->rows > DECODED_ROWS)
        forget_decoded(t);
    if (!t->dwarf)
        t->dwarf = dwarf_begin_elf(t->elf, DWARF_C_READ, NULL);
    if (!t->dwarf)
        return -1;
    int rc = dwarf_next_lines(t->dwarf, at, next, &cu, &files, &nfiles, &out->lines, &out->n);
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
    if (s->doubtful && s->high - s->low > DOUBTFUL_MAX)
        return;
    t->sequences = xgrow(t->sequences, &t->cap, t->n + 1, sizeof(*t->sequences));
    t->sequences[t->n++] = *s;
}

/*
 * libdw sorts the rows of a table by address and puts the end of a sequence before the rows at the
 * same address. These may begin the next sequence, or be the last rows of the one that ends, which
 * describe nothing: then up to the next row is no code of this table.
 */
static void add_table(struct line_tables *t, const struct table *table, Dwarf_Off at)
{
    struct sequence s = {.table = at};
    bool inside = false;
    struct row r;

    for (size_t i = 0; i < table->n; i++) {
        if (!get_row(table, i, &r))
            continue;
        bool begins = !inside, splits = inside && s.doubtful && !r.end && r.addr != s.low;
        if (r.end || splits) {
            s.high = r.addr;
            s.doubtful = splits;
            if (inside)
                add_sequence(t, &s);
        }
        if (r.end) {
            inside = false;
            continue;
        }
        if (begins || splits) {
            s.doubtful = begins && r.addr == s.high;
            s.low = r.addr;
            inside = true;
        }
    }
}

/* Of two that begin together the one that is certain is found. */
static int by_address(const void *a, const void *b)
{
    const struct sequence *x = a, *y = b;

    if (x->low != y->low)
        return x->low < y->low ? -1 : 1;
    return (int)y->doubtful - (int)x->doubtful;
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
    struct builder b = {0};

    if (!extract(v, &b)) {
        free(b.bytes);
        return NULL;
    }
    struct line_tables *t = xcalloc(1, sizeof(*t));
    t->file = b.bytes;
    elf_version(EV_CURRENT);
    t->elf = elf_memory(b.bytes, b.len);
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
    size_t lo = 0, hi = t->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (t->sequences[mid].low <= vaddr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 && vaddr < t->sequences[lo - 1].high ? &t->sequences[lo - 1] : NULL;
}

/* How many rows begin at or before VADDR. */
static size_t rows_until(const struct table *table, uint64_t vaddr)
{
    size_t lo = 0, hi = table->n;
    Dwarf_Addr addr;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (dwarf_lineaddr(dwarf_onesrcline(table->lines, mid), &addr) == 0 && addr <= vaddr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The last row that begins at or before VADDR, as debuggers see it: without those of no line, and
 * of several at one address the last that begins a statement. */
static bool find_row(const struct table *table, uint64_t vaddr, struct row *out)
{
    struct row r;
    bool found = false;

    *out = (struct row){0};
    for (size_t i = rows_until(table, vaddr); i-- > 0;) {
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

bool line_tables_find(struct line_tables *t, uint64_t vaddr, const char **file, int *line)
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
    *file = keep_name(t, name);
    *line = row.number;
    return true;
}

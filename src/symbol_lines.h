/*
 * symbol_lines.h - source files and lines of addresses, out of an ELF file's DWARF line tables.
 *
 * The tables are read without the rest of the debug information, which is many times larger, and
 * only a few of them are kept decoded.
 */
#ifndef LT_SYMBOL_LINES_H
#define LT_SYMBOL_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "symbol_elf.h"

struct line_tables;

/* Of the file V, which is not needed afterwards. NULL when it has no lines that can be used. */
struct line_tables *line_tables_open(const struct elf_view *v);
void line_tables_free(struct line_tables *t); /* NULL is allowed */

/* Where code comes from. */
struct source_line {
    const char *file; /* lives as long as the tables */
    int line;
    uint64_t table; /* which of the tables tells that */
};

/* Of the code at VADDR, which may have been inlined from there; false when it is not known. */
bool line_tables_find(struct line_tables *t, uint64_t vaddr, struct source_line *out);

/* The name of file NUMBER of the table TABLE, as debug information means it; NULL unknown. */
const char *line_tables_file(struct line_tables *t, uint64_t table, uint64_t number);

#endif

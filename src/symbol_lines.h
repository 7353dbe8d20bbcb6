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

/* Where the code at VADDR comes from; false when that is not known. *FILE lives as long as T. */
bool line_tables_find(struct line_tables *t, uint64_t vaddr, const char **file, int *line);

#endif

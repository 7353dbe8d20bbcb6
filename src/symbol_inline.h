/*
 * symbol_inline.h - source lines of addresses as lines of the function whose symbol the address
 * has: of inlined code, where that function calls it.
 *
 * Line tables alone cannot tell: they give the line of the inlined body, which is another
 * function's, as a line of the same kind. So .debug_info is read as well, of one compile unit for
 * each address, and where it does not tell there is no line.
 */
#ifndef LT_SYMBOL_INLINE_H
#define LT_SYMBOL_INLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "symbol_elf.h"
#include "symbol_lines.h"

struct inline_info;

/* Of the file V, whose bytes stay in use. NULL when it tells nothing, or is too large. */
struct inline_info *inline_info_open(const struct elf_view *v);
void inline_info_free(struct inline_info *t); /* NULL is allowed */

/* The line at VADDR of the function there, by the tables of the same file; false when it is not
 * known for sure. NULL is allowed for T and LINES. */
bool inline_info_find(struct inline_info *t, struct line_tables *lines, uint64_t vaddr,
                      struct source_line *out);

#endif

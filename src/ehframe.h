/*
 * ehframe.h - the table of unwind entries (FDEs) by the code they are for.
 */
#ifndef LT_EHFRAME_H
#define LT_EHFRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As in .eh_frame_hdr: both relative to the table's base. */
struct eh_entry {
    int32_t code, fde;
};

/*
 * Builds what a linker would have written for the .eh_frame section at SECTION (LEN bytes, address
 * VADDR, which is the table's base), for programs that have none (-static). IDENT is the file's
 * e_ident. Returns *N entries in ascending order, to be freed with free(); NULL when there are
 * none that can be used.
 */
struct eh_entry *ehframe_build(const unsigned char *ident, const uint8_t *section, size_t len,
                               uint64_t vaddr, size_t *n);

/* The last of N entries at TABLE (of any alignment) whose code begins at or before CODE. False
 * when there is none. */
bool ehframe_find(const uint8_t *table, size_t n, int64_t code, struct eh_entry *out);

#endif

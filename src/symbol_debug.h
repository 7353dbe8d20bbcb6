/*
 * symbol_debug.h - files that hold what was stripped from a module: separate debug files, and
 * the small table of functions that some systems compress into the file itself.
 *
 * Only files of this machine are looked at, those below the target's root first, then those below
 * our own /usr/lib/debug.
 */
#ifndef LT_SYMBOL_DEBUG_H
#define LT_SYMBOL_DEBUG_H

#include <stdbool.h>
#include <stddef.h>

#include "module.h"
#include "symbol_elf.h"

struct debug_file {
    struct elf_view view; /* DATA is NULL: there is no file */
    const void *mapped;   /* the file, SIZE bytes, or NULL */
    void *decoded;        /* malloc'ed, or NULL */
    size_t size;
};

/*
 * The debug file of M, whose own file is IMAGE: by build ID, else by .gnu_debuglink. It is M's
 * when the build IDs are equal, or where one has none, when the link's checksum is right. False
 * when there is none.
 */
bool debug_file_find(struct space *s, const struct module *m, const struct elf_view *image,
                     struct debug_file *out);

/* The ELF file compressed in .gnu_debugdata; false when there is none. */
bool debug_file_embedded(const struct elf_view *image, struct debug_file *out);

/* *F is empty afterwards. */
void debug_file_close(struct debug_file *f);

#endif

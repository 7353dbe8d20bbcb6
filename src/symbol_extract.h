/*
 * symbol_extract.h - a few sections of an ELF file as a file of their own: libdw unpacks every
 * section of debug information that it finds, and follows links to other files.
 */
#ifndef LT_SYMBOL_EXTRACT_H
#define LT_SYMBOL_EXTRACT_H

#include <stddef.h>
#include <stdint.h>

#include "symbol_elf.h"

#define EXTRACT_MAX 6 /* sections, with names of less than 32 bytes */

/*
 * The N sections NAMES of V, as far as they are there; the first must be. Returns the file, *LEN
 * bytes, to be freed with free(); NULL when it would have more than MAX bytes, unpacked.
 */
char *elf_extract(const struct elf_view *v, const char *const *names, size_t n, uint64_t max,
                  size_t *len);

#endif

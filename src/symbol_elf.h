/*
 * symbol_elf.h - the sections and symbol tables of an ELF file in memory, 32 or 64 bits, of this
 * machine's byte order. The file may be hostile: what does not lie within it is not there.
 */
#ifndef LT_SYMBOL_ELF_H
#define LT_SYMBOL_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An ELF file; borrows the bytes. */
struct elf_view {
    const uint8_t *data;
    size_t size;
    bool is64;
    uint64_t phoff, shoff;
    unsigned phnum, phentsize, shnum, shentsize, shstrndx;
};

struct elf_section {
    uint32_t type, link;
    uint32_t name; /* where in the string table */
    uint64_t flags, offset, size;
    const uint8_t *data; /* SIZE bytes; NULL: not in the file */
};

struct elf_segment {
    uint32_t type;
    uint64_t vaddr, offset, filesz, memsz;
};

/* A table of symbols and its strings; all zero: none. */
struct symtab {
    const uint8_t *symbols;
    const char *strings;
    size_t n, strings_size;
    bool is64;
};

struct elf_symbol {
    uint64_t value, size;
    uint8_t type, bind;
    uint16_t section;
    uint32_t name; /* where in the table's strings */
};

/* False when DATA is no ELF file that can be read here. */
bool elf_view_init(struct elf_view *v, const void *data, size_t size);

/* False past the end. */
bool elf_section(const struct elf_view *v, unsigned i, struct elf_section *out);
bool elf_segment(const struct elf_view *v, unsigned i, struct elf_segment *out);

/* The section NAME, with its data in the file; false when there is none. */
bool elf_section_named(const struct elf_view *v, const char *name, struct elf_section *out);

/* The first table of section type TYPE (SHT_SYMTAB, SHT_DYNSYM). */
bool symtab_of_section(const struct elf_view *v, uint32_t type, struct symtab *out);

/*
 * The dynamic symbols as the loader finds them, for a file without section headers. In a copy
 * from memory the addresses in the dynamic section may have been moved by BIAS.
 */
bool symtab_of_dynamic(const struct elf_view *v, uint64_t bias, struct symtab *out);

/* Symbol I, which must be less than N. */
void symtab_get(const struct symtab *t, size_t i, struct elf_symbol *out);

/* The name of a symbol of T, *LEN bytes; NULL when it has none (*LEN is then 0). */
const char *symtab_name(const struct symtab *t, const struct elf_symbol *s, size_t *len);

/* The bytes of the build ID note (*LEN of them), or NULL. */
const uint8_t *elf_build_id(const struct elf_view *v, size_t *len);

#endif

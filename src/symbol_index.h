/*
 * symbol_index.h - which symbol of a module's tables an address belongs to.
 *
 * Holds eight bytes for each symbol; names and sizes stay in the tables.
 */
#ifndef LT_SYMBOL_INDEX_H
#define LT_SYMBOL_INDEX_H

#include "module.h"
#include "symbol_elf.h"

/* The tables of a module. The dynamic one is what the loader sees, the others say more. */
enum symbol_table { TABLE_DYNAMIC, TABLE_FULL, TABLE_EMBEDDED, TABLE_COUNT };

struct symbol_index {
    const struct symtab *tables; /* TABLE_COUNT; borrowed */
    uint64_t base;               /* lowest address of the module */
    uint64_t *keys;              /* ascending: distance from BASE, then table and number */
    size_t n;
    bool global_first; /* prefer global names to short ones */
};

struct symbol_found {
    uint64_t start;
    const char *name; /* as in the table, NAME_LEN bytes, not terminated */
    size_t name_len;
    uint32_t id;   /* of the symbol within the module */
    bool exported; /* the dynamic table has a name for it */
};

/* Of the functions of M, or else its data. Free with symbol_index_free(). */
void symbol_index_build(struct symbol_index *ix, const struct module *m,
                        const struct symtab tables[TABLE_COUNT], bool functions);
void symbol_index_free(struct symbol_index *ix);

/*
 * The symbol that holds VADDR within its size: the one that begins nearest before it. Of several
 * that begin together an exported one, then a function rather than what has no type, then the
 * name with the fewest underscores in front, the shortest, the first in the alphabet.
 */
bool symbol_index_find(const struct symbol_index *ix, uint64_t vaddr, struct symbol_found *out);

#endif

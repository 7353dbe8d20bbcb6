#include "ehframe.h"

#include <elfutils/libdw.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "xalloc.h"

/* How pointers are written (DW_EH_PE_...). */
enum {
    PE_ABSPTR = 0x00,
    PE_UDATA4 = 0x03,
    PE_UDATA8 = 0x04,
    PE_SDATA4 = 0x0b,
    PE_SDATA8 = 0x0c,
    PE_FORM = 0x0f,
    PE_PCREL = 0x10,
    PE_ABOVE = 0xf0,
    PE_UNKNOWN = 0xff,
};

struct builder {
    const unsigned char *ident;
    const uint8_t *section;
    Elf_Data data;
    uint64_t vaddr;
    Dwarf_Off cie; /* the last one seen, and how its FDEs write addresses */
    uint8_t encoding;
    struct eh_entry *entries;
    size_t n, cap;
};

static size_t size_of_form(uint8_t encoding)
{
    switch (encoding & PE_FORM) {
    case PE_UDATA4:
    case PE_SDATA4:
        return 4;
    case PE_ABSPTR:
    case PE_UDATA8:
    case PE_SDATA8:
        return 8;
    default:
        return 0;
    }
}

/* The encoding that the letters of a CIE's augmentation lead to. */
static uint8_t fde_encoding(const Dwarf_CIE *cie)
{
    const char *letter = cie->augmentation;
    const uint8_t *p = cie->augmentation_data;
    size_t left = cie->augmentation_data_size;

    if (*letter == '\0')
        return PE_ABSPTR;
    if (*letter++ != 'z' || !p)
        return PE_UNKNOWN;
    for (; *letter; letter++) {
        size_t size = 1;

        if (*letter == 'S')
            continue;
        if (left == 0)
            return PE_UNKNOWN;
        if (*letter == 'R')
            return *p;
        if (*letter == 'P')
            size += size_of_form(*p);
        else if (*letter != 'L')
            return PE_UNKNOWN;
        if (size > left)
            return PE_UNKNOWN;
        p += size;
        left -= size;
    }
    return PE_ABSPTR;
}

static uint8_t encoding_of(struct builder *b, Dwarf_Off cie)
{
    Dwarf_CFI_Entry entry;
    Dwarf_Off next;

    if (cie != b->cie) {
        b->cie = cie;
        b->encoding = PE_UNKNOWN;
        if (dwarf_next_cfi(b->ident, &b->data, true, cie, &next, &entry) == 0 &&
            dwarf_cfi_cie_p(&entry))
            b->encoding = fde_encoding(&entry.cie);
    }
    return b->encoding;
}

static bool read_start(const struct builder *b, uint8_t encoding, const Dwarf_FDE *fde,
                       uint64_t *code)
{
    size_t size = size_of_form(encoding);
    int32_t narrow;

    if (size == 0 || (size_t)(fde->end - fde->start) < size ||
        ((encoding & PE_ABOVE) != 0 && (encoding & PE_ABOVE) != PE_PCREL))
        return false;
    if (size == 8) {
        memcpy(code, fde->start, 8);
    } else {
        memcpy(&narrow, fde->start, 4);
        *code = (encoding & PE_FORM) == PE_SDATA4 ? (uint64_t)(int64_t)narrow : (uint32_t)narrow;
    }
    if ((encoding & PE_ABOVE) == PE_PCREL)
        *code += b->vaddr + (uint64_t)(fde->start - b->section);
    return true;
}

static void add(struct builder *b, Dwarf_Off at, const Dwarf_FDE *fde)
{
    uint64_t code;

    if (at > INT32_MAX || !read_start(b, encoding_of(b, fde->CIE_pointer), fde, &code))
        return;
    int64_t distance = (int64_t)(code - b->vaddr);
    if (distance < INT32_MIN || distance > INT32_MAX)
        return;
    b->entries = xgrow(b->entries, &b->cap, b->n + 1, sizeof(*b->entries));
    b->entries[b->n++] = (struct eh_entry){(int32_t)distance, (int32_t)at};
}

static int by_code(const void *a, const void *b)
{
    const struct eh_entry *x = a, *y = b;

    return (x->code > y->code) - (x->code < y->code);
}

struct eh_entry *ehframe_build(const unsigned char *ident, const uint8_t *section, size_t len,
                               uint64_t vaddr, size_t *n)
{
    struct builder b = {
        .ident = ident,
        .section = section,
        .data = {.d_buf = (void *)(uintptr_t)section,
                 .d_size = len,
                 .d_type = ELF_T_BYTE,
                 .d_version = EV_CURRENT},
        .vaddr = vaddr,
        .cie = (Dwarf_Off)-1,
    };
    Dwarf_CFI_Entry entry;
    Dwarf_Off next;

    for (Dwarf_Off at = 0; dwarf_next_cfi(ident, &b.data, true, at, &next, &entry) == 0;
         at = next) {
        if (!dwarf_cfi_cie_p(&entry))
            add(&b, at, &entry.fde);
        if (next <= at)
            break;
    }
    if (b.n)
        qsort(b.entries, b.n, sizeof(*b.entries), by_code);
    *n = b.n;
    return b.entries;
}

static int32_t code_of(const uint8_t *table, size_t i)
{
    struct eh_entry e;

    memcpy(&e, table + i * sizeof(e), sizeof(e));
    return e.code;
}

bool ehframe_find(const uint8_t *table, size_t n, int64_t code, struct eh_entry *out)
{
    size_t before = COUNT_FIRST(n, i, code_of(table, i) <= code);

    if (before > 0)
        memcpy(out, table + (before - 1) * sizeof(*out), sizeof(*out));
    return before > 0;
}

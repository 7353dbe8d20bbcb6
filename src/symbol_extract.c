#include "symbol_extract.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "xalloc.h"

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
    Elf64_Shdr headers[EXTRACT_MAX + 2];
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
    Elf32_Shdr headers[EXTRACT_MAX + 2];
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

static bool extract(const struct elf_view *v, const char *const *wanted, size_t n, uint64_t max,
                    struct builder *b)
{
    char names[32 * (EXTRACT_MAX + 1)] = "";
    size_t name = 1;
    uint64_t total = 0;
    struct elf_section s;

    append(b, NULL, v->is64 ? sizeof(Elf64_Ehdr) : sizeof(Elf32_Ehdr));
    b->n = 1; /* section 0 is empty */
    for (size_t i = 0; i < n; i++) {
        bool there = elf_section_named(v, wanted[i], &s);
        if (!there && i == 0)
            return false;
        if (!there)
            continue;
        uint64_t size = unpacked_size(v, &s);
        if (size > max - total)
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

char *elf_extract(const struct elf_view *v, const char *const *names, size_t n, uint64_t max,
                  size_t *len)
{
    struct builder b = {0};

    if (!extract(v, names, n, max, &b)) {
        free(b.bytes);
        return NULL;
    }
    *len = b.len;
    return b.bytes;
}

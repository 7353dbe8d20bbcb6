#include "symbol_elf.h"

#include <elf.h>
#include <endian.h>
#include <string.h>

#include "compiler.h"

#define STRING_MAX 65536u /* of a symbol's name */

/* Copies LEN bytes at OFF; the file's structures need not be aligned. */
static bool get(const struct elf_view *v, uint64_t off, void *dst, size_t len)
{
    if (off > v->size || v->size - off < len)
        return false;
    memcpy(dst, v->data + off, len);
    return true;
}

static const uint8_t *bytes(const struct elf_view *v, uint64_t off, uint64_t len)
{
    return off > v->size || v->size - off < len ? NULL : v->data + off;
}

static bool read_header64(struct elf_view *v)
{
    Elf64_Ehdr h;

    if (!get(v, 0, &h, sizeof(h)))
        return false;
    v->phoff = h.e_phoff, v->phnum = h.e_phnum, v->phentsize = h.e_phentsize;
    v->shoff = h.e_shoff, v->shnum = h.e_shnum, v->shentsize = h.e_shentsize;
    v->shstrndx = h.e_shstrndx;
    return true;
}

static bool read_header32(struct elf_view *v)
{
    Elf32_Ehdr h;

    if (!get(v, 0, &h, sizeof(h)))
        return false;
    v->phoff = h.e_phoff, v->phnum = h.e_phnum, v->phentsize = h.e_phentsize;
    v->shoff = h.e_shoff, v->shnum = h.e_shnum, v->shentsize = h.e_shentsize;
    v->shstrndx = h.e_shstrndx;
    return true;
}

/* Of more than 65,279 sections the count and the string table's number stand in section 0. */
static void read_extended_count(struct elf_view *v)
{
    struct elf_section zero;

    if (v->shoff == 0)
        v->shnum = 0;
    else if (v->shnum == 0 || v->shstrndx == SHN_XINDEX) {
        bool counted = v->shnum > 0;
        v->shnum = MAX(v->shnum, 1);
        if (!elf_section(v, 0, &zero))
            return;
        if (!counted)
            v->shnum = (unsigned)MIN(zero.size, v->size / v->shentsize);
        if (v->shstrndx == SHN_XINDEX)
            v->shstrndx = zero.link;
    }
}

bool elf_view_init(struct elf_view *v, const void *data, size_t size)
{
    const unsigned char *ident = data;
    unsigned char order = BYTE_ORDER == LITTLE_ENDIAN ? ELFDATA2LSB : ELFDATA2MSB;

    *v = (struct elf_view){.data = data, .size = size};
    if (!data || size < EI_NIDENT || memcmp(ident, ELFMAG, SELFMAG) != 0 || ident[EI_DATA] != order)
        return false;
    v->is64 = ident[EI_CLASS] == ELFCLASS64;
    if (!(v->is64 ? read_header64(v) : read_header32(v)))
        return false;
    if (v->shentsize < (v->is64 ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr)))
        v->shoff = 0;
    if (v->phentsize < (v->is64 ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr)))
        v->phnum = 0;
    read_extended_count(v);
    return true;
}

bool elf_section(const struct elf_view *v, unsigned i, struct elf_section *out)
{
    uint64_t at = v->shoff + (uint64_t)i * v->shentsize;
    Elf64_Shdr h;
    Elf32_Shdr h32;

    if (i >= v->shnum || at < v->shoff)
        return false;
    if (v->is64) {
        if (!get(v, at, &h, sizeof(h)))
            return false;
    } else {
        if (!get(v, at, &h32, sizeof(h32)))
            return false;
        h = (Elf64_Shdr){.sh_name = h32.sh_name,
                         .sh_type = h32.sh_type,
                         .sh_flags = h32.sh_flags,
                         .sh_offset = h32.sh_offset,
                         .sh_size = h32.sh_size,
                         .sh_link = h32.sh_link};
    }
    *out = (struct elf_section){.type = h.sh_type,
                                .link = h.sh_link,
                                .name = h.sh_name,
                                .flags = h.sh_flags,
                                .offset = h.sh_offset,
                                .size = h.sh_size};
    if (h.sh_type != SHT_NOBITS)
        out->data = bytes(v, h.sh_offset, h.sh_size);
    return true;
}

bool elf_segment(const struct elf_view *v, unsigned i, struct elf_segment *out)
{
    uint64_t at = v->phoff + (uint64_t)i * v->phentsize;
    Elf64_Phdr h;
    Elf32_Phdr h32;

    if (i >= v->phnum || at < v->phoff)
        return false;
    if (v->is64) {
        if (!get(v, at, &h, sizeof(h)))
            return false;
        *out = (struct elf_segment){h.p_type, h.p_vaddr, h.p_offset, h.p_filesz, h.p_memsz};
    } else {
        if (!get(v, at, &h32, sizeof(h32)))
            return false;
        *out =
            (struct elf_segment){h32.p_type, h32.p_vaddr, h32.p_offset, h32.p_filesz, h32.p_memsz};
    }
    return true;
}

bool elf_section_named(const struct elf_view *v, const char *name, struct elf_section *out)
{
    struct elf_section strings;
    size_t len = strlen(name) + 1;

    if (!elf_section(v, v->shstrndx, &strings) || !strings.data)
        return false;
    for (unsigned i = 1; elf_section(v, i, out); i++) {
        if (out->name < strings.size && strings.size - out->name >= len &&
            memcmp(strings.data + out->name, name, len) == 0)
            return out->data != NULL;
    }
    return false;
}

static size_t symbol_size(bool is64)
{
    return is64 ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym);
}

bool symtab_of_section(const struct elf_view *v, uint32_t type, struct symtab *out)
{
    struct elf_section s, strings;

    *out = (struct symtab){0};
    for (unsigned i = 1; elf_section(v, i, &s); i++) {
        if (s.type != type || !s.data)
            continue;
        if (!elf_section(v, s.link, &strings) || strings.type != SHT_STRTAB || !strings.data)
            return false;
        *out = (struct symtab){.symbols = s.data,
                               .n = s.size / symbol_size(v->is64),
                               .strings = (const char *)strings.data,
                               .strings_size = strings.size,
                               .is64 = v->is64};
        return true;
    }
    return false;
}

/* What is in the file at VADDR, and how many bytes from there on; NULL when nothing is. */
static const uint8_t *loaded(const struct elf_view *v, uint64_t vaddr, size_t *len)
{
    struct elf_segment p;

    for (unsigned i = 0; elf_segment(v, i, &p); i++) {
        if (p.type == PT_LOAD && vaddr >= p.vaddr && vaddr - p.vaddr < p.filesz &&
            bytes(v, p.offset, p.filesz)) {
            *len = p.filesz - (vaddr - p.vaddr);
            return v->data + p.offset + (vaddr - p.vaddr);
        }
    }
    return NULL;
}

static const uint8_t *loaded_or_moved(const struct elf_view *v, uint64_t vaddr, uint64_t bias,
                                      size_t *len)
{
    const uint8_t *p = loaded(v, vaddr, len);

    return p || bias == 0 ? p : loaded(v, vaddr - bias, len);
}

/* What the dynamic section says of symbols. */
struct dynamic {
    uint64_t symtab, strtab, strsz, hash, gnu_hash;
};

static void dynamic_entry(struct dynamic *d, uint64_t tag, uint64_t value)
{
    switch (tag) {
    case DT_SYMTAB:
        d->symtab = value;
        break;
    case DT_STRTAB:
        d->strtab = value;
        break;
    case DT_STRSZ:
        d->strsz = value;
        break;
    case DT_HASH:
        d->hash = value;
        break;
    case DT_GNU_HASH:
        d->gnu_hash = value;
        break;
    }
}

static bool read_dynamic(const struct elf_view *v, struct dynamic *out)
{
    struct elf_segment p;
    size_t word = v->is64 ? 8 : 4;
    unsigned i = 0;

    *out = (struct dynamic){0};
    while (elf_segment(v, i, &p) && p.type != PT_DYNAMIC)
        i++;
    if (i >= v->phnum)
        return false;
    for (uint64_t at = 0; at + 2 * word <= p.filesz; at += 2 * word) {
        uint64_t tag = 0, value = 0;
        if (!get(v, p.offset + at, &tag, word) || !get(v, p.offset + at + word, &value, word) ||
            tag == DT_NULL)
            break;
        dynamic_entry(out, tag, value);
    }
    return out->symtab && out->strtab;
}

/* The last symbol of the GNU hash table ends the longest chain. */
static size_t gnu_hash_count(const uint8_t *table, size_t len, bool is64)
{
    uint32_t head[4], last = 0; /* buckets, first symbol, words of the filter, shift */

    if (len < sizeof(head))
        return 0;
    memcpy(head, table, sizeof(head));
    uint64_t buckets = sizeof(head) + (uint64_t)head[2] * (is64 ? 8 : 4);
    uint64_t chains = buckets + (uint64_t)head[0] * 4;
    if (chains > len)
        return 0;
    for (uint64_t at = buckets; at < chains; at += 4) {
        uint32_t first;
        memcpy(&first, table + at, 4);
        last = MAX(last, first);
    }
    if (last < head[1])
        return head[1];
    for (uint64_t at = chains + (uint64_t)(last - head[1]) * 4; at + 4 <= len; at += 4, last++) {
        uint32_t hash;
        memcpy(&hash, table + at, 4);
        if (hash & 1)
            return (size_t)last + 1;
    }
    return 0;
}

static size_t dynamic_count(const struct elf_view *v, const struct dynamic *d, uint64_t bias)
{
    size_t len;
    const uint8_t *p = d->hash ? loaded_or_moved(v, d->hash, bias, &len) : NULL;
    uint32_t n;

    if (p && len >= 8) {
        memcpy(&n, p + 4, 4);
        return n;
    }
    p = d->gnu_hash ? loaded_or_moved(v, d->gnu_hash, bias, &len) : NULL;
    return p ? gnu_hash_count(p, len, v->is64) : 0;
}

bool symtab_of_dynamic(const struct elf_view *v, uint64_t bias, struct symtab *out)
{
    struct dynamic d;
    size_t len, slen;

    *out = (struct symtab){0};
    if (!read_dynamic(v, &d))
        return false;
    const uint8_t *symbols = loaded_or_moved(v, d.symtab, bias, &len);
    const uint8_t *strings = loaded_or_moved(v, d.strtab, bias, &slen);
    if (!symbols || !strings)
        return false;
    *out = (struct symtab){.symbols = symbols,
                           .n = MIN(dynamic_count(v, &d, bias), len / symbol_size(v->is64)),
                           .strings = (const char *)strings,
                           .strings_size = MIN(slen, d.strsz),
                           .is64 = v->is64};
    return out->n > 0;
}

void symtab_get(const struct symtab *t, size_t i, struct elf_symbol *out)
{
    if (t->is64) {
        Elf64_Sym s;
        memcpy(&s, t->symbols + i * sizeof(s), sizeof(s));
        *out = (struct elf_symbol){
            s.st_value, s.st_size, ELF64_ST_TYPE(s.st_info), ELF64_ST_BIND(s.st_info),
            s.st_shndx, s.st_name};
    } else {
        Elf32_Sym s;
        memcpy(&s, t->symbols + i * sizeof(s), sizeof(s));
        *out = (struct elf_symbol){
            s.st_value, s.st_size, ELF32_ST_TYPE(s.st_info), ELF32_ST_BIND(s.st_info),
            s.st_shndx, s.st_name};
    }
}

const char *symtab_name(const struct symtab *t, const struct elf_symbol *s, size_t *len)
{
    *len = 0;
    if (s->name >= t->strings_size)
        return NULL;
    const char *name = t->strings + s->name;
    const char *end = memchr(name, '\0', MIN(t->strings_size - s->name, STRING_MAX));
    if (!end || end == name)
        return NULL;
    *len = (size_t)(end - name);
    return name;
}

/* Looks for the build ID among the notes at P. */
static const uint8_t *note_build_id(const uint8_t *p, uint64_t left, size_t *len)
{
    Elf64_Nhdr h; /* as in 32 bits */

    while (left >= sizeof(h)) {
        memcpy(&h, p, sizeof(h));
        uint64_t name = ((uint64_t)h.n_namesz + 3) & ~3ull;
        uint64_t desc = ((uint64_t)h.n_descsz + 3) & ~3ull;
        uint64_t at = sizeof(h) + name;
        if (at + h.n_descsz > left)
            return NULL;
        if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 &&
            memcmp(p + sizeof(h), "GNU", 4) == 0) {
            *len = h.n_descsz;
            return p + at;
        }
        if (at + desc > left)
            return NULL;
        p += at + desc;
        left -= at + desc;
    }
    return NULL;
}

const uint8_t *elf_build_id(const struct elf_view *v, size_t *len)
{
    struct elf_section s;

    *len = 0;
    for (unsigned i = 1; elf_section(v, i, &s); i++) {
        const uint8_t *id =
            s.type == SHT_NOTE && s.data ? note_build_id(s.data, s.size, len) : NULL;
        if (id)
            return id;
    }
    return NULL;
}

#include "module.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "ehframe.h"
#include "xalloc.h"

#define MAX_SEGMENTS 64

static const void *image_at(const struct module *m, uint64_t offset, uint64_t len)
{
    return offset <= m->size && len <= m->size - offset ? m->image + offset : NULL;
}

static bool read_program_header(const struct module *m, const Elf64_Ehdr *e, unsigned i,
                                Elf64_Phdr *out)
{
    size_t size = m->elf_class == 64 ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr);
    const void *p = e->e_phentsize == size && e->e_phoff <= m->size
                        ? image_at(m, e->e_phoff + i * size, size)
                        : NULL;
    Elf32_Phdr narrow;

    if (!p)
        return false;
    if (m->elf_class == 64) {
        memcpy(out, p, sizeof(*out));
        return true;
    }
    memcpy(&narrow, p, sizeof(narrow));
    *out = (Elf64_Phdr){
        .p_type = narrow.p_type,
        .p_flags = narrow.p_flags,
        .p_offset = narrow.p_offset,
        .p_vaddr = narrow.p_vaddr,
        .p_filesz = narrow.p_filesz,
        .p_memsz = narrow.p_memsz,
        .p_align = narrow.p_align,
    };
    return true;
}

/* The file header, widened. False when it is none of this machine's byte order. */
static bool read_header(struct module *m, Elf64_Ehdr *out)
{
    const unsigned char *ident = image_at(m, 0, EI_NIDENT);
    const int order = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
    const void *p;
    Elf32_Ehdr narrow;

    *out = (Elf64_Ehdr){0};
    if (!ident || memcmp(ident, ELFMAG, SELFMAG) != 0 || ident[EI_DATA] != order)
        return false;
    if (ident[EI_CLASS] == ELFCLASS64 && (p = image_at(m, 0, sizeof(*out)))) {
        memcpy(out, p, sizeof(*out));
        m->elf_class = 64;
    } else if (ident[EI_CLASS] == ELFCLASS32 && (p = image_at(m, 0, sizeof(narrow)))) {
        memcpy(&narrow, p, sizeof(narrow));
        *out = (Elf64_Ehdr){
            .e_machine = narrow.e_machine,
            .e_entry = narrow.e_entry,
            .e_phoff = narrow.e_phoff,
            .e_phentsize = narrow.e_phentsize,
            .e_phnum = narrow.e_phnum,
        };
        m->elf_class = 32;
    }
    if (m->elf_class == 0)
        return false;
    m->machine = out->e_machine;
    m->entry = out->e_entry;
    return true;
}

static void add_segment(struct module *m, size_t *cap, const Elf64_Phdr *ph)
{
    if (m->nsegments == MAX_SEGMENTS || ph->p_filesz > ph->p_memsz ||
        ph->p_vaddr + ph->p_memsz < ph->p_vaddr)
        return;
    m->segments = xgrow(m->segments, cap, m->nsegments + 1, sizeof(*m->segments));
    m->segments[m->nsegments++] = (struct segment){
        .vaddr = ph->p_vaddr,
        .offset = ph->p_offset,
        .filesz = ph->p_filesz,
        .memsz = ph->p_memsz,
        .exec = ph->p_flags & PF_X,
        .write = ph->p_flags & PF_W,
    };
}

const void *module_at(const struct module *m, uint64_t vaddr, size_t len)
{
    for (size_t i = 0; i < m->nsegments; i++) {
        const struct segment *s = &m->segments[i];
        uint64_t into = vaddr - s->vaddr;

        if (vaddr >= s->vaddr && into < s->filesz && len <= s->filesz - into &&
            s->offset <= m->size)
            return image_at(m, s->offset + into, len);
    }
    return NULL;
}

static uint32_t word_at(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

/* How many bytes from VADDR to the end of its segment's file part. */
static uint64_t bytes_behind(const struct module *m, uint64_t vaddr)
{
    for (size_t i = 0; i < m->nsegments; i++) {
        const struct segment *s = &m->segments[i];

        if (vaddr >= s->vaddr && vaddr - s->vaddr < s->filesz)
            return s->filesz - (vaddr - s->vaddr);
    }
    return 0;
}

/* Only the encodings that linkers write: a 4-byte pointer, a 4-byte count, a table of pairs
 * relative to the header. */
static void find_eh_table(struct module *m, const Elf64_Phdr *ph)
{
    enum { VERSION = 1, COUNT_UDATA4 = 0x03, TABLE_DATAREL_SDATA4 = 0x3b };
    const uint8_t *h = module_at(m, ph->p_vaddr, 12);

    if (!h || h[0] != VERSION || ((h[1] & 0x0f) != 0x0b && (h[1] & 0x0f) != 0x03) ||
        h[2] != COUNT_UDATA4 || h[3] != TABLE_DATAREL_SDATA4)
        return;
    m->eh_base = ph->p_vaddr;
    m->eh_entries = MIN((uint64_t)word_at(h + 8), bytes_behind(m, ph->p_vaddr + 12) / 8);
    m->eh_table = module_at(m, ph->p_vaddr + 12, m->eh_entries * 8);
    if (!m->eh_table)
        m->eh_entries = 0;
}

static uint64_t padded(uint32_t n)
{
    return ((uint64_t)n + 3) & ~(uint64_t)3;
}

static void find_build_id(struct module *m, const Elf64_Phdr *ph)
{
    uint64_t at = ph->p_offset, left = ph->p_filesz;
    const uint8_t *p;

    while (left >= 12 && (p = image_at(m, at, 12))) {
        uint64_t name = padded(word_at(p)), desc = padded(word_at(p + 4));
        uint32_t len = word_at(p + 4);

        if (name + desc > left - 12 || !image_at(m, at + 12, name + desc))
            return;
        if (word_at(p + 8) == NT_GNU_BUILD_ID && name == 4 && memcmp(p + 12, "GNU", 4) == 0) {
            m->build_id_len = MIN(len, (uint32_t)BUILD_ID_MAX);
            memcpy(m->build_id, p + 12 + name, m->build_id_len);
            return;
        }
        at += 12 + name + desc;
        left -= 12 + name + desc;
    }
}

static bool read_section_header(const struct module *m, const Elf64_Ehdr *e, unsigned i,
                                Elf64_Shdr *out)
{
    const void *p = e->e_shentsize == sizeof(*out) && i < e->e_shnum && e->e_shoff <= m->size
                        ? image_at(m, e->e_shoff + i * sizeof(*out), sizeof(*out))
                        : NULL;

    if (p)
        memcpy(out, p, sizeof(*out));
    return p != NULL;
}

/* The section NAME, which ends in a NUL that belongs to LEN. */
static bool find_section(const struct module *m, const Elf64_Ehdr *e, const char *name, size_t len,
                         Elf64_Shdr *out)
{
    Elf64_Shdr names;

    if (!read_section_header(m, e, e->e_shstrndx, &names))
        return false;
    for (unsigned i = 0; read_section_header(m, e, i, out); i++) {
        const void *p = out->sh_name < names.sh_size && names.sh_offset <= m->size
                            ? image_at(m, names.sh_offset + out->sh_name, len)
                            : NULL;
        if (p && memcmp(p, name, len) == 0)
            return true;
    }
    return false;
}
#define FIND_SECTION(m, e, name, out) find_section(m, e, name, sizeof(name), out)

/* For programs without .eh_frame_hdr: gcc -static leaves it out where the program itself tells its
 * unwinder where the tables are. */
static void build_eh_table(struct module *m, const Elf64_Ehdr *e, struct eh_entry **own)
{
    Elf64_Shdr sh;
    const uint8_t *section;

    if (!FIND_SECTION(m, e, ".eh_frame", &sh) || !(section = module_at(m, sh.sh_addr, sh.sh_size)))
        return;
    *own = ehframe_build(m->image, section, sh.sh_size, sh.sh_addr, &m->eh_entries);
    m->eh_table = (const uint8_t *)*own;
    m->eh_base = sh.sh_addr;
}

static void find_go_table(struct module *m, const Elf64_Ehdr *e)
{
    Elf64_Shdr table, text;

    if (!FIND_SECTION(m, e, ".text", &text) ||
        (!FIND_SECTION(m, e, ".gopclntab", &table) &&
         !FIND_SECTION(m, e, ".data.rel.ro.gopclntab", &table)))
        return;
    m->go_table = module_at(m, table.sh_addr, table.sh_size);
    m->go_size = m->go_table ? table.sh_size : 0;
    m->go_text = text.sh_addr;
}

void module_parse(struct module *m, struct eh_entry **own)
{
    Elf64_Ehdr e;
    Elf64_Phdr ph;
    size_t cap = 0;
    bool has_header = false;

    if (!read_header(m, &e))
        return;
    for (unsigned i = 0; i < e.e_phnum && read_program_header(m, &e, i, &ph); i++) {
        if (ph.p_type == PT_LOAD)
            add_segment(m, &cap, &ph);
    }
    for (unsigned i = 0; i < e.e_phnum && read_program_header(m, &e, i, &ph); i++) {
        if (ph.p_type == PT_NOTE && !m->build_id_len)
            find_build_id(m, &ph);
        if (ph.p_type == PT_GNU_EH_FRAME && m->elf_class == 64) {
            find_eh_table(m, &ph);
            has_header = true;
        }
    }
    if (m->elf_class != 64 || m->copied)
        return;
    if (!has_header)
        build_eh_table(m, &e, own);
    find_go_table(m, &e);
}

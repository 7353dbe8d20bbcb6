#include "libc_tid.h"

#include <elf.h>
#include <string.h>

#include "compiler.h"

#define SYMBOL      "_thread_db_pthread_tid"
#define MAX_PHDRS   64
#define MAX_DYNAMIC 128
#define MAX_CHAIN   64         /* symbols of one hash bucket */
#define MAX_BLOOM   (1u << 20) /* words */
#define MAX_OFFSET  8192

struct image {
    pid_t tid;
    int (*read)(pid_t, struct remote_item *, size_t);
    uint64_t base, bias;
    uint64_t symbols, strings, hash; /* addresses in the target */
};

static bool fetch(const struct image *im, uint64_t addr, void *dst, size_t len)
{
    struct remote_item item = {.addr = addr, .dst = dst, .len = (uint32_t)len};

    return im->read(im->tid, &item, 1) == 1;
}

/* The program header that begins the file tells where it was loaded to. */
static const Elf64_Phdr *find_dynamic(struct image *im, const Elf64_Phdr *ph, size_t n)
{
    const Elf64_Phdr *dynamic = NULL;
    bool based = false;

    for (size_t i = 0; i < n; i++) {
        if (ph[i].p_type == PT_DYNAMIC) {
            dynamic = &ph[i];
        } else if (ph[i].p_type == PT_LOAD && ph[i].p_offset == 0) {
            im->bias = im->base - ph[i].p_vaddr;
            based = true;
        }
    }
    return based ? dynamic : NULL;
}

/* Some loaders relocate these in place, others leave them as they stand in the file. */
static uint64_t relocated(const struct image *im, uint64_t value)
{
    return value < im->bias ? value + im->bias : value;
}

static bool take_tables(struct image *im, const Elf64_Dyn *d, size_t n)
{
    for (size_t i = 0; i < n && d[i].d_tag != DT_NULL; i++) {
        if (d[i].d_tag == DT_SYMTAB)
            im->symbols = relocated(im, d[i].d_un.d_ptr);
        else if (d[i].d_tag == DT_STRTAB)
            im->strings = relocated(im, d[i].d_un.d_ptr);
        else if (d[i].d_tag == DT_GNU_HASH)
            im->hash = relocated(im, d[i].d_un.d_ptr);
    }
    return im->symbols && im->strings && im->hash;
}

static bool find_tables(struct image *im)
{
    Elf64_Ehdr eh;
    Elf64_Phdr ph[MAX_PHDRS];
    Elf64_Dyn dyn[MAX_DYNAMIC];

    if (!fetch(im, im->base, &eh, sizeof(eh)) || memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 ||
        eh.e_ident[EI_CLASS] != ELFCLASS64 || eh.e_phentsize != sizeof(ph[0]) || eh.e_phnum == 0 ||
        eh.e_phnum > MAX_PHDRS || !fetch(im, im->base + eh.e_phoff, ph, eh.e_phnum * sizeof(ph[0])))
        return false;
    const Elf64_Phdr *p = find_dynamic(im, ph, eh.e_phnum);
    if (!p)
        return false;
    size_t n = MIN(p->p_memsz / sizeof(dyn[0]), (size_t)MAX_DYNAMIC);
    return n > 0 && fetch(im, im->bias + p->p_vaddr, dyn, n * sizeof(dyn[0])) &&
           take_tables(im, dyn, n);
}

static uint32_t gnu_hash(const char *name)
{
    uint32_t h = 5381;

    for (; *name; name++)
        h = h * 33 + (unsigned char)*name;
    return h;
}

static bool is_it(const struct image *im, uint32_t index, Elf64_Sym *out)
{
    char name[sizeof(SYMBOL)];

    return fetch(im, im->symbols + (uint64_t)index * sizeof(*out), out, sizeof(*out)) &&
           fetch(im, im->strings + out->st_name, name, sizeof(name)) &&
           memcmp(name, SYMBOL, sizeof(name)) == 0;
}

/* The table: bucket count, first symbol, words of the filter, a shift; the filter; the buckets; and
 * for each symbol its hash, the last of a bucket with bit 0 set. */
static bool find_symbol(const struct image *im, Elf64_Sym *out)
{
    uint32_t head[4], index, hash, wanted = gnu_hash(SYMBOL);

    if (!fetch(im, im->hash, head, sizeof(head)) || head[0] == 0 || head[2] > MAX_BLOOM)
        return false;
    uint64_t buckets = im->hash + sizeof(head) + 8 * (uint64_t)head[2];
    uint64_t chains = buckets + 4 * (uint64_t)head[0];
    if (!fetch(im, buckets + 4 * (uint64_t)(wanted % head[0]), &index, sizeof(index)) ||
        index < head[1])
        return false;
    for (int i = 0; i < MAX_CHAIN; i++, index++) {
        if (!fetch(im, chains + 4 * (uint64_t)(index - head[1]), &hash, sizeof(hash)))
            return false;
        if ((hash | 1) == (wanted | 1) && is_it(im, index, out))
            return true;
        if (hash & 1)
            break;
    }
    return false;
}

bool libc_tid_offset(pid_t tid, uint64_t base, int (*read)(pid_t, struct remote_item *, size_t),
                     uint32_t *offset)
{
    struct image im = {.tid = tid, .read = read, .base = base};
    Elf64_Sym sym;
    uint32_t field[3]; /* bits, how many, offset in bytes */

    if (!find_tables(&im) || !find_symbol(&im, &sym) || sym.st_size != sizeof(field) ||
        !fetch(&im, im.bias + sym.st_value, field, sizeof(field)))
        return false;
    if (field[0] != 32 || field[1] != 1 || field[2] > MAX_OFFSET || field[2] % 4 != 0)
        return false;
    *offset = field[2];
    return true;
}

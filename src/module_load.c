#include "module_load.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "compiler.h"
#include "filemap.h"
#include "hash.h"
#include "symbol_elf.h"
#include "xalloc.h"

#define MAX_IMAGE (1u << 30) /* address space for a copy of a file */
#define COPY_ITEM 65536u

/* What tells one state of a file from another. */
struct file_key {
    uint64_t dev, inode, size;
    int64_t mtime_ns, ctime_ns;
};

struct loaded {
    struct module m; /* first: a module is freed through its address */
    struct file_key key;
    char *path_mem;
    struct eh_entry *own_table;
    UT_hash_handle hh;          /* of files only */
    struct loaded *next, *prev; /* of copies only */
};

struct module_set {
    struct loaded *files;
    struct loaded *copies;
    uint64_t generation;
};

struct module_set *module_set_new(void)
{
    return xcalloc(1, sizeof(struct module_set));
}

uint64_t module_set_generation(struct module_set *set)
{
    return ++set->generation;
}

static enum module_kind kind_of(const char *path)
{
    if (strcmp(path, "[vdso]") == 0)
        return MODULE_VDSO;
    if (maps_path_is_glibc(path))
        return MODULE_GLIBC;
    return maps_path_is_musl(path) ? MODULE_MUSL : MODULE_OTHER;
}

static char *clean_path(const char *path)
{
    static const char mark[] = " (deleted)";
    size_t len = strlen(path), n = sizeof(mark) - 1;
    char *s = xstrdup(path);

    if (len > n && strcmp(s + len - n, mark) == 0)
        s[len - n] = '\0';
    return s;
}

static struct loaded *loaded_new(const struct map_entry *e)
{
    struct loaded *l = xcalloc(1, sizeof(*l));
    const char *slash;

    l->path_mem = clean_path(e->path);
    slash = strrchr(l->path_mem, '/');
    l->m = (struct module){
        .dev = e->dev,
        .inode = e->inode,
        .path = l->path_mem,
        .name = slash ? slash + 1 : l->path_mem,
        .kind = kind_of(l->path_mem),
        .users = 1,
    };
    return l;
}

static void loaded_free(struct loaded *l)
{
    if (l->m.free_symbols)
        l->m.free_symbols(l->m.symbols);
    if (l->m.copied)
        munmap((void *)(uintptr_t)l->m.image, l->m.size);
    else
        filemap_free(l->m.image, l->m.size);
    free(l->own_table);
    free(l->m.segments);
    free(l->path_mem);
    free(l);
}

static void forget(struct module_set *set, struct loaded *l)
{
    if (l->m.copied || !l->m.image) {
        *(l->prev ? &l->prev->next : &set->copies) = l->next;
        if (l->next)
            l->next->prev = l->prev;
    } else {
        HASH_DEL(set->files, l);
    }
    loaded_free(l);
}

void module_put(struct module_set *set, struct module *m)
{
    if (--m->users == 0)
        forget(set, (struct loaded *)m);
}

void module_set_free(struct module_set *set)
{
    struct loaded *l, *next;

    if (!set)
        return;
    HASH_ITER (hh, set->files, l, next)
        forget(set, l);
    while (set->copies)
        forget(set, set->copies);
    free(set);
}

static struct module *keep_copy(struct module_set *set, struct loaded *l)
{
    l->next = set->copies;
    if (l->next)
        l->next->prev = l;
    set->copies = l;
    return &l->m;
}

struct module *module_load_nothing(struct module_set *set, const struct map_entry *e)
{
    return keep_copy(set, loaded_new(e));
}

static int64_t ns(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

struct module *module_load_file(struct module_set *set, int fd, const struct stat *st,
                                const struct map_entry *e)
{
    struct file_key key = {e->dev, e->inode, (uint64_t)st->st_size, ns(st->st_mtim),
                           ns(st->st_ctim)};
    struct loaded *l;

    HASH_FIND(hh, set->files, &key, sizeof(key), l);
    if (l) {
        l->m.users++;
        return &l->m;
    }
    l = loaded_new(e);
    l->m.image = filemap_new(fd, (size_t)st->st_size);
    if (!l->m.image)
        return keep_copy(set, l);
    l->m.size = (size_t)st->st_size;
    l->key = key;
    HASH_ADD(hh, set->files, key, sizeof(key), l);
    module_parse(&l->m, &l->own_table);
    return &l->m;
}

/* Out of memory ---------------------------------------------------------------------- */

/* Reads what can be read of LEN bytes at ADDR; the rest of DST stays. */
static void copy_in(pid_t pid, target_reader read, uint64_t addr, uint8_t *dst, size_t len)
{
    for (size_t at = 0; at < len;) {
        struct remote_item items[16];
        size_t n = 0;

        for (; n < ARRAY_SIZE(items) && at < len; n++) {
            uint32_t part = (uint32_t)MIN(len - at, (size_t)COPY_ITEM);
            items[n] = (struct remote_item){.addr = addr + at, .dst = dst + at, .len = part};
            at += part;
        }
        if (read(pid, items, n) <= 0)
            return;
    }
}

/* Anonymous memory, of which only what is filled counts. */
static uint8_t *image_new(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static struct module *same_copy(struct module_set *set, const struct module *m)
{
    for (struct loaded *l = set->copies; l; l = l->next) {
        if (l->m.kind == m->kind && l->m.size == m->size && l->m.image &&
            memcmp(l->m.image, m->image, m->size) == 0)
            return &l->m;
    }
    return NULL;
}

struct module *module_load_vdso(struct module_set *set, const struct map_entry *e, pid_t pid,
                                target_reader read)
{
    struct loaded *l = loaded_new(e);
    size_t size = MIN(e->end - e->start, (uint64_t)COPY_ITEM);
    uint8_t *image = image_new(size);
    struct module *known;

    if (!image)
        return keep_copy(set, l);
    l->m.image = image;
    l->m.size = size;
    l->m.copied = true;
    copy_in(pid, read, e->start, image, size);
    known = same_copy(set, &l->m);
    if (known) {
        loaded_free(l);
        known->users++;
        return known;
    }
    module_parse(&l->m, &l->own_table);
    return keep_copy(set, l);
}

static size_t file_size_of(const struct module *m)
{
    uint64_t size = 0;

    for (size_t i = 0; i < m->nsegments; i++) {
        const struct segment *s = &m->segments[i];
        if (s->offset > MAX_IMAGE || s->filesz > MAX_IMAGE - s->offset)
            return 0;
        size = MAX(size, s->offset + s->filesz);
    }
    return (size_t)size;
}

/* Forgets what was read of the headers; IMAGE is to be parsed instead (NULL: nothing). */
static void set_image(struct module *m, uint8_t *image, size_t size)
{
    free(m->segments);
    m->segments = NULL;
    m->nsegments = m->eh_entries = m->build_id_len = 0;
    m->elf_class = m->machine = 0;
    m->entry = 0;
    m->image = image;
    m->size = size;
    m->copied = image != NULL;
}

/* A file that is read out of a process's memory into an image of SIZE bytes. */
struct copying {
    pid_t pid;
    target_reader read;
    uint64_t bias;
    uint8_t *image;
    size_t size, left, done; /* LEFT: how many bytes may still be read */
    uint64_t missing;        /* segments, a bit each */
};

/* False when LEN bytes are too many. */
static bool copy_part(struct copying *c, uint64_t vaddr, uint64_t offset, uint64_t len)
{
    if (len > c->left || offset > c->size || len > c->size - offset)
        return false;
    copy_in(c->pid, c->read, c->bias + vaddr, c->image + offset, len);
    c->left -= len;
    c->done += len;
    return true;
}

/* Unwind tables and symbols first; code is read of the process itself where it is missing. */
static void copy_segments(struct copying *c, const struct module *m)
{
    for (int exec = 0; exec <= 1; exec++) {
        for (size_t i = 0; i < m->nsegments; i++) {
            const struct segment *s = &m->segments[i];
            if (s->exec == exec && (s->write || !copy_part(c, s->vaddr, s->offset, s->filesz)))
                c->missing |= 1ull << i;
        }
    }
}

/* The loader's table of where the symbols are stands among the data. */
static void copy_dynamic(struct copying *c, const struct module *m)
{
    struct elf_view v;
    struct elf_segment p;

    if (!elf_view_init(&v, m->image, m->size))
        return;
    for (unsigned i = 0; elf_segment(&v, i, &p); i++) {
        if (p.type == PT_DYNAMIC)
            copy_part(c, p.vaddr, p.offset, p.filesz);
    }
}

/* Fills C's image with what is needed of L, and reads the headers again there. */
static void fill_image(struct loaded *l, struct copying *c)
{
    struct module *m = &l->m;

    copy_segments(c, m);
    copy_dynamic(c, m);
    set_image(m, c->image, c->size);
    m->copied_bytes = c->done;
    module_parse(m, &l->own_table);
    for (size_t i = 0; i < m->nsegments; i++) {
        if (c->missing >> i & 1)
            m->segments[i].filesz = 0;
    }
}

struct module *module_load_memory(struct module_set *set, const struct map_entry *e, pid_t pid,
                                  target_reader read, size_t limit)
{
    struct loaded *l = loaded_new(e);
    uint8_t head[4096] = {0};

    copy_in(pid, read, e->start, head, sizeof(head));
    l->m.image = head;
    l->m.size = sizeof(head);
    l->m.copied = true;
    module_parse(&l->m, &l->own_table);
    size_t size = l->m.nsegments ? file_size_of(&l->m) : 0;
    uint8_t *image = size ? image_new(size) : NULL;
    if (image) {
        uint64_t bias = e->start - (l->m.segments[0].vaddr - l->m.segments[0].offset);
        struct copying c = {pid, read, bias, image, size, limit, 0, 0};
        fill_image(l, &c);
    } else {
        set_image(&l->m, NULL, 0);
    }
    return keep_copy(set, l);
}

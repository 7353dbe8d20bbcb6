#include "freshness.h"

#include <elf.h>
#include <string.h>

#include "compiler.h"

/* Notes stand in the first pages of a file. */
#define NOTES_WITHIN 65536

/* The address, in the process, of the byte at OFFSET of its file; 0 when it is not loaded. */
static uint64_t loaded_at(const struct mapped *m, uint64_t offset, size_t len)
{
    for (size_t i = 0; i < m->module->nsegments; i++) {
        const struct segment *g = &m->module->segments[i];
        if (offset >= g->offset && offset - g->offset + len <= g->filesz && !g->write)
            return m->bias + g->vaddr + (offset - g->offset);
    }
    return 0;
}

/* What tells the file from others. */
static void find_mark(struct fresh_file *f, const struct mapped *m)
{
    const struct module *mod = m->module;
    const uint8_t *id = mod->build_id_len ? memmem(mod->image, MIN(mod->size, NOTES_WITHIN),
                                                   mod->build_id, mod->build_id_len)
                                          : NULL;

    *f = (struct fresh_file){.module = mod, .start = m->start};
    f->bytes = id ? id : mod->image;
    f->len = id ? (uint32_t)mod->build_id_len : (uint32_t)MIN(mod->size, sizeof(Elf64_Ehdr));
    f->addr = loaded_at(m, (uint64_t)(f->bytes - mod->image), f->len);
}

static struct fresh_file *file_of(struct freshness *f, const struct mapped *m)
{
    for (size_t i = 0; i < FRESH_FILES; i++) {
        if (f->files[i].module == m->module && f->files[i].start == m->start)
            return &f->files[i];
    }
    struct fresh_file *file = &f->files[f->next];
    f->next = (f->next + 1) % FRESH_FILES;
    find_mark(file, m);
    return file;
}

#define MARK_MAX MAX(BUILD_ID_MAX, sizeof(Elf64_Ehdr))
#define AT_ONCE  16

/* What is to be compared in one look. */
struct comparison {
    const struct fresh_file *files[AT_ONCE];
    struct remote_item items[AT_ONCE];
    uint8_t bytes[AT_ONCE][MARK_MAX];
    size_t n;
};

static void add(struct comparison *c, const struct fresh_file *f)
{
    for (size_t i = 0; i < c->n; i++) {
        if (c->files[i] == f)
            return;
    }
    if (c->n == AT_ONCE || f->addr == 0 || f->len == 0 || f->len > MARK_MAX)
        return; /* nothing to go by: believed */
    c->files[c->n] = f;
    c->items[c->n] = (struct remote_item){.addr = f->addr, .dst = c->bytes[c->n], .len = f->len};
    c->n++;
}

static bool all_stand(const struct comparison *c)
{
    for (size_t i = 0; i < c->n; i++) {
        if (c->items[i].got != c->files[i]->len ||
            memcmp(c->bytes[i], c->files[i]->bytes, c->files[i]->len) != 0)
            return false;
    }
    return true;
}

bool freshness_check(struct freshness *f, const struct space *s, pid_t tid,
                     int (*read)(pid_t, struct remote_item *, size_t), const uint64_t *addr,
                     size_t n)
{
    struct comparison c = {.n = 0};

    if (f->generation != space_generation(s))
        *f = (struct freshness){.generation = space_generation(s)};
    for (size_t i = 0; i < n; i++) {
        const struct mapped *m = space_find(s, addr[i]);
        /* A copied one was read from there, and may have no file. */
        if (m && m->module->elf_class && !m->module->copied)
            add(&c, file_of(f, m));
    }
    /* Where nothing can be read there is nothing to compare with. */
    return c.n == 0 || read(tid, c.items, c.n) < 0 || all_stand(&c);
}

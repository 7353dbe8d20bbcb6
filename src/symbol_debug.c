#include "symbol_debug.h"

#include <elf.h>
#include <lzma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "filemap.h"
#include "xalloc.h"

#define DEBUG_DIR      SPACE_DEBUG_DIR
#define EMBEDDED_MAX   (64u << 20)  /* bytes, decoded */
#define DECODER_MEMORY (128u << 20) /* bytes */

/* What tells a module's own debug file from others. */
struct wanted {
    const struct module *m;
    struct space *s;
    const char *link; /* .gnu_debuglink, or NULL */
    size_t link_len;
    uint32_t crc; /* of the whole file, when LINK */
};

/* Takes over FD. */
static bool map_file(int fd, struct debug_file *out)
{
    struct stat st;

    *out = (struct debug_file){0};
    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        out->size = (size_t)st.st_size;
        out->mapped = filemap_new(fd, out->size);
    }
    close(fd);
    return out->mapped && elf_view_init(&out->view, out->mapped, out->size);
}

static bool is_of(const struct wanted *w, const struct debug_file *f, bool by_link)
{
    size_t len;
    const uint8_t *id = elf_build_id(&f->view, &len);

    if (id && w->m->build_id_len > 0)
        return len == w->m->build_id_len && memcmp(id, w->m->build_id, len) == 0;
    return by_link && lzma_crc32(f->mapped, f->size, 0) == w->crc;
}

/* A link may name the stripped file itself. */
static bool has_symbols(const struct elf_view *v)
{
    struct symtab table;
    struct elf_section lines;

    return symtab_of_section(v, SHT_SYMTAB, &table) || elf_section_named(v, ".debug_line", &lines);
}

static bool accept_file(int fd, const struct wanted *w, bool by_link, struct debug_file *out)
{
    if (map_file(fd, out) && out->view.is64 == (w->m->elf_class == 64) && has_symbols(&out->view) &&
        is_of(w, out, by_link))
        return true;
    debug_file_close(out);
    return false;
}

static bool try_path(const struct wanted *w, const char *path, bool by_link, struct debug_file *out)
{
    size_t len = sizeof(DEBUG_DIR) - 1;

    if (accept_file(space_open(w->s, path), w, by_link, out))
        return true;
    /* The target has its say in PATH: of our own files it leads to those for debugging only. */
    return strncmp(path, DEBUG_DIR "/", len + 1) == 0 &&
           accept_file(space_open_debug(w->s, path + len), w, by_link, out);
}

static bool by_build_id(const struct wanted *w, struct debug_file *out)
{
    const struct module *m = w->m;
    char path[sizeof(DEBUG_DIR) + 2 * BUILD_ID_MAX + 32];

    if (m->build_id_len < 2)
        return false;
    int n = snprintf(path, sizeof(path), DEBUG_DIR "/.build-id/%02x/", m->build_id[0]);
    for (size_t i = 1; i < m->build_id_len; i++)
        n += snprintf(path + n, sizeof(path) - (size_t)n, "%02x", m->build_id[i]);
    snprintf(path + n, sizeof(path) - (size_t)n, ".debug");
    return try_path(w, path, false, out);
}

static bool read_link(const struct elf_view *image, struct wanted *w)
{
    struct elf_section s;

    if (!elf_section_named(image, ".gnu_debuglink", &s))
        return false;
    size_t len = strnlen((const char *)s.data, s.size), crc = (len + 4) & ~(size_t)3;
    if (len == 0 || len > 255 || crc + 4 > s.size || memchr(s.data, '/', len))
        return false;
    w->link = (const char *)s.data;
    w->link_len = len;
    memcpy(&w->crc, s.data + crc, sizeof(w->crc));
    return true;
}

static bool by_debuglink(const struct wanted *w, struct debug_file *out)
{
    static const struct {
        const char *before, *after;
    } places[] = {{"", ""}, {"", ".debug/"}, {DEBUG_DIR, ""}};
    const char *slash = strrchr(w->m->path, '/');
    bool found = false;

    for (size_t i = 0; slash && !found && i < ARRAY_SIZE(places); i++) {
        char *path = xasprintf("%s%.*s%s%.*s", places[i].before, (int)(slash - w->m->path) + 1,
                               w->m->path, places[i].after, (int)w->link_len, w->link);
        found = try_path(w, path, true, out);
        free(path);
    }
    return found;
}

bool debug_file_find(struct space *s, const struct module *m, const struct elf_view *image,
                     struct debug_file *out)
{
    struct wanted w = {.m = m, .s = s};

    *out = (struct debug_file){0};
    return by_build_id(&w, out) || (read_link(image, &w) && by_debuglink(&w, out));
}

/* Decodes all of Z's input into a buffer that grows; NULL when it is not sound. */
static uint8_t *decode(lzma_stream *z, size_t *size)
{
    uint8_t *buf = NULL;
    size_t cap = 0;
    lzma_ret rc;

    do {
        buf = xgrow(buf, &cap, z->total_out + 4096, 1);
        z->next_out = buf + z->total_out;
        z->avail_out = cap - z->total_out;
        rc = lzma_code(z, LZMA_FINISH);
    } while (rc == LZMA_OK && z->total_out < EMBEDDED_MAX);
    *size = z->total_out;
    if (rc == LZMA_STREAM_END)
        return buf;
    free(buf);
    return NULL;
}

bool debug_file_embedded(const struct elf_view *image, struct debug_file *out)
{
    struct elf_section s;
    lzma_stream z = LZMA_STREAM_INIT;

    *out = (struct debug_file){0};
    if (!elf_section_named(image, ".gnu_debugdata", &s) ||
        lzma_stream_decoder(&z, DECODER_MEMORY, 0) != LZMA_OK)
        return false;
    z.next_in = s.data;
    z.avail_in = s.size;
    out->decoded = decode(&z, &out->size);
    lzma_end(&z);
    if (out->decoded && elf_view_init(&out->view, out->decoded, out->size))
        return true;
    debug_file_close(out);
    return false;
}

void debug_file_close(struct debug_file *f)
{
    filemap_free(f->mapped, f->size);
    free(f->decoded);
    *f = (struct debug_file){0};
}

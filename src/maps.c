#include "maps.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "procfs.h"

#define MAPS_MAX_BYTES (64u << 20) /* a process with 500,000 mappings */

/* The .bss of a module is anonymous memory right behind its last file mapping. */
static const char *module_of(const struct maps *m, const struct map_entry *e)
{
    if (e->path[0])
        return e->path;
    const struct map_entry *prev = m->n ? &m->entries[m->n - 1] : NULL;
    if (prev && prev->end == e->start && e->write && !e->shared && prev->write &&
        prev->path[0] == '/' && !prev->shared)
        return prev->path;
    return "";
}

static void add(struct maps *m, const struct procfs_map *p, const char **last)
{
    struct map_entry e = {
        .start = p->start,
        .end = p->end,
        .offset = p->offset,
        .inode = p->inode,
        .dev = makedev(p->dev_major, p->dev_minor),
        .exec = p->exec,
        .write = p->write,
        .shared = p->shared,
    };

    /* Neighbours mostly map the same file: keep its name once. */
    if (strlen(*last) != p->path_len || memcmp(*last, p->path, p->path_len) != 0) {
        char *s = arena_zalloc(&m->strings, p->path_len + 1);
        memcpy(s, p->path, p->path_len);
        *last = s;
    }
    e.path = *last;
    e.module = module_of(m, &e);
    m->entries = xgrow(m->entries, &m->cap, m->n + 1, sizeof(*m->entries));
    m->entries[m->n++] = e;
}

int maps_load(struct maps *m, int dirfd, pid_t tid)
{
    char *text, rel[32];

    snprintf(rel, sizeof(rel), "task/%d/maps", tid);
    ssize_t len = procfs_slurp_alloc(dirfd, rel, &text, MAPS_MAX_BYTES);
    if (len < 0)
        return (int)len;
    if (len == 0) { /* the thread has exited and has no memory any more */
        free(text);
        return -ESRCH;
    }

    maps_release(m);
    const char *at = text, *last = "";
    struct procfs_map p;
    while (procfs_next_map(&at, &p))
        add(m, &p, &last);
    free(text);
    return 0;
}

const struct map_entry *maps_find(const struct maps *m, uint64_t addr)
{
    size_t lo = 0, hi = m->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (addr >= m->entries[mid].end)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < m->n && addr >= m->entries[lo].start ? &m->entries[lo] : NULL;
}

static bool base_matches(const char *path, const char *const *patterns, size_t n)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;

    for (size_t i = 0; i < n; i++) {
        if (fnmatch(patterns[i], base, 0) == 0)
            return true;
    }
    return false;
}

bool maps_path_is_glibc(const char *path)
{
    static const char *const names[] = {
        "libc.so.6",       "libc.so.6[ .]*",       "libc-2.*.so*",   "libpthread.so.0",
        "libpthread.so.0 *", "libpthread-2.*.so*", "ld-linux*.so.*", "ld-2.*.so*",
    };
    return base_matches(path, names, ARRAY_SIZE(names));
}

bool maps_path_is_musl(const char *path)
{
    /* Where the loader's name is a link, the map shows plain libc.so; glibc's is a text file. */
    static const char *const names[] = {"ld-musl-*", "libc.musl-*", "libc.so", "libc.so (deleted)"};
    return base_matches(path, names, ARRAY_SIZE(names));
}

void maps_release(struct maps *m)
{
    free(m->entries);
    arena_release(&m->strings);
    *m = (struct maps){0};
}

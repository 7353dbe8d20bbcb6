#include "module.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "compiler.h"
#include "module_load.h"
#include "netfile.h"
#include "procfs.h"
#include "xalloc.h"

#define SERVER_LIMIT_MS 300         /* of a file that is a server's */
#define DEBUG_LIMIT_MS  1000        /* of any other */
#define COPIED_MAX      (64u << 20) /* bytes of files that cannot be opened, for one process */
#define MAX_HOLES       8 /* foreign mappings in a row in one module (text moved to huge pages) */

struct space {
    struct module_set *set;
    int dirfd;
    pid_t pid;
    target_reader read;
    struct maps maps;
    struct mapped *mapped; /* ascending */
    size_t n, cap;
    size_t copied; /* bytes that its modules hold */
    uint64_t generation;
    bool server_hangs; /* of a file; until the next refresh: not each of 100 files is waited for */
};

/* Opening --------------------------------------------------------------------------- */

struct open_how_in_root {
    uint64_t flags, mode, resolve;
};
#define IN_ROOT 0x10 /* RESOLVE_IN_ROOT: symbolic links too are the target's */

static int open_path_in_root(int root, const char *path)
{
    struct open_how_in_root how = {.flags = O_PATH | O_CLOEXEC, .resolve = IN_ROOT};
    int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));

    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        fd = openat(root, path + strspn(path, "/"), O_PATH | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* A descriptor that can be read, for one of O_PATH, which it takes over: opening a device or a
 * FIFO could do something, so what it is must be known first. */
static int reopen_regular(int path_fd)
{
    char self[32];
    struct stat st;
    int fd;

    if (path_fd < 0)
        return path_fd;
    if (fstat(path_fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(path_fd);
        return -EINVAL;
    }
    snprintf(self, sizeof(self), "/proc/self/fd/%d", path_fd);
    fd = open(self, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        fd = -errno;
    close(path_fd);
    return fd;
}

static int open_below(int dirfd, const char *root_path, const char *path)
{
    int root = openat(dirfd, root_path, O_PATH | O_DIRECTORY | O_CLOEXEC), fd;

    if (root < 0)
        return -errno;
    fd = reopen_regular(open_path_in_root(root, path));
    close(root);
    return fd;
}

static int open_in_root(int dirfd, const char *path)
{
    return open_below(dirfd, "root", path);
}

static int open_here(int dirfd UNUSED, const char *path)
{
    return open_below(AT_FDCWD, SPACE_DEBUG_DIR, path);
}

/* A server that hangs is not waited for again. */
static int open_patiently(struct space *s, const char *path, int (*open)(int dirfd, const char *),
                          unsigned limit_ms)
{
    int fd = s->server_hangs ? -ETIMEDOUT : netfile_open(s->dirfd, path, open, limit_ms);

    s->server_hangs |= fd == -ETIMEDOUT;
    return fd;
}

int space_open(struct space *s, const char *path)
{
    return open_patiently(s, path, open_in_root, DEBUG_LIMIT_MS);
}

int space_open_debug(struct space *s, const char *path)
{
    return open_patiently(s, path, open_here, DEBUG_LIMIT_MS);
}

static int open_link(const struct space *s, const char *rel)
{
    int fd = openat(s->dirfd, rel, O_PATH | O_CLOEXEC);

    return reopen_regular(fd < 0 ? -errno : fd);
}

/* Whether the first page in memory is that of the file, as far as it is not written to: for file
 * systems whose files show another device in the map (btrfs, overlayfs). */
static bool same_content(const struct space *s, int fd, const struct map_entry *e)
{
    uint8_t file[1024], memory[1024];
    struct remote_item item = {.addr = e->start, .dst = memory, .len = sizeof(memory)};
    ssize_t n = pread(fd, file, sizeof(file), (off_t)e->offset);

    return n > 0 && s->read(s->pid, &item, 1) >= 0 && item.got >= (size_t)n &&
           memcmp(file, memory, (size_t)n) == 0;
}

/* FD if it is what E maps; else closes it. */
static int check_same(const struct space *s, int fd, const struct map_entry *e, struct stat *st)
{
    if (fd < 0)
        return fd;
    if (fstat(fd, st) == 0 && st->st_ino == e->inode &&
        (st->st_dev == e->dev || (!e->write && same_content(s, fd, e))))
        return fd;
    close(fd);
    return -ESTALE;
}

/* The file that E maps: by its path, by its mapping (needs privilege), as the program itself. */
static int open_mapped(const struct space *s, const struct map_entry *e, struct stat *st)
{
    char rel[64];
    int fd = check_same(s, open_in_root(s->dirfd, e->path), e, st);

    if (fd >= 0)
        return fd;
    snprintf(rel, sizeof(rel), "map_files/%llx-%llx", (unsigned long long)e->start,
             (unsigned long long)e->end);
    fd = check_same(s, open_link(s, rel), e, st);
    return fd >= 0 ? fd : check_same(s, open_link(s, "exe"), e, st);
}

static struct module *load(struct space *s, const struct map_entry *e)
{
    struct module *m;
    struct stat st;
    int fd;

    if (strcmp(e->path, "[vdso]") == 0)
        return module_load_vdso(s->set, e, s->pid, s->read);
    if (netfile_is_remote(s->dirfd, e->dev)) {
        /* Its pages may hang as well as its name: a server that does not answer means nothing at
         * all, not a copy out of memory. */
        fd = open_patiently(s, e->path, open_in_root, SERVER_LIMIT_MS);
        if (fd == -ETIMEDOUT)
            return module_load_nothing(s->set, e);
        fd = check_same(s, fd, e, &st);
    } else {
        fd = open_mapped(s, e, &st);
    }
    if (fd < 0) {
        m = module_load_memory(s->set, e, s->pid, s->read, COPIED_MAX - MIN(s->copied, COPIED_MAX));
        s->copied += m->copied_bytes;
        return m;
    }
    m = module_load_file(s->set, fd, &st, e);
    close(fd);
    return m;
}

/* Which mappings are a module ---------------------------------------------------------- */

static bool is_file(const struct map_entry *e)
{
    return e->path[0] == '/' && e->inode != 0;
}

static bool same_file(const struct map_entry *a, const struct map_entry *b)
{
    return is_file(b) && a->dev == b->dev && a->inode == b->inode;
}

/* The end of the module that begins with entry FIRST: later parts of its file and its .bss, and
 * what lies between these. The file's beginning again is another module. */
static size_t module_end(const struct maps *m, size_t first)
{
    const struct map_entry *e = m->entries;
    size_t end = first + 1;
    uint64_t offset = e[first].offset;

    for (size_t i = end; i < m->n && i - end <= MAX_HOLES; i++) {
        if (same_file(&e[first], &e[i])) {
            if (e[i].offset < offset || (e[i].offset == 0 && offset == 0))
                break;
            offset = e[i].offset;
            end = i + 1;
        } else if (i == end && !is_file(&e[i]) && strcmp(e[i].module, e[first].path) == 0) {
            end = i + 1;
        }
    }
    return end;
}

static bool any_code(const struct map_entry *e, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (e[i].exec)
            return true;
    }
    return false;
}

#define PAGE 4096u /* of ELF files: segments begin in pages of at least this */

/* Where the file is loaded: told by a mapping that begins where a segment does. */
static bool find_bias(const struct module *m, const struct map_entry *e, size_t n, uint64_t *bias)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; is_file(&e[i]) && k < m->nsegments; k++) {
            const struct segment *s = &m->segments[k];
            if (s->offset / PAGE * PAGE == e[i].offset) {
                *bias = e[i].start - (s->vaddr - (s->offset - e[i].offset));
                return true;
            }
        }
    }
    return false;
}

/* The module of S that E begins already stands for. */
static struct module *reuse(const struct space *s, const struct map_entry *e)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct mapped *p = &s->mapped[i];
        struct module *m = p->module;
        size_t len = strlen(m->path);

        if (p->start == e->start && m->dev == e->dev && m->inode == e->inode &&
            strncmp(e->path, m->path, len) == 0) {
            m->users++;
            return m;
        }
    }
    return NULL;
}

static void add_mapped(struct space *fresh, const struct space *old, const struct map_entry *e,
                       size_t n)
{
    struct mapped p = {.start = e->start, .end = e[n - 1].end};

    p.module = reuse(old, e);
    if (!p.module)
        p.module = load(fresh, e);
    if (p.module->kind == MODULE_VDSO)
        p.bias = p.module->nsegments ? e->start - p.module->segments[0].vaddr : e->start;
    else if (!find_bias(p.module, e, n, &p.bias))
        p.bias = e->start - e->offset;
    fresh->mapped = xgrow(fresh->mapped, &fresh->cap, fresh->n + 1, sizeof(*fresh->mapped));
    fresh->mapped[fresh->n++] = p;
}

static void find_modules(struct space *fresh, const struct space *old)
{
    const struct maps *m = &fresh->maps;

    for (size_t i = 0, end; i < m->n; i = end) {
        const struct map_entry *e = &m->entries[i];

        end = i + 1;
        if (is_file(e)) {
            end = module_end(m, i);
            if (any_code(e, end - i))
                add_mapped(fresh, old, e, end - i);
        } else if (strcmp(e->path, "[vdso]") == 0) {
            add_mapped(fresh, old, e, 1);
        }
    }
}

/* Spaces ------------------------------------------------------------------------------ */

static void drop_modules(struct space *s)
{
    for (size_t i = 0; i < s->n; i++)
        module_put(s->set, s->mapped[i].module);
    free(s->mapped);
    maps_release(&s->maps);
}

static bool still_there(const struct space *s, const struct mapped *old)
{
    const struct mapped *p = space_find(s, old->start);

    return p && p->module == old->module && p->start == old->start && p->bias == old->bias;
}

static bool lost_any(const struct space *fresh, const struct space *old)
{
    for (size_t i = 0; i < old->n; i++) {
        if (!still_there(fresh, &old->mapped[i]))
            return true;
    }
    return false;
}

int space_refresh(struct space *s, pid_t tid)
{
    struct space fresh = *s;
    int rc;

    fresh.maps = (struct maps){0};
    fresh.mapped = NULL;
    fresh.n = fresh.cap = 0;
    fresh.server_hangs = false;
    rc = maps_load(&fresh.maps, s->dirfd, tid);
    if (rc != 0)
        return rc;
    find_modules(&fresh, s);
    if (s->generation == 0 || lost_any(&fresh, s))
        fresh.generation = module_set_generation(s->set);
    drop_modules(s);
    *s = fresh;
    s->copied = 0;
    for (size_t i = 0; i < s->n; i++)
        s->copied += s->mapped[i].module->copied_bytes;
    return 0;
}

struct space *space_new(struct module_set *set, int dirfd, pid_t pid, pid_t tid, target_reader read,
                        int *err)
{
    struct space *s = xcalloc(1, sizeof(*s));

    *s = (struct space){.set = set, .dirfd = dirfd, .pid = pid, .read = read};
    int rc = space_refresh(s, tid);
    if (rc != 0) {
        *err = -rc;
        free(s);
        return NULL;
    }
    return s;
}

void space_free(struct space *s)
{
    if (!s)
        return;
    drop_modules(s);
    free(s);
}

pid_t space_pid(const struct space *s)
{
    return s->pid;
}

uint64_t space_generation(const struct space *s)
{
    return s->generation;
}

int space_elf_class(const struct space *s)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct module *m = s->mapped[i].module;
        if (m->elf_class && m->kind != MODULE_VDSO)
            return m->elf_class;
    }
    return 0;
}

const struct mapped *space_find(const struct space *s, uint64_t addr)
{
    size_t i = COUNT_FIRST(s->n, k, addr >= s->mapped[k].end);

    return i < s->n && addr >= s->mapped[i].start ? &s->mapped[i] : NULL;
}

const struct map_entry *space_entry(const struct space *s, uint64_t addr)
{
    return maps_find(&s->maps, addr);
}

bool space_is_code(const struct space *s, uint64_t addr)
{
    const struct map_entry *e = space_entry(s, addr);

    return e && e->exec;
}

const void *space_at(const struct space *s, uint64_t addr, size_t len)
{
    const struct mapped *p = space_find(s, addr);
    uint64_t vaddr = p ? addr - p->bias : 0;

    for (size_t i = 0; p && i < p->module->nsegments; i++) {
        const struct segment *g = &p->module->segments[i];
        if (vaddr >= g->vaddr && vaddr - g->vaddr < g->filesz)
            return g->write ? NULL : module_at(p->module, vaddr, len);
    }
    return NULL;
}

bool space_read(const struct space *s, uint64_t addr, void *dst, size_t len)
{
    const void *p = space_at(s, addr, len);
    struct remote_item item = {.addr = addr, .dst = dst, .len = (uint32_t)len};

    if (p) {
        memcpy(dst, p, len);
        return true;
    }
    return len <= 65536 && s->read(s->pid, &item, 1) == 1;
}

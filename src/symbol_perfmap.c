#include "symbol_perfmap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "compiler.h"
#include "procfs.h"
#include "xalloc.h"

#define BYTES_MAX   (64u << 20) /* read for one process, in all */
#define CODES_MAX   (1u << 20)
#define CHUNK       (1u << 20)
#define REREAD_NS   NSEC_PER_SEC
#define OVERLAP_MAX 64 /* how many entries before an address are looked at */

struct code {
    uint64_t start;
    uint32_t size;
    uint32_t order; /* in the file */
    const char *name;
};

/* A piece of the file; the names in it are terminated in place. */
struct chunk {
    struct chunk *next;
    char text[];
};

struct perf_map {
    struct perf_map *next;
    pid_t pid;
    uint64_t start_ticks; /* of the process */
    dev_t dev;
    ino_t inode;
    off_t parsed;         /* of the file, up to the end of a line */
    size_t bytes;         /* in CHUNKS */
    struct chunk *chunks; /* of earlier files too: their names may still be in use */
    struct code *codes;   /* by start, then order */
    size_t n, cap;
    nsec_t looked; /* when the file was last looked at; 0: never */
};

/* Global, because it is kept of a process, for which there may be several spaces, one after the
 * other. One thread asks for names. */
static struct perf_map *maps;

/* Reading -------------------------------------------------------------------------------- */

/* "START SIZE NAME", numbers in hex. */
static void parse_line(struct perf_map *m, char *line)
{
    char *at;
    uint64_t start = strtoull(line, &at, 16);

    if (at == line || *at != ' ')
        return;
    char *second = at + 1;
    uint64_t size = strtoull(second, &at, 16);
    if (at == second || *at != ' ' || at[1] == '\0' || size == 0 || size > UINT32_MAX)
        return;
    m->codes = xgrow(m->codes, &m->cap, m->n + 1, sizeof(*m->codes));
    m->codes[m->n] = (struct code){start, (uint32_t)size, (uint32_t)m->n, at + 1};
    m->n++;
}

/* Parses the whole lines of C, which holds LEN bytes; returns how many bytes they are. */
static size_t parse_chunk(struct perf_map *m, struct chunk *c, size_t len)
{
    char *line = c->text, *end;

    while ((end = memchr(line, '\n', len - (size_t)(line - c->text))) != NULL) {
        *end = '\0';
        parse_line(m, line);
        line = end + 1;
    }
    return (size_t)(line - c->text);
}

/* Reads one more piece of FD; false when there was no whole line. */
static bool read_chunk(struct perf_map *m, int fd, size_t want)
{
    struct chunk *c = xmalloc(sizeof(*c) + want);
    ssize_t n = pread(fd, c->text, want, m->parsed);
    size_t used = n > 0 ? parse_chunk(m, c, (size_t)n) : 0;

    if (used == 0) {
        free(c);
        return false;
    }
    m->parsed += (off_t)used;
    m->bytes += used;
    c->next = m->chunks;
    m->chunks = c;
    return true;
}

static int by_start(const void *a, const void *b)
{
    const struct code *x = a, *y = b;

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static bool trusted(const struct stat *st, long euid)
{
    return S_ISREG(st->st_mode) && (st->st_uid == 0 || (long)st->st_uid == euid);
}

static void read_more(struct perf_map *m, int fd, long euid)
{
    struct stat st;

    if (fstat(fd, &st) != 0 || !trusted(&st, euid))
        return;
    if (st.st_dev != m->dev || st.st_ino != m->inode || st.st_size < m->parsed) {
        m->dev = st.st_dev;
        m->inode = st.st_ino;
        m->parsed = 0;
        m->n = 0;
    }
    size_t before = m->n;
    while (m->parsed < st.st_size && m->bytes < BYTES_MAX && m->n < CODES_MAX) {
        size_t want = MIN((size_t)(st.st_size - m->parsed), CHUNK);
        if (!read_chunk(m, fd, MIN(want, BYTES_MAX - m->bytes)))
            break;
    }
    if (m->n != before)
        qsort(m->codes, m->n, sizeof(*m->codes), by_start);
}

/* In a PID namespace the file has the process's own number there. */
static void look(struct perf_map *m, struct space *s, int dirfd)
{
    struct procfs_status status;
    char path[64];

    if (procfs_read_status(dirfd, "status", &status) != 0)
        return;
    pid_t own = status.ns_levels > 0 ? status.ns_pid[status.ns_levels - 1] : m->pid;
    snprintf(path, sizeof(path), "/tmp/perf-%d.map", own);
    int fd = space_open(s, path);
    if (fd < 0)
        return;
    read_more(m, fd, status.euid);
    close(fd);
}

/* Which process ------------------------------------------------------------------------ */

static void map_free(struct perf_map *m)
{
    struct chunk *c;

    while ((c = m->chunks) != NULL) {
        m->chunks = c->next;
        free(c);
    }
    free(m->codes);
    free(m);
}

void perf_map_forget(pid_t pid)
{
    for (struct perf_map **at = &maps; *at; at = &(*at)->next) {
        struct perf_map *m = *at;
        if (m->pid == pid) {
            *at = m->next;
            map_free(m);
            return;
        }
    }
}

static struct perf_map *map_of(pid_t pid)
{
    struct perf_map *m = maps;

    while (m && m->pid != pid)
        m = m->next;
    if (m)
        return m;
    m = xcalloc(1, sizeof(*m));
    m->pid = pid;
    m->next = maps;
    maps = m;
    return m;
}

static int open_process(pid_t pid)
{
    int root = procfs_open_root("/proc");

    if (root < 0)
        return root;
    int fd = procfs_open_pid(root, pid);
    close(root);
    return fd;
}

/* Another process with the same number has another file. */
static struct perf_map *check_process(struct perf_map *m, int dirfd)
{
    struct procfs_stat stat;
    pid_t pid = m->pid;

    if (procfs_read_stat(dirfd, "stat", &stat) != 0)
        return m;
    if (m->start_ticks != 0 && m->start_ticks != stat.start_ticks) {
        perf_map_forget(pid);
        m = map_of(pid);
    }
    m->start_ticks = stat.start_ticks;
    return m;
}

static struct perf_map *refresh(struct perf_map *m, struct space *s)
{
    int dirfd = open_process(m->pid);

    if (dirfd >= 0) {
        m = check_process(m, dirfd);
        look(m, s, dirfd);
        close(dirfd);
    }
    m->looked = clock_mono();
    return m;
}

/* Looking up ---------------------------------------------------------------------------- */

static const struct code *find(const struct perf_map *m, uint64_t pc)
{
    const struct code *found = NULL;
    size_t i = COUNT_FIRST(m->n, k, m->codes[k].start <= pc);

    for (size_t n = 0; i-- > 0 && n < OVERLAP_MAX; n++) {
        const struct code *c = &m->codes[i];
        if (pc - c->start < c->size && (!found || c->order > found->order))
            found = c;
    }
    return found;
}

const char *perf_map_name(struct space *s, uint64_t pc, uint64_t *start)
{
    struct perf_map *m = map_of(space_pid(s));
    const struct code *c = find(m, pc);

    if (!c && (m->looked == 0 || clock_mono() - m->looked >= REREAD_NS)) {
        m = refresh(m, s);
        c = find(m, pc);
    }
    if (!c)
        return NULL;
    *start = c->start;
    return c->name;
}

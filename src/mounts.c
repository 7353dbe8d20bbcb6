#include "mounts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "compiler.h"
#include "procfs.h"

#define MOUNTINFO_MAX (4u << 20)

struct span {
    const char *at;
    size_t len;
};

/* The next field of the line at *LINE, which moves behind it; false when there is none. A single
 * blank parts them: a file system that comes from "" has an empty field. */
static bool next_field(const char **line, const char *end, struct span *out)
{
    if (*line > end)
        return false;
    const char *blank = memchr(*line, ' ', (size_t)(end - *line));
    const char *stop = blank ? blank : end;
    *out = (struct span){*line, (size_t)(stop - *line)};
    *line = stop + 1;
    return true;
}

static bool is_octal(const char *s, size_t left)
{
    return left >= 4 && s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
           s[3] >= '0' && s[3] <= '7';
}

/* The kernel writes blanks and the like as \040. */
static void unescape(char *dst, size_t size, struct span s)
{
    size_t n = 0;

    for (size_t i = 0; i < s.len && n + 1 < size; i++) {
        if (is_octal(s.at + i, s.len - i)) {
            dst[n++] =
                (char)((s.at[i + 1] - '0') * 64 + (s.at[i + 2] - '0') * 8 + (s.at[i + 3] - '0'));
            i += 3;
        } else {
            dst[n++] = s.at[i];
        }
    }
    dst[n] = '\0';
}

static bool decimal(struct span s, int *out)
{
    int n = 0;

    for (size_t i = 0; i < s.len; i++) {
        if (s.at[i] < '0' || s.at[i] > '9' || __builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, s.at[i] - '0', &n))
            return false;
    }
    *out = n;
    return s.len > 0;
}

/* "98:0" */
static bool device(struct span s, uint64_t *out)
{
    const char *colon = memchr(s.at, ':', s.len);
    int maj, min;

    if (!colon)
        return false;
    size_t n = (size_t)(colon - s.at);
    if (!decimal((struct span){s.at, n}, &maj) ||
        !decimal((struct span){colon + 1, s.len - n - 1}, &min))
        return false;
    *out = makedev((unsigned)maj, (unsigned)min);
    return true;
}

static bool is_in(const char *type, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(type, list[i]) == 0)
            return true;
    }
    return false;
}

static enum fs_kind kind_of(const char *type)
{
    static const char *const nfs[] = {"nfs", "nfs4"};
    static const char *const fuse[] = {"fuse", "fuseblk"};
    static const char *const remote[] = {
        "cifs", "smb3",   "smbfs",  "9p",    "ceph", "afs",      "coda",      "gfs2",    "ocfs2",
        "gpfs", "lustre", "beegfs", "ncpfs", "acfs", "orangefs", "glusterfs", "virtiofs"};

    if (is_in(type, nfs, ARRAY_SIZE(nfs)))
        return FS_NFS;
    if (is_in(type, fuse, ARRAY_SIZE(fuse)) || strncmp(type, "fuse.", 5) == 0 ||
        strncmp(type, "fuseblk.", 8) == 0)
        return FS_FUSE;
    return is_in(type, remote, ARRAY_SIZE(remote)) ? FS_REMOTE : FS_LOCAL;
}

/* proc(5): "36 35 98:0 /root /point options [optional ...] - type source options". */
static bool parse_line(const char *line, const char *end, struct mount *out)
{
    struct span id, skipped, dev, point, mark, type, source;

    if (!next_field(&line, end, &id) || !decimal(id, &out->id) ||
        !next_field(&line, end, &skipped) || !next_field(&line, end, &dev) ||
        !device(dev, &out->dev) || !next_field(&line, end, &skipped) ||
        !next_field(&line, end, &point) || !next_field(&line, end, &skipped))
        return false;
    do {
        if (!next_field(&line, end, &mark))
            return false;
    } while (mark.len != 1 || *mark.at != '-');
    if (!next_field(&line, end, &type) || type.len == 0 || !next_field(&line, end, &source) ||
        !next_field(&line, end, &skipped))
        return false;
    unescape(out->point, sizeof(out->point), point);
    unescape(out->type, sizeof(out->type), type);
    unescape(out->source, sizeof(out->source), source);
    out->fs = kind_of(out->type);
    return true;
}

bool mounts_next(const char **text, struct mount *out)
{
    while (**text) {
        const char *line = *text, *end = strchrnul(line, '\n');
        bool whole = *end == '\n';
        *text = whole ? end + 1 : end;
        if (whole && parse_line(line, end, out))
            return true;
    }
    return false;
}

bool mounts_find(int dirfd, int id, uint64_t dev, struct mount *out)
{
    char *all;
    bool found = false;

    if (procfs_slurp_alloc(dirfd, "mountinfo", &all, MOUNTINFO_MAX) < 0)
        return false;
    const char *text = all;
    while (!found && mounts_next(&text, out))
        found = id >= 0 ? out->id == id : out->dev == dev;
    free(all);
    return found;
}

#include "procfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "compiler.h"
#include "xalloc.h"

static int open_below(int dirfd, const char *rel, int flags)
{
    int fd;

    do
        fd = openat(dirfd, rel, O_RDONLY | O_CLOEXEC | flags);
    while (fd < 0 && errno == EINTR);
    return fd < 0 ? -errno : fd;
}

int procfs_open_root(const char *root)
{
    return open_below(AT_FDCWD, root, O_DIRECTORY);
}

int procfs_open_pid(int rootfd, pid_t pid)
{
    char name[16];

    if (pid <= 0)
        return -ENOENT;
    snprintf(name, sizeof(name), "%d", (int)pid);
    return open_below(rootfd, name, O_DIRECTORY);
}

/* Reads until the end of the file or until SIZE bytes are there. */
static ssize_t read_all(int fd, char *buf, size_t size)
{
    size_t used = 0;

    while (used < size) {
        ssize_t n = read(fd, buf + used, size - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        used += (size_t)n;
    }
    return (ssize_t)used;
}

ssize_t procfs_slurp(int dirfd, const char *rel, char *buf, size_t size)
{
    if (size == 0)
        return -EINVAL;
    buf[0] = '\0';

    int fd = open_below(dirfd, rel, 0);
    if (fd < 0)
        return fd;
    ssize_t n = read_all(fd, buf, size - 1);
    close(fd);
    buf[n < 0 ? 0 : n] = '\0';
    return n;
}

ssize_t procfs_reread(int fd, char *buf, size_t size)
{
    ssize_t n;

    if (size == 0)
        return -EINVAL;
    do
        n = pread(fd, buf, size - 1, 0);
    while (n < 0 && errno == EINTR);
    buf[n < 0 ? 0 : n] = '\0';
    return n < 0 ? -errno : n;
}

#define SLURP_FIRST 16384

static ssize_t read_growing(int fd, char **buf, size_t max)
{
    size_t cap = 0, used = 0;
    ssize_t n;

    do {
        size_t want = MIN(max, cap ? cap * 2 : SLURP_FIRST);
        *buf = xreallocarray(*buf, want, 1);
        cap = want;
        n = read_all(fd, *buf + used, cap - 1 - used);
        used += n > 0 ? (size_t)n : 0;
    } while (n > 0 && used == cap - 1 && cap < max);
    (*buf)[used] = '\0';
    return n < 0 ? n : (ssize_t)used;
}

ssize_t procfs_slurp_alloc(int dirfd, const char *rel, char **buf, size_t max)
{
    *buf = NULL;
    if (max == 0)
        return -EINVAL;

    int fd = open_below(dirfd, rel, 0);
    if (fd < 0)
        return fd;
    ssize_t n = read_growing(fd, buf, max);
    close(fd);
    if (n < 0) {
        free(*buf);
        *buf = NULL;
    }
    return n;
}

/* Most fit; but the line of groups alone may have 700 KB, and what is wanted stands behind it. */
#define RECORD_SIZE 4096
#define RECORD_MAX  (1u << 20)

/* Reads the file whole: into BUF, or where that is too small into *LONGER, which the caller
 * frees. */
static ssize_t read_record(int dirfd, const char *rel, char buf[RECORD_SIZE], char **longer)
{
    ssize_t n = procfs_slurp(dirfd, rel, buf, RECORD_SIZE);

    *longer = NULL;
    return n < RECORD_SIZE - 1 ? n : procfs_slurp_alloc(dirfd, rel, longer, RECORD_MAX);
}

int procfs_read_status(int dirfd, const char *rel, struct procfs_status *out)
{
    char buf[RECORD_SIZE], *longer;
    ssize_t n = read_record(dirfd, rel, buf, &longer);
    int rc = n < 0 ? (int)n : procfs_parse_status(longer ? longer : buf, out) ? 0 : -EINVAL;

    free(longer);
    return rc;
}

int procfs_read_stat(int dirfd, const char *rel, struct procfs_stat *out)
{
    char buf[RECORD_SIZE];
    ssize_t n = procfs_slurp(dirfd, rel, buf, sizeof(buf));

    if (n < 0)
        return (int)n;
    return procfs_parse_stat(buf, (size_t)n, out) ? 0 : -EINVAL;
}

ssize_t procfs_readlink(int dirfd, const char *rel, char *buf, size_t size)
{
    if (size == 0)
        return -EINVAL;

    ssize_t n = readlinkat(dirfd, rel, buf, size - 1);
    buf[n < 0 ? 0 : n] = '\0';
    return n < 0 ? -errno : n;
}

#ifndef AT_STATX_DONT_SYNC /* Linux 4.11: not in older headers */
#define AT_STATX_DONT_SYNC 0x4000
#endif

bool procfs_strip_deleted(char *link)
{
    static const char gone[] = " (deleted)";
    size_t len = strlen(link), tail = sizeof(gone) - 1;

    if (len <= tail || strcmp(link + len - tail, gone) != 0)
        return false;
    link[len - tail] = '\0';
    return true;
}

int procfs_stat_link(int dirfd, const char *rel, struct stat *out)
{
    return fstatat(dirfd, rel, out, AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC) == 0 ? 0 : -errno;
}

/* The record of getdents64(2). Not readdir(3): musl's asks for 2 KiB at a time, and a process
 * may have thousands of threads. */
struct dirent_record {
    uint64_t ino;
    int64_t off;
    unsigned short reclen;
    unsigned char type;
    char name[];
};

static bool parse_id(const char *name, pid_t *id)
{
    long n = 0;

    for (const char *p = name; *p; p++) {
        if (*p < '0' || *p > '9')
            return false;
        n = n * 10 + (*p - '0');
        if (n > INT_MAX)
            return false;
    }
    *id = (pid_t)n;
    return *name != '\0';
}

static ssize_t list_ids(int fd, pid_t **ids, size_t *cap)
{
    union {
        struct dirent_record record; /* for its alignment */
        char bytes[32768];
    } buf;
    size_t used = 0;
    long n;

    while ((n = syscall(SYS_getdents64, fd, &buf, sizeof(buf))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        for (long at = 0; at < n;) {
            const struct dirent_record *r = (const void *)(buf.bytes + at);
            *ids = xgrow(*ids, cap, used + 1, sizeof(**ids));
            used += parse_id(r->name, *ids + used);
            at += r->reclen;
        }
    }
    return (ssize_t)used;
}

ssize_t procfs_list_ids(int dirfd, const char *rel, pid_t **ids, size_t *cap)
{
    int fd = open_below(dirfd, rel, O_DIRECTORY);

    if (fd < 0)
        return fd;
    ssize_t n = list_ids(fd, ids, cap);
    close(fd);
    return n;
}

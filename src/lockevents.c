#include "lockevents.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "procfs.h"
#include "xalloc.h"

/* Both tracepoints tell of each call of the file system's own locking function, with its result
 * (Linux include/trace/events/filelock.h, since 4.x). A type of 2 is F_UNLCK. */
static const char *const points[] = {"flock_lock_inode", "posix_lock_inode"};
#define POINTS 2

/* What is counted of each: all that ended (1 is FILE_LOCK_DEFERRED: it goes to sleep, and is told
 * again when it gets the lock), and what was refused at once. */
enum { ALL, REFUSED, WHATS };
static const char *const wanted[WHATS] = {
    [ALL] = "type != 2 && ret != 1",
    [REFUSED] = "type != 2 && ret == -11",
};

struct counted {
    struct file_id file;
    nsec_t since;
    int *fds; /* POINTS x WHATS x CPUs */
};

struct lockevents {
    uint64_t ids[POINTS];
    int ncpus;
    struct counted files[LOCKEVENTS_FILES];
    size_t n;
};

/* Opening ------------------------------------------------------------------------------- */

static bool read_id(const char *point, uint64_t *id)
{
    static const char *const roots[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};
    char path[128], text[32];

    for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
        snprintf(path, sizeof(path), "%s/events/filelock/%s/id", roots[i], point);
        if (procfs_slurp(AT_FDCWD, path, text, sizeof(text)) > 0) {
            *id = strtoull(text, NULL, 10);
            return *id > 0;
        }
    }
    return false;
}

static int open_counter(uint64_t id, int cpu, const char *filter)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_TRACEPOINT,
        .size = sizeof(attr),
        .config = id,
        .disabled = 1,
    };
    int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (filter && (ioctl(fd, PERF_EVENT_IOC_SET_FILTER, filter) != 0 ||
                   ioctl(fd, PERF_EVENT_IOC_ENABLE, 0) != 0)) {
        int err = errno;
        close(fd);
        return -err;
    }
    return fd;
}

static const char *why_not(int err)
{
    if (err == -EPERM || err == -EACCES)
        return "the kernel does not permit its counters: run as root, or with CAP_PERFMON";
    return err == -ENOENT || err == -ENODEV ? "this kernel has no such counters"
                                            : "the kernel's counters cannot be opened";
}

struct lockevents *lockevents_open(const char **why)
{
    struct lockevents *e = xcalloc(1, sizeof(*e));

    *why = NULL;
    e->ncpus = (int)sysconf(_SC_NPROCESSORS_CONF);
    for (int i = 0; i < POINTS && !*why; i++) {
        if (!read_id(points[i], &e->ids[i]))
            *why = geteuid() != 0 ? "tracepoints may not be read: run as root"
                                  : "no tracefs here (mount -t tracefs nodev /sys/kernel/tracing)";
    }
    int fd = *why ? -1 : open_counter(e->ids[0], 0, NULL);
    if (!*why && fd < 0)
        *why = why_not(fd);
    if (fd >= 0)
        close(fd);
    if (!*why)
        return e;
    free(e);
    return NULL;
}

/* Files --------------------------------------------------------------------------------- */

static size_t per_file(const struct lockevents *e)
{
    return (size_t)POINTS * WHATS * (size_t)e->ncpus;
}

static void stop_counting(struct lockevents *e, struct counted *c)
{
    for (size_t i = 0; i < per_file(e); i++) {
        if (c->fds[i] >= 0)
            close(c->fds[i]);
    }
    free(c->fds);
}

/* The kernel's own form of a device: 20 bits of minor number. */
static void filter_for(char *dst, size_t size, struct file_id file, const char *what)
{
    uint64_t dev = (uint64_t)major(file.dev) << 20 | minor(file.dev);

    snprintf(dst, size, "i_ino == %llu && s_dev == %llu && %s", (unsigned long long)file.inode,
             (unsigned long long)dev, what);
}

/* A CPU that is offline has no counter; without any there is nothing to count. */
static bool count_file(struct lockevents *e, struct counted *c, struct file_id file)
{
    char filter[256];
    size_t opened = 0;

    *c = (struct counted){.file = file, .since = clock_mono()};
    c->fds = xcalloc(per_file(e), sizeof(*c->fds));
    for (size_t i = 0; i < per_file(e); i++) {
        size_t what = i / (size_t)e->ncpus % WHATS, point = i / (size_t)e->ncpus / WHATS;
        filter_for(filter, sizeof(filter), file, wanted[what]);
        c->fds[i] = open_counter(e->ids[point], (int)(i % (size_t)e->ncpus), filter);
        opened += c->fds[i] >= 0;
    }
    if (opened == 0)
        stop_counting(e, c);
    return opened > 0;
}

static bool is_among(struct file_id id, const struct file_id *files, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (files[i].dev == id.dev && files[i].inode == id.inode)
            return true;
    }
    return false;
}

static bool is_counted(const struct lockevents *e, struct file_id id)
{
    for (size_t i = 0; i < e->n; i++) {
        if (is_among(id, &e->files[i].file, 1))
            return true;
    }
    return false;
}

size_t lockevents_follow(struct lockevents *e, const struct file_id *files, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < e->n; i++) {
        if (is_among(e->files[i].file, files, n))
            e->files[kept++] = e->files[i];
        else
            stop_counting(e, &e->files[i]);
    }
    e->n = kept;
    for (size_t i = 0; i < n && e->n < LOCKEVENTS_FILES; i++) {
        if (!is_counted(e, files[i]))
            e->n += count_file(e, &e->files[e->n], files[i]);
    }
    return e->n;
}

static uint64_t sum(const struct lockevents *e, const struct counted *c, size_t what)
{
    uint64_t total = 0, value;

    for (size_t i = 0; i < per_file(e); i++) {
        if (i / (size_t)e->ncpus % WHATS == what && c->fds[i] >= 0 &&
            read(c->fds[i], &value, sizeof(value)) == sizeof(value))
            total += value;
    }
    return total;
}

size_t lockevents_read(struct lockevents *e, nsec_t now, struct attempt_fact *out, size_t max)
{
    size_t n = MIN(e->n, max);

    for (size_t i = 0; i < n; i++) {
        const struct counted *c = &e->files[i];
        out[i] = (struct attempt_fact){
            .file = c->file,
            .since = c->since,
            .until = now,
            .attempts = sum(e, c, ALL),
            .refused = sum(e, c, REFUSED),
        };
    }
    return n;
}

void lockevents_close(struct lockevents *e)
{
    if (!e)
        return;
    lockevents_follow(e, NULL, 0);
    free(e);
}

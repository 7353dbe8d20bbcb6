#include "lockevents.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "procfs.h"
#include "xalloc.h"

/* Both tracepoints tell of each call of the kernel's locking function, with its result (Linux
 * include/trace/events/filelock.h, since 4.x). A type of 2 is F_UNLCK. Who waits is told with 1
 * (FILE_LOCK_DEFERRED) each time it goes to sleep, and with another result once it is over; who is
 * interrupted is told no more. */
static const char *const points[] = {"flock_lock_inode", "posix_lock_inode"};
#define POINTS 2

/* What is counted of each: all that ended, and what was refused at once (EAGAIN). */
enum { ALL, REFUSED, WHATS };
static const char *const wanted[WHATS] = {
    [ALL] = "type != 2 && ret != 1",
    [REFUSED] = "type != 2 && ret == -11",
};

/* The counters of a file on one CPU are a group: they begin at the same moment, and one read, which
 * disturbs that CPU once, gets them all. */
#define GROUP (POINTS * WHATS)

struct counted {
    struct file_id file;
    nsec_t since;
    int *fds; /* GROUP for each CPU, the first of them its leader; -1: a CPU that is offline */
};

struct lockevents {
    uint64_t ids[POINTS];
    int anchors[POINTS]; /* count nothing: without any counter the kernel would take the tracepoint
                            out again, and whoever closes the last one waits for that, 80 ms */
    int ncpus;
    size_t most; /* files at once */
    struct counted files[LOCKEVENTS_FILES];
    size_t n;
};

/* Counters ------------------------------------------------------------------------------ */

/* Returns an fd or -errno. A counter without a leader (-1) stands still until it is enabled, and
 * its group with it. */
static int open_counter(uint64_t id, int cpu, int leader, const char *filter)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_TRACEPOINT,
        .size = sizeof(attr),
        .config = id,
        .read_format = PERF_FORMAT_GROUP,
        .disabled = leader < 0,
    };
    int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, leader, PERF_FLAG_FD_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (filter && ioctl(fd, PERF_EVENT_IOC_SET_FILTER, filter) != 0) {
        int err = errno;
        close(fd);
        return -err;
    }
    return fd;
}

static void close_counters(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

/* The kernel's own form of a device: 20 bits of minor number. */
static void filter_for(char *dst, size_t size, struct file_id file, const char *what)
{
    uint64_t dev = (uint64_t)major(file.dev) << 20 | minor(file.dev);

    snprintf(dst, size, "i_ino == %llu && s_dev == %llu && %s", (unsigned long long)file.inode,
             (unsigned long long)dev, what);
}

/* Fills FDS, with -1 when it fails. Returns 0 or -errno. */
static int open_group(const struct lockevents *e, struct file_id file, int cpu, int fds[GROUP])
{
    char filter[256];
    int err = 0;

    for (size_t i = 0; i < GROUP; i++)
        fds[i] = -1;
    for (size_t i = 0; i < GROUP && err == 0; i++) {
        filter_for(filter, sizeof(filter), file, wanted[i % WHATS]);
        fds[i] = open_counter(e->ids[i / WHATS], cpu, fds[0], filter);
        err = MIN(fds[i], 0);
    }
    if (err == 0 && ioctl(fds[0], PERF_EVENT_IOC_ENABLE, 0) != 0)
        err = -errno;
    if (err != 0)
        close_counters(fds, GROUP);
    return err;
}

/* Opening ------------------------------------------------------------------------------- */

static const char *const roots[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};

/* Of tracefs, where POINT cannot be found in it. */
static const char *why_no_point(bool denied)
{
    char path[64];

    if (denied)
        return "tracepoints may not be read: run as root";
    for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
        snprintf(path, sizeof(path), "%s/events", roots[i]);
        if (access(path, F_OK) == 0)
            return "this kernel has no tracepoints of file locks";
    }
    return "tracefs is not mounted (mount -t tracefs nodev /sys/kernel/tracing)";
}

/* Returns NULL or why it is not known. */
static const char *find_point(const char *point, uint64_t *id)
{
    char path[128], text[32];
    bool denied = false;

    for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
        snprintf(path, sizeof(path), "%s/events/filelock/%s/id", roots[i], point);
        ssize_t n = procfs_slurp(AT_FDCWD, path, text, sizeof(text));
        *id = n > 0 ? strtoull(text, NULL, 10) : 0;
        if (*id > 0)
            return NULL;
        denied |= n == -EACCES || n == -EPERM;
    }
    return why_no_point(denied);
}

static const char *why_not(int err)
{
    if (err == -EPERM || err == -EACCES)
        return "the kernel does not permit to count: run as root or with CAP_PERFMON, or set "
               "kernel.perf_event_paranoid to 0";
    if (err == -EMFILE || err == -ENFILE)
        return "there are too few file descriptors for the kernel's counters";
    return err == -ENOENT || err == -ENODEV || err == -ENOSYS
               ? "this kernel has no such counters"
               : "the kernel's counters cannot be opened";
}

/* Finds the tracepoint I and keeps it in place. Returns NULL or why not. */
static const char *open_point(struct lockevents *e, size_t i)
{
    const char *why = find_point(points[i], &e->ids[i]);

    if (why)
        return why;
    e->anchors[i] = open_counter(e->ids[i], MAX(sched_getcpu(), 0), -1, NULL);
    return e->anchors[i] < 0 ? why_not(e->anchors[i]) : NULL;
}

/* Descriptors are needed for other things as well: no more than a quarter is taken, but one file
 * is always tried. */
static size_t most_files(int ncpus)
{
    struct rlimit limit;
    size_t each = (size_t)ncpus * GROUP;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 1;
    return (size_t)MAX(MIN(limit.rlim_max / 4 / each, (rlim_t)LOCKEVENTS_FILES), (rlim_t)1);
}

struct lockevents *lockevents_open(const char **why)
{
    struct lockevents *e = xcalloc(1, sizeof(*e));

    *why = NULL;
    e->ncpus = (int)MAX(sysconf(_SC_NPROCESSORS_CONF), 1);
    e->most = most_files(e->ncpus);
    for (size_t i = 0; i < POINTS; i++)
        e->anchors[i] = -1;
    for (size_t i = 0; i < POINTS && !*why; i++)
        *why = open_point(e, i);
    if (!*why)
        return e;
    lockevents_close(e);
    return NULL;
}

/* Files --------------------------------------------------------------------------------- */

static void stop_counting(const struct lockevents *e, struct counted *c)
{
    close_counters(c->fds, (size_t)e->ncpus * GROUP);
    free(c->fds);
}

/* False where a CPU that is not offline cannot be counted on: the sum would be too small. */
static bool count_file(const struct lockevents *e, struct counted *c, struct file_id file)
{
    int err = 0;

    *c = (struct counted){.file = file};
    c->fds = xcalloc((size_t)e->ncpus * GROUP, sizeof(*c->fds));
    for (size_t i = 0; i < (size_t)e->ncpus * GROUP; i++)
        c->fds[i] = -1;
    for (int cpu = 0; cpu < e->ncpus && err == 0; cpu++) {
        err = open_group(e, file, cpu, c->fds + (size_t)cpu * GROUP);
        err = err == -ENODEV ? 0 : err;
    }
    c->since = clock_mono();
    if (err != 0)
        stop_counting(e, c);
    return err == 0;
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
    for (size_t i = 0; i < n && e->n < e->most; i++) {
        if (!is_counted(e, files[i]))
            e->n += count_file(e, &e->files[e->n], files[i]);
    }
    return e->n;
}

/* Adds what the counters led by LEADER say. */
static void add_group(struct attempt_fact *f, int leader)
{
    struct {
        uint64_t n, value[GROUP];
    } counts;

    if (leader < 0 || read(leader, &counts, sizeof(counts)) != sizeof(counts))
        return;
    for (size_t i = 0; i < GROUP; i++)
        *(i % WHATS == ALL ? &f->attempts : &f->refused) += counts.value[i];
}

size_t lockevents_read(struct lockevents *e, nsec_t now, struct attempt_fact *out, size_t max)
{
    size_t n = MIN(e->n, max);

    for (size_t i = 0; i < n; i++) {
        const struct counted *c = &e->files[i];
        out[i] = (struct attempt_fact){.file = c->file, .since = c->since, .until = now};
        for (int cpu = 0; cpu < e->ncpus; cpu++)
            add_group(&out[i], c->fds[(size_t)cpu * GROUP]);
    }
    return n;
}

void lockevents_close(struct lockevents *e)
{
    if (!e)
        return;
    lockevents_follow(e, NULL, 0);
    close_counters(e->anchors, POINTS);
    free(e);
}

#include "netfile.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "compiler.h"
#include "procfs.h"
#include "xalloc.h"

#define MOUNTS_MAX (4u << 20)

static bool is_remote_type(const char *type)
{
    static const char *const types[] = {"nfs",  "cifs",     "smb3",  "fuse",      "ceph",   "9p",
                                        "afs",  "lustre",   "gpfs",  "glusterfs", "beegfs", "ocfs2",
                                        "gfs2", "virtiofs", "ncpfs", "orangefs"};

    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        if (strncmp(type, types[i], strlen(types[i])) == 0)
            return true;
    }
    return false;
}

/* A line of mountinfo: "ID PARENT MAJOR:MINOR ... - TYPE SOURCE OPTIONS". */
static bool line_tells(const char *line, size_t len, const char *device)
{
    const char *end = line + len, *p = line;

    for (int field = 0; field < 2; field++) {
        p = memchr(p, ' ', (size_t)(end - p));
        if (!p++)
            return false;
    }
    if ((size_t)(end - p) < strlen(device) || strncmp(p, device, strlen(device)) != 0)
        return false;
    p = memmem(p, (size_t)(end - p), " - ", 3);
    return p && is_remote_type(p + 3);
}

bool netfile_is_remote(int dirfd, uint64_t dev)
{
    char *text, device[32];
    bool found = false;

    if (major(dev) != 0) /* servers have no device of their own */
        return false;
    if (procfs_slurp_alloc(dirfd, "mountinfo", &text, MOUNTS_MAX) < 0)
        return false;
    snprintf(device, sizeof(device), "0:%u ", minor(dev));
    for (const char *line = text; *line && !found;) {
        size_t len = strcspn(line, "\n");
        found = line_tells(line, len, device);
        line += len + (line[len] == '\n');
    }
    free(text);
    return found;
}

/* What one opening is about; whoever comes last frees it. */
struct job {
    pthread_mutex_t lock;
    pthread_cond_t done;
    int (*open)(int dirfd, const char *path);
    int dirfd; /* its own */
    char *path;
    int result;
    bool finished, left;
};

static void job_free(struct job *j)
{
    pthread_cond_destroy(&j->done);
    pthread_mutex_destroy(&j->lock);
    close(j->dirfd);
    free(j->path);
    free(j);
}

static void *run(void *arg)
{
    struct job *j = arg;
    int fd = j->open(j->dirfd, j->path);
    char byte;

    if (fd >= 0 && pread(fd, &byte, 1, 0) < 0) {
        close(fd);
        fd = -EIO;
    }
    pthread_mutex_lock(&j->lock);
    bool left = j->left;
    j->result = fd;
    j->finished = true;
    pthread_cond_signal(&j->done);
    pthread_mutex_unlock(&j->lock);
    if (left) {
        if (fd >= 0)
            close(fd);
        job_free(j);
    }
    return NULL;
}

static struct timespec in_ms(unsigned ms)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

/* The result, if it comes in time; the job is gone then, or belongs to its thread. */
static int wait_for(struct job *j, unsigned limit_ms)
{
    const struct timespec end = in_ms(limit_ms);
    int rc = 0;

    pthread_mutex_lock(&j->lock);
    while (!j->finished && rc == 0)
        rc = pthread_cond_timedwait(&j->done, &j->lock, &end);
    bool finished = j->finished;
    j->left = !finished;
    pthread_mutex_unlock(&j->lock);
    if (!finished)
        return -ETIMEDOUT;
    int result = j->result;
    job_free(j);
    return result;
}

static int start(struct job *j)
{
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_t thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int rc = pthread_create(&thread, &attr, run, j);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int netfile_open(int dirfd, const char *path, int (*open)(int dirfd, const char *path),
                 unsigned limit_ms)
{
    struct job *j = xcalloc(1, sizeof(*j));

    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->done, NULL);
    j->open = open;
    j->path = xstrdup(path);
    j->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
    int rc = j->dirfd < 0 ? errno : start(j);
    if (rc != 0) {
        job_free(j);
        return -rc;
    }
    return wait_for(j, limit_ms);
}

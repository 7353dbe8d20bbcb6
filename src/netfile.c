#include "netfile.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "mounts.h"
#include "xalloc.h"

bool netfile_is_remote(int dirfd, uint64_t dev)
{
    struct mount m;

    /* Servers have no device of their own. */
    return major(dev) == 0 && mounts_find(dirfd, -1, dev, &m) && m.fs != FS_LOCAL;
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

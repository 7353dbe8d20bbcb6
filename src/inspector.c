#include "inspector.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inspect_look.h"

#define MAX_QUEUED   256
#define MAX_UNTAKEN  1024
#define MAX_FORGOTTEN 64
#define PATIENCE_S   2
#define CREDIT_MAX (50 * NSEC_PER_MSEC)
/* Demanglers recurse as deep as a name is nested, up to 1 MiB (measured). */
#define STACK_SIZE (4 << 20)

struct inspector {
    struct inspector_config cfg;
    pthread_t thread;
    clockid_t cpu_clock; /* of the thread */
    struct looker *looker; /* the thread's alone */

    pthread_mutex_t mutex; /* of all below; held for moments only */
    pthread_cond_t wake;
    bool end;
    struct inspect_job jobs[MAX_QUEUED]; /* a ring */
    size_t first, njobs;
    struct inspection **ready;
    size_t nready, ready_cap;
    pid_t forgotten[MAX_FORGOTTEN];
    size_t nforgotten;
    struct tracer_stats stops;
};

void inspection_free(struct inspection *i)
{
    if (!i)
        return;
    arena_release(&i->arena);
    filescan_release(&i->files);
    free(i);
}

struct scan_wish *inspect_wish(const struct scan_wish *wish)
{
    size_t files = wish->nfiles * sizeof(*wish->files), pids = wish->npids * sizeof(*wish->pids);
    struct scan_wish *copy = xcalloc(1, sizeof(*copy) + files + pids);
    char *room = (char *)(copy + 1);

    *copy = *wish;
    if (files)
        copy->files = memcpy(room, wish->files, files);
    if (pids)
        copy->pids = memcpy(room + files, wish->pids, pids);
    return copy;
}

/* The thread -------------------------------------------------------------------------- */

/* Called with the mutex held, which is given back in between: unmapping files takes its time. */
static void forget_ended(struct inspector *in)
{
    pid_t pids[MAX_FORGOTTEN];
    size_t n = in->nforgotten;

    if (n == 0)
        return;
    memcpy(pids, in->forgotten, n * sizeof(*pids));
    in->nforgotten = 0;
    pthread_mutex_unlock(&in->mutex);
    for (size_t i = 0; i < n; i++)
        looker_forget(in->looker, pids[i]);
    pthread_mutex_lock(&in->mutex);
}

/* Waits for work, and until WHEN (the CPU it may use is used up). False at the end. */
static bool next_job(struct inspector *in, nsec_t when, struct inspect_job *job)
{
    struct timespec until = {.tv_sec = when / NSEC_PER_SEC, .tv_nsec = when % NSEC_PER_SEC};

    while (!in->end) {
        forget_ended(in);
        if (when && clock_mono() < when) {
            pthread_cond_timedwait(&in->wake, &in->mutex, &until);
        } else if (in->njobs == 0) {
            pthread_cond_wait(&in->wake, &in->mutex);
        } else {
            *job = in->jobs[in->first];
            in->first = (in->first + 1) % MAX_QUEUED;
            in->njobs--;
            return true;
        }
    }
    return false;
}

/* CPU that it may use: a bucket that fills with time. */
struct allowance {
    double share;
    double credit; /* ns */
    nsec_t at;
};

static void allow(struct allowance *a, nsec_t now)
{
    a->credit += (double)(now - a->at) * a->share;
    if (a->credit > (double)CREDIT_MAX)
        a->credit = (double)CREDIT_MAX;
    a->at = now;
}

/* Books what a job cost; returns until when to wait before the next, 0: not at all. */
static nsec_t settle(struct allowance *a, nsec_t cost)
{
    nsec_t now = clock_mono();

    allow(a, now);
    a->credit -= (double)cost;
    return a->credit < 0 ? now + (nsec_t)(-a->credit / a->share) : 0;
}

static void put_ready(struct inspector *in, struct inspection *i)
{
    if (!i)
        return;
    in->ready = xgrow(in->ready, &in->ready_cap, in->nready + 1, sizeof(struct inspection *));
    in->ready[in->nready++] = i;
}

static void work(struct inspector *in)
{
    struct allowance a = {.share = in->cfg.cpu_share, .credit = CREDIT_MAX, .at = clock_mono()};
    struct inspect_job job;
    nsec_t when = 0, used = clock_thread_cpu();

    pthread_mutex_lock(&in->mutex);
    while (next_job(in, when, &job)) {
        pthread_mutex_unlock(&in->mutex);
        struct inspection *i = looker_answer(in->looker, &job);
        free(job.wish);
        /* What is needed once is not delayed: without it nothing has a name. */
        nsec_t now_used = clock_thread_cpu() - looker_learnt(in->looker);
        pthread_mutex_lock(&in->mutex);
        in->stops = looker_stops(in->looker);
        when = settle(&a, now_used - used);
        used = now_used;
        put_ready(in, i);
    }
    pthread_mutex_unlock(&in->mutex);
}

static void *inspecting_thread(void *arg)
{
    struct inspector *in = arg;

    if (in->cfg.enter)
        in->cfg.enter(in->cfg.arg);
    work(in);
    if (in->cfg.leave)
        in->cfg.leave(in->cfg.arg);
    return NULL;
}

/* Its users --------------------------------------------------------------------------- */

/* Who holds a lock comes before what it does: stacks, of which there may be many, wait for it. */
static void put_job(struct inspector *in, const struct inspect_job *job)
{
    size_t at = (in->first + in->njobs) % MAX_QUEUED;

    if (job->kind == INSPECT_FILES)
        at = in->first = (in->first + MAX_QUEUED - 1) % MAX_QUEUED;
    in->jobs[at] = *job;
    in->njobs++;
}

bool inspector_ask(struct inspector *in, const struct inspect_job *job)
{
    bool room;

    pthread_mutex_lock(&in->mutex);
    room = in->njobs < MAX_QUEUED && in->nready < MAX_UNTAKEN;
    if (room) {
        put_job(in, job);
        pthread_cond_signal(&in->wake);
    }
    pthread_mutex_unlock(&in->mutex);
    return room;
}

size_t inspector_take(struct inspector *in, struct inspection **out, size_t max)
{
    pthread_mutex_lock(&in->mutex);
    size_t n = MIN(max, in->nready);
    if (n) {
        memcpy(out, in->ready, n * sizeof(struct inspection *));
        memmove(in->ready, in->ready + n, (in->nready - n) * sizeof(struct inspection *));
        in->nready -= n;
    }
    pthread_mutex_unlock(&in->mutex);
    return n;
}

void inspector_forget(struct inspector *in, pid_t pid)
{
    pthread_mutex_lock(&in->mutex);
    /* One that finds no room is dropped in favour of others later. */
    if (in->nforgotten < MAX_FORGOTTEN)
        in->forgotten[in->nforgotten++] = pid;
    pthread_cond_signal(&in->wake);
    pthread_mutex_unlock(&in->mutex);
}

struct tracer_stats inspector_stops(struct inspector *in)
{
    pthread_mutex_lock(&in->mutex);
    struct tracer_stats s = in->stops;
    pthread_mutex_unlock(&in->mutex);
    return s;
}

nsec_t inspector_cpu(const struct inspector *in)
{
    struct timespec ts;

    if (clock_gettime(in->cpu_clock, &ts) != 0)
        return 0;
    return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* Life -------------------------------------------------------------------------------- */

static void release(struct inspector *in)
{
    for (size_t i = 0; i < in->nready; i++)
        inspection_free(in->ready[i]);
    free(in->ready);
    for (size_t i = 0; i < in->njobs; i++)
        free(in->jobs[(in->first + i) % MAX_QUEUED].wish);
    if (in->looker)
        looker_free(in->looker);
    pthread_cond_destroy(&in->wake);
    pthread_mutex_destroy(&in->mutex);
    free(in);
}

static int start_thread(struct inspector *in)
{
    pthread_attr_t attr;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    int rc = pthread_create(&in->thread, &attr, inspecting_thread, in);
    pthread_attr_destroy(&attr);
    return rc;
}

static void init_wake(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

struct inspector *inspector_new(const struct inspector_config *cfg, int *err)
{
    struct inspector *in = xcalloc(1, sizeof(*in));

    in->cfg = *cfg;
    pthread_mutex_init(&in->mutex, NULL);
    init_wake(&in->wake);
    *err = 0;
    in->looker = looker_new(cfg, err);
    if (in->looker)
        *err = start_thread(in);
    if (*err) {
        release(in);
        return NULL;
    }
    pthread_getcpuclockid(in->thread, &in->cpu_clock);
    return in;
}

bool inspector_free(struct inspector *in)
{
    struct timespec until;

    if (!in)
        return true;
    pthread_mutex_lock(&in->mutex);
    in->end = true;
    pthread_cond_signal(&in->wake);
    pthread_mutex_unlock(&in->mutex);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    if (pthread_timedjoin_np(in->thread, NULL, &until) != 0) {
        pthread_detach(in->thread);
        return false;
    }
    release(in);
    return true;
}

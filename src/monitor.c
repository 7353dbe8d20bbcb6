#include "monitor.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "err.h"
#include "inspector.h"
#include "model.h"
#include "remote.h"
#include "sampler.h"
#include "signals.h"
#include "source_proc.h"
#include "xalloc.h"

#define REQUESTS_PER_SWEEP 64
#define INSPECTOR_PART     0.4 /* of the budget, but for what it needs once */
#define STOP_PATIENCE_S    2

/* Looks at the lock words alone for each look at the threads: these are cheap. */
#define PROBES_PER_SWEEP 4

struct monitor {
    pthread_t thread;
    struct monitor_config cfg;
    struct inspector *inspector;
    struct source *source; /* this and the model: the sampling thread's alone */
    struct model *model;
    _Atomic(struct snapshot *) ready; /* the newest one that nobody has taken */
    atomic_bool ended;                /* the sampling thread has put its last snapshot */
    int ready_fd, stop_fd;
    struct signals_stack fault_stack; /* of the sampling thread */
    struct signals_stack inspector_stack;
};

static void poke(int fd)
{
    uint64_t one = 1;

    /* An eventfd that cannot count further is readable already. */
    if (write(fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        warn_msg("eventfd: %s", strerror(errno));
}

static void on_sample(void *arg, const struct sample *s)
{
    struct monitor *m = arg;
    struct request wanted[REQUESTS_PER_SWEEP];

    model_feed(m->model, s);
    if (s->kind != SAMPLE_SWEEP)
        return;
    size_t n = model_requests(m->model, wanted, REQUESTS_PER_SWEEP);
    for (size_t i = 0; i < n; i++)
        m->source->ops->request(m->source, &wanted[i]);
}

static void on_tick(void *arg)
{
    struct monitor *m = arg;
    struct snapshot *s = model_snapshot(m->model);

    if (!s)
        return;
    /* A snapshot that nobody took in time gives way to the newer one. */
    snapshot_free(atomic_exchange(&m->ready, s));
    poke(m->ready_fd);
}

static nsec_t cpu_of_inspector(void *arg)
{
    return inspector_cpu(arg);
}

static void *sampling_thread(void *arg)
{
    struct monitor *m = arg;
    const struct sampler_config cfg = {
        .sweep_hz = m->cfg.rate_hz,
        .probe_hz = m->cfg.rate_hz * PROBES_PER_SWEEP,
        .budget_pct = m->cfg.budget_pct,
        .delay = m->cfg.delay,
        .first = m->cfg.first ? m->cfg.first : m->cfg.delay,
        .seed = (uint64_t)clock_wall(),
        .apart = m->inspector ? cpu_of_inspector : NULL,
        .apart_arg = m->inspector,
    };
    const struct sampler_sink sink = {.sample = on_sample, .tick = on_tick, .arg = m};

    signals_stack_enter(&m->fault_stack);
    sampler_run(m->source, &cfg, &sink, m->stop_fd);
    signals_stack_leave(&m->fault_stack);
    atomic_store(&m->ended, true);
    poke(m->ready_fd);
    return NULL;
}

static struct model_host this_host(void)
{
    struct model_host h = {.cpus = (int)sysconf(_SC_NPROCESSORS_ONLN)};
    struct utsname u;

    if (uname(&u) == 0) {
        snprintf(h.name, sizeof(h.name), "%s", u.nodename);
        snprintf(h.kernel, sizeof(h.kernel), "%s", u.release);
    }
    return h;
}

/* False when its thread hangs in the kernel: it is left behind. */
static bool stop_inspector(struct monitor *m)
{
    bool ended = inspector_free(m->inspector);

    m->inspector = NULL;
    if (!ended)
        warn_msg("the thread that takes stacks hangs in the kernel and is left behind");
    return ended;
}

static void release(struct monitor *m)
{
    snapshot_free(atomic_exchange(&m->ready, NULL));
    model_free(m->model);
    if (m->source)
        m->source->ops->free(m->source);
    /* A thread that is left behind still uses its stack for signals, in M. */
    bool ended = stop_inspector(m);
    if (m->ready_fd >= 0)
        close(m->ready_fd);
    if (m->stop_fd >= 0)
        close(m->stop_fd);
    if (ended)
        free(m);
}

static void enter_inspector(void *arg)
{
    signals_stack_enter(arg);
}

static void leave_inspector(void *arg)
{
    signals_stack_leave(arg);
}

static int start_inspector(struct monitor *m)
{
    const struct inspector_config cfg = {
        .root = "/proc",
        .read_memory = remote_read,
        .cpu_share = m->cfg.budget_pct / 100 * INSPECTOR_PART,
        .may_stop = m->cfg.may_stop,
        .stops = TRACER_LIMITS_DEFAULT,
        .enter = enter_inspector,
        .leave = leave_inspector,
        .arg = &m->inspector_stack,
    };
    int err = 0;

    /* Without stacks too: it also searches for who holds locks on files. */
    m->inspector = inspector_new(&cfg, &err);
    return err;
}

static void prepare_model(struct monitor *m)
{
    struct model_host host = this_host();

    m->model = model_new(&host);
    model_configure(m->model, &(struct model_config){
                                  .stacks = m->cfg.stacks,
                                  .may_stop = m->cfg.may_stop,
                                  .signatures = m->cfg.signatures,
                                  .names = m->cfg.names,
                              });
}

static bool prepare(struct monitor *m, struct target *target, char *err, size_t err_size,
                    int *status)
{
    const struct source_proc_config cfg = {
        .root = "/proc",
        .target = target,
        .read_memory = remote_read,
        .inspector = m->inspector,
        .events = m->cfg.events,
    };
    int rc = 0;

    *status = EXIT_FAILED;
    if (m->ready_fd < 0 || m->stop_fd < 0) {
        snprintf(err, err_size, "eventfd: %s", strerror(errno));
        return false;
    }
    m->source = source_proc_new(&cfg, &rc);
    if (!m->source) {
        snprintf(err, err_size, "cannot open /proc: %s", strerror(rc));
        return false;
    }
    if (!source_proc_permitted(m->source, err, err_size)) {
        *status = EXIT_NOTHING;
        return false;
    }
    prepare_model(m);
    return true;
}

static bool start_threads(struct monitor *m, struct target *target, char *err, size_t err_size,
                          int *status)
{
    int rc = start_inspector(m);

    *status = EXIT_FAILED;
    if (rc == 0 && !prepare(m, target, err, err_size, status))
        return false;
    if (rc == 0)
        rc = pthread_create(&m->thread, NULL, sampling_thread, m);
    if (rc != 0)
        snprintf(err, err_size, "cannot start a thread: %s", strerror(rc));
    return rc == 0;
}

struct monitor *monitor_start(struct target *target, const struct monitor_config *cfg, char *err,
                              size_t err_size, int *status)
{
    struct monitor *m = xcalloc(1, sizeof(*m));

    m->cfg = *cfg;
    m->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    m->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    /* Signals belong to the thread that renders, but for those of a fault. */
    sigset_t mask, old;
    signals_thread_mask(&mask);
    pthread_sigmask(SIG_SETMASK, &mask, &old);
    bool started = start_threads(m, target, err, err_size, status);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!started) {
        release(m);
        return NULL;
    }
    return m;
}

int monitor_fd(const struct monitor *m)
{
    return m->ready_fd;
}

struct snapshot *monitor_take(struct monitor *m)
{
    uint64_t count;

    /* Drained first: a snapshot that comes in between is taken now and pokes once too often. */
    if (read(m->ready_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
        return NULL;
    /* What was drained may have told of the end as well: that stays readable. */
    if (atomic_load(&m->ended))
        poke(m->ready_fd);
    return atomic_exchange(&m->ready, NULL);
}

bool monitor_ended(const struct monitor *m)
{
    return atomic_load(&m->ended) && !atomic_load(&m->ready);
}

bool monitor_stop(struct monitor *m)
{
    if (!m)
        return true;
    poke(m->stop_fd);
    /* A read of the target's memory can hang in the kernel with the target's mmap_lock: then the
     * way out is to leave the thread behind, with all that it may still touch. */
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += STOP_PATIENCE_S;
    if (pthread_timedjoin_np(m->thread, NULL, &until) != 0) {
        pthread_detach(m->thread);
        warn_msg("the sampling thread hangs in the kernel and is left behind");
        return false;
    }
    release(m);
    return true;
}

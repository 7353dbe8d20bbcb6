#include "batch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "err.h"
#include "fmt.h"

/* Blocks the signals that ask to end and returns an fd that tells of them, or -1. */
static int catch_signals(sigset_t *old)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, old);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int write_snapshot(const struct snapshot *s, const struct batch_config *cfg)
{
    if (cfg->json) {
        if (render_json(stdout, s) < 0 && !ferror(stdout)) {
            warn_msg("a snapshot could not be written as JSON");
            return EXIT_FAILED;
        }
    } else {
        render_text(stdout, s, &cfg->style);
    }
    if (fflush(stdout) == 0 && !ferror(stdout))
        return EXIT_OK;
    int err = errno;
    clearerr(stdout);
    if (err == EPIPE)
        return -1; /* nobody reads any more: done */
    warn_msg("standard output: %s", strerror(err));
    return EXIT_FAILED;
}

static bool all_ended(const struct snapshot *s)
{
    for (size_t i = 0; i < s->nprocesses; i++) {
        if (!s->processes[i].ended)
            return false;
    }
    return true;
}

static void say_ended(const struct snapshot *s)
{
    char comm[4 * COMM_LEN];

    if (s->nprocesses != 1) {
        warn_msg("all watched processes have exited");
        return;
    }
    fmt_safe(comm, sizeof(comm), s->processes[0].comm, COMM_LEN, true);
    warn_msg("process %d (%s) has exited", s->processes[0].pid, comm);
}

/* Waits for a snapshot or a signal. Returns false when it is time to end. */
static bool wait_for_news(int monitor, int signals)
{
    struct pollfd p[] = {{.fd = monitor, .events = POLLIN}, {.fd = signals, .events = POLLIN}};

    while (poll(p, 2, -1) < 0) {
        if (errno != EINTR)
            return false;
    }
    return p[1].revents == 0;
}

/* Takes the signals that ended the loop: let through later, they would kill us before the
 * caller has cleaned up. */
static void drain_signals(int signals)
{
    struct signalfd_siginfo info;

    while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        continue;
}

static int loop(struct monitor *m, const struct batch_config *cfg, int signals)
{
    long done = 0;

    while (wait_for_news(monitor_fd(m), signals)) {
        struct snapshot *s = monitor_take(m);
        if (!s && monitor_ended(m))
            break;
        if (!s)
            continue;
        int status = write_snapshot(s, cfg);
        bool last = all_ended(s);
        if (status == EXIT_OK && last)
            say_ended(s);
        snapshot_free(s);
        if (status != EXIT_OK)
            return status < 0 ? EXIT_OK : status;
        if (last || (cfg->iterations && ++done >= cfg->iterations))
            break;
    }
    return EXIT_OK;
}

int batch_run(struct monitor *m, const struct batch_config *cfg)
{
    sigset_t old;
    int signals = catch_signals(&old);

    if (signals < 0) {
        warn_msg("signalfd: %s", strerror(errno));
        return EXIT_FAILED;
    }
    signal(SIGPIPE, SIG_IGN);
    int status = loop(m, cfg, signals);
    drain_signals(signals);
    close(signals);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return status;
}

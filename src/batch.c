#include "batch.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler.h"
#include "err.h"
#include "signals.h"

#define TEXT_WIDTH 80

/* Waits until stdout takes something. Returns 0; EINTR when a signal asks to end and stdout takes
 * nothing, or did not take all the last time (STALLED); or another errno. */
static int wait_for_reader(int signals, bool stalled)
{
    struct pollfd p[] = {{.fd = STDOUT_FILENO, .events = POLLOUT},
                         {.fd = signals, .events = POLLIN}};

    while (poll(p, ARRAY_SIZE(p), -1) < 0)
        if (errno != EINTR)
            return errno;
    return p[1].revents && (stalled || !p[0].revents) ? EINTR : 0;
}

/* Writes in pieces that a pipe with room takes whole, so that a reader who stalls is waited for
 * above, where signals are heard. Returns 0 or an errno; EINTR only as above. */
static int write_all(const char *text, size_t len, int signals)
{
    bool stalled = false;
    int err = 0;

    while (len > 0 && (err = wait_for_reader(signals, stalled)) == 0) {
        size_t piece = MIN(len, (size_t)PIPE_BUF);
        ssize_t n = write(STDOUT_FILENO, text, piece);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return errno;
        stalled = n < (ssize_t)piece;
        text += MAX(n, 0);
        len -= (size_t)MAX(n, 0);
    }
    return err;
}

/* The snapshot as one piece of text, to be freed; NULL when it could not be built. */
static char *render(const struct snapshot *s, const struct batch_config *cfg, size_t *len)
{
    struct column_set columns;
    const struct text_style style = {.columns = &columns, .sort = cfg->sort, .ascii = cfg->ascii};
    char *text = NULL;
    FILE *out = open_memstream(&text, len);
    int rc = 0;

    if (!out)
        return NULL;
    column_set_choose(&columns, cfg->columns, TEXT_WIDTH, s);
    if (cfg->json)
        rc = render_json(out, s);
    else
        render_text(out, s, &style);
    if (fclose(out) == 0 && rc == 0)
        return text;
    free(text);
    return NULL;
}

/* Returns an exit status, or -1 when it is time to end. */
static int write_snapshot(const struct snapshot *s, const struct batch_config *cfg, int signals)
{
    size_t len;
    char *text = render(s, cfg, &len);

    if (!text) {
        warn_msg("a snapshot could not be written as %s", cfg->json ? "JSON" : "text");
        return EXIT_FAILED;
    }
    int err = write_all(text, len, signals);
    free(text);
    if (err == EPIPE || err == EINTR)
        return -1; /* nobody reads any more: done */
    if (err)
        warn_msg("standard output: %s", strerror(err));
    return err ? EXIT_FAILED : EXIT_OK;
}

static bool all_ended(const struct snapshot *s)
{
    if (s->may_come)
        return false;
    for (size_t i = 0; i < s->nprocesses; i++) {
        if (!s->processes[i].ended)
            return false;
    }
    return true;
}

static void say_ended(const struct snapshot *s)
{
    char text[256];

    warn_msg("%s", render_ended(text, sizeof(text), s));
}

/* Waits for a snapshot or a signal. Returns false when it is time to end. */
static bool wait_for_news(int monitor, int signals)
{
    struct pollfd p[] = {{.fd = monitor, .events = POLLIN}, {.fd = signals, .events = POLLIN}};

    while (poll(p, ARRAY_SIZE(p), -1) < 0) {
        if (errno != EINTR)
            return false;
    }
    return p[1].revents == 0;
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
        int status = write_snapshot(s, cfg, signals);
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
    int signals = signals_open(SIGNALS_TEXT);

    if (signals < 0) {
        warn_msg("cannot make a pipe: %s", strerror(-signals));
        return EXIT_FAILED;
    }
    signal(SIGPIPE, SIG_IGN);
    int status = loop(m, cfg, signals);
    signals_close();
    return status;
}

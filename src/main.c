/*
 * main.c - wiring: options -> target -> monitor -> renderer, and the exit status.
 */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../ui/ui.h"
#include "batch.h"
#include "choices.h"
#include "column.h"
#include "err.h"
#include "monitor.h"
#include "options.h"
#include "target.h"

#define COMMAND_GRACE (2 * NSEC_PER_SEC) /* between SIGTERM and SIGKILL for -- COMMAND */
#define SCREEN_FIRST  (NSEC_PER_SEC / 4) /* the screen fills soon, then every delay */

static bool is_help(const char *word)
{
    return word && strcmp(word, "help") == 0;
}

/* Runs the screen. Returns -1 when this terminal cannot show one. */
static int run_screen(struct monitor *m, const struct options *opt, enum column sort)
{
    char message[512] = "";
    const struct ui_config cfg = {.columns = opt->columns,
                                  .sort = sort,
                                  .iterations = opt->iterations,
                                  .no_color = opt->no_color,
                                  .ascii = opt->ascii};
    int status = ui_run(m, &cfg, message, sizeof(message));

    if (message[0])
        warn_msg("%s", message);
    return status;
}

/* Sets *LEFT when the sampling thread could not be stopped: it may still use TARGET and CHOICES. */
static int run(const struct options *opt, const struct choices *choices, bool screen,
               struct target *target, bool *left)
{
    char err[512];
    int status;
    const struct monitor_config cfg = {
        .delay = opt->delay,
        .first = screen ? SCREEN_FIRST : 0,
        .rate_hz = opt->rate_hz,
        .budget_pct = opt->budget_pct,
        .stacks = opt->stacks,
        .may_stop = opt->may_stop,
        .events = opt->events,
        .names = choices->names,
        .signatures = choices->signatures,
    };
    struct monitor *m = monitor_start(target, &cfg, err, sizeof(err), &status);

    if (!m) {
        warn_msg("%s", err);
        return status;
    }
    status = screen ? run_screen(m, opt, choices->sort) : -1;
    if (status < 0) {
        const struct batch_config batch = {.json = opt->output == OUTPUT_JSON,
                                           .iterations = opt->iterations,
                                           .columns = opt->columns,
                                           .sort = choices->sort,
                                           .ascii = opt->ascii};
        status = batch_run(m, &batch);
    }
    *left = !monitor_stop(m);
    return status;
}

/* Ends the command that was started here, and TARGET unless its thread is LEFT behind with it. */
static void end_target(const struct options *opt, struct target *target, pid_t command, bool left)
{
    siginfo_t info = {0}; /* stays so when it has not ended */
    bool runs = command && !waitid(P_PID, (id_t)command, &info, WEXITED | WNOHANG | WNOWAIT) &&
                info.si_pid == 0;

    if (runs)
        warn_msg("ending %s[%d], which was started here", opt->target.command[0], command);
    if (!left)
        target_free(target, COMMAND_GRACE);
    else if (runs)
        kill(command, SIGTERM);
}

static int watch(const struct options *opt, const struct choices *choices, bool *left)
{
    char err[512] = "";
    bool screen = opt->output == OUTPUT_AUTO && isatty(STDOUT_FILENO) && isatty(STDIN_FILENO);
    int status;

    /* A command that is started must not write into our screen, nor between our lines. */
    int quiet_fd = screen ? open("/dev/null", O_RDWR | O_CLOEXEC) : STDERR_FILENO;
    struct target *target = target_new(&opt->target, quiet_fd, err, sizeof(err), &status);
    if (err[0])
        warn_msg("%s", err);
    if (!target)
        return status;
    const pid_t *pids;
    bool some = target_list(target, clock_mono(), &pids) > 0;
    pid_t command = some && opt->target.command ? pids[0] : 0;
    status = run(opt, choices, screen, target, left);
    end_target(opt, target, command, *left);
    return status;
}

int main(int argc, char **argv)
{
    struct options opt;
    struct choices choices = {0};
    bool left = false;
    char err[1024];

    setlocale(LC_CTYPE, ""); /* one that is not installed leaves "C" */
    int status = options_parse(&opt, argc, argv, err, sizeof(err));
    if (status != 0)
        warn_msg("%s", err);
    else if (opt.show_help)
        options_print_help(stdout);
    else if (opt.show_version)
        printf("lock-top %s (%s)\n", LOCK_TOP_VERSION, target_library());
    else if (is_help(opt.columns) || is_help(opt.sort))
        column_list(stdout);
    else if ((status = choices_make(&choices, &opt, err, sizeof(err))) != 0)
        warn_msg("%s", err);
    else
        status = watch(&opt, &choices, &left);
    if (!left)
        choices_release(&choices);
    options_release(&opt);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == 0) {
        warn_msg("standard output: %s", strerror(errno));
        status = EXIT_FAILED;
    }
    return status;
}

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

static enum column sort_column(const struct options *opt)
{
    int c = opt->sort ? column_by_name(opt->sort, strlen(opt->sort)) : COL_AVG10;

    if (c < 0)
        die(EXIT_USAGE, "-s: no column '%s'; 'lock-top -s help' lists them", opt->sort);
    return (enum column)c;
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

/* Sets *LEFT when the sampling thread could not be stopped: it may still use TARGET. */
static int run(const struct options *opt, bool screen, struct target *target, enum column sort,
               bool *left)
{
    char err[512];
    int status;
    const struct monitor_config cfg = {
        .delay = opt->delay,
        .first = screen ? SCREEN_FIRST : 0,
        .rate_hz = opt->rate_hz,
        .budget_pct = opt->budget_pct,
    };
    struct monitor *m = monitor_start(target, &cfg, err, sizeof(err), &status);

    if (!m) {
        warn_msg("%s", err);
        return status;
    }
    status = screen ? run_screen(m, opt, sort) : -1;
    if (status < 0) {
        const struct batch_config batch = {.json = opt->output == OUTPUT_JSON,
                                           .iterations = opt->iterations,
                                           .columns = opt->columns,
                                           .sort = sort,
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

static int watch(const struct options *opt)
{
    char err[512] = "";
    struct column_set columns;
    enum column sort = sort_column(opt);
    bool screen = opt->output == OUTPUT_AUTO && isatty(STDOUT_FILENO) && isatty(STDIN_FILENO);
    bool left = false;
    int status;

    if (opt->columns && !column_set_parse(&columns, opt->columns, 0, false, err, sizeof(err)))
        die(EXIT_USAGE, "-o: %s", err);
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
    status = run(opt, screen, target, sort, &left);
    end_target(opt, target, command, left);
    return status;
}

int main(int argc, char **argv)
{
    struct options opt;
    char err[512];

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
    else
        status = watch(&opt);
    options_release(&opt);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == 0) {
        warn_msg("standard output: %s", strerror(errno));
        status = EXIT_FAILED;
    }
    return status;
}

#include "ui.h"

#include <curses.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../src/compiler.h"
#include "../src/err.h"
#include "../src/render.h"
#include "../src/signals.h"
#include "draw.h"
#include "keys.h"
#include "state.h"
#include "term.h"
#include "view_chains.h"
#include "view_help.h"
#include "view_lock.h"
#include "view_locks.h"
#include "view_sort.h"

#define KEY_ESCAPE 27

/* A terminal that is readable so often without giving a key has been closed. */
#define SILENT_MAX 3

struct ui {
    struct monitor *monitor;
    const struct ui_config *cfg;
    struct ui_state st;
    struct snapshot *shown;  /* on the screen; NULL before the first */
    struct snapshot *newest; /* came while the screen was held still; or NULL */
    bool ascii;
    long refreshes; /* snapshots shown */
    bool ended;     /* nothing is left to watch */
    bool repaint;   /* all of the screen, not only what has changed */
    bool closed;    /* the terminal has gone */
    bool leave;
    int silent;
};

/* Drawing ------------------------------------------------------------------------------------ */

static struct column_set columns_now(const struct ui *ui)
{
    struct column_set set;

    column_set_choose(&set, ui->cfg->columns, COLS, ui->shown);
    return set;
}

/* PAUSED takes the place of the program's name, so that it is seen on the narrowest screen too. */
static void draw_header(const struct ui *ui, const struct area *a)
{
    static const char name[] = "lock-top";
    char line[1024] = "lock-top";
    const char *mark = ui->ended ? "PAUSED, the target has ended" : "PAUSED";
    int x = 0;

    if (ui->shown)
        render_header(line, sizeof(line), ui->shown, ui->ascii);
    bool named = !strncmp(line, name, sizeof(name) - 1);
    if (ui->st.paused) {
        x = (int)strlen(mark);
        draw_text(a, 0, 0, x, STYLE_WARNING, mark);
    }
    draw_text(a, 0, x, a->w, STYLE_BOLD, x && named ? line + sizeof(name) - 1 : line);
}

static void bar_label(const struct ui *ui, const struct key *k, char *dst, size_t size)
{
    if (k->action == ACTION_SORT)
        snprintf(dst, size, "%s:%s%s", k->bar_label, ui->st.reverse ? "-" : "",
                 column_info(ui->st.sort)->name);
    else if (k->action == ACTION_PAUSE && ui->st.paused)
        snprintf(dst, size, "Resume");
    else
        snprintf(dst, size, "%s", k->bar_label);
}

/* Only keys that do something here, each whole or not at all. */
static void draw_bar(const struct ui *ui, const struct area *a, int y)
{
    size_t n;
    const struct key *keys = keys_table(&n);
    int x = 0;

    for (size_t i = 0; i < n; i++) {
        char label[32];
        if (!keys[i].bar_key || !(keys[i].pages & 1u << ui_state_page(&ui->st)))
            continue;
        bar_label(ui, &keys[i], label, sizeof(label));
        int name = (int)strlen(keys[i].bar_key), width = (int)strlen(label);
        if (x + name + width > a->w)
            continue;
        draw_text(a, y, x, name, STYLE_PLAIN, keys[i].bar_key);
        draw_text(a, y, x + name, width, STYLE_SELECTED, label);
        x += name + width + 1;
    }
}

static void draw_page(struct ui *ui, const struct area *a)
{
    struct column_set columns = columns_now(ui);

    switch (ui_state_page(&ui->st)) {
    case PAGE_LOCK:
        view_lock_draw(a, &ui->st, ui->shown);
        break;
    case PAGE_CHAINS:
        view_chains_draw(a, &ui->st, ui->shown);
        break;
    case PAGE_SORT:
        view_sort_draw(a, &ui->st);
        break;
    case PAGE_HELP:
        view_help_draw(a, &ui->st);
        break;
    default:
        view_locks_draw(a, &ui->st, ui->shown, &columns);
    }
}

static void draw(struct ui *ui)
{
    struct area screen = {.h = LINES, .w = COLS, .ascii = ui->ascii};
    int header = LINES >= 4, bar = LINES >= 3;
    struct area page = {.y = header, .h = LINES - header - bar, .w = COLS, .ascii = ui->ascii};

    erase();
    if (header)
        draw_header(ui, &screen);
    draw_page(ui, &page);
    if (bar)
        draw_bar(ui, &screen, LINES - 1);
}

/* Snapshots ---------------------------------------------------------------------------------- */

static void show(struct ui *ui, struct snapshot *s)
{
    snapshot_free(ui->shown);
    ui->shown = s;
    ui->refreshes++;
    if (ui->cfg->iterations > 0 && ui->refreshes >= ui->cfg->iterations)
        ui->leave = true;
}

static void take_snapshot(struct ui *ui)
{
    struct snapshot *s = monitor_take(ui->monitor);

    if (s && ui->st.paused) {
        snapshot_free(ui->newest);
        ui->newest = s;
    } else if (s) {
        show(ui, s);
    }
    ui->ended = monitor_ended(ui->monitor);
}

/* What has happened behind a screen held still is shown when it goes on. */
static void catch_up(struct ui *ui)
{
    if (ui->st.paused)
        return;
    if (ui->newest)
        show(ui, ui->newest);
    ui->newest = NULL;
    if (ui->ended)
        ui->leave = true;
}

/* Keys --------------------------------------------------------------------------------------- */

/* Does what CODE means; draws at once, for the next key may build on what the views find. */
static void press(struct ui *ui, int code)
{
    enum action action = keys_action(ui_state_page(&ui->st), code);
    struct column_set columns = columns_now(ui);

    if (action == ACTION_NONE)
        return;
    ui->repaint |= action == ACTION_REDRAW;
    ui_state_apply(&ui->st, action, &columns);
    ui->leave |= ui->st.quit;
    catch_up(ui);
    draw(ui);
}

/* After an Esc that began a sequence which curses does not know: its letters are no keys. */
static void drop_sequence(int intro)
{
    int c = getch();

    while (intro == '[' && c != ERR && (c < 0x40 || c > 0x7e))
        c = getch();
}

static void press_escape(struct ui *ui)
{
    int next = getch();

    if (next == '[' || next == 'O') {
        drop_sequence(next);
        return;
    }
    press(ui, KEY_ESCAPE);
    if (next != ERR)
        press(ui, next);
}

static void read_keys(struct ui *ui, short revents)
{
    int keys = 0, code;

    while (!ui->leave && (code = getch()) != ERR) {
        keys++;
        if (code == KEY_ESCAPE)
            press_escape(ui);
        else
            press(ui, code);
    }
    ui->silent = keys ? 0 : ui->silent + 1;
    if (revents & (POLLHUP | POLLERR | POLLNVAL) || ui->silent > SILENT_MAX)
        ui->leave = ui->closed = true;
}

/* Signals ------------------------------------------------------------------------------------ */

static void suspend(struct ui *ui)
{
    term_suspend();
    signals_stop_self();
    term_resume();
    ui->repaint = true;
}

static void obey(struct ui *ui, int signal)
{
    switch (signal) {
    case SIGWINCH:
        term_resize();
        break;
    case SIGTSTP:
        suspend(ui);
        break;
    case SIGCONT:
        term_resume();
        ui->repaint = true;
        break;
    case SIGHUP:
        ui->closed = true;
        ui->leave = true;
        break;
    default:
        ui->leave = true;
    }
}

static void obey_signals(struct ui *ui)
{
    int signal;

    while (!ui->leave && (signal = signals_next()) != 0)
        obey(ui, signal);
}

/* The loop ----------------------------------------------------------------------------------- */

static void run(struct ui *ui, int signal_fd)
{
    struct pollfd fds[] = {
        {.fd = signal_fd, .events = POLLIN},
        {.fd = STDIN_FILENO, .events = POLLIN},
        {.fd = monitor_fd(ui->monitor), .events = POLLIN},
    };

    while (!ui->leave) {
        draw(ui);
        term_show(ui->repaint);
        ui->repaint = false;
        fds[2].fd = ui->ended ? -1 : fds[2].fd; /* it stays readable at the end */
        if (poll(fds, ARRAY_SIZE(fds), -1) < 0)
            continue;
        if (fds[0].revents)
            obey_signals(ui);
        if (fds[1].revents && !ui->leave)
            read_keys(ui, fds[1].revents);
        if (fds[2].revents && !ui->leave)
            take_snapshot(ui);
        catch_up(ui);
    }
    if (!ui->closed) {
        draw(ui); /* the last refresh asked for is to be seen, too */
        term_show(false);
    }
}

static int run_on_terminal(struct ui *ui, int signal_fd)
{
    if (!term_start())
        return -1;
    draw_init(!ui->cfg->no_color);
    run(ui, signal_fd);
    term_stop();
    return ui->closed ? EXIT_FAILED : EXIT_OK;
}

int ui_run(struct monitor *m, const struct ui_config *cfg, char *msg, size_t msg_size)
{
    struct ui ui = {.monitor = m, .cfg = cfg, .ascii = !term_utf8() || cfg->ascii};
    int signal_fd = signals_open(SIGNALS_SCREEN);

    snprintf(msg, msg_size, "%s", "");
    if (signal_fd < 0) {
        snprintf(msg, msg_size, "cannot make a pipe: %s", strerror(-signal_fd));
        return EXIT_FAILED;
    }
    ui_state_init(&ui.st, cfg->sort);
    int status = run_on_terminal(&ui, signal_fd);
    signals_close();
    if (status == EXIT_OK && ui.ended)
        render_ended(msg, msg_size, ui.newest ? ui.newest : ui.shown);
    ui_state_release(&ui.st);
    snapshot_free(ui.shown);
    snapshot_free(ui.newest);
    return status;
}

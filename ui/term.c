#include "term.h"

#include <curses.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

#include "../src/compiler.h"
#include "../src/err.h"

/* A key that is a sequence waits no longer than this for its rest; ms. */
#define ESCAPE_DELAY 25

static SCREEN *screen;
static bool at_exit; /* exit() from anywhere puts the terminal back, too */

/* What the die hook needs, made ready beforehand: it must not call curses. */
static struct {
    struct termios modes;
    char text[256];
    size_t len;
} saved;
static atomic_bool lost; /* the die hook has put the terminal back: draw no more */

/* Terminfo strings --------------------------------------------------------------------------- */

/* Appends the capability without its padding "$<5>": a delay is of no use in a last message. */
static void save_string(const char *name)
{
    const char *s = tigetstr(name);

    if (!s || s == (const char *)-1)
        return;
    while (*s && saved.len + 1 < sizeof(saved.text)) {
        const char *end = s[0] == '$' && s[1] == '<' ? strchr(s, '>') : NULL;
        if (end)
            s = end + 1;
        else
            saved.text[saved.len++] = *s++;
    }
}

static bool has_string(const char *name)
{
    const char *s = tigetstr(name);

    return s && s != (const char *)-1;
}

/* setupterm() looks without touching the terminal, as newterm() would not. */
static bool can_show_screen(void)
{
    int error;

    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) ||
        setupterm(NULL, STDOUT_FILENO, &error) != OK)
        return false;
    bool able = has_string("cup");
    if (able) {
        saved.len = 0;
        save_string("sgr0");
        save_string("op");
        save_string("rmkx");
        save_string("cnorm");
        save_string("rmcup");
        if (!has_string("rmcup"))
            memcpy(saved.text + saved.len++, "\n", 1);
    }
    del_curterm(cur_term);
    return able;
}

/* Terminals often send other sequences than their TERM says. */
static void define_common_keys(void)
{
    static const struct {
        const char *text;
        int key;
    } common[] = {
        {"\033[A", KEY_UP},     {"\033[B", KEY_DOWN},    {"\033OA", KEY_UP},
        {"\033OB", KEY_DOWN},   {"\033[H", KEY_HOME},    {"\033[F", KEY_END},
        {"\033OH", KEY_HOME},   {"\033OF", KEY_END},     {"\033[1~", KEY_HOME},
        {"\033[4~", KEY_END},   {"\033[7~", KEY_HOME},   {"\033[8~", KEY_END},
        {"\033[5~", KEY_PPAGE}, {"\033[6~", KEY_NPAGE},  {"\033OP", KEY_F(1)},
        {"\033[11~", KEY_F(1)}, {"\033[[A", KEY_F(1)},   {"\033[17~", KEY_F(6)},
        {"\033[19~", KEY_F(8)}, {"\033[21~", KEY_F(10)}, {"\033OM", KEY_ENTER},
    };

    for (size_t i = 0; i < ARRAY_SIZE(common); i++)
        if (key_defined(common[i].text) == 0)
            define_key(common[i].text, common[i].key);
}

/* The way out ------------------------------------------------------------------------------- */

/* Runs in signal handlers. A terminal that belongs to another job by now is left alone, and one
 * that takes no more output (Ctrl-S, a dead line) must not hold the exit up. */
static void restore_now(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};

    atomic_store(&lost, true);
    if (tcgetpgrp(STDIN_FILENO) != getpgrp())
        return;
    tcflush(STDOUT_FILENO, TCOFLUSH);
    if (poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) &&
        write(STDOUT_FILENO, saved.text, saved.len) < 0)
        return;
    tcsetattr(STDIN_FILENO, TCSANOW, &saved.modes);
}

/* Start and stop ----------------------------------------------------------------------------- */

static void set_modes(void)
{
    cbreak();
    noecho();
    nonl();
    curs_set(0);
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    set_escdelay(ESCAPE_DELAY);
    typeahead(-1); /* a key that waits is no reason to leave the screen half drawn */
    define_common_keys();
}

bool term_start(void)
{
    if (!can_show_screen() || tcgetattr(STDIN_FILENO, &saved.modes) != 0)
        return false;
    atomic_store(&lost, false);
    if (!at_exit && atexit(err_run_die_hook) == 0)
        at_exit = true;
    err_set_die_hook(restore_now);
    screen = newterm(NULL, stdout, stdin);
    if (!screen) {
        err_set_die_hook(NULL);
        return false;
    }
    set_modes();
    term_resize();
    return true;
}

/* Without an alternate screen the picture stays: what is printed next needs a line. */
static void clear_last_line(void)
{
    if (exit_ca_mode)
        return;
    move(LINES - 1, 0);
    clrtoeol();
    refresh();
}

void term_suspend(void)
{
    err_set_die_hook(NULL);
    if (atomic_load(&lost))
        return;
    clear_last_line();
    endwin();
}

void term_stop(void)
{
    if (!screen)
        return;
    term_suspend();
    delscreen(screen);
    screen = NULL;
}

void term_resume(void)
{
    err_set_die_hook(restore_now);
    reset_prog_mode();
    term_resize();
    term_show(true);
}

void term_resize(void)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0 &&
        (size.ws_row != LINES || size.ws_col != COLS))
        resizeterm(size.ws_row, size.ws_col);
}

void term_show(bool anew)
{
    if (atomic_load(&lost))
        return;
    if (anew)
        clearok(curscr, TRUE);
    refresh();
}

bool term_utf8(void)
{
    const char *now = setlocale(LC_CTYPE, NULL);

    /* Only this category: a decimal comma must not get into numbers. */
    if (now && !strcmp(now, "C") && !setlocale(LC_CTYPE, ""))
        return false;
    return !strcmp(nl_langinfo(CODESET), "UTF-8");
}

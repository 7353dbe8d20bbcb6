/*
 * term.h - curses started and stopped, and the terminal put back on every way out.
 *
 * From term_start() to term_stop() the die hook (err.h) restores the terminal with nothing but
 * write() and tcsetattr(), so that it may run in a signal handler and in any thread; exit() runs it
 * as well.
 */
#ifndef LT_TERM_H
#define LT_TERM_H

#include <stdbool.h>

/* Takes the terminal on stdin and stdout over. False, with the terminal untouched, when it cannot
 * show a screen: not a terminal, unknown TERM, no cursor addressing. */
bool term_start(void);

/* Puts it back; nothing happens when that has been done already. */
void term_stop(void);

/* Puts it back for a while (Ctrl-Z) and takes it over again. */
void term_suspend(void);
void term_resume(void);

/* Takes over the window's size, if it can be known. */
void term_resize(void);

/* Brings what was drawn to the terminal; ANEW repaints all of it. */
void term_show(bool anew);

/* True when the locale (LC_CTYPE of the environment) can show Unicode. Sets it if the program has
 * not done so yet. */
bool term_utf8(void);

#endif

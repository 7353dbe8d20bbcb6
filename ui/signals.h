/*
 * signals.h - signals as bytes in a pipe that poll() can watch; those that end the program at
 * once run the die hook first, so that the terminal is restored.
 */
#ifndef LT_SIGNALS_H
#define LT_SIGNALS_H

/* Installs the handlers. Returns the descriptor to poll, or -errno. */
int signals_open(void);

/* The next signal that came, 0 when there is none: SIGWINCH, SIGCONT, SIGTSTP, or one that asks to
 * end (SIGINT, SIGTERM, SIGQUIT, SIGHUP). A second one of the latter, unread, ends at once. */
int signals_next(void);

/* Stops this process as Ctrl-Z would; returns when it goes on. */
void signals_stop_self(void);

/* Puts the old handlers back. */
void signals_close(void);

#endif

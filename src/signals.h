/*
 * signals.h - signals as bytes in a pipe that poll() can watch; those that end the program at
 * once run the die hook first, so that the terminal is restored. One user at a time, the main
 * thread; other threads only need the part at the end.
 */
#ifndef LT_SIGNALS_H
#define LT_SIGNALS_H

#include <signal.h>

/* For whom they are caught. What the parent had ignored stays ignored (nohup); but text output is
 * ended by SIGINT and SIGTERM all the same, for a shell without job control ignores SIGINT in what
 * it starts in the background. */
enum signals_use {
    SIGNALS_TEXT,   /* SIGINT, SIGTERM, SIGHUP; they interrupt a write() that waits (EINTR) */
    SIGNALS_SCREEN, /* those of the terminal as well, and all that would end the program */
};

/* Installs the handlers. Returns the descriptor to poll, or -errno. */
int signals_open(enum signals_use use);

/* The next signal that came, 0 when there is none: SIGWINCH, SIGCONT, SIGTSTP, or one that asks to
 * end (SIGINT, SIGTERM, SIGQUIT, SIGHUP). A second one of the latter, unread, ends at once. */
int signals_next(void);

/* Stops this process as Ctrl-Z would; returns when it goes on. */
void signals_stop_self(void);

/* Puts the old handlers back. */
void signals_close(void);

/* What a thread beside the main one is to block: all but the signals of a fault. Those hit the
 * thread that made it, and one that blocks them dies without any handler. */
void signals_thread_mask(sigset_t *mask);

/* A stack for the handlers of one thread: its own may have run over. */
struct signals_stack {
    unsigned char room[65536];
    stack_t before;
};
/* Called by that thread; S must live until it has left it. */
void signals_stack_enter(struct signals_stack *s);
void signals_stack_leave(struct signals_stack *s);

#endif

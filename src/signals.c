#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "compiler.h"
#include "err.h"
#include "filemap.h"

enum reaction {
    TELL,  /* a byte in the pipe */
    END,   /* the same, but the second one is obeyed at once */
    FALL,  /* the program ends by it */
    FAULT, /* the same, and the thread that did it cannot go on */
};

static const struct {
    int signal;
    enum reaction reaction;
    bool text; /* caught for text output too */
} caught[] = {
    {SIGWINCH, TELL, false}, {SIGCONT, TELL, false},  {SIGTSTP, TELL, false},
    {SIGINT, END, true},     {SIGTERM, END, true},    {SIGHUP, END, true},
    {SIGQUIT, END, false},   {SIGALRM, FALL, false},  {SIGUSR1, FALL, false},
    {SIGXCPU, FALL, false},  {SIGXFSZ, FALL, false},  {SIGVTALRM, FALL, false},
    {SIGPROF, FALL, false},  {SIGIO, FALL, false},    {SIGPWR, FALL, false},
    {SIGSTKFLT, FALL, false},
    {SIGUSR2, FALL, false},  {SIGSEGV, FAULT, false}, {SIGBUS, FAULT, false},
    {SIGFPE, FAULT, false},  {SIGILL, FAULT, false},  {SIGABRT, FAULT, false},
    {SIGSYS, FAULT, false},  {SIGTRAP, FAULT, false},
};

/* Indexed as CAUGHT: a handler may touch nothing but what stands here. */
static struct {
    struct sigaction before;
    bool installed;
} rows[ARRAY_SIZE(caught)];
static int pipe_fds[2] = {-1, -1};
static atomic_int unread_ends;
static struct signals_stack main_stack;

static size_t index_of(int signal)
{
    size_t i = 0;

    while (i + 1 < ARRAY_SIZE(caught) && caught[i].signal != signal)
        i++;
    return i;
}

/* Dies of the signal as if it had never been caught: the old action takes it when this returns. */
static void fall(size_t i)
{
    struct sigaction action = rows[i].before;

    /* The terminal is put back: there is no going on. What mends mapped files may have been there
     * before us and behind us: it would hand the signal back for ever. */
    if (action.sa_handler == SIG_IGN || caught[i].signal == SIGBUS)
        action = (struct sigaction){.sa_handler = SIG_DFL};
    err_run_die_hook();
    sigaction(caught[i].signal, &action, NULL);
    raise(caught[i].signal);
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    int saved_errno = errno;

    (void)context;
    if (signal == SIGBUS && filemap_mend(info))
        return;
    size_t i = index_of(signal);
    unsigned char byte = (unsigned char)signal;

    if (caught[i].reaction == FALL || caught[i].reaction == FAULT ||
        (caught[i].reaction == END && atomic_fetch_add(&unread_ends, 1) > 0))
        fall(i);
    else if (write(pipe_fds[1], &byte, 1) < 0 && caught[i].reaction == END)
        fall(i);
    errno = saved_errno;
}

static bool stays_ignored(size_t i, enum signals_use use)
{
    if (rows[i].before.sa_handler != SIG_IGN || caught[i].reaction == FAULT)
        return false;
    return use == SIGNALS_SCREEN || caught[i].signal == SIGHUP;
}

static void install(size_t i, enum signals_use use)
{
    /* Text is written with write() alone, which must not go on waiting for its reader; curses
     * would take an interrupted call for an error. */
    struct sigaction action = {
        .sa_sigaction = on_signal,
        .sa_flags = SA_SIGINFO | SA_ONSTACK | (use == SIGNALS_SCREEN ? SA_RESTART : 0),
    };

    sigfillset(&action.sa_mask);
    sigaction(caught[i].signal, NULL, &rows[i].before);
    rows[i].installed = !stays_ignored(i, use);
    if (rows[i].installed)
        sigaction(caught[i].signal, &action, NULL);
}

int signals_open(enum signals_use use)
{
    if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0)
        return -errno;
    atomic_store(&unread_ends, 0);
    signals_stack_enter(&main_stack);
    for (size_t i = 0; i < ARRAY_SIZE(caught); i++)
        if (use == SIGNALS_SCREEN || caught[i].text)
            install(i, use);
    return pipe_fds[0];
}

int signals_next(void)
{
    unsigned char byte;

    if (read(pipe_fds[0], &byte, 1) != 1)
        return 0;
    if (caught[index_of(byte)].reaction == END)
        atomic_store(&unread_ends, 0);
    return byte;
}

void signals_stop_self(void)
{
    struct sigaction ours, plain = {.sa_handler = SIG_DFL};

    sigaction(SIGTSTP, &plain, &ours);
    raise(SIGTSTP);
    sigaction(SIGTSTP, &ours, NULL);
}

void signals_close(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(caught); i++) {
        if (rows[i].installed)
            sigaction(caught[i].signal, &rows[i].before, NULL);
        rows[i].installed = false;
    }
    signals_stack_leave(&main_stack);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    pipe_fds[0] = pipe_fds[1] = -1;
}

void signals_thread_mask(sigset_t *mask)
{
    sigfillset(mask);
    for (size_t i = 0; i < ARRAY_SIZE(caught); i++)
        if (caught[i].reaction == FAULT)
            sigdelset(mask, caught[i].signal);
}

void signals_stack_enter(struct signals_stack *s)
{
    const stack_t stack = {.ss_sp = s->room, .ss_size = sizeof(s->room)};

    sigaltstack(&stack, &s->before);
}

void signals_stack_leave(struct signals_stack *s)
{
    sigaltstack(&s->before, NULL);
}

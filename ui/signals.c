#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "../src/compiler.h"
#include "../src/err.h"

enum reaction {
    TELL, /* a byte in the pipe */
    END,  /* the same, but the second one is obeyed at once */
    FALL, /* the program cannot go on */
};

/* Indexed together: a handler may touch nothing but what stands here. */
static const struct {
    int signal;
    enum reaction reaction;
} caught[] = {
    {SIGWINCH, TELL}, {SIGCONT, TELL}, {SIGTSTP, TELL}, {SIGINT, END},   {SIGTERM, END},
    {SIGQUIT, END},   {SIGHUP, END},   {SIGSEGV, FALL}, {SIGBUS, FALL},  {SIGFPE, FALL},
    {SIGILL, FALL},   {SIGABRT, FALL}, {SIGSYS, FALL},  {SIGTRAP, FALL}, {SIGALRM, FALL},
    {SIGUSR1, FALL},  {SIGUSR2, FALL},
};
static struct sigaction before[ARRAY_SIZE(caught)];
static int pipe_fds[2] = {-1, -1};
static atomic_int unread_ends;

/* A stack that has run over cannot hold a handler. */
static char alternate_stack[65536];
static stack_t stack_before;

static size_t index_of(int signal)
{
    size_t i = 0;

    while (i + 1 < ARRAY_SIZE(caught) && caught[i].signal != signal)
        i++;
    return i;
}

/* Dies of SIGNAL as if it had never been caught: the old action takes it when this returns. */
static void fall(size_t i)
{
    err_run_die_hook();
    sigaction(caught[i].signal, &before[i], NULL);
    raise(caught[i].signal);
}

static void on_signal(int signal)
{
    int saved_errno = errno;
    size_t i = index_of(signal);
    unsigned char byte = (unsigned char)signal;

    if (caught[i].reaction == FALL ||
        (caught[i].reaction == END && atomic_fetch_add(&unread_ends, 1) > 0))
        fall(i);
    else if (write(pipe_fds[1], &byte, 1) < 0 && caught[i].reaction == END)
        fall(i);
    errno = saved_errno;
}

static bool ignored_before(size_t i)
{
    /* nohup, a shell without job control: what the parent had ignored stays ignored. */
    return (caught[i].reaction == END || caught[i].signal == SIGTSTP) &&
           before[i].sa_handler == SIG_IGN;
}

static void install(size_t i)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};

    sigfillset(&action.sa_mask);
    sigaction(caught[i].signal, NULL, &before[i]);
    if (!ignored_before(i))
        sigaction(caught[i].signal, &action, NULL);
}

int signals_open(void)
{
    stack_t stack = {.ss_sp = alternate_stack, .ss_size = sizeof(alternate_stack)};

    if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0)
        return -errno;
    atomic_store(&unread_ends, 0);
    sigaltstack(&stack, &stack_before);
    for (size_t i = 0; i < ARRAY_SIZE(caught); i++)
        install(i);
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
    size_t i = index_of(SIGTSTP);
    struct sigaction ours, plain = {.sa_handler = SIG_DFL};

    sigaction(caught[i].signal, &plain, &ours);
    raise(SIGTSTP);
    sigaction(caught[i].signal, &ours, NULL);
}

void signals_close(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(caught); i++)
        sigaction(caught[i].signal, &before[i], NULL);
    sigaltstack(&stack_before, NULL);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    pipe_fds[0] = pipe_fds[1] = -1;
}

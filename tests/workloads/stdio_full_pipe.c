/*
 * stdio_full_pipe - stdout is a pipe that nobody reads: the holder of the stream's lock is blocked
 * in write(), all others that print wait for it.
 */
#include "workload.h"

static void setup(struct wl_scene *s)
{
    wl.out = dup(STDOUT_FILENO);
    wl_check(wl.out >= 0 && dup2(wl.rest_fd[1], STDOUT_FILENO) == STDOUT_FILENO, "dup2");
    s->address = stdout->_lock;
}

static void hold(void)
{
    prctl(PR_SET_NAME, "printer");
    fputs("a line\n", stdout);
    fflush(stdout);
}

static void waiter(int i)
{
    printf("line of %d\n", i);
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "libc",
                         .class = "lock",
                         .rest = WL_WRITE,
                         .setup = setup,
                         .hold = hold,
                         .wait = waiter};
    return wl_run(argc, argv, &s);
}

/*
 * malloc_held - the lock of the only malloc arena is held by a thread that prints statistics of
 * it to stderr, a pipe which nobody reads; "waiters 5" want memory. The lock records no holder.
 */
#include <malloc.h>

#include "workload.h"

#define MAX 64

static atomic_bool go;

static void await_go(void)
{
    while (!go)
        wl_nap(1000000);
}

static void hold(int i)
{
    (void)i;
    prctl(PR_SET_NAME, "statistics");
    malloc_stats();
}

static void waiter(int i)
{
    await_go();
    void *volatile p = malloc(4000 + (size_t)i);
    free(p);
}

/* Nobody can get memory any more. */
static void tell(const struct wl_thread *t, int n, pid_t holder)
{
    char line[2048];
    uint64_t word = 0;
    int len;
    wl_call_of(getpid(), t[0].tid, &word, NULL);
    len = snprintf(line, sizeof line,
                   "{\"pid\":%d,\"kind\":\"libc\",\"class\":\"lock\",\"address\":\"0x%llx\","
                   "\"waiters\":%d,\"true_holder_tids\":[%d],\"holder_call\":\"write\","
                   "\"holder_state\":\"pipe\",\"threads\":%d,\"waiter_tids\":[",
                   getpid(), (unsigned long long)word, n, holder, n + 2);
    for (int i = 0; i < n; i++)
        len += snprintf(line + len, sizeof line - (size_t)len, "%s%d", i ? "," : "", t[i].tid);
    len += snprintf(line + len, sizeof line - (size_t)len, "]}\n");
    wl_check(write(STDOUT_FILENO, line, (size_t)len) == len, "write");
}

int main(int argc, char **argv)
{
    static struct wl_thread holder, waiters[MAX];
    wl_start(argc, argv);
    int n = (int)wl_arg("waiters", 5);
    if (n < 1 || n > MAX)
        wl_end(WL_EXIT_BROKEN, "1 to 64 waiters", 0);
#ifdef M_ARENA_MAX
    mallopt(M_ARENA_MAX, 1);
#endif
    wl_prepare_rest(WL_WRITE);
    for (int i = 0; i < n; i++)
        wl_spawn(&waiters[i], waiter, i, SYS_futex);
    wl_check(dup2(wl.rest_fd[1], STDERR_FILENO) == STDERR_FILENO, "dup2");
    wl_spawn(&holder, hold, 0, SYS_write);
    wl_settle(getpid(), &holder, 1);
    go = true;
    wl_settle(getpid(), waiters, n);
    tell(waiters, n, holder.tid);
    return wl_serve(NULL);
}

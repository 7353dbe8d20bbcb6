/*
 * malloc_signal - a signal handler asks for memory while the thread that it interrupts is inside
 * the allocator: the thread waits for a lock that it holds itself. The lock records no holder.
 */
#include <malloc.h>

#include "workload.h"

#define SIZE 4000 /* beyond what threads keep for themselves without the lock */

static void *volatile kept;

static void on_crash(int sig)
{
    (void)sig;
    kept = malloc(SIZE);
    free(kept);
}

__attribute__((noinline)) static void work(void)
{
    void *p[8];
    for (int i = 0; i < 8; i++)
        p[i] = malloc(SIZE);
    for (int i = 0; i < 8; i++)
        free(p[i]);
}

static void worker(int i)
{
    (void)i;
    prctl(PR_SET_NAME, "worker");
    for (;;)
        work();
}

static bool hangs(pid_t tid)
{
    uint64_t before = 0, after = 0;
    if (wl_call_of(getpid(), tid, NULL, &before) != SYS_futex)
        return false;
    wl_nap(20000000);
    return wl_call_of(getpid(), tid, NULL, &after) == SYS_futex && after == before;
}

int main(int argc, char **argv)
{
    static struct wl_thread t;
    struct sigaction act = {.sa_handler = on_crash};
    uint64_t word = 0;

    wl_start(argc, argv);
#ifdef M_ARENA_MAX
    mallopt(M_ARENA_MAX, 1);
#endif
    sigaction(SIGUSR2, &act, NULL);
    wl_spawn(&t, worker, 0, SYS_futex);
    while (!hangs(t.tid)) {
        pthread_kill(t.thread, SIGUSR2);
        wl_nap(50000);
    }
    wl_call_of(getpid(), t.tid, &word, NULL);
    /* Whoever asks for memory now hangs as well: no wl_say(). */
    char line[256];
    int len = snprintf(line, sizeof line,
                       "{\"pid\":%d,\"kind\":\"libc\",\"class\":\"lock\",\"address\":\"0x%llx\","
                       "\"waiters\":1,\"waiter_tids\":[%d],\"holder_tid\":null,"
                       "\"true_holder_tids\":[%d],\"threads\":2}\n",
                       getpid(), (unsigned long long)word, t.tid, t.tid);
    wl_check(write(STDOUT_FILENO, line, (size_t)len) == len, "write");
    return wl_serve(NULL);
}

/*
 * storm - "threads 8" do nothing but call a function of the C library that takes a lock for the
 * whole process: "call localtime", the time zone's, or "call malloc", that of the only arena.
 * Each wait is short. "stat" prints how often it was called so far, and when.
 */
#include <malloc.h>

#include "workload.h"

#define SIZE 4000 /* beyond what threads keep for themselves without the lock */

static struct counter {
    _Alignas(64) _Atomic uint64_t calls;
} counters[256];
static int nthreads;

__attribute__((noinline)) static void format_time(void)
{
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
}

__attribute__((noinline)) static void allocate(void)
{
    void *p[4];
    for (int i = 0; i < 4; i++)
        p[i] = malloc(SIZE);
    for (int i = 0; i < 4; i++)
        free(p[i]);
}

static void (*call)(void);

static void caller(int i)
{
    for (;;) {
        call();
        counters[i].calls++;
    }
}

static bool command(char *line)
{
    uint64_t sum = 0;
    if (strcmp(line, "stat"))
        return false;
    for (int i = 0; i < nthreads; i++)
        sum += counters[i].calls;
    wl_say("{\"calls\":%llu,\"at_ns\":%lld}\n", (unsigned long long)sum, (long long)wl_now());
    return true;
}

int main(int argc, char **argv)
{
    wl_start(argc, argv);
    nthreads = (int)wl_arg("threads", 8);
    call = strcmp(wl_arg_text("call", "malloc"), "malloc") ? format_time : allocate;
    if (nthreads < 1 || nthreads > 256)
        wl_end(WL_EXIT_BROKEN, "1 to 256 threads", 0);
#ifdef M_ARENA_MAX
    mallopt(M_ARENA_MAX, 1);
#endif
    struct wl_thread *t = wl_threads(nthreads);
    for (int i = 0; i < nthreads; i++)
        wl_spawn(&t[i], caller, i, 0);
    wl_say("{\"pid\":%d,\"kind\":\"libc\",\"class\":\"lock\",\"waiter_tids\":%s,\"threads\":%d}\n",
           getpid(), wl_tids(t, nthreads), nthreads + 1);
    return wl_serve(command);
}

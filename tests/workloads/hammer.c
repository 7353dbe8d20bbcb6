/*
 * hammer - "threads 8" take one mutex again and again, work "hold 200" ns under it and "think 0"
 * ns without. "stat" prints how often it was taken so far, and when.
 */
#include "workload.h"

struct counter {
    _Alignas(64) _Atomic uint64_t taken;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct counter counters[256];
static int nthreads;
static long hold_ns, think_ns;

static void work(long ns)
{
    int64_t end = ns > 0 ? wl_now() + ns : 0;
    while (end && wl_now() < end)
        ;
}

static void hammer(int i)
{
    for (;;) {
        pthread_mutex_lock(&mutex);
        work(hold_ns);
        pthread_mutex_unlock(&mutex);
        atomic_fetch_add_explicit(&counters[i].taken, 1, memory_order_relaxed);
        work(think_ns);
    }
}

static bool command(char *line)
{
    uint64_t sum = 0;
    if (strcmp(line, "stat"))
        return false;
    for (int i = 0; i < nthreads; i++)
        sum += counters[i].taken;
    wl_say("{\"acquired\":%llu,\"at_ns\":%lld}\n", (unsigned long long)sum, (long long)wl_now());
    return true;
}

int main(int argc, char **argv)
{
    wl_start(argc, argv);
    nthreads = (int)wl_arg("threads", 8);
    hold_ns = wl_arg("hold", 200);
    think_ns = wl_arg("think", 0);
    if (nthreads < 1 || nthreads > 256)
        wl_end(WL_EXIT_BROKEN, "1 to 256 threads", 0);
    struct wl_thread *t = wl_threads(nthreads);
    for (int i = 0; i < nthreads; i++)
        wl_spawn(&t[i], hammer, i, 0);
    wl_say("{\"pid\":%d,\"kind\":\"mutex\",\"class\":\"lock\",\"address\":\"0x%llx\","
           "\"threads\":%d}\n",
           getpid(), (unsigned long long)(uintptr_t)&mutex, nthreads + 1);
    return wl_serve(command);
}

/*
 * counters - "threads 4" take one mutex in turn, work "hold 300" us under it and "think 20" us
 * without, for ever: whoever holds it runs. Each counts its rounds; "stat" prints the counters, and
 * a thread that stands still is seen by one that does not grow.
 */
#include "workload.h"

struct counter {
    _Alignas(64) _Atomic uint64_t rounds;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct counter counters[64];
static struct wl_thread *threads;
static int nthreads;
static int64_t hold_ns, think_ns;

static void work(int64_t ns)
{
    int64_t end = wl_now() + ns;
    while (wl_now() < end)
        ;
}

static void count(int i)
{
    for (;;) {
        pthread_mutex_lock(&mutex);
        work(hold_ns);
        pthread_mutex_unlock(&mutex);
        counters[i].rounds++;
        work(think_ns);
        sched_yield(); /* a mutex is not fair: without this one thread may keep it */
    }
}

static void item_rounds(FILE *out, int i, const void *arg)
{
    (void)arg;
    fprintf(out, "%llu", (unsigned long long)counters[i].rounds);
}

static bool command(char *line)
{
    if (strcmp(line, "stat"))
        return false;
    char *rounds = wl_list(nthreads, item_rounds, NULL);
    wl_say("{\"rounds\":%s}\n", rounds);
    free(rounds);
    return true;
}

int main(int argc, char **argv)
{
    wl_start(argc, argv);
    nthreads = (int)wl_arg("threads", 4);
    hold_ns = wl_arg("hold", 300) * 1000;
    think_ns = wl_arg("think", 20) * 1000;
    if (nthreads < 1 || nthreads > 64)
        wl_end(WL_EXIT_BROKEN, "1 to 64 threads", 0);
    threads = wl_threads(nthreads);
    for (int i = 0; i < nthreads; i++)
        wl_spawn(&threads[i], count, i, 0);
    char *tids = wl_tids(threads, nthreads);
    wl_say("{\"pid\":%d,\"kind\":\"mutex\",\"class\":\"lock\",\"address\":\"0x%llx\","
           "\"tids\":%s,\"threads\":%d}\n",
           getpid(), (unsigned long long)(uintptr_t)&mutex, tids, nthreads + 1);
    free(tids);
    return wl_serve(command);
}

/*
 * demo - a small service with one bad habit: its workers reload a cache entry, which takes some
 * milliseconds, while they hold the lock of the whole cache. A pool of helpers idles beside it.
 *
 *   demo [--seconds N]      ends after that time, on SIGTERM, or when stdin ends
 */
#include <poll.h>
#include <sys/signalfd.h>

#include "workload.h"

#define WORKERS 12
#define HELPERS 24
#define ENTRIES 64

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned cache[ENTRIES];
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_filled = PTHREAD_COND_INITIALIZER;
static unsigned queue_length;

static void reload_entry(unsigned key)
{
    wl_nap(4000000); /* stands for a slow backend */
    cache[key]++;
}

static unsigned cache_get(unsigned key)
{
    pthread_mutex_lock(&cache_lock);
    reload_entry(key);
    unsigned value = cache[key];
    pthread_mutex_unlock(&cache_lock);
    return value;
}

static void worker(int i)
{
    unsigned key = (unsigned)i;
    prctl(PR_SET_NAME, "worker");
    for (;;) {
        key = (key * 5 + cache_get(key % ENTRIES)) % ENTRIES;
        wl_nap(10000000); /* the rest of the request */
    }
}

static void helper(int i)
{
    (void)i;
    prctl(PR_SET_NAME, "helper");
    pthread_mutex_lock(&queue_lock);
    for (;;) {
        while (!queue_length)
            pthread_cond_wait(&queue_filled, &queue_lock);
        queue_length--;
    }
}

static void await_queue(const struct wl_thread *workers)
{
    for (int waiting = 0; waiting < 3; wl_nap(1000000)) {
        waiting = 0;
        for (int i = 0; i < WORKERS; i++)
            waiting += wl_call_of(getpid(), workers[i].tid, NULL, NULL) == SYS_futex;
    }
}

static void run_until_told(long seconds)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    struct pollfd fds[2] = {{.fd = signalfd(-1, &set, SFD_CLOEXEC), .events = POLLIN},
                            {.fd = STDIN_FILENO, .events = POLLIN}};
    int64_t end = wl_now() + seconds * INT64_C(1000000000);
    char buf[256];

    while (seconds == 0 || wl_now() < end) {
        int n = poll(fds, 2, 200);
        if (n > 0 && fds[0].revents)
            return;
        if (n > 0 && fds[1].revents && read(STDIN_FILENO, buf, sizeof buf) <= 0)
            return;
    }
}

int main(int argc, char **argv)
{
    sigset_t set;
    wl_start(argc, argv);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    struct wl_thread *workers = wl_threads(WORKERS), *helpers = wl_threads(HELPERS);
    for (int i = 0; i < HELPERS; i++)
        wl_spawn(&helpers[i], helper, i, SYS_futex);
    for (int i = 0; i < WORKERS; i++)
        wl_spawn(&workers[i], worker, i, 0);
    wl_settle(getpid(), helpers, HELPERS);
    await_queue(workers);
    wl_say("{\"pid\":%d,\"kind\":\"mutex\",\"class\":\"lock\",\"name\":\"cache_lock\","
           "\"address\":\"0x%llx\",\"workers\":%d,\"idle\":%d,\"threads\":%d}\n",
           getpid(), (unsigned long long)(uintptr_t)&cache_lock, WORKERS, HELPERS,
           1 + WORKERS + HELPERS);
    run_until_told(wl_arg("--seconds", 0));
    _exit(0);
}

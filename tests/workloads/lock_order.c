/*
 * lock_order - "threads 64" that take several of 8 locks at once, at a high rate, and never
 * deadlock: they take them in one order; a quarter of them in the other, but then with trylock,
 * and give back what they have when that fails. With "timed N" so many more threads take two locks
 * in the wrong order with a timeout of 2 ms: cycles then form, and dissolve. "stat" prints how
 * often locks were taken so far.
 */
#include "workload.h"

#define LOCKS 8

static pthread_mutex_t locks[LOCKS];
static _Atomic uint64_t rounds;
static int nordered;

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1103515245 + 12345;
    return *seed >> 16;
}

/* Some work, mostly short; sometimes it sleeps, so that others see the lock held. */
static void work(unsigned *seed)
{
    if (next(seed) % 4 == 0)
        wl_nap(20000 + next(seed) % 200000);
}

static void in_order(unsigned *seed)
{
    unsigned a = next(seed) % (LOCKS - 2), b = a + 1 + next(seed) % (LOCKS - a - 2);
    unsigned c = b + 1 + next(seed) % (LOCKS - b - 1);
    pthread_mutex_lock(&locks[a]);
    work(seed);
    pthread_mutex_lock(&locks[b]);
    work(seed);
    pthread_mutex_lock(&locks[c]);
    work(seed);
    pthread_mutex_unlock(&locks[c]);
    pthread_mutex_unlock(&locks[b]);
    pthread_mutex_unlock(&locks[a]);
}

static void against_order(unsigned *seed)
{
    unsigned low = next(seed) % (LOCKS - 1), high = low + 1 + next(seed) % (LOCKS - low - 1);
    for (;;) {
        pthread_mutex_lock(&locks[high]);
        work(seed);
        if (pthread_mutex_trylock(&locks[low]) == 0)
            break;
        pthread_mutex_unlock(&locks[high]);
        sched_yield();
    }
    work(seed);
    pthread_mutex_unlock(&locks[low]);
    pthread_mutex_unlock(&locks[high]);
}

static void with_timeout(unsigned *seed)
{
    unsigned low = next(seed) % (LOCKS - 1), high = low + 1 + next(seed) % (LOCKS - low - 1);
    struct timespec end;
    pthread_mutex_lock(&locks[high]);
    work(seed);
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += 2000000;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    if (pthread_mutex_timedlock(&locks[low], &end) == 0)
        pthread_mutex_unlock(&locks[low]);
    pthread_mutex_unlock(&locks[high]);
}

static void worker(int i)
{
    unsigned seed = (unsigned)i * 7919 + 1;
    for (;;) {
        if (i >= nordered)
            with_timeout(&seed);
        else if (i % 4 == 3)
            against_order(&seed);
        else
            in_order(&seed);
        rounds++;
        work(&seed);
    }
}

static bool command(char *line)
{
    if (strcmp(line, "stat"))
        return false;
    wl_say("{\"rounds\":%llu,\"at_ns\":%lld}\n", (unsigned long long)rounds, (long long)wl_now());
    return true;
}

int main(int argc, char **argv)
{
    wl_start(argc, argv);
    nordered = (int)wl_arg("threads", 64);
    int n = nordered + (int)wl_arg("timed", 0);
    struct wl_thread *t = wl_threads(n);
    for (int i = 0; i < LOCKS; i++)
        pthread_mutex_init(&locks[i], NULL);
    for (int i = 0; i < n; i++)
        wl_spawn(&t[i], worker, i, 0);
    wl_say("{\"pid\":%d,\"kind\":\"mutex\",\"class\":\"lock\",\"waiter_tids\":%s,\"threads\":%d}\n",
           getpid(), wl_tids(t, n), n + 1);
    return wl_serve(command);
}

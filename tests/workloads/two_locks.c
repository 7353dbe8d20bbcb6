/*
 * two_locks - two mutexes side by side in one process, each with a holder and waiters of its own.
 */
#include "workload.h"

static pthread_mutex_t mutexes[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};

static void hold(int i)
{
    pthread_mutex_lock(&mutexes[i]);
    wl_rest();
    pthread_mutex_unlock(&mutexes[i]);
}

static void waiter(int i)
{
    pthread_mutex_lock(&mutexes[i]);
    pthread_mutex_unlock(&mutexes[i]);
}

static void lock_item(FILE *out, int i, const void *arg)
{
    const struct wl_thread *t = arg;
    fprintf(out, "{\"address\":\"0x%llx\",\"holder_tid\":%d}",
            (unsigned long long)(uintptr_t)&mutexes[i], t[i].tid);
}

int main(int argc, char **argv)
{
    wl_start(argc, argv);
    int n = (int)wl_arg("waiters", 5);
    struct wl_thread *holders = wl_threads(2), *waiters = wl_threads(2 * n);

    wl_prepare_rest(WL_NANOSLEEP);
    for (int i = 0; i < 2; i++)
        wl_spawn(&holders[i], hold, i, SYS_nanosleep);
    wl_settle(getpid(), holders, 2);
    for (int i = 0; i < 2 * n; i++)
        wl_spawn(&waiters[i], waiter, i % 2, SYS_futex);
    wl_settle(getpid(), waiters, 2 * n);
    char *locks = wl_list(2, lock_item, holders);
    wl_say("{\"pid\":%d,\"kind\":\"mutex\",\"class\":\"lock\",\"waiters\":%d,\"locks\":%s,"
           "\"threads\":%d}\n",
           getpid(), n, locks, 3 + 2 * n);
    return wl_serve(NULL);
}

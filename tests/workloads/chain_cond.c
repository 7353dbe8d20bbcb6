/*
 * chain_cond - a shutdown that hangs, and no deadlock: "waiters 4" workers want a mutex; its owner
 * joins a logger; the logger sleeps in a condition variable whose signal it has missed.
 */
#include "workload.h"

static pthread_mutex_t worker_hang_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t log_filled = PTHREAD_COND_INITIALIZER;
static struct wl_thread log_thread, owner;

static void logger(int i)
{
    (void)i;
    prctl(PR_SET_NAME, "logger");
    pthread_mutex_lock(&log_lock);
    for (;;)
        pthread_cond_wait(&log_filled, &log_lock);
}

static void stopper(int i)
{
    (void)i;
    prctl(PR_SET_NAME, "stopper");
    pthread_mutex_lock(&worker_hang_lock);
    pthread_join(log_thread.thread, NULL);
    pthread_mutex_unlock(&worker_hang_lock);
}

static void worker(int i)
{
    (void)i;
    prctl(PR_SET_NAME, "worker");
    pthread_mutex_lock(&worker_hang_lock);
    pthread_mutex_unlock(&worker_hang_lock);
}

int main(int argc, char **argv)
{
    wl_start(argc, argv);
    int n = (int)wl_arg("waiters", 4);
    struct wl_thread *workers = wl_threads(n);

    wl_spawn(&log_thread, logger, 0, SYS_futex);
    wl_settle(getpid(), &log_thread, 1);
    wl_spawn(&owner, stopper, 0, SYS_futex);
    wl_settle(getpid(), &owner, 1);
    for (int i = 0; i < n; i++)
        wl_spawn(&workers[i], worker, i, SYS_futex);
    wl_settle(getpid(), workers, n);
    wl_say("{\"pid\":%d,\"kind\":\"mutex\",\"class\":\"lock\",\"address\":\"0x%llx\","
           "\"waiters\":%d,\"waiter_tids\":%s,\"holder_tid\":%d,\"logger_tid\":%d,"
           "\"cond\":\"0x%llx\",\"threads\":%d}\n",
           getpid(), (unsigned long long)(uintptr_t)&worker_hang_lock, n, wl_tids(workers, n),
           owner.tid, log_thread.tid, (unsigned long long)(uintptr_t)&log_filled, n + 3);
    return wl_serve(NULL);
}

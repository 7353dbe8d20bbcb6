/*
 * self_deadlock - a thread locks a plain mutex that it owns already. With "waiters 4" three others
 * queue behind it.
 */
#include "workload.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic pid_t owner;

/* Called with the mutex held, and takes it: the mistake. */
__attribute__((noinline)) static void pause_workers(void)
{
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}

static void stop_threads(void)
{
    prctl(PR_SET_NAME, "stopper");
    pthread_mutex_lock(&mutex);
    owner = (pid_t)syscall(SYS_gettid);
    wl_holder(owner);
    pause_workers();
    pthread_mutex_unlock(&mutex);
}

static void waiter(int i)
{
    if (i == 0)
        stop_threads();
    while (!owner)
        wl_nap(100000);
    wl_await_call(getpid(), owner, SYS_futex);
    pthread_mutex_lock(&mutex);
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "mutex", .class = "lock", .address = &mutex, .wait = waiter};
    return wl_run(argc, argv, &s);
}

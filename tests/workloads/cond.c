/*
 * cond - threads idle on a condition variable. With "split 1" one of them is woken and waits
 * again, so that both groups of waiters, and so both futex words, of one variable are in use.
 */
#include "workload.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static _Atomic int waiting;
static atomic_bool split_done;

static void split(int n)
{
    pthread_mutex_lock(&mutex); /* all N wait now: each let go of the mutex in its wait */
    if (waiting == n && !atomic_exchange(&split_done, true))
        pthread_cond_signal(&cond);
    pthread_mutex_unlock(&mutex);
}

static void waiter(int i)
{
    int n = (int)wl_arg("waiters", 5);
    pthread_mutex_lock(&mutex);
    waiting++;
    if (i == n - 1 && wl_arg("split", 0)) {
        pthread_mutex_unlock(&mutex);
        while (!split_done)
            split(n);
        pthread_mutex_lock(&mutex);
    }
    for (;;)
        pthread_cond_wait(&cond, &mutex);
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "cond", .class = "sync", .address = &cond, .wait = waiter};
    return wl_run(argc, argv, &s);
}

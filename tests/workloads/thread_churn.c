/*
 * thread_churn - a contended mutex in a process that starts and joins "rate 1000" threads a
 * second beside it.
 */
#include "workload_mutex.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *nothing(void *arg)
{
    return arg;
}

static void churn(void)
{
    int64_t gap = 1000000000 / wl_arg("rate", 1000), next = wl_now();
    pthread_t thread;

    for (;; next += gap) {
        if (pthread_create(&thread, NULL, nothing, NULL) == 0)
            pthread_join(thread, NULL);
        int64_t left = next - wl_now();
        if (left > 0)
            wl_nap((long)left);
    }
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "mutex",
                         .class = "lock",
                         .address = &mutex,
                         .records_owner = true,
                         .hold = wl_mutex_hold,
                         .wait = wl_mutex_wait,
                         .background = churn};
    wl_mutex = &mutex;
    return wl_run(argc, argv, &s);
}

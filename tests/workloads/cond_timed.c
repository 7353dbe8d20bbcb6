/*
 * cond_timed - threads idle on a condition variable with a time limit.
 */
#include "workload.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

static void waiter(int i)
{
    struct timespec end = wl_far(CLOCK_REALTIME);
    (void)i;
    pthread_mutex_lock(&mutex);
    for (;;)
        pthread_cond_timedwait(&cond, &mutex, &end);
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "cond", .class = "sync", .address = &cond, .wait = waiter};
    return wl_run(argc, argv, &s);
}

/*
 * mutex_timed - a plain mutex, taken with pthread_mutex_timedlock.
 */
#include "workload_mutex.h"

static pthread_mutex_t mutex;

static int timed_lock(pthread_mutex_t *m)
{
    struct timespec end = wl_far(CLOCK_REALTIME);
    return pthread_mutex_timedlock(m, &end);
}

int main(int argc, char **argv)
{
    const struct wl_mutex spec = {
        .kind = "mutex", .type = PTHREAD_MUTEX_NORMAL, .lock = timed_lock};
    return wl_run_mutex(argc, argv, &mutex, &spec);
}

/*
 * mutex_clock - a plain mutex, taken with pthread_mutex_clocklock on the monotonic clock.
 */
#include "workload_mutex.h"

static pthread_mutex_t mutex;

#if defined __GLIBC__ && __GLIBC_PREREQ(2, 30)
static int clock_lock(pthread_mutex_t *m)
{
    struct timespec end = wl_far(CLOCK_MONOTONIC);
    return pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &end);
}
#else
static int clock_lock(pthread_mutex_t *m)
{
    (void)m;
    wl_skip("this C library has no pthread_mutex_clocklock", 0);
}
#endif

int main(int argc, char **argv)
{
    const struct wl_mutex spec = {
        .kind = "mutex", .type = PTHREAD_MUTEX_NORMAL, .lock = clock_lock};
    return wl_run_mutex(argc, argv, &mutex, &spec);
}

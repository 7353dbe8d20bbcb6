/*
 * mutex_adaptive - a mutex whose waiters spin a little before they sleep.
 */
#include "workload_mutex.h"

static pthread_mutex_t mutex;

int main(int argc, char **argv)
{
    const struct wl_mutex spec = {.kind = "mutex-adaptive", .type = PTHREAD_MUTEX_ADAPTIVE_NP};
    return wl_run_mutex(argc, argv, &mutex, &spec);
}

/*
 * mutex_pi - a mutex with priority inheritance: the kernel queues the waiters.
 */
#include "workload_mutex.h"

static pthread_mutex_t mutex;

int main(int argc, char **argv)
{
    const struct wl_mutex spec = {
        .kind = "mutex-pi", .type = PTHREAD_MUTEX_NORMAL, .inherit = true};
    return wl_run_mutex(argc, argv, &mutex, &spec);
}

/*
 * mutex_robust - a robust mutex: waits go to the shared futex even in private memory.
 */
#include "workload_mutex.h"

static pthread_mutex_t mutex;

int main(int argc, char **argv)
{
    const struct wl_mutex spec = {
        .kind = "mutex-robust", .type = PTHREAD_MUTEX_NORMAL, .robust = true};
    return wl_run_mutex(argc, argv, &mutex, &spec);
}

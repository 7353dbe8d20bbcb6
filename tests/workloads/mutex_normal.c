/*
 * mutex_normal - a plain mutex; its holder sleeps.
 */
#include "workload_mutex.h"

static pthread_mutex_t mutex;

int main(int argc, char **argv)
{
    const struct wl_mutex spec = {.kind = "mutex", .type = PTHREAD_MUTEX_NORMAL};
    return wl_run_mutex(argc, argv, &mutex, &spec);
}

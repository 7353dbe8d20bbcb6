/*
 * mutex_recursive - a recursive mutex; its holder reads an empty pipe.
 */
#include "workload_mutex.h"

static pthread_mutex_t mutex;

int main(int argc, char **argv)
{
    const struct wl_mutex spec = {
        .kind = "mutex-recursive", .type = PTHREAD_MUTEX_RECURSIVE, .rest = WL_READ};
    return wl_run_mutex(argc, argv, &mutex, &spec);
}

/*
 * mutex_errorcheck - an error-checking mutex; its holder waits for a socket.
 */
#include "workload_mutex.h"

static pthread_mutex_t mutex;

int main(int argc, char **argv)
{
    const struct wl_mutex spec = {
        .kind = "mutex-errorcheck", .type = PTHREAD_MUTEX_ERRORCHECK, .rest = WL_RECV};
    return wl_run_mutex(argc, argv, &mutex, &spec);
}

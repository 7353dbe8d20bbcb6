/*
 * mutex_robust_pi - robust and with priority inheritance.
 */
#include "workload_mutex.h"

static pthread_mutex_t mutex;

int main(int argc, char **argv)
{
    const struct wl_mutex spec = {
        .kind = "mutex-pi", .type = PTHREAD_MUTEX_NORMAL, .robust = true, .inherit = true};
    return wl_run_mutex(argc, argv, &mutex, &spec);
}

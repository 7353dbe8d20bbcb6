/*
 * mutex_pshared - a process-shared mutex in shared anonymous memory, used by one process.
 */
#include "workload_mutex.h"

int main(int argc, char **argv)
{
    const struct wl_mutex spec = {.kind = "mutex", .type = PTHREAD_MUTEX_NORMAL, .shared = true};
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    wl_check(page != MAP_FAILED, "mmap");
    return wl_run_mutex(argc, argv, (pthread_mutex_t *)(page + 192), &spec);
}

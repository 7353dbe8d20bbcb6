/*
 * execer - a contended mutex; on "exec NAME" the process becomes the workload NAME.
 */
#include "workload_mutex.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static bool command(char *line)
{
    char path[512];
    if (strncmp(line, "exec ", 5))
        return false;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    wl_check(n > 0, "readlink");
    path[n] = '\0';
    char *name = strrchr(path, '/') + 1;
    snprintf(name, sizeof path - (size_t)(name - path), "%s", line + 5);
    execl(path, name, (char *)NULL);
    wl_end(WL_EXIT_BROKEN, path, errno);
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "mutex",
                         .class = "lock",
                         .address = &mutex,
                         .records_owner = true,
                         .hold = wl_mutex_hold,
                         .wait = wl_mutex_wait,
                         .command = command};
    wl_mutex = &mutex;
    return wl_run(argc, argv, &s);
}

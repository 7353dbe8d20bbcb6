/*
 * zombie_leader - a contended mutex in a process whose first thread has ended: /proc/PID/maps and
 * the like cannot be read any more, the threads' own directories can.
 */
#include "workload_mutex.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int arg_count;
static char **args;

static bool leader_is_zombie(void)
{
    char stat[512];
    const char *end;
    return wl_read_task(getpid(), getpid(), "stat", stat, sizeof stat) &&
           (end = strrchr(stat, ')')) && !strncmp(end, ") Z", 3);
}

static void scene(int arg)
{
    struct wl_scene s = {.kind = "mutex",
                         .class = "lock",
                         .address = &mutex,
                         .records_owner = true,
                         .hold = wl_mutex_hold,
                         .wait = wl_mutex_wait};
    (void)arg;
    while (!leader_is_zombie())
        wl_nap(1000000);
    wl_mutex = &mutex;
    wl_run(arg_count, args, &s);
}

int main(int argc, char **argv)
{
    static struct wl_thread second;
    arg_count = argc;
    args = argv;
    wl_spawn(&second, scene, 0, 0);
    pthread_exit(NULL);
}

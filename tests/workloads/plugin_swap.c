/*
 * plugin_swap - "first PATH second PATH": a thread waits for a mutex in a library. On "swap" that
 * thread goes on and ends, the library is unloaded, and another thread waits in the other library,
 * which the loader mostly puts at the same place ("same_place").
 */
#include <dlfcn.h>

#include "workload.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void (*run)(pthread_mutex_t *);
static void *library;
static struct wl_thread waiter;
static uint64_t before;

static void load(const char *path)
{
    library = dlopen(path, RTLD_NOW);
    wl_check(library, path ? path : "no library was given");
    *(void **)&run = dlsym(library, "plugin_run");
    wl_check(run, "plugin_run");
}

static void wait_in_plugin(int arg)
{
    (void)arg;
    run(&mutex);
}

static void start_waiter(void)
{
    pthread_mutex_lock(&mutex);
    waiter = (struct wl_thread){0};
    wl_spawn(&waiter, wait_in_plugin, 0, SYS_futex);
    wl_settle(getpid(), &waiter, 1);
}

static bool swap(char *line)
{
    if (strcmp(line, "swap"))
        return false;
    pthread_mutex_unlock(&mutex);
    pthread_join(waiter.thread, NULL);
    before = (uint64_t)run;
    dlclose(library);
    load(wl_arg_text("second", NULL));
    start_waiter();
    wl_say("{\"tid\":%d,\"same_place\":%s}\n", waiter.tid,
           (uint64_t)run == before ? "true" : "false");
    return true;
}

int main(int argc, char **argv)
{
    wl_start(argc, argv);
    load(wl_arg_text("first", NULL));
    start_waiter();
    wl_say("{\"pid\":%d,\"tid\":%d}\n", getpid(), waiter.tid);
    return wl_serve(swap);
}

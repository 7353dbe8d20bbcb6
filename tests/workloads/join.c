/*
 * join - threads wait for the end of other threads. A thread can be joined by one only, so each
 * waits for a thread of its own.
 */
#include "workload.h"

static struct wl_thread joined[WL_MAX_HOLDERS];

static void sleeper(int i)
{
    (void)i;
    wl_rest();
}

static void setup(struct wl_scene *s)
{
    long n = wl_arg("waiters", 5);
    (void)s;
    for (int i = 0; i < n && i < WL_MAX_HOLDERS; i++) {
        wl_spawn(&joined[i], sleeper, i, SYS_nanosleep);
        wl_holder(joined[i].tid);
    }
    wl_settle(getpid(), joined, (int)n);
}

static void waiter(int i)
{
    pthread_join(joined[i].thread, NULL);
}

int main(int argc, char **argv)
{
    struct wl_scene s = {
        .kind = "join", .class = "sync", .own_objects = true, .setup = setup, .wait = waiter};
    return wl_run(argc, argv, &s);
}

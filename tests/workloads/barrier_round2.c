/*
 * barrier_round2 - barriers for two, after one finished round: the value waited for is 2, as with
 * a mutex. Such a barrier has one waiter at most, so each thread has a barrier of its own.
 */
#include "workload.h"

#define BARRIERS 64

static pthread_barrier_t barriers[BARRIERS];

static void waiter(int i)
{
    pthread_barrier_wait(&barriers[i]);
}

static void setup(struct wl_scene *s)
{
    static struct wl_thread partners[BARRIERS];
    (void)s;
    for (int i = 0; i < BARRIERS; i++) {
        wl_zero(pthread_barrier_init(&barriers[i], NULL, 2), "pthread_barrier_init");
        wl_spawn(&partners[i], waiter, i, 0);
        pthread_barrier_wait(&barriers[i]);
        pthread_join(partners[i].thread, NULL);
    }
}

static const void *object(int i)
{
    return &barriers[i];
}

int main(int argc, char **argv)
{
    struct wl_scene s = {
        .kind = "barrier", .class = "sync", .setup = setup, .wait = waiter, .object = object};
    return wl_run(argc, argv, &s);
}

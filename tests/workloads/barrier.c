/*
 * barrier - all threads but one stand at a barrier in its first round.
 */
#include "workload.h"

static pthread_barrier_t barrier;

static void setup(struct wl_scene *s)
{
    unsigned n = (unsigned)wl_arg("waiters", 5);
    (void)s;
    wl_zero(pthread_barrier_init(&barrier, NULL, n + 1), "pthread_barrier_init");
}

static void waiter(int i)
{
    (void)i;
    pthread_barrier_wait(&barrier);
}

int main(int argc, char **argv)
{
    struct wl_scene s = {
        .kind = "barrier", .class = "sync", .address = &barrier, .setup = setup, .wait = waiter};
    return wl_run(argc, argv, &s);
}

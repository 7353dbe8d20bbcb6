/*
 * once - one thread sleeps in the routine of a pthread_once, the others wait for it to return.
 */
#include "workload.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void hold(void)
{
    pthread_once(&once, wl_rest);
}

static void waiter(int i)
{
    (void)i;
    pthread_once(&once, wl_rest);
}

int main(int argc, char **argv)
{
    struct wl_scene s = {
        .kind = "once", .class = "lock", .address = &once, .hold = hold, .wait = waiter};
    return wl_run(argc, argv, &s);
}

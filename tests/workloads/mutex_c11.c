/*
 * mutex_c11 - a mtx_t of C11 threads, which glibc makes of a plain mutex.
 */
#include <threads.h>

#include "workload.h"

static mtx_t mutex;

static void setup(struct wl_scene *s)
{
    (void)s;
    wl_check(mtx_init(&mutex, mtx_plain) == thrd_success, "mtx_init");
}

static void hold(void)
{
    mtx_lock(&mutex);
    wl_rest();
    mtx_unlock(&mutex);
}

static void waiter(int i)
{
    (void)i;
    mtx_lock(&mutex);
    mtx_unlock(&mutex);
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "mutex",
                         .class = "lock",
                         .address = &mutex,
                         .records_owner = true,
                         .setup = setup,
                         .hold = hold,
                         .wait = waiter};
    return wl_run(argc, argv, &s);
}

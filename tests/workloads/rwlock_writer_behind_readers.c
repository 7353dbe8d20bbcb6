/*
 * rwlock_writer_behind_readers - writers wait for a reader; the lock only counts its readers.
 */
#include "workload.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static void hold(void)
{
    pthread_rwlock_rdlock(&lock);
    wl_rest();
    pthread_rwlock_unlock(&lock);
}

static void waiter(int i)
{
    (void)i;
    pthread_rwlock_wrlock(&lock);
    pthread_rwlock_unlock(&lock);
}

static const char *mode(int i)
{
    (void)i;
    return "exclusive";
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "rwlock",
                         .class = "lock",
                         .address = &lock,
                         .hold = hold,
                         .wait = waiter,
                         .mode = mode};
    return wl_run(argc, argv, &s);
}

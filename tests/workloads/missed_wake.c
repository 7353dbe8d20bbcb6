/*
 * missed_wake - a mutex that is free while threads sleep on it, as after a wake-up that was lost.
 * "lose" gives it back for its holder without the call that wakes; "release" makes up for that.
 */
#include <linux/futex.h>

#include "workload_mutex.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void hold(void)
{
    pthread_mutex_lock(&mutex);
    wl_rest();
    syscall(SYS_futex, &mutex, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT32_MAX, NULL, NULL, 0);
}

static void lose_wake_up(void)
{
#ifdef __GLIBC__
    mutex.__data.__owner = 0;
    mutex.__data.__nusers--;
    __atomic_store_n(&mutex.__data.__lock, 0, __ATOMIC_RELEASE);
#else
    wl_skip("the layout of a mutex is known for glibc only", 0);
#endif
}

static bool command(char *line)
{
    if (strcmp(line, "lose"))
        return false;
    lose_wake_up();
    wl_say("{\"lost\":true}\n");
    return true;
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "mutex",
                         .class = "lock",
                         .address = &mutex,
                         .records_owner = true,
                         .hold = hold,
                         .wait = wl_mutex_wait,
                         .command = command};
    wl_mutex = &mutex;
    return wl_run(argc, argv, &s);
}

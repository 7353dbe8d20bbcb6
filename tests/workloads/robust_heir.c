/*
 * robust_heir - the owner of a robust mutex ended; the next one got it with EOWNERDEAD and sleeps
 * with it, not yet having made it consistent. The word behind the lock word then holds INT_MAX in
 * place of an owner; the lock word itself names the heir.
 */
#include "workload_mutex.h"

static pthread_mutex_t mutex;

static void take_and_end(int i)
{
    (void)i;
    pthread_mutex_lock(&mutex);
}

static void setup(struct wl_scene *s)
{
    const struct wl_mutex spec = {.type = PTHREAD_MUTEX_NORMAL, .robust = true};
    static struct wl_thread lost;
    (void)s;
    wl_mutex_init(&mutex, &spec);
    wl_spawn(&lost, take_and_end, 0, 0);
    pthread_join(lost.thread, NULL);
}

static void hold(void)
{
    if (pthread_mutex_lock(&mutex) != EOWNERDEAD)
        wl_end(WL_EXIT_BROKEN, "the owner's death was not told", 0);
    wl_rest();
    pthread_mutex_consistent(&mutex);
    pthread_mutex_unlock(&mutex);
}

static void waiter(int i)
{
    (void)i;
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "mutex-robust",
                         .class = "lock",
                         .address = &mutex,
                         .records_owner = true,
                         .setup = setup,
                         .hold = hold,
                         .wait = waiter};
    return wl_run(argc, argv, &s);
}

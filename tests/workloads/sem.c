/*
 * sem - threads wait on a POSIX semaphore of value 0.
 */
#include <semaphore.h>

#include "workload.h"

static sem_t sem;

static void waiter(int i)
{
    (void)i;
    sem_wait(&sem);
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "sem", .class = "sync", .address = &sem, .wait = waiter};
    wl_check(sem_init(&sem, 0, 0) == 0, "sem_init");
    return wl_run(argc, argv, &s);
}

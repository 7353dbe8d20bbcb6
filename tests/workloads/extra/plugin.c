/*
 * plugin - a library that waits for its host's lock in a function named INNER.
 */
#include <pthread.h>

void plugin_run(pthread_mutex_t *mutex);

__attribute__((noinline, noclone)) void INNER(pthread_mutex_t *mutex);

void INNER(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    pthread_mutex_unlock(mutex);
    __asm__ volatile("" ::: "memory");
}

void plugin_run(pthread_mutex_t *mutex)
{
    INNER(mutex);
    __asm__ volatile("" ::: "memory");
}

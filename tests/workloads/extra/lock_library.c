/*
 * lock_library - a shared library with a lock of its own, that its user cannot see by name.
 */
#include <pthread.h>

pthread_mutex_t *library_lock_place(void);

static struct {
    int entries;
} cache_of_library = {7};
static pthread_mutex_t lock_of_library = PTHREAD_MUTEX_INITIALIZER;

pthread_mutex_t *library_lock_place(void)
{
    return cache_of_library.entries ? &lock_of_library : 0;
}

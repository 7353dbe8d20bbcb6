/*
 * rwlock_recursive_read - a reader asks to read again while a writer is queued, on a lock that
 * prefers writers: it waits for itself. More readers queue behind. The lock records no holder,
 * and a count stands where a mutex has its owner.
 */
#include "workload.h"

static pthread_rwlock_t lock;
static _Atomic pid_t writer;
static atomic_bool reading;

static void setup(struct wl_scene *s)
{
    pthread_rwlockattr_t attr;
    (void)s;
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    wl_zero(pthread_rwlock_init(&lock, &attr), "pthread_rwlock_init");
}

static void await_writer(void)
{
    while (!writer)
        wl_nap(100000);
    wl_await_call(getpid(), writer, SYS_futex);
}

/* Thread 0 reads twice, thread 1 writes in between, the others read after that. */
static void waiter(int i)
{
    if (i == 0) {
        pthread_rwlock_rdlock(&lock);
        wl_holder((pid_t)syscall(SYS_gettid));
        reading = true;
    }
    while (!reading)
        wl_nap(100000);
    if (i == 1) {
        writer = (pid_t)syscall(SYS_gettid);
        pthread_rwlock_wrlock(&lock);
    } else {
        await_writer();
        pthread_rwlock_rdlock(&lock);
    }
}

static const char *mode(int i)
{
    return i == 1 ? "exclusive" : "shared";
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "rwlock",
                         .class = "lock",
                         .address = &lock,
                         .setup = setup,
                         .wait = waiter,
                         .mode = mode};
    return wl_run(argc, argv, &s);
}

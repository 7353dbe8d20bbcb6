/*
 * pshared_file - two processes wait for one process-shared mutex in a file that both map, each at
 * an address of its own; a thread of the first one holds it. "file PATH" names the file.
 */
#include "workload_mutex.h"

#define OFFSET          4096 /* of the mutex's page in the file */
#define PER_PROCESS_MAX 64

struct shared {
    char before[128];
    pthread_mutex_t mutex;
    atomic_bool held;
    _Atomic int ready; /* waiters of the second process */
    struct wl_thread waiters[PER_PROCESS_MAX];
};

static struct shared *shared;
static int file, nwaiters;

static struct shared *map_file(void *hint)
{
    void *p = mmap(hint, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, OFFSET);
    wl_check(p != MAP_FAILED, "mmap");
    return p;
}

static void second_process(void)
{
    struct shared *other = map_file((char *)shared + (1 << 24));
    munmap(shared, sizeof *shared);
    shared = other;
    wl_mutex = &shared->mutex;
    while (!shared->held)
        wl_nap(1000000);
    for (int i = 0; i < nwaiters; i++)
        wl_spawn(&shared->waiters[i], wl_mutex_wait, i, SYS_futex);
    shared->ready = nwaiters;
    for (;;)
        pause();
}

static pid_t start(const char *path)
{
    const struct wl_mutex spec = {.type = PTHREAD_MUTEX_NORMAL, .shared = true};
    static struct wl_thread holder;

    file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    wl_check(file >= 0 && ftruncate(file, OFFSET + (off_t)sizeof *shared) == 0, path);
    shared = map_file(NULL);
    wl_mutex_init(&shared->mutex, &spec);
    wl_mutex = &shared->mutex;
    wl_hold_fn = wl_mutex_hold;
    wl_prepare_rest(WL_READ);
    /* Forked while there are no threads yet. */
    pid_t second = wl_fork(second_process);
    wl_spawn(&holder, wl_hold_thread, 0, SYS_read);
    wl_holder(holder.tid);
    wl_settle(getpid(), &holder, 1);
    shared->held = true;
    return second;
}

int main(int argc, char **argv)
{
    wl_start(argc, argv);
    nwaiters = (int)wl_arg("waiters", 5);
    const char *path = wl_arg_text("file", NULL);
    if (!path || nwaiters > PER_PROCESS_MAX)
        wl_end(WL_EXIT_BROKEN, "give: file PATH, and 64 waiters at most", 0);
    struct wl_thread *waiters = wl_threads(nwaiters);
    pid_t second = start(path);

    for (int i = 0; i < nwaiters; i++)
        wl_spawn(&waiters[i], wl_mutex_wait, i, SYS_futex);
    wl_settle(getpid(), waiters, nwaiters);
    while (shared->ready != nwaiters)
        wl_nap(1000000);
    wl_settle(second, shared->waiters, nwaiters);
    wl_say(
        "{\"pid\":%d,\"pids\":[%d,%d],\"kind\":\"mutex\",\"class\":\"lock\",\"path\":\"%s\","
        "\"address\":\"0x%llx\",\"waiters\":%d,\"waiter_tids\":%s,\"second_tids\":%s,"
        "\"holder_pid\":%d,\"holder_tid\":%d,\"holder_call\":\"read\",\"holder_state\":\"pipe\"}\n",
        getpid(), getpid(), second, path, (unsigned long long)(uintptr_t)wl_mutex, nwaiters,
        wl_tids(waiters, nwaiters), wl_tids(shared->waiters, nwaiters), getpid(), wl.holders[0]);
    return wl_serve(NULL);
}

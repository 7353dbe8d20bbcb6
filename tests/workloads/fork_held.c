/*
 * fork_held - a process with threads forks while one of them holds a lock. In the child that lock
 * is held for ever, by a thread of the living parent: the child hangs, the parent is healthy. The
 * truth is that of the child.
 */
#include "workload.h"

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static struct wl_thread owner;

static void hold(int i)
{
    (void)i;
    prctl(PR_SET_NAME, "refresher");
    pthread_mutex_lock(&cache_lock);
    wl_rest();
    pthread_mutex_unlock(&cache_lock);
}

static void child(void)
{
    pthread_mutex_lock(&cache_lock);
}

int main(int argc, char **argv)
{
    wl_start(argc, argv);
    wl_prepare_rest(WL_NANOSLEEP);
    wl_spawn(&owner, hold, 0, SYS_nanosleep);
    wl_settle(getpid(), &owner, 1);
    pid_t pid = wl_fork(child);
    struct wl_thread hung = {.tid = pid, .call = SYS_futex};
    wl_settle(pid, &hung, 1);
    wl_say("{\"pid\":%d,\"kind\":\"mutex\",\"class\":\"lock\",\"address\":\"0x%llx\","
           "\"waiters\":1,\"waiter_tids\":[%d],\"parent\":%d,\"owner_tid\":%d,\"threads\":1}\n",
           pid, (unsigned long long)(uintptr_t)&cache_lock, pid, getpid(), owner.tid);
    return wl_serve(NULL);
}

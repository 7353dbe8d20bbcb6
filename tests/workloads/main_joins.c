/*
 * main_joins - the first thread joins one that never ends, which is no lock and holds none.
 */
#include "workload.h"

static struct wl_thread sleeper, server;
static pid_t main_tid;

static void sleep_on(int i)
{
    (void)i;
    prctl(PR_SET_NAME, "sleeper");
    for (;;)
        pause();
}

static void serve(int i)
{
    struct wl_thread first = {.tid = main_tid, .call = SYS_futex};
    uint64_t word = 0;
    (void)i;
    prctl(PR_SET_NAME, "server");
    wl_settle(getpid(), &sleeper, 1);
    wl_settle(getpid(), &first, 1);
    wl_call_of(getpid(), main_tid, &word, NULL);
    wl_say("{\"pid\":%d,\"kind\":\"join\",\"class\":\"sync\",\"address\":\"0x%llx\","
           "\"waiters\":1,\"waiter_tids\":[%d],\"joined_tid\":%d,\"threads\":3}\n",
           getpid(), (unsigned long long)word, main_tid, sleeper.tid);
    wl_serve(NULL);
}

int main(int argc, char **argv)
{
    wl_start(argc, argv);
    main_tid = (pid_t)syscall(SYS_gettid);
    wl_spawn(&sleeper, sleep_on, 0, SYS_pause);
    wl_spawn(&server, serve, 0, 0);
    return pthread_join(sleeper.thread, NULL);
}

/*
 * sysv_sem - a System V set of two semaphores; "waiters 5" processes wait for number 1 of it. "use
 * lock": with SEM_UNDO, while another that took it sleeps. "use hand-off": for what nobody gives
 * them, without.
 */
#include <sys/ipc.h>
#include <sys/sem.h>

#include "workload.h"

static int set = -1;
static bool lock;
static _Atomic int *ready;

static void take(void)
{
    struct sembuf op = {.sem_num = 1, .sem_op = -1, .sem_flg = (short)(lock ? SEM_UNDO : 0)};
    semop(set, &op, 1);
}

static void hold(void)
{
    take();
    *ready = 1;
    for (;;)
        wl_nap(86400000000L);
}

static void remove_set(void)
{
    semctl(set, 0, IPC_RMID);
}

/* wl_serve() ends by _exit: the set must go before. */
static void remove_at_end(void)
{
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    remove_set();
    _exit(0);
}

int main(int argc, char **argv)
{
    static struct wl_thread waiting[16];
    int holder = 0;

    wl_start(argc, argv);
    int n = (int)wl_arg("waiters", 5);
    wl_check(n >= 1 && n <= 16, "1 to 16 waiters");
    lock = !strcmp(wl_arg_text("use", "lock"), "lock");
    ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    set = semget(IPC_PRIVATE, 2, 0600);
    if (set < 0)
        wl_skip("semget", errno);
    if (lock) {
        wl_check(semctl(set, 1, SETVAL, 1) == 0, "SETVAL");
        holder = wl_fork(hold);
        while (!*ready)
            wl_nap(1000000);
    }
    for (int i = 0; i < n; i++) {
        waiting[i].call = SYS_semtimedop; /* what semop() of glibc calls */
        waiting[i].tid = wl_fork(take);
        wl_settle(waiting[i].tid, &waiting[i], 1);
    }
    char *waiters = wl_tids(waiting, n);
    wl_say(
        "{\"pid\":%d,\"set\":%d,\"num\":1,\"waiters\":%d,\"waiter_pids\":%s,\"holder_pid\":%d}\n",
        waiting[0].tid, set, n, waiters, holder);
    remove_at_end();
}

/*
 * abba - a deadlock: "ab" holds A and wants B, "ba" holds B and wants A; "behind 3" threads want A
 * besides, and are no part of the cycle. "threads 2" makes the cycle longer: thread i holds lock i
 * and wants the next one.
 */
#include "workload.h"

#define MAX 16

static pthread_mutex_t locks[MAX];
static pthread_barrier_t all_hold;
static int nlocks;

static void circle(int i)
{
    static const char *const name[] = {"ab", "ba"};
    prctl(PR_SET_NAME, nlocks == 2 ? name[i] : "circle");
    pthread_mutex_lock(&locks[i]);
    pthread_barrier_wait(&all_hold);
    pthread_mutex_lock(&locks[(i + 1) % nlocks]);
}

static void queued(int i)
{
    (void)i;
    prctl(PR_SET_NAME, "behind");
    pthread_mutex_lock(&locks[0]);
}

static void lock_item(FILE *out, int i, const void *arg)
{
    const struct wl_thread *t = arg;
    fprintf(out, "{\"address\":\"0x%llx\",\"holder_tid\":%d}",
            (unsigned long long)(uintptr_t)&locks[i], t[i].tid);
}

int main(int argc, char **argv)
{
    wl_start(argc, argv);
    int behind = (int)wl_arg("behind", 3);
    nlocks = (int)wl_arg("threads", 2);
    if (nlocks < 2 || nlocks > MAX)
        wl_end(WL_EXIT_BROKEN, "2 to 16 threads", 0);
    struct wl_thread *t = wl_threads(nlocks + behind);

    pthread_barrier_init(&all_hold, NULL, (unsigned)nlocks);
    for (int i = 0; i < nlocks; i++)
        pthread_mutex_init(&locks[i], NULL);
    for (int i = 0; i < nlocks; i++)
        wl_spawn(&t[i], circle, i, SYS_futex);
    /* Behind the cycle: nobody may take a lock before those in it have theirs. */
    wl_settle(getpid(), t, nlocks);
    for (int i = nlocks; i < nlocks + behind; i++)
        wl_spawn(&t[i], queued, i, SYS_futex);
    wl_settle(getpid(), t, nlocks + behind);
    wl_say("{\"pid\":%d,\"kind\":\"mutex\",\"class\":\"lock\",\"locks\":%s,\"cycle_tids\":%s,"
           "\"behind_tids\":%s,\"threads\":%d}\n",
           getpid(), wl_list(nlocks, lock_item, t), wl_tids(t, nlocks), wl_tids(t + nlocks, behind),
           1 + nlocks + behind);
    return wl_serve(NULL);
}

/*
 * flock_lab - "workers 4" processes take one flock in turn, hold it "hold 5" ms asleep and do
 * "think 1" ms of nothing without it, for ever. "mode": exclusive, shared, or try: exclusive
 * without waiting, again after "think" ms when refused. "stat" prints what their own
 * clocks say: acquisitions, how many of them had to wait, and how long these waited. "others 0":
 * all but the first hold it for so long instead.
 */
#include <sys/file.h>

#include "workload.h"

#define WAITED_NS 100000 /* who got it sooner did not sleep */

struct worker {
    _Alignas(64) _Atomic uint64_t rounds, waits, waited_ns, held_ns, refused;
};

static struct worker *workers;
static int nworkers, how;
static long hold_ns, others_ns, think_ns;
static const char *path;
static int me;

static void one_round(struct worker *w, int fd)
{
    int64_t before = wl_now();
    if (flock(fd, how) != 0) {
        wl_check(errno == EWOULDBLOCK, "flock");
        w->refused++;
        wl_nap(think_ns);
        return;
    }
    int64_t got = wl_now();
    wl_nap(me == 0 ? hold_ns : others_ns);
    int64_t held = wl_now() - got;
    flock(fd, LOCK_UN);
    if (got - before > WAITED_NS) {
        w->waits++;
        w->waited_ns += (uint64_t)(got - before);
    }
    w->held_ns += (uint64_t)held;
    w->rounds++;
    if (think_ns)
        wl_nap(think_ns);
}

static void work(void)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    wl_check(fd >= 0, path);
    for (;;)
        one_round(&workers[me], fd);
}

static bool command(char *line)
{
    uint64_t rounds = 0, waits = 0, waited = 0, held = 0, refused = 0;

    if (strcmp(line, "stat"))
        return false;
    for (int i = 0; i < nworkers; i++) {
        rounds += workers[i].rounds;
        waits += workers[i].waits;
        waited += workers[i].waited_ns;
        held += workers[i].held_ns;
        refused += workers[i].refused;
    }
    wl_say("{\"at\":%.6f,\"rounds\":%llu,\"waits\":%llu,\"waited_s\":%.6f,\"held_s\":%.6f,"
           "\"refused\":%llu}\n",
           (double)wl_now() / 1e9, (unsigned long long)rounds, (unsigned long long)waits,
           (double)waited / 1e9, (double)held / 1e9, (unsigned long long)refused);
    return true;
}

int main(int argc, char **argv)
{
    int pids[64];

    wl_start(argc, argv);
    nworkers = (int)wl_arg("workers", 4);
    hold_ns = wl_arg("hold", 5) * 1000000;
    others_ns = wl_arg("others", hold_ns / 1000000) * 1000000;
    think_ns = wl_arg("think", 1) * 1000000;
    const char *mode = wl_arg_text("mode", "exclusive");
    how = !strcmp(mode, "shared") ? LOCK_SH : !strcmp(mode, "try") ? LOCK_EX | LOCK_NB : LOCK_EX;
    path = wl_arg_text("file", NULL);
    wl_check(path && nworkers >= 1 && nworkers <= 64, "flock_lab: file PATH, workers 1..64");
    workers = mmap(NULL, 64 * sizeof(*workers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                   -1, 0);
    wl_check(workers != MAP_FAILED, "mmap");
    for (int i = 0; i < nworkers; i++) {
        me = i;
        pids[i] = wl_fork(work);
    }
    for (int i = 0; i < nworkers; i++) {
        while (workers[i].rounds + workers[i].refused == 0)
            wl_nap(1000000);
    }
    char *list = wl_list(nworkers, wl_item_int, pids);
    wl_say("{\"pid\":%d,\"kind\":\"flock\",\"class\":\"filelock\",\"path\":\"%s\",\"pids\":%s}\n",
           pids[0], path, list);
    free(list);
    return wl_serve(command);
}

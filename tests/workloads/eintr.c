/*
 * eintr - a thread sits in every call that a stop might disturb, for ever: in those that end with
 * EINTR, in those that end with a part of their work done, and in those that the kernel restarts.
 * None of them may ever return. "stat" prints what each call returned so far.
 *
 * Beside them a thread holds a mutex and computes ("spin 1"), so that there is one to be stopped,
 * and another holds a mutex and alternates between computing for "compute 100" us and the calls of
 * the first sort with a time-out of as long ("alternate 1"): the stop that is meant for a running
 * thread may reach it there. With "stream 1" a thread writes to a pipe that another one drains,
 * more at a time than the pipe holds.
 */
#include "eintr_calls.h"

/* Counts what a call returned. OK: it may return, having done all of WANTS. */
static void note(struct slot *s, long r, bool ok)
{
    int err = r < 0 ? errno : 0;
    if (err == EINTR)
        s->eintr++;
    else if (r > 0 && s->wants && (size_t)r < s->wants)
        s->cut++;
    else if (!ok)
        s->returned++;
    if (err)
        s->last_errno = err;
}

static void sit(int i)
{
    for (;;) {
        note(&slots[i], slots[i].enter(&slots[i]), false);
        wl_nap(100000);
    }
}

/* Those that run -------------------------------------------------------------------------- */

static pthread_mutex_t spun = PTHREAD_MUTEX_INITIALIZER, alternated = PTHREAD_MUTEX_INITIALIZER;
static struct wl_thread spinner, alternator, writer, drain, waiters[4];
static struct slot alternate = {.name = "alternate"}, stream = {.name = "stream"};
static _Atomic uint64_t spins, rounds;
static int64_t compute_ns;
static int quiet; /* a socket that nobody sends to, with a time-out */

static void compute(int64_t ns)
{
    int64_t end = wl_now() + ns;
    while (wl_now() < end)
        spins++;
}

static void spin(int arg)
{
    (void)arg;
    pthread_mutex_lock(&spun);
    for (;;)
        compute(1000000);
}

/* One call that a stop would end with EINTR, and that a time-out ends before long. */
static long short_call(int which, const struct timespec *t)
{
    struct sembuf down = {.sem_op = -1};
    struct io_event io;
    struct epoll_event e;

    switch (which) {
    case 0:
        return epoll_wait(alternate.fd, &e, 1, 1);
    case 1:
        return recv(quiet, large, 1, 0);
    case 2:
        return aio ? syscall(SYS_io_getevents, aio, 1, 1, &io, t) : 0;
    case 3:
        return sem_id >= 0 ? semtimedop(sem_id, &down, 1, t) : 0;
    default:
        return sigtimedwait(&one_signal, NULL, t);
    }
}

static void alternating(int arg)
{
    struct timespec t = {0, compute_ns};
    (void)arg;
    pthread_mutex_lock(&alternated);
    for (;; rounds++) {
        compute(compute_ns);
        note(&alternate, short_call((int)(rounds % 5), &t), true);
    }
}

static void wait_for(int i)
{
    pthread_mutex_lock(i % 2 ? &spun : &alternated);
}

static int stream_pipe[2];

static void write_stream(int arg)
{
    (void)arg;
    for (;; rounds++)
        note(&stream, write(stream_pipe[1], large, stream.wants), true);
}

static void drain_stream(int arg)
{
    static char sink[4096];
    (void)arg;
    while (read(stream_pipe[0], sink, sizeof sink) > 0)
        ;
}

static void start_stream(void)
{
    stream.wants = 1 << 20;
    wl_check(pipe2(stream_pipe, O_CLOEXEC) == 0, "pipe2");
    wl_spawn(&writer, write_stream, 0, 0);
    wl_spawn(&drain, drain_stream, 0, 0);
}

static void start_running(void)
{
    static struct slot socket_slot;

    make_epoll(&alternate);
    make_socket(&socket_slot);
    quiet = socket_slot.fd;
    set_timeout(quiet, (struct timeval){0, 1000});
    if (wl_arg("spin", 1))
        wl_spawn(&spinner, spin, 0, 0);
    if (wl_arg("alternate", 1))
        wl_spawn(&alternator, alternating, 0, 0);
    while ((spinner.tid && !spins) || (alternator.tid && !rounds))
        wl_nap(1000000);
    for (int i = 0; i < 4; i++)
        if (i % 2 ? spinner.tid : alternator.tid)
            wl_spawn(&waiters[i], wait_for, i, SYS_futex);
    if (wl_arg("stream", 0))
        start_stream();
}

/* Telling --------------------------------------------------------------------------------- */

static void item_slot(FILE *out, int i, const void *arg)
{
    const struct slot *s = i < NSLOTS ? &slots[i] : i == NSLOTS ? &alternate : &stream;
    (void)arg;
    fprintf(out,
            "{\"name\":\"%s\",\"tid\":%d,\"absent\":%s,\"eintr\":%llu,\"short\":%llu,"
            "\"returned\":%llu,\"errno\":%d}",
            s->name, s->thread.tid, s->absent ? "true" : "false", (unsigned long long)s->eintr,
            (unsigned long long)s->cut, (unsigned long long)s->returned, s->last_errno);
}

static bool command(char *line)
{
    if (strcmp(line, "stat"))
        return false;
    char *all = wl_list(NSLOTS + 2, item_slot, NULL);
    wl_say("{\"calls\":%s,\"spins\":%llu,\"rounds\":%llu}\n", all, (unsigned long long)spins,
           (unsigned long long)rounds);
    free(all);
    return true;
}

static void start_sitting(void)
{
    for (int i = 0; i < NSLOTS; i++) {
        struct slot *s = &slots[i];
        s->absent = s->setup && !s->setup(s);
        if (!s->absent)
            wl_spawn(&s->thread, sit, i, s->call);
    }
    for (int i = 0; i < NSLOTS; i++)
        if (!slots[i].absent)
            wl_settle(getpid(), &slots[i].thread, 1);
}

int main(int argc, char **argv)
{
    wl_start(argc, argv);
    compute_ns = wl_arg("compute", 100) * 1000;
    far_mono = wl_far(CLOCK_MONOTONIC);
    far_real = wl_far(CLOCK_REALTIME);
    large = calloc(1, LARGE);
    wl_check(large, "calloc");
    sigemptyset(&one_signal);
    sigaddset(&one_signal, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &one_signal, NULL);
    start_child();
    start_sitting();
    start_running();
    char *all = wl_list(NSLOTS, item_slot, NULL);
    wl_say("{\"pid\":%d,\"kind\":\"mutex\",\"class\":\"lock\",\"address\":\"0x%llx\","
           "\"holder_tid\":%d,\"alternate_address\":\"0x%llx\",\"alternate_tid\":%d,"
           "\"stream_tid\":%d,\"calls\":%s,\"threads\":%d}\n",
           getpid(), (unsigned long long)(uintptr_t)&spun, spinner.tid,
           (unsigned long long)(uintptr_t)&alternated, alternator.tid, writer.tid, all,
           wl_count_threads());
    free(all);
    return wl_serve(command);
}

/*
 * idle_pool - a healthy process: "cond 200" threads idle on one condition variable, "sleep 50"
 * asleep and "net 20" waiting for data from sockets.
 */
#include <netinet/in.h>

#include "workload.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

static void idle(int i)
{
    (void)i;
    pthread_mutex_lock(&mutex);
    for (;;)
        pthread_cond_wait(&cond, &mutex);
}

static void asleep(int i)
{
    struct timespec day = {86400, 0};
    (void)i;
    clock_nanosleep(CLOCK_MONOTONIC, 0, &day, NULL);
}

static int loopback_socket(void)
{
    struct sockaddr_in me = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    wl_check(fd >= 0 && bind(fd, (struct sockaddr *)&me, sizeof me) == 0, "loopback socket");
    return fd;
}

static void receive(int i)
{
    int pair[2];
    char byte;
    if (i % 2)
        pair[0] = loopback_socket();
    else
        wl_check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    wl_check(recv(pair[0], &byte, 1, 0) >= 0, "recv");
}

int main(int argc, char **argv)
{
    wl_start(argc, argv);
    int nidle = (int)wl_arg("cond", 200), nasleep = (int)wl_arg("sleep", 50);
    int nnet = (int)wl_arg("net", 20), n = nidle + nasleep + nnet;
    struct wl_thread *t = wl_threads(n);

    for (int i = 0; i < n; i++) {
        if (i < nidle)
            wl_spawn(&t[i], idle, i, SYS_futex);
        else if (i < nidle + nasleep)
            wl_spawn(&t[i], asleep, i, SYS_clock_nanosleep);
        else
            wl_spawn(&t[i], receive, i, SYS_recvfrom);
    }
    wl_settle(getpid(), t, n);
    wl_say("{\"pid\":%d,\"kind\":\"cond\",\"class\":\"sync\",\"address\":\"0x%llx\","
           "\"waiters\":%d,\"sync\":%d,\"sleep\":%d,\"net\":%d,\"threads\":%d}\n",
           getpid(), (unsigned long long)(uintptr_t)&cond, nidle, nidle, nasleep, nnet, n + 1);
    return wl_serve(NULL);
}

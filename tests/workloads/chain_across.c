/*
 * chain_across - a thread waits for a mutex; who holds that waits in flock for the file "file
 * PATH"; the process that holds this reads from a socket on the loopback whose peer says nothing.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/file.h>

#include "workload.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct wl_thread second, first;
static const char *path;
static int listener;
static _Atomic int *ready;

static void holder(void)
{
    struct sockaddr_in to;
    socklen_t len = sizeof to;
    char byte;
    int fd = open(path, O_RDWR | O_CREAT, 0600);

    prctl(PR_SET_NAME, "reporter");
    wl_check(fd >= 0 && flock(fd, LOCK_EX) == 0, "flock");
    getsockname(listener, (struct sockaddr *)&to, &len);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    wl_check(connect(s, (struct sockaddr *)&to, len) == 0, "connect");
    *ready = 1;
    recv(s, &byte, 1, 0);
}

static void want_file(int i)
{
    (void)i;
    prctl(PR_SET_NAME, "flusher");
    pthread_mutex_lock(&mutex);
    flock(open(path, O_RDWR | O_CLOEXEC), LOCK_EX);
}

static void want_mutex(int i)
{
    (void)i;
    prctl(PR_SET_NAME, "request");
    pthread_mutex_lock(&mutex);
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;

    wl_start(argc, argv);
    path = wl_arg_text("file", NULL);
    wl_check(path, "which file? give: file PATH");
    ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    wl_check(bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 5) == 0, "bind");
    getsockname(listener, (struct sockaddr *)&at, &len);
    pid_t pid = wl_fork(holder);
    while (!*ready)
        wl_nap(1000000);
    struct wl_thread reader = {.tid = pid, .call = SYS_recvfrom};
    wl_settle(pid, &reader, 1);
    wl_spawn(&second, want_file, 0, SYS_flock);
    wl_settle(getpid(), &second, 1);
    wl_spawn(&first, want_mutex, 0, SYS_futex);
    wl_settle(getpid(), &first, 1);
    wl_say("{\"pid\":%d,\"path\":\"%s\",\"address\":\"0x%llx\",\"tids\":[%d,%d],\"holder_pid\":%d,"
           "\"port\":%d}\n",
           getpid(), path, (unsigned long long)(uintptr_t)&mutex, first.tid, second.tid, pid,
           ntohs(at.sin_port));
    return wl_serve(NULL);
}

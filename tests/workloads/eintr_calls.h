/*
 * eintr_calls.h - the calls in which the threads of eintr.c sit: how each is prepared and entered,
 * so that it never returns by itself.
 */
#ifndef EINTR_CALLS_H
#define EINTR_CALLS_H

#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#include "workload.h"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#define SYS_io_uring_enter 426
#endif
#define KERNEL_SIGSET 8 /* bytes of the kernel's signal set */
#define LARGE         (8u << 20)

struct slot {
    const char *name;
    long call;
    bool (*setup)(struct slot *s); /* false: not available here */
    long (*enter)(struct slot *s); /* the call; what it returns */
    long arg;                      /* for both */
    size_t wants;                  /* bytes that it is to transfer, 0: any return is wrong */
    bool absent;
    int fd;
    uint32_t word;
    struct wl_thread thread;
    _Atomic uint64_t eintr, cut, returned;
    _Atomic int last_errno;
};

static char *large;
static struct timespec far_mono, far_real;
static const struct timespec million_s = {1000000, 0};
static sigset_t one_signal;
static int sem_id, msg_id;
static pid_t child;
static char fifo[64];

/* Futexes --------------------------------------------------------------------------------- */

static long futex(uint32_t *word, int op, uint32_t val, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, op, val, timeout, NULL, FUTEX_BITSET_MATCH_ANY);
}

static long futex_plain(struct slot *s)
{
    return futex(&s->word, FUTEX_WAIT_PRIVATE, s->word, NULL);
}

static long futex_relative(struct slot *s)
{
    return futex(&s->word, FUTEX_WAIT_PRIVATE, s->word, &million_s);
}

static long futex_absolute(struct slot *s)
{
    return futex(&s->word, FUTEX_WAIT_BITSET_PRIVATE, s->word, &far_mono);
}

/* The main thread holds it. */
static bool take_pi(struct slot *s)
{
    return futex(&s->word, FUTEX_LOCK_PI_PRIVATE, 0, NULL) == 0;
}

static long futex_pi(struct slot *s)
{
    return futex(&s->word, FUTEX_LOCK_PI_PRIVATE, 0, s->arg ? &far_real : NULL);
}

static long waitv(struct slot *s)
{
    struct {
        uint64_t val, uaddr;
        uint32_t flags, reserved;
    } w = {0, (uintptr_t)&s->word, 2 | FUTEX_PRIVATE_FLAG, 0};
    return syscall(SYS_futex_waitv, &w, 1, 0, NULL, 0);
}

static bool have_waitv(struct slot *s)
{
    (void)s;
    return syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0) < 0 && errno != ENOSYS;
}

/* File locks ------------------------------------------------------------------------------ */

/* S waits for a lock on FD, which another description of the file has. */
static bool lock_file(struct slot *s)
{
    char path[] = "/tmp/eintr.XXXXXX", again[32];
    struct flock all = {.l_type = F_WRLCK};
    int other = mkstemp(path);

    wl_check(other >= 0, path);
    unlink(path);
    snprintf(again, sizeof again, "/proc/self/fd/%d", other);
    s->fd = open(again, O_RDWR | O_CLOEXEC);
    return s->fd >= 0 && (s->arg ? fcntl(other, F_OFD_SETLK, &all) : flock(other, LOCK_EX)) == 0;
}

static long wait_flock(struct slot *s)
{
    return flock(s->fd, LOCK_EX);
}

static long wait_fcntl(struct slot *s)
{
    struct flock all = {.l_type = F_WRLCK};
    return fcntl(s->fd, (int)s->arg, &all);
}

/* Pipes and what is read ------------------------------------------------------------------ */

static bool make_pipe(struct slot *s)
{
    int p[2];
    wl_check(pipe2(p, O_CLOEXEC) == 0, "pipe2");
    s->fd = p[s->arg];
    return true;
}

static bool make_eventfd(struct slot *s)
{
    return (s->fd = eventfd(0, EFD_CLOEXEC)) >= 0;
}

static bool make_timerfd(struct slot *s)
{
    struct itimerspec when = {.it_value = million_s};
    return (s->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)) >= 0 &&
           timerfd_settime(s->fd, 0, &when, NULL) == 0;
}

static bool make_signalfd(struct slot *s)
{
    return (s->fd = signalfd(-1, &one_signal, SFD_CLOEXEC)) >= 0;
}

static bool make_inotify(struct slot *s)
{
    return (s->fd = inotify_init1(IN_CLOEXEC)) >= 0;
}

static bool make_tty(struct slot *s)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    return master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0 &&
           (s->fd = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC)) >= 0;
}

static long do_read(struct slot *s)
{
    char buf[128];
    return read(s->fd, buf, sizeof buf);
}

static long do_write(struct slot *s)
{
    return write(s->fd, large, LARGE);
}

static bool have_fifo(struct slot *s)
{
    (void)s;
    return fifo[0];
}

static long open_fifo(struct slot *s)
{
    (void)s;
    return open(fifo, O_RDONLY | O_CLOEXEC);
}

/* Sockets --------------------------------------------------------------------------------- */

static void set_timeout(int fd, struct timeval t)
{
    wl_check(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0, "SO_RCVTIMEO");
}

/* ARG: 1 with a time-out, 2 with some bytes to be read. */
static bool make_socket(struct slot *s)
{
    int pair[2];
    wl_check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    s->fd = pair[0];
    if (s->arg == 1)
        set_timeout(s->fd, (struct timeval){1000000, 0});
    if (s->arg == 2)
        wl_check(write(pair[1], large, 100) == 100, "write");
    return true;
}

static bool make_listener(struct slot *s)
{
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    wl_check(bind(s->fd, (struct sockaddr *)&any, sizeof any.sun_family) == 0, "bind");
    if (s->arg)
        set_timeout(s->fd, (struct timeval){1000000, 0});
    return listen(s->fd, 1) == 0;
}

static long do_accept(struct slot *s)
{
    return accept(s->fd, NULL, NULL);
}

static long do_recv(struct slot *s)
{
    return recv(s->fd, large, LARGE, s->arg == 2 ? MSG_WAITALL : 0);
}

static long do_recvmsg(struct slot *s)
{
    struct iovec all = {large, LARGE};
    struct msghdr m = {.msg_iov = &all, .msg_iovlen = 1};
    return recvmsg(s->fd, &m, s->arg == 2 ? MSG_WAITALL : 0);
}

static long do_send(struct slot *s)
{
    return send(s->fd, large, LARGE, 0);
}

/* Polls ----------------------------------------------------------------------------------- */

static bool make_epoll(struct slot *s)
{
    return (s->fd = epoll_create1(EPOLL_CLOEXEC)) >= 0;
}

static long do_epoll(struct slot *s)
{
    struct epoll_event e;
    return epoll_wait(s->fd, &e, 1, (int)s->arg);
}

static long do_epoll_pwait(struct slot *s)
{
    struct epoll_event e;
    sigset_t none;
    sigemptyset(&none);
    return epoll_pwait(s->fd, &e, 1, (int)s->arg, &none);
}

static long do_poll(struct slot *s)
{
    return poll(NULL, 0, (int)s->arg);
}

static long do_ppoll(struct slot *s)
{
    return ppoll(NULL, 0, s->arg ? &million_s : NULL, &one_signal);
}

static long do_select(struct slot *s)
{
    struct timeval t = {1000000, 0};
    return select(0, NULL, NULL, NULL, s->arg ? &t : NULL);
}

/* System V, message queues, asynchronous I/O ---------------------------------------------- */

static bool have_sem(struct slot *s)
{
    (void)s;
    return sem_id >= 0;
}

static long do_semop(struct slot *s)
{
    struct sembuf down = {.sem_op = -1};
    return s->arg ? semtimedop(sem_id, &down, 1, &million_s) : semop(sem_id, &down, 1);
}

static bool have_msg(struct slot *s)
{
    (void)s;
    return msg_id >= 0;
}

static long do_msgrcv(struct slot *s)
{
    struct {
        long type;
        char text[16];
    } m;
    (void)s;
    return msgrcv(msg_id, &m, sizeof m.text, 0, 0);
}

static bool make_mq(struct slot *s)
{
    char name[32];
    snprintf(name, sizeof name, "eintr.%d", getpid());
    s->fd = (int)syscall(SYS_mq_open, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600, NULL);
    syscall(SYS_mq_unlink, name);
    return s->fd >= 0;
}

static long do_mq(struct slot *s)
{
    return syscall(SYS_mq_timedreceive, s->fd, large, LARGE, NULL, s->arg ? &far_real : NULL);
}

static aio_context_t aio;

static bool make_aio(struct slot *s)
{
    (void)s;
    return aio || syscall(SYS_io_setup, 8, &aio) == 0;
}

static long do_aio(struct slot *s)
{
    struct io_event e;
    (void)s;
    return syscall(SYS_io_getevents, aio, 1, 1, &e, NULL);
}

static bool make_uring(struct slot *s)
{
    char params[120] = {0}; /* struct io_uring_params */
    return (s->fd = (int)syscall(SYS_io_uring_setup, 4, params)) >= 0;
}

static long do_uring(struct slot *s)
{
    return syscall(SYS_io_uring_enter, s->fd, 0, 1, 1 /* GETEVENTS */, NULL, KERNEL_SIGSET);
}

/* Sleeps and signals ---------------------------------------------------------------------- */

static long do_nanosleep(struct slot *s)
{
    (void)s;
    return syscall(SYS_nanosleep, &million_s, NULL);
}

static long do_clock_nanosleep(struct slot *s)
{
    return syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, s->arg,
                   s->arg == TIMER_ABSTIME ? &far_mono : &million_s, NULL);
}

static long do_pause(struct slot *s)
{
    (void)s;
    return pause();
}

static long do_sigsuspend(struct slot *s)
{
    (void)s;
    return sigsuspend(&one_signal);
}

static long do_sigtimedwait(struct slot *s)
{
    return sigtimedwait(&one_signal, NULL, s->arg ? &million_s : NULL);
}

static long do_waitpid(struct slot *s)
{
    siginfo_t info;
    return s->arg ? waitid(P_PID, (id_t)child, &info, WEXITED) : waitpid(child, NULL, 0);
}

/* All of them ----------------------------------------------------------------------------- */

#ifdef SYS_epoll_wait
#define NR_EPOLL SYS_epoll_wait
#define NR_POLL  SYS_poll
#define NR_PAUSE SYS_pause
#else
#define NR_EPOLL SYS_epoll_pwait
#define NR_POLL  SYS_ppoll
#define NR_PAUSE SYS_ppoll
#endif
#define FAR_MS 1000000000L

#define SIT(n, c, s, e, ...)                                                                       \
    {                                                                                              \
        .name = n, .call = c, .setup = s, .enter = e, __VA_ARGS__                                  \
    }

static struct slot slots[] = {
    /* end with EINTR */
    SIT("epoll_wait", NR_EPOLL, make_epoll, do_epoll, .arg = -1),
    SIT("epoll_wait timed", NR_EPOLL, make_epoll, do_epoll, .arg = FAR_MS),
    SIT("epoll_pwait", SYS_epoll_pwait, make_epoll, do_epoll_pwait, .arg = -1),
    SIT("semop", SYS_semtimedop, have_sem, do_semop),
    SIT("semtimedop", SYS_semtimedop, have_sem, do_semop, .arg = 1),
    SIT("recv SO_RCVTIMEO", SYS_recvfrom, make_socket, do_recv, .arg = 1),
    SIT("recvmsg SO_RCVTIMEO", SYS_recvmsg, make_socket, do_recvmsg, .arg = 1),
    SIT("read SO_RCVTIMEO", SYS_read, make_socket, do_read, .arg = 1),
    SIT("accept SO_RCVTIMEO", SYS_accept, make_listener, do_accept, .arg = 1),
    SIT("sigwaitinfo", SYS_rt_sigtimedwait, NULL, do_sigtimedwait),
    SIT("sigtimedwait", SYS_rt_sigtimedwait, NULL, do_sigtimedwait, .arg = 1),
    SIT("io_getevents", SYS_io_getevents, make_aio, do_aio),
    SIT("io_uring_enter", SYS_io_uring_enter, make_uring, do_uring),
    /* end with a part done */
    SIT("write to a full pipe", SYS_write, make_pipe, do_write, .arg = 1, .wants = LARGE),
    SIT("large send", SYS_sendto, make_socket, do_send, .wants = LARGE),
    SIT("recv MSG_WAITALL", SYS_recvfrom, make_socket, do_recv, .arg = 2, .wants = LARGE),
    SIT("recvmsg MSG_WAITALL", SYS_recvmsg, make_socket, do_recvmsg, .arg = 2, .wants = LARGE),
    /* restart, as far as the descriptor and its settings allow */
    SIT("futex", SYS_futex, NULL, futex_plain),
    SIT("futex relative", SYS_futex, NULL, futex_relative),
    SIT("futex absolute", SYS_futex, NULL, futex_absolute),
    SIT("futex LOCK_PI", SYS_futex, take_pi, futex_pi),
    SIT("futex LOCK_PI timed", SYS_futex, take_pi, futex_pi, .arg = 1),
    SIT("futex_waitv", SYS_futex_waitv, have_waitv, waitv),
    SIT("flock", SYS_flock, lock_file, wait_flock),
    SIT("fcntl F_SETLKW", SYS_fcntl, lock_file, wait_fcntl, .arg = F_SETLKW),
    SIT("fcntl F_OFD_SETLKW", SYS_fcntl, lock_file, wait_fcntl, .arg = F_OFD_SETLKW),
    SIT("poll", NR_POLL, NULL, do_poll, .arg = -1),
    SIT("poll timed", NR_POLL, NULL, do_poll, .arg = FAR_MS),
    SIT("ppoll", SYS_ppoll, NULL, do_ppoll),
    SIT("ppoll timed", SYS_ppoll, NULL, do_ppoll, .arg = 1),
    SIT("select", SYS_pselect6, NULL, do_select),
    SIT("select timed", SYS_pselect6, NULL, do_select, .arg = 1),
    SIT("nanosleep", SYS_nanosleep, NULL, do_nanosleep),
    SIT("clock_nanosleep", SYS_clock_nanosleep, NULL, do_clock_nanosleep),
    SIT("clock_nanosleep absolute", SYS_clock_nanosleep, NULL, do_clock_nanosleep,
        .arg = TIMER_ABSTIME),
    SIT("msgrcv", SYS_msgrcv, have_msg, do_msgrcv),
    SIT("mq_receive", SYS_mq_timedreceive, make_mq, do_mq),
    SIT("mq_timedreceive", SYS_mq_timedreceive, make_mq, do_mq, .arg = 1),
    SIT("read pipe", SYS_read, make_pipe, do_read),
    SIT("read tty", SYS_read, make_tty, do_read),
    SIT("read eventfd", SYS_read, make_eventfd, do_read),
    SIT("read timerfd", SYS_read, make_timerfd, do_read),
    SIT("read signalfd", SYS_read, make_signalfd, do_read),
    SIT("read inotify", SYS_read, make_inotify, do_read),
    SIT("open FIFO", SYS_openat, have_fifo, open_fifo),
    SIT("accept", SYS_accept, make_listener, do_accept),
    SIT("recv", SYS_recvfrom, make_socket, do_recv),
    SIT("recvmsg", SYS_recvmsg, make_socket, do_recvmsg),
    SIT("pause", NR_PAUSE, NULL, do_pause),
    SIT("sigsuspend", SYS_rt_sigsuspend, NULL, do_sigsuspend),
    SIT("waitpid", SYS_wait4, NULL, do_waitpid),
    SIT("waitid", SYS_waitid, NULL, do_waitpid, .arg = 1),
};
#define NSLOTS ((int)(sizeof slots / sizeof slots[0]))

/* A child for those who wait for one; when this process has ended it clears away what outlives a
 * process. Before any thread. */
static void start_child(void)
{
    int end[2];
    char byte;

    sem_id = semget(IPC_PRIVATE, 1, 0600);
    msg_id = msgget(IPC_PRIVATE, 0600);
    snprintf(fifo, sizeof fifo, "/tmp/eintr.%d", getpid());
    if (mkfifo(fifo, 0600) != 0)
        fifo[0] = '\0';
    wl_check(pipe2(end, O_CLOEXEC) == 0, "pipe2");
    child = fork();
    wl_check(child >= 0, "fork");
    if (child > 0) {
        close(end[0]);
        return;
    }
    close(end[1]);
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    while (read(end[0], &byte, 1) < 0 && errno == EINTR)
        continue;
    semctl(sem_id, 0, IPC_RMID);
    msgctl(msg_id, IPC_RMID, NULL);
    unlink(fifo);
    _exit(0);
}

#endif

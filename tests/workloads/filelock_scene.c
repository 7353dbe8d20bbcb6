/*
 * filelock_scene - processes and locks on the file "file PATH"; "scene NAME" is one of
 *   queue    fcntl: one holds, three want the same bytes and stand one behind the other
 *   deleted  flock: the file has no name any more, five wait; the holder reads from a socket of
 *            "port N" on the loopback
 *   inherit  flock: who took it was killed; its child has the descriptor
 *   self     flock: one process has opened the file twice and wants what it holds
 *   ofd      OFD lock: of a process and the child that it forked; another waits
 *   abba     flock: two processes hold one file each (PATH, PATH.2) and want the other
 *   poller   flock: one holds it, another tries again and again without waiting
 *   sqlite   fcntl: one has the RESERVED byte of a database, another waits for it
 *   readers  fcntl: two share all of the file, one wants bytes 100 to 199 for itself
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/file.h>

#include "workload.h"

#define SQLITE_RESERVED 0x40000001

static const char *path;
static int inherited = -1, listener = -1;
static int life[2]; /* of this process: reads end when it has ended */
static struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};
static struct shared {
    _Atomic int ready; /* holders that hold */
    _Atomic int child; /* inherit: who has the descriptor */
} * shared;

static int open_at(const char *suffix)
{
    char name[4096];
    snprintf(name, sizeof name, "%s%s", path, suffix);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    wl_check(fd >= 0, name);
    return fd;
}

static void await_ready(int n)
{
    while (shared->ready < n)
        wl_nap(1000000);
}

static void sleep_on(void)
{
    shared->ready++;
    for (;;)
        wl_nap(86400 * 1000000000L / 1000);
}

/* Holders --------------------------------------------------------------------------------- */

static void hold_flock(void)
{
    wl_check(flock(open_at(""), LOCK_EX) == 0, "flock");
    sleep_on();
}

static void hold_range(void)
{
    wl_check(fcntl(open_at(""), F_SETLK, &range) == 0, "F_SETLK");
    sleep_on();
}

static void hold_in_recv(void)
{
    struct sockaddr_in to;
    socklen_t len = sizeof to;
    char byte;

    wl_check(flock(open_at(""), LOCK_EX) == 0, "flock");
    getsockname(listener, (struct sockaddr *)&to, &len);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    wl_check(connect(s, (struct sockaddr *)&to, len) == 0, "connect");
    shared->ready++;
    recv(s, &byte, 1, 0);
}

static void take_and_die(void)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);

    wl_check(fd >= 0 && flock(fd, LOCK_EX) == 0, "flock");
    pid_t child = fork();
    wl_check(child >= 0, "fork");
    if (child == 0) { /* nobody else would end it */
        char byte;
        close(life[1]);
        shared->child = getpid();
        shared->ready++;
        while (read(life[0], &byte, 1) < 0)
            ;
        _exit(0);
    }
    await_ready(1);
    raise(SIGKILL);
}

static void child_of_ofd(void)
{
    sleep_on();
}

static void retry(void)
{
    int fd = open_at("");

    for (;;) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            flock(fd, LOCK_UN);
        shared->ready = 2;
        wl_nap(10000000);
    }
}

/* Waiters --------------------------------------------------------------------------------- */

static void want_flock(void)
{
    flock(inherited >= 0 ? inherited : open_at(""), LOCK_EX);
}

static void want_range(void)
{
    fcntl(open_at(""), F_SETLKW, &range);
}

static void want_ofd(void)
{
    close(inherited); /* the holders' */
    fcntl(open_at(""), F_OFD_SETLKW, &range);
}

static void want_itself(void)
{
    wl_check(flock(open_at(""), LOCK_EX) == 0, "flock");
    flock(open_at(""), LOCK_EX);
}

static void ab(void)
{
    wl_check(flock(open_at(""), LOCK_EX) == 0, "flock");
    shared->ready++;
    await_ready(2);
    flock(open_at(".2"), LOCK_EX);
}

static void ba(void)
{
    wl_check(flock(open_at(".2"), LOCK_EX) == 0, "flock");
    shared->ready++;
    await_ready(2);
    flock(open_at(""), LOCK_EX);
}

/* Scenes ---------------------------------------------------------------------------------- */

static struct wl_thread waiting[16];
static int nwaiting, holders[4], nholders, port, taker;

static void begin_holder(void (*run)(void))
{
    int before = shared->ready;
    holders[nholders++] = wl_fork(run);
    await_ready(before + 1);
}

/* Returns when it is blocked. */
static void begin_waiter(void (*run)(void), long call)
{
    struct wl_thread *t = &waiting[nwaiting++];
    t->call = call;
    t->tid = wl_fork(run);
    struct wl_thread one = *t;
    wl_settle(one.tid, &one, 1);
}

static void queue(void)
{
    range.l_len = 10;
    begin_holder(hold_range);
    for (int i = 0; i < 3; i++)
        begin_waiter(want_range, SYS_fcntl);
}

static void deleted(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;

    listener = socket(AF_INET, SOCK_STREAM, 0);
    wl_check(bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 5) == 0, "bind");
    getsockname(listener, (struct sockaddr *)&at, &len);
    port = ntohs(at.sin_port);
    begin_holder(hold_in_recv);
    /* The name goes before anybody waits: they have it open already. */
    for (int i = 0; i < 5; i++) {
        inherited = open_at("");
        begin_waiter(want_flock, SYS_flock);
    }
    unlink(path);
}

static void inherit(void)
{
    taker = wl_fork(take_and_die);
    await_ready(1);
    waitpid(taker, NULL, 0);
    holders[nholders++] = shared->child;
    begin_waiter(want_flock, SYS_flock);
}

static void ofd(void)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);

    wl_check(fd >= 0 && fcntl(fd, F_OFD_SETLK, &range) == 0, "F_OFD_SETLK");
    inherited = fd;
    holders[nholders++] = getpid();
    begin_holder(child_of_ofd);
    begin_waiter(want_ofd, SYS_fcntl);
}

static void abba(void)
{
    /* Neither blocks before both hold. */
    void (*run[])(void) = {ab, ba};
    for (int i = 0; i < 2; i++) {
        waiting[nwaiting].call = SYS_flock;
        waiting[nwaiting++].tid = wl_fork(run[i]);
    }
    for (int i = 0; i < 2; i++) {
        holders[nholders++] = waiting[i].tid;
        wl_settle(waiting[i].tid, &waiting[i], 1);
    }
}

static void poller(void)
{
    begin_holder(hold_flock);
    holders[nholders++] = wl_fork(retry);
    await_ready(2);
}

static void sqlite(void)
{
    range.l_start = SQLITE_RESERVED;
    range.l_len = 1;
    begin_holder(hold_range);
    begin_waiter(want_range, SYS_fcntl);
}

static void readers(void)
{
    range.l_type = F_RDLCK;
    begin_holder(hold_range);
    begin_holder(hold_range);
    range.l_type = F_WRLCK;
    range.l_start = 100;
    range.l_len = 100;
    begin_waiter(want_range, SYS_fcntl);
}

static void self(void)
{
    begin_waiter(want_itself, SYS_flock);
    holders[nholders++] = waiting[0].tid;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*make)(void);
    } scenes[] = {{"queue", queue},   {"deleted", deleted}, {"inherit", inherit},
                  {"self", self},     {"ofd", ofd},         {"abba", abba},
                  {"poller", poller}, {"sqlite", sqlite},   {"readers", readers}};
    const char *scene;
    int made = 0;

    wl_start(argc, argv);
    path = wl_arg_text("file", NULL);
    scene = wl_arg_text("scene", "");
    wl_check(path, "which file? give: file PATH");
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    wl_check(shared != MAP_FAILED, "mmap");
    wl_check(pipe2(life, O_CLOEXEC) == 0, "pipe2");
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        if (!strcmp(scene, scenes[i].name)) {
            scenes[i].make();
            made = 1;
        }
    }
    wl_check(made, "no such scene");
    char *waiters = wl_tids(waiting, nwaiting), *held = wl_list(nholders, wl_item_int, holders);
    wl_say("{\"pid\":%d,\"path\":\"%s\",\"waiters\":%d,\"waiter_pids\":%s,\"holder_pids\":%s,"
           "\"port\":%d,\"taker\":%d}\n",
           nwaiting ? waiting[0].tid : holders[nholders - 1], path, nwaiting, waiters, held, port,
           taker);
    return wl_serve(NULL);
}

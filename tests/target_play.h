/*
 * target_play.h - processes that take locks or are of another user, to be found by target.h, and
 * looks at what it finds. Include it behind cmocka.h.
 */
#ifndef LT_TARGET_PLAY_H
#define LT_TARGET_PLAY_H

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/compiler.h"
#include "../src/err.h"
#include "../src/proclist.h"
#include "../src/target.h"

#define PATIENCE (30 * NSEC_PER_SEC)

static char err[512];
static int status;

static inline struct target *seek(struct target_spec spec)
{
    status = -1;
    return target_new(&spec, -1, err, sizeof(err), &status);
}

/* A look that is made anew. */
static inline size_t look(struct target *t, const pid_t **pids)
{
    target_look_anew(t);
    return target_list(t, clock_mono(), pids);
}

static inline bool lists(struct target *t, pid_t pid)
{
    const pid_t *pids;
    size_t n = look(t, &pids);

    for (size_t i = 0; i < n; i++) {
        if (pids[i] == pid)
            return true;
    }
    return false;
}

/* Looks until exactly the N processes WANT, in ascending order, are listed. */
static inline void await_list(struct target *t, const pid_t *want, size_t n)
{
    nsec_t deadline = clock_mono() + PATIENCE;
    const pid_t *got;
    size_t ngot;

    while ((ngot = look(t, &got)) != n || (n && memcmp(got, want, n * sizeof(*got)) != 0)) {
        if (clock_mono() > deadline)
            fail_msg("%zu processes, the first %d, are listed; wanted %zu, %d", ngot,
                     ngot ? (int)got[0] : 0, n, n ? (int)want[0] : 0);
        usleep(2000);
    }
}

static inline void await_pair(struct target *t, pid_t a, pid_t b)
{
    pid_t want[] = {MIN(a, b), MAX(a, b)};

    await_list(t, want, 2);
}

/* Processes to look at --------------------------------------------------------------------- */

/* What a process is to do before it sleeps. */
struct role {
    uid_t uid;        /* to become; 0: stay */
    bool undumpable;  /* its memory is not for others, even of its user */
    const char *path; /* a file to lock; NULL */
    int kind;         /* of the lock: LOCK_EX, LOCK_SH, or one of those below */
    bool by_child;    /* a child has the descriptor as well, and is told in place of this one */
    bool by_orphan;   /* as that, and its parent ends; this one closes the descriptor */
};
enum { KIND_POSIX = 0x100, KIND_OFD, KIND_LEASE };

static inline bool become(uid_t uid)
{
    return setgroups(0, NULL) == 0 && setgid(uid) == 0 && setuid(uid) == 0;
}

static inline bool take_lock(int fd, int kind)
{
    struct flock whole = {.l_type = F_WRLCK};

    if (kind == KIND_POSIX)
        return fcntl(fd, F_SETLKW, &whole) == 0;
    if (kind == KIND_OFD)
        return fcntl(fd, F_OFD_SETLKW, &whole) == 0;
    if (kind == KIND_LEASE)
        return fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
    return flock(fd, kind) == 0;
}

static inline void NORETURN sleep_for_ever(void)
{
    for (;;)
        pause();
}

/* Only a pipe end tells its writer's PID: it is written by the one that is told of. */
static inline void NORETURN tell_and_sleep(int ready)
{
    pid_t self = getpid();

    if (write(ready, &self, sizeof(self)) != sizeof(self))
        _exit(1);
    close(ready);
    alarm(600); /* nobody else ends an orphan when the test is cut short */
    sleep_for_ever();
}

static inline void NORETURN pass_on(const struct role *r, int fd, int ready)
{
    pid_t child = fork();

    if (child == 0 && (!r->by_orphan || fork() == 0))
        tell_and_sleep(ready);
    if (child == 0)
        _exit(0);
    if (r->by_orphan) {
        waitpid(child, NULL, 0);
        close(fd);
    }
    close(ready);
    sleep_for_ever();
}

static inline void NORETURN play(const struct role *r, int ready)
{
    if (r->uid && !become(r->uid))
        _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of user takes these back */
    prctl(PR_SET_DUMPABLE, !r->undumpable);
    int fd = r->path ? open(r->path, O_RDWR | O_CLOEXEC) : -1;
    if (r->path && !take_lock(fd, r->kind))
        _exit(1);
    if (r->by_child || r->by_orphan)
        pass_on(r, fd, ready);
    tell_and_sleep(ready);
}

/* Starts one. *TOLD, unless NULL, gets the PID of whom to expect once the role is played; without
 * it the process may still be at it, as who waits for a lock stays. */
static inline pid_t begin(struct role r, pid_t *told)
{
    int ready[2];

    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        play(&r, ready[1]);
    close(ready[1]);
    if (told)
        assert_int_equal(read(ready[0], told, sizeof(*told)), sizeof(*told));
    close(ready[0]);
    return pid;
}

static inline pid_t settled(struct role r)
{
    pid_t told;

    return begin(r, &told);
}

static inline void end(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

#endif

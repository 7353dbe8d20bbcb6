/*
 * stack_child.h - processes blocked in known functions, and their stacks, for the tests of
 * unwinding. Functions of the test lie at the same addresses in its children. Include it behind
 * cmocka.h.
 */
#ifndef LT_TESTS_STACK_CHILD_H
#define LT_TESTS_STACK_CHILD_H

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../src/clock.h"
#include "../src/procfs.h"
#include "../src/stack.h"

/* Shared by the test and its child. */
struct room {
    _Atomic pid_t tid;
    atomic_int word;    /* a futex on which the thread blocks while it is 0 */
    _Atomic uint64_t a; /* for the child to tell */
};

struct child {
    pid_t pid, tid;
    struct room *room;
    int dirfd;
    struct module_set *set;
    struct space *space;
    struct unwinder *unwinder;
    struct procfs_syscall call; /* of TID */
    struct stack_copy copy;
    uint8_t bytes[65536];
};

/* The room of this process, for its own functions. */
static struct room *the_room;

static inline void read_call(struct child *c)
{
    char rel[32], text[256];

    snprintf(rel, sizeof(rel), "task/%d/syscall", c->tid);
    assert_true(procfs_slurp(c->dirfd, rel, text, sizeof(text)) > 0);
    assert_true(procfs_parse_syscall(text, &c->call));
}

/* Waits until thread TID blocks in futex on the room's word, and reads its stack. */
static inline void await_block(struct child *c)
{
    nsec_t end = clock_mono() + 20 * NSEC_PER_SEC;

    for (;;) {
        read_call(c);
        if (c->call.kind == SYSCALL_BLOCKED && c->call.nr == SYS_futex &&
            c->call.arg[0] == (uintptr_t)&c->room->word)
            break;
        if (clock_mono() > end)
            fail_msg("thread %d never blocked", c->tid);
        nanosleep(&(struct timespec){.tv_nsec = NSEC_PER_MSEC}, NULL);
    }
    struct remote_item item = {
        .addr = c->call.sp - STACK_RED_ZONE, .dst = c->bytes, .len = sizeof(c->bytes)};
    assert_true(remote_read(c->pid, &item, 1) >= 0);
    c->copy = (struct stack_copy){item.addr, c->bytes, item.got};
}

/* A child whose main thread runs BODY, which blocks a thread and tells which in the room. */
static inline struct child *child_new(void (*body)(void))
{
    struct child *c = calloc(1, sizeof(*c));
    char path[32];
    int err = 0;

    c->room =
        mmap(NULL, sizeof(*c->room), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    the_room = c->room;
    c->pid = fork();
    if (c->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        body();
        _exit(99);
    }
    while (!atomic_load(&c->room->tid))
        nanosleep(&(struct timespec){.tv_nsec = NSEC_PER_MSEC}, NULL);
    c->tid = atomic_load(&c->room->tid);
    snprintf(path, sizeof(path), "/proc/%d", c->pid);
    c->dirfd = open(path, O_DIRECTORY | O_CLOEXEC);
    await_block(c);
    c->set = module_set_new();
    c->space = space_new(c->set, c->dirfd, c->pid, c->tid, remote_read, &err);
    assert_non_null(c->space);
    c->unwinder = unwinder_new();
    return c;
}

static inline void child_free(struct child *c)
{
    kill(c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
    unwinder_free(c->unwinder);
    space_free(c->space);
    module_set_free(c->set);
    close(c->dirfd);
    munmap(c->room, sizeof(*c->room));
    free(c);
}

static inline void unwind(struct child *c, struct stack *out)
{
    const struct stack_regs regs = {.pc = c->call.pc, .sp = c->call.sp};

    stack_unwind(c->unwinder, c->space, &regs, &c->copy, out);
}

/* For the child's side: blocks for ever. The system call is in the C library, as elsewhere. */
static inline void block_here(void)
{
    atomic_store(&the_room->tid, (pid_t)syscall(SYS_gettid));
    while (atomic_load(&the_room->word) == 0)
        syscall(SYS_futex, &the_room->word, 0 /* FUTEX_WAIT */, 0, NULL, NULL, 0);
}

#endif

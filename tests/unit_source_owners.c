/* unit_source_owners - what a TID belongs to that a lock names and the process does not have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/procfs.h"
#include "../src/source_owners.h"

#define CHILD 777777 /* of the process that waits; nobody looks it up */

static int rootfd = -1;

static int open_root(void **state)
{
    (void)state;
    rootfd = procfs_open_root("/proc");
    return rootfd < 0;
}

static int close_root(void **state)
{
    (void)state;
    return close(rootfd);
}

/* The answer for TID, asked for a process whose parent is PPID. */
static struct owner_fact ask(pid_t ppid, pid_t tid)
{
    struct owners o = {0};
    size_t n;

    owners_ask(&o, CHILD, ppid, tid);
    const struct owner_fact *f = owners_serve(&o, rootfd, &n);
    assert_int_equal(n, 1);
    assert_int_equal(f->pid, CHILD);
    assert_int_equal(f->tid, tid);
    return *f;
}

struct helper {
    pthread_t thread;
    pthread_barrier_t met, end;
    pid_t tid;
};

static void *help(void *arg)
{
    struct helper *h = arg;

    h->tid = (pid_t)syscall(SYS_gettid);
    pthread_barrier_wait(&h->met);
    pthread_barrier_wait(&h->end);
    return NULL;
}

static void helper_start(struct helper *h)
{
    pthread_barrier_init(&h->met, NULL, 2);
    pthread_barrier_init(&h->end, NULL, 2);
    assert_int_equal(pthread_create(&h->thread, NULL, help, h), 0);
    pthread_barrier_wait(&h->met);
}

static void helper_end(struct helper *h)
{
    pthread_barrier_wait(&h->end);
    pthread_join(h->thread, NULL);
    pthread_barrier_destroy(&h->met);
    pthread_barrier_destroy(&h->end);
}

/* A thread that is no leader is found by its TID too. */
static void test_thread_of_the_parent(void **state)
{
    (void)state;
    struct helper h;
    struct procfs_stat me;
    char path[32];

    helper_start(&h);
    struct owner_fact f = ask(getpid(), h.tid);
    snprintf(path, sizeof(path), "%d/stat", getpid());
    assert_int_equal(procfs_read_stat(rootfd, path, &me), 0);
    assert_int_equal(f.tgid, getpid());
    assert_true(f.parent);
    assert_true(f.start_ticks >= me.start_ticks);
    assert_memory_equal(f.comm, me.comm, strnlen(me.comm, COMM_LEN - 1));
    assert_false(ask(1, h.tid).parent);
    assert_int_equal(me.ppid, getppid());
    helper_end(&h);
}

static void test_ended_thread(void **state)
{
    (void)state;
    struct helper h;

    helper_start(&h);
    helper_end(&h);
    /* A join ends a moment before the thread is gone from /proc. */
    struct owner_fact f = ask(getpid(), h.tid);
    for (int i = 0; i < 10000 && f.tgid != 0; i++) {
        usleep(1000);
        f = ask(getpid(), h.tid);
    }
    assert_int_equal(f.tgid, 0);
    assert_false(f.parent);
}

/* One that has exited and is not reaped holds nothing that it could release. */
static void test_zombie(void **state)
{
    (void)state;
    siginfo_t info;
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(ask(getpid(), pid).tgid, 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(ask(getpid(), pid).tgid, 0);
}

static void test_asked_once_and_not_too_much(void **state)
{
    (void)state;
    struct owners o = {0};
    size_t n;

    owners_ask(&o, 1, 0, 4000000);
    owners_ask(&o, 1, 0, 4000000);
    owners_ask(&o, 2, 0, 4000000);
    const struct owner_fact *f = owners_serve(&o, rootfd, &n);
    assert_int_equal(n, 2);
    assert_int_equal(f[1].pid, 2);
    owners_serve(&o, rootfd, &n);
    assert_int_equal(n, 0);
    for (pid_t i = 0; i < 2 * OWNERS_MAX; i++)
        owners_ask(&o, 1, 0, 4000000 + i);
    owners_serve(&o, rootfd, &n);
    assert_int_equal(n, OWNERS_MAX);
}

static void put_file(int dirfd, const char *name, const char *text)
{
    int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

/* What the kernel would not have written is no answer, and above all not "gone". */
static void test_garbage_is_no_answer(void **state)
{
    (void)state;
    char dir[] = "/tmp/unit_owners.XXXXXX";
    struct owners o = {0};
    size_t n;

    assert_non_null(mkdtemp(dir));
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    assert_int_equal(mkdirat(fd, "55", 0700), 0);
    put_file(fd, "55/stat", "55 (x) S nonsense\n");
    put_file(fd, "55/status", "Tgid:\t55\n");
    owners_ask(&o, 1, 0, 55);
    owners_serve(&o, fd, &n);
    assert_int_equal(n, 0);
    assert_int_equal(unlinkat(fd, "55/stat", 0), 0);
    assert_int_equal(unlinkat(fd, "55/status", 0), 0);
    assert_int_equal(unlinkat(fd, "55", AT_REMOVEDIR), 0);
    close(fd);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thread_of_the_parent),
        cmocka_unit_test(test_ended_thread),
        cmocka_unit_test(test_zombie),
        cmocka_unit_test(test_asked_once_and_not_too_much),
        cmocka_unit_test(test_garbage_is_no_answer),
    };
    return cmocka_run_group_tests(tests, open_root, close_root);
}

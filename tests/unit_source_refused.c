/* What may not be looked into, by whom it may not, and what becomes of that. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "source_child.h"

static void wait_sleep(struct room *r UNUSED)
{
    nanosleep(&(struct timespec){.tv_sec = 1000}, NULL);
}

static int four_threads(struct room *r)
{
    for (int i = 0; i < 3; i++)
        room_thread(r, i, wait_sleep);
    return be_ready(r);
}

static void test_permitted(void **state UNUSED)
{
    struct room *r = room_new();
    pid_t pid = child_start(r, be_ready);
    char why[256] = "unset";
    struct watch w;

    watch_pid(&w, &pid);
    assert_true(source_proc_permitted(w.source, why, sizeof(why)));
    assert_string_equal(why, "unset");
    watch_end(&w);
    child_kill(pid);
    room_free(r);
}

/* The children of the test, without rights, look at others: no assertions here, but a status. */
static bool become_nobody(void)
{
    return setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0;
}

static bool is_refused_all(const struct process_fact *p)
{
    for (size_t i = 0; i < p->nthreads; i++) {
        const struct thread_fact *f = &p->threads[i];
        if (f->seen != SEEN_UNREADABLE || f->futex.addr || f->word != -1 || f->fd != -1)
            return false;
    }
    return p->refused_errno == EACCES || p->refused_errno == EPERM;
}

/* Sweeps for a while. */
static void sweep_for(struct source *source, struct sample *s, nsec_t length)
{
    for (nsec_t end = clock_mono() + length; clock_mono() < end; nap())
        source->ops->sweep(source, s);
}

/* One process that it may not look into, and itself. */
static int look_as_nobody(struct room *r)
{
    pid_t pids[] = {atomic_load(&r->go), getpid()};
    struct source_proc_config cfg = {
        .root = "/proc", .pids = pids, .npids = 1, .read_memory = remote_read};
    char why[256] = "";
    struct sample s;
    int err;

    if (!become_nobody() || prctl(PR_SET_DUMPABLE, 1) != 0)
        return 2;
    struct source *source = source_proc_new(&cfg, &err);
    if (!source || source_proc_permitted(source, why, sizeof(why)) || !strstr(why, "process"))
        return 3;
    source->ops->free(source);
    cfg.npids = 2;
    source = source_proc_new(&cfg, &err);
    for (int i = 0; i < 3; i++) {
        if (source->ops->sweep(source, &s) != 2)
            return 4;
    }
    const struct process_fact *p = process_in(&s, pids[0]);
    if (s.nprocesses != 2 || p->nthreads != 4 || s.self.vanished || !is_refused_all(p))
        return 5;
    if (process_in(&s, pids[1])->refused_errno || thread_in(&s, pids[1])->seen == SEEN_UNREADABLE)
        return 6;
    if (s.self.unreadable != 4 || s.self.denied_errno != p->refused_errno)
        return 7; /* each was tried once */
    sweep_for(source, &s, 1500 * NSEC_PER_MSEC);
    if (s.self.unreadable < 5 || s.self.unreadable > 7)
        return 8; /* two are tried again once a second */
    source->ops->free(source);
    return 0;
}

/* What it may not look into at first is opened to it. */
static int look_until_permitted(struct room *r)
{
    pid_t pid = atomic_load(&r->go);
    const struct source_proc_config cfg = {
        .root = "/proc", .pids = &pid, .npids = 1, .read_memory = remote_read};
    struct sample s;
    int err;

    if (!become_nobody())
        return 2;
    struct source *source = source_proc_new(&cfg, &err);
    sweep_for(source, &s, 100 * NSEC_PER_MSEC);
    if (!is_refused_all(&s.processes[0]))
        return 3;
    atomic_store(&r->ready, 1);
    nsec_t end = clock_mono() + PATIENCE;
    while (s.processes[0].refused_errno && clock_mono() < end) {
        nap();
        source->ops->sweep(source, &s);
    }
    source->ops->sweep(source, &s);
    for (size_t i = 0; i < s.processes[0].nthreads; i++) {
        if (s.processes[0].threads[i].seen != SEEN_CALL)
            return 4;
    }
    bool refused = s.processes[0].refused_errno || s.self.denied_errno;
    source->ops->free(source);
    return refused ? 5 : 0;
}

static int open_up_when_told(struct room *r)
{
    room_thread(r, 0, wait_sleep);
    room_thread(r, 1, wait_sleep);
    if (!become_nobody())
        return 2;
    atomic_store(&r->ready, 1);
    await_value(&r->go);
    prctl(PR_SET_DUMPABLE, 1);
    return be_ready(r);
}

static void assert_result(pid_t pid, int expected)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), expected);
}

static void test_not_permitted(void **state UNUSED)
{
    if (getuid() != 0)
        skip(); /* only root can become somebody else */
    struct room *r = room_new(), *looker = room_new();
    pid_t pid = child_start(r, four_threads);

    await_value(&r->ready);
    atomic_store(&looker->go, pid);
    assert_result(child_start(looker, look_as_nobody), 0);
    child_kill(pid);
    room_free(looker);
    room_free(r);
}

static bool yama_is_on(void)
{
    char scope = '0';
    int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    if (read(fd, &scope, 1) != 1)
        scope = '0';
    close(fd);
    return scope != '0';
}

static void test_permitted_later(void **state UNUSED)
{
    if (getuid() != 0 || yama_is_on())
        skip(); /* only root can become somebody else, and only some may look at each other */
    struct room *r = room_new(), *looker = room_new();
    pid_t pid = child_start(r, open_up_when_told);

    await_value(&r->ready);
    atomic_store(&looker->go, pid);
    pid_t other = child_start(looker, look_until_permitted);
    await_value(&looker->ready);
    atomic_store(&r->go, 1);
    assert_result(other, 0);
    child_kill(pid);
    room_free(looker);
    room_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(test_permitted),
        leak_test(test_not_permitted),
        leak_test(test_permitted_later),
    };

    return cmocka_run_group_tests_name("source_refused", tests, NULL, NULL);
}

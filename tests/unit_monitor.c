#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#include <cmocka.h>

#include "../src/err.h"
#include "../src/monitor.h"
#include "source_child.h"

#define WAITERS 4

/* libproc2 keeps buffers for each thread that uses it, and frees none of them. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libproc2.so\nleak:libprocps.so\n";
}

static char err[512];
static int status;

/* A target that is contended: WAITERS threads wait for a mutex that the leader holds. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void wait_mutex(struct room *r UNUSED)
{
    pthread_mutex_lock(&mutex);
}

static int contended(struct room *r)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < WAITERS; i++)
        room_thread(r, i, wait_mutex);
    return be_ready(r);
}

static pid_t start_contended(struct room **r)
{
    *r = room_new();
    pid_t pid = child_start(*r, contended);
    await_value(&(*r)->ready);
    return pid;
}

static void end_contended(struct room *r, pid_t pid)
{
    child_kill(pid);
    room_free(r);
}

static struct target *target_of(pid_t *pids, size_t n)
{
    struct target_spec spec = {.pids = pids, .npids = n};
    struct target *t = target_new(&spec, -1, err, sizeof(err), &status);

    assert_non_null(t);
    assert_string_equal(err, "");
    return t;
}

static const struct monitor_config quick = {
    .delay = 20 * NSEC_PER_MSEC, .rate_hz = 100, .budget_pct = 100};

static struct monitor *start(struct target *t)
{
    struct monitor *m = monitor_start(t, &quick, err, sizeof(err), &status);

    if (!m)
        fail_msg("%s", err);
    return m;
}

/* The next snapshot, or NULL when the monitor has ended. Safe in any thread: asserts nothing. */
static struct snapshot *next(struct monitor *m)
{
    for (;;) {
        struct pollfd p = {.fd = monitor_fd(m), .events = POLLIN};
        if (poll(&p, 1, (int)(PATIENCE / NSEC_PER_MSEC)) != 1)
            return NULL;
        struct snapshot *s = monitor_take(m);
        if (s || monitor_ended(m))
            return s;
    }
}

static const struct snap_lock *contended_lock(const struct snapshot *s)
{
    return s->nlocks == 1 && s->locks[0].waiters == WAITERS ? &s->locks[0] : NULL;
}

/* ---------------------------------------------------------------------------------------- */

static void test_truth(void **state UNUSED)
{
    struct room *r;
    pid_t pid = start_contended(&r);
    struct target *t = target_of(&pid, 1);
    struct monitor *m = start(t);
    struct snapshot *s;
    nsec_t end = clock_mono() + PATIENCE;

    while ((s = next(m)) && !(contended_lock(s) && contended_lock(s)->nholders)) {
        snapshot_free(s);
        if (clock_mono() > end)
            fail_msg("the waiters were never shown");
    }
    assert_non_null(s);
    const struct snap_lock *l = contended_lock(s);
    assert_int_equal(l->kind, KIND_MUTEX);
    assert_int_equal(l->pid, pid);
    assert_int_equal(l->holders[0].tid, pid);
    assert_int_equal(s->nprocesses, 1);
    assert_true(s->processes[0].threads >= WAITERS + 1); /* a sanitizer adds its own */
    assert_true(s->host[0] && s->kernel[0] && s->cpus > 0);
    assert_false(monitor_ended(m));
    monitor_stop(m);
    assert_int_equal(l->waiters, WAITERS); /* what was taken lives on its own */
    snapshot_free(s);
    target_free(t, 0);
    end_contended(r, pid);
}

static void test_nobody_takes(void **state UNUSED)
{
    struct room *r;
    pid_t pid = start_contended(&r);
    struct target *t = target_of(&pid, 1);
    struct monitor *m = start(t);
    struct pollfd p = {.fd = monitor_fd(m), .events = POLLIN};

    assert_int_equal(poll(&p, 1, (int)(PATIENCE / NSEC_PER_MSEC)), 1);
    struct snapshot *first = monitor_take(m);
    assert_non_null(first);
    /* Several ticks pass; then there is one snapshot, the newest. */
    nsec_t end = clock_mono() + 10 * quick.delay;
    while (clock_mono() < end)
        nap();
    struct snapshot *s = monitor_take(m);
    assert_non_null(s);
    assert_true(s->elapsed > first->elapsed + 2 * quick.delay);
    snapshot_free(first);
    snapshot_free(s);
    end = clock_mono() + 10 * quick.delay;
    while (clock_mono() < end)
        nap();
    monitor_stop(m); /* with one not taken */
    target_free(t, 0);
    end_contended(r, pid);
}

static void test_take_clears(void **state UNUSED)
{
    struct room *r;
    pid_t pid = start_contended(&r);
    struct target *t = target_of(&pid, 1);
    const struct monitor_config cfg = {.delay = 1000 * NSEC_PER_SEC,
                                       .first = 10 * NSEC_PER_MSEC,
                                       .rate_hz = 100,
                                       .budget_pct = 100};
    struct monitor *m = monitor_start(t, &cfg, err, sizeof(err), &status);
    struct pollfd p = {.fd = monitor_fd(m), .events = POLLIN};

    assert_non_null(m);
    assert_int_equal(poll(&p, 1, (int)(PATIENCE / NSEC_PER_MSEC)), 1);
    snapshot_free(monitor_take(m));
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_null(monitor_take(m));
    assert_int_equal(poll(&p, 1, 0), 0);
    nsec_t start_of_stop = clock_mono();
    assert_true(monitor_stop(m));
    assert_true(clock_mono() - start_of_stop < PATIENCE / 2);
    assert_true(monitor_stop(NULL));
    target_free(t, 0);
    end_contended(r, pid);
}

static void test_ended(void **state UNUSED)
{
    struct room *r;
    pid_t pid = start_contended(&r);
    struct target *t = target_of(&pid, 1);
    struct monitor *m = start(t);
    struct snapshot *s = next(m);
    bool told = false;

    assert_non_null(s);
    assert_false(s->processes[0].ended);
    snapshot_free(s);
    kill(pid, SIGKILL);
    while ((s = next(m))) {
        assert_false(told); /* the last one says so */
        told = s->nprocesses == 1 && s->processes[0].ended;
        assert_true(s->nprocesses == 1);
        snapshot_free(s);
    }
    assert_true(told);
    assert_true(monitor_ended(m));
    assert_null(monitor_take(m));
    struct pollfd p = {.fd = monitor_fd(m), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 1); /* and stays so */
    monitor_stop(m);
    target_free(t, 0);
    end_contended(r, pid);
}

/* The last snapshot and the end, both told before anybody listens, then taken one by one. */
static void test_ended_unheard(void **state UNUSED)
{
    struct room *r;
    pid_t pid = start_contended(&r);
    struct target *t = target_of(&pid, 1);
    nsec_t end = clock_mono() + PATIENCE;
    int others = count_entries("/proc/self/task");
    struct monitor *m = start(t);

    kill(pid, SIGKILL);
    /* Until the sampling thread has ended; the inspector stays. */
    while (count_entries("/proc/self/task") > others + 1) {
        nap();
        assert_true(clock_mono() < end);
    }
    struct pollfd p = {.fd = monitor_fd(m), .events = POLLIN};
    assert_false(monitor_ended(m)); /* a snapshot waits */
    assert_int_equal(poll(&p, 1, 0), 1);
    struct snapshot *s = monitor_take(m);
    assert_non_null(s);
    assert_true(s->processes[0].ended);
    snapshot_free(s);
    assert_int_equal(poll(&p, 1, 0), 1);
    assert_null(monitor_take(m));
    assert_true(monitor_ended(m));
    monitor_stop(m);
    target_free(t, 0);
    end_contended(r, pid);
}

static void test_one_of_two_ends(void **state UNUSED)
{
    struct room *r[2];
    pid_t pids[2] = {start_contended(&r[0]), start_contended(&r[1])};
    struct target *t = target_of(pids, 2);
    struct monitor *m = start(t);
    nsec_t end = clock_mono() + PATIENCE;
    bool told = false;
    struct snapshot *s;
    size_t left = 2;

    kill(pids[0], SIGKILL);
    while (left != 1 || !told) {
        s = next(m);
        assert_non_null(s);
        left = s->nprocesses;
        for (size_t i = 0; i < s->nprocesses; i++)
            told |= s->processes[i].pid == pids[0] && s->processes[i].ended;
        snapshot_free(s);
        if (clock_mono() > end)
            fail_msg("the end of one of two processes was not shown");
    }
    assert_false(monitor_ended(m));
    monitor_stop(m);
    target_free(t, 0);
    end_contended(r[0], pids[0]);
    end_contended(r[1], pids[1]);
}

/* Gone between the look at the target and the first sweep. */
static void test_gone_before_the_start(void **state UNUSED)
{
    struct room *r;
    pid_t pid = start_contended(&r);
    struct target *t = target_of(&pid, 1);

    end_contended(r, pid);
    struct monitor *m = monitor_start(t, &quick, err, sizeof(err), &status);
    if (m) { /* it ends by itself */
        nsec_t end = clock_mono() + PATIENCE;
        while (!monitor_ended(m)) {
            snapshot_free(next(m));
            assert_true(clock_mono() < end);
        }
        monitor_stop(m);
    } else {
        assert_int_equal(status, EXIT_NOTHING);
        assert_true(err[0]);
    }
    target_free(t, 0);
}

/* The signals that the other thread of this process blocks; 0 when there is none. */
static unsigned long long blocked_by_thread(void)
{
    unsigned long long mask = 0;
    char path[300], line[256];
    DIR *d = opendir("/proc/self/task");
    struct dirent *e;

    assert_non_null(d);
    while ((e = readdir(d))) {
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
        FILE *f = atoi(e->d_name) > 0 && atoi(e->d_name) != getpid() ? fopen(path, "r") : NULL;
        while (f && fgets(line, sizeof(line), f) && sscanf(line, "SigBlk: %llx", &mask) != 1)
            continue;
        if (f)
            fclose(f);
    }
    closedir(d);
    return mask;
}

/* Signals are for the main thread; but a fault of this one must not pass by the handlers. */
static void test_signals_of_the_thread(void **state UNUSED)
{
    struct room *r;
    pid_t pid = start_contended(&r);
    struct target *t = target_of(&pid, 1);

    if (blocked_by_thread() != 0) {
        target_free(t, 0);
        end_contended(r, pid);
        skip(); /* a sanitizer's own thread is here */
    }
    struct monitor *m = start(t);
    snapshot_free(next(m)); /* by now it has started */
    unsigned long long mask = blocked_by_thread();
    assert_true(mask & 1ULL << (SIGTERM - 1) && mask & 1ULL << (SIGWINCH - 1));
    assert_false(mask & 1ULL << (SIGSEGV - 1) || mask & 1ULL << (SIGBUS - 1));
    assert_true(monitor_stop(m));
    target_free(t, 0);
    end_contended(r, pid);
}

/* A target whose memory cannot be read to its end: whoever tries hangs in the kernel. ---------- */

#define HANG_ABSENT 77 /* this machine does not allow it */

/* Makes the page at P one that nobody ever fills in. */
static bool never_fill(void *p, size_t size)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.range = {(uintptr_t)p, size},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};

    return fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 &&
           ioctl(fd, UFFDIO_REGISTER, &range) == 0;
}

static void wait_at_the_edge(struct room *r)
{
    uint32_t *word = (uint32_t *)(uintptr_t)atomic_load(&r->addr);

    for (;;)
        futex(word, FUTEX_WAIT_PRIVATE, 2, NULL);
}

/* The word lies at the end of a page that is there, and what stands around it on the next one. */
static int be_unreadable(struct room *r)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED || !never_fill(p + page, page)) {
        atomic_store(&r->ready, HANG_ABSENT);
        return HANG_ABSENT;
    }
    uint32_t *word = (uint32_t *)(p + page) - 1;
    *word = 2;
    atomic_store(&r->addr, (uint64_t)(uintptr_t)word);
    room_thread(r, 0, wait_at_the_edge);
    return be_ready(r);
}

/* In a child: what hangs is left behind there, with all its memory. */
static int watch_unreadable(struct room *r)
{
    struct room *theirs = room_new();
    pid_t pid = child_start(theirs, be_unreadable);
    struct target_spec spec = {.pids = &pid, .npids = 1};
    int result = HANG_ABSENT;

    atomic_store(&r->go, pid);
    if (await_value(&theirs->ready) != HANG_ABSENT) {
        struct target *t = target_new(&spec, -1, err, sizeof(err), &status);
        struct monitor *m = t ? monitor_start(t, &quick, err, sizeof(err), &status) : NULL;
        for (int i = 0; m && i < 300; i++) /* meanwhile it looks at the memory */
            nap();
        result = !m ? 1 : monitor_stop(m) ? 2 : 0;
    }
    child_kill(pid);
    return result;
}

static void test_stop_leaves_behind(void **state UNUSED)
{
    struct room *r = room_new();
    pid_t pid = child_start(r, watch_unreadable);
    int result;

    assert_int_equal(waitpid(pid, &result, 0), pid);
    room_free(r);
    assert_true(WIFEXITED(result));
    if (WEXITSTATUS(result) == HANG_ABSENT)
        skip();
    assert_int_equal(WEXITSTATUS(result), 0);
}

/* Two threads, each with monitors of its own ------------------------------------------------ */

#define ROUNDS 25

struct user {
    struct target *target;
    int failed; /* round in which something was wrong, from 1 */
};

static bool one_round(struct user *u, int takes)
{
    char why[256];
    int rc;
    struct monitor *m = monitor_start(u->target, &quick, why, sizeof(why), &rc);
    bool ok = m != NULL;

    for (int i = 0; ok && i < takes; i++) {
        struct snapshot *s = next(m);
        ok = s && s->nprocesses == 1 && s->processes[0].threads <= 2 * WAITERS;
        snapshot_free(s);
    }
    monitor_stop(m);
    return ok;
}

static void *use(void *arg)
{
    struct user *u = arg;

    for (int i = 0; i < ROUNDS && !u->failed; i++) {
        if (!one_round(u, i % 4)) /* 0: stopped at once */
            u->failed = i + 1;
    }
    return NULL;
}

static void test_two_threads(void **state UNUSED)
{
    struct room *r;
    pid_t pid = start_contended(&r);
    struct user users[2] = {{.target = target_of(&pid, 1)}, {.target = target_of(&pid, 1)}};
    pthread_t threads[2];

    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(users[i].failed, 0);
        target_free(users[i].target, 0);
    }
    end_contended(r, pid);
}

/* Permission ----------------------------------------------------------------------------------- */

static int start_as_nobody(struct room *r)
{
    pid_t pid = atomic_load(&r->go);
    struct target_spec spec = {.pids = &pid, .npids = 1};
    int rc = -1;

    if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0)
        return 2;
    struct target *t = target_new(&spec, -1, err, sizeof(err), &rc);
    if (!t)
        return 3;
    if (monitor_start(t, &quick, err, sizeof(err), &rc))
        return 4;
    char number[16];
    snprintf(number, sizeof(number), "%d", pid);
    if (rc != EXIT_NOTHING || !strstr(err, number))
        return 5;
    target_free(t, 0);
    return 0;
}

static void test_not_permitted(void **state UNUSED)
{
    if (getuid() != 0)
        skip(); /* only root can become somebody else */
    struct room *r, *looker = room_new();
    pid_t pid = start_contended(&r);
    int result;

    atomic_store(&looker->go, pid);
    pid_t other = child_start(looker, start_as_nobody);
    assert_int_equal(waitpid(other, &result, 0), other);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
    room_free(looker);
    end_contended(r, pid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(test_not_permitted), /* it forks: while there is one thread only */
        leak_test(test_stop_leaves_behind),
        leak_test(test_signals_of_the_thread),
        leak_test(test_truth),
        leak_test(test_nobody_takes),
        leak_test(test_take_clears),
        leak_test(test_ended),
        leak_test(test_ended_unheard),
        leak_test(test_one_of_two_ends),
        leak_test(test_gone_before_the_start),
        leak_test(test_two_threads),
    };

    return cmocka_run_group_tests_name("monitor", tests, NULL, NULL);
}

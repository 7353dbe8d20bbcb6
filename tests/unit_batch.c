#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#include <cmocka.h>
#include <jansson.h>

#include "../src/batch.h"
#include "../src/err.h"
#include "source_child.h"

/* So many that a snapshot does not fit into the smallest pipe. */
#define WAITERS 64

/*
 * Each test starts a runner, a process that calls batch_run() on children of its own with its
 * standard output and error redirected, and reads what comes.
 */
struct runner {
    pid_t pid;
    int out, err;      /* our ends of its stdout and stderr; OUT -1: it went elsewhere */
    struct room *room; /* tid[0], tid[1]: the targets */
};

struct plan {
    struct batch_config batch;
    int targets;
    const char *out; /* where its output goes; NULL: a pipe */
    nsec_t delay;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void wait_mutex(struct room *r UNUSED)
{
    pthread_mutex_lock(&mutex);
}

static int be_target(struct room *r)
{
    const char name[] = {'l', 't', '\n', '\033', (char)('A' + atomic_load(&r->go)), '\0'};

    prctl(PR_SET_NAME, name);
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < WAITERS; i++)
        room_thread(r, i, wait_mutex);
    return be_ready(r);
}

/* In the runner. */
static int watch_and_run(struct room *r, const struct plan *plan)
{
    pid_t pids[2];
    char err[256];
    int status;

    for (int i = 0; i < plan->targets; i++) {
        struct room *theirs = room_new();
        atomic_store(&theirs->go, i);
        pids[i] = child_start(theirs, be_target);
        await_value(&theirs->ready);
        room_free(theirs);
        atomic_store(&r->tid[i], pids[i]);
    }
    struct target_spec spec = {.pids = pids, .npids = (size_t)plan->targets};
    struct target *t = target_new(&spec, -1, err, sizeof(err), &status);
    const struct monitor_config cfg = {.delay = plan->delay, .rate_hz = 100, .budget_pct = 100};
    struct monitor *m = t ? monitor_start(t, &cfg, err, sizeof(err), &status) : NULL;
    if (!m) {
        warn_msg("%s", err);
        return 90;
    }
    struct batch_config batch = plan->batch;
    batch.sort = COL_AVG10;
    batch.ascii = true;
    atomic_store(&r->ready, 1);
    status = batch_run(m, &batch);
    atomic_store(&r->go, 1); /* it came back: it was not killed */
    monitor_stop(m);
    target_free(t, 0);
    for (int i = 0; i < plan->targets; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    return status;
}

static struct runner run(const struct plan *plan)
{
    struct runner r = {.room = room_new()};
    int out[2], errors[2];

    fflush(stdout);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(errors, O_CLOEXEC), 0);
    r.pid = fork();
    if (r.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (plan->out)
            out[1] = open(plan->out, O_WRONLY | O_CLOEXEC);
        close(out[0]);
        dup2(out[1], STDOUT_FILENO);
        dup2(errors[1], STDERR_FILENO);
        close(out[1]);
        close(errors[1]);
        exit(watch_and_run(r.room, plan)); /* as main() does: leaks are looked for */
    }
    close(out[1]);
    close(errors[1]);
    r.out = out[0];
    r.err = errors[0];
    return r;
}

/* All that comes until the writer has closed it, NUL-terminated; to be freed. */
static char *read_all(int fd)
{
    size_t cap = 1 << 22, n = 0;
    char *text = malloc(cap);
    ssize_t got;

    while ((got = read(fd, text + n, cap - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = '\0';
    return text;
}

/* Reads up to the end of the first line. */
static void read_line(int fd)
{
    char c = 0;

    while (c != '\n')
        assert_int_equal(read(fd, &c, 1), 1);
}

/* The exit status of the runner; its stderr goes to *ERRORS. */
static int finish(struct runner *r, char **errors)
{
    int status;

    *errors = read_all(r->err);
    assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
    assert_true(WIFEXITED(status));
    close(r->out);
    close(r->err);
    room_free(r->room);
    return WEXITSTATUS(status);
}

static int count(const char *text, const char *what)
{
    int n = 0;

    while ((text = strstr(text, what))) {
        n++;
        text++;
    }
    return n;
}

/* ------------------------------------------------------------------------------------------ */

static void test_text(void **state UNUSED)
{
    struct plan plan = {.batch = {.iterations = 3}, .targets = 1, .delay = 50 * NSEC_PER_MSEC};
    struct runner r = run(&plan);
    char *errors, *text = read_all(r.out);

    assert_int_equal(finish(&r, &errors), EXIT_OK);
    assert_string_equal(errors, "");
    assert_int_equal(count(text, "lock-top  "), 3);
    assert_int_equal(count(text, "\033"), 0); /* names are escaped */
    assert_int_equal(count(text, "lt\n"), 0);
    assert_true(count(text, "lt\\n\\x1bA[") >= 3);
    free(errors);
    free(text);
}

static void test_json(void **state UNUSED)
{
    struct plan plan = {
        .batch = {.iterations = 4, .json = true}, .targets = 1, .delay = 50 * NSEC_PER_MSEC};
    struct runner r = run(&plan);
    char *errors, *text = read_all(r.out), *save = NULL;
    int n = 0;

    assert_int_equal(finish(&r, &errors), EXIT_OK);
    assert_string_equal(errors, "");
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *snap = json_loads(line, 0, NULL);
        assert_non_null(snap);
        assert_string_equal(json_string_value(json_object_get(snap, "schema")), "lock-top/1");
        assert_int_equal(json_array_size(json_object_get(snap, "processes")), 1);
        json_decref(snap);
        n++;
    }
    assert_int_equal(n, 4);
    free(errors);
    free(text);
}

/* The reader goes away after the first line. */
static void check_epipe(bool json)
{
    struct plan plan = {.batch = {.json = json}, .targets = 1, .delay = 20 * NSEC_PER_MSEC};
    struct runner r = run(&plan);
    char *errors;

    read_line(r.out);
    close(r.out);
    r.out = -1;
    assert_int_equal(finish(&r, &errors), EXIT_OK);
    assert_string_equal(errors, "");
    free(errors);
}

static void test_reader_goes_away(void **state UNUSED)
{
    check_epipe(false);
    check_epipe(true);
}

static void test_disk_full(void **state UNUSED)
{
    for (int json = 0; json < 2; json++) {
        struct plan plan = {.batch = {.json = json},
                            .targets = 1,
                            .out = "/dev/full",
                            .delay = 20 * NSEC_PER_MSEC};
        struct runner r = run(&plan);
        char *errors;

        assert_int_equal(finish(&r, &errors), EXIT_FAILED);
        assert_int_equal(count(errors, "\n"), 1);
        assert_non_null(strstr(errors, "No space left on device"));
        free(errors);
    }
}

static void test_target_ends(void **state UNUSED)
{
    struct plan plan = {.targets = 1, .delay = 20 * NSEC_PER_MSEC};
    struct runner r = run(&plan);
    char *errors, want[64];

    read_line(r.out);
    pid_t target = r.room->tid[0];
    kill(target, SIGKILL);
    free(read_all(r.out));
    assert_int_equal(finish(&r, &errors), EXIT_OK);
    snprintf(want, sizeof(want), "process %d (lt\\n\\x1bA) has exited\n", target);
    assert_non_null(strstr(errors, want));
    assert_int_equal(count(errors, "\n"), 1);
    free(errors);
}

static void test_all_targets_end(void **state UNUSED)
{
    struct plan plan = {.targets = 2, .delay = 20 * NSEC_PER_MSEC};
    struct runner r = run(&plan);
    char *errors;

    read_line(r.out);
    kill(r.room->tid[0], SIGKILL);
    read_line(r.out); /* it goes on with the other */
    kill(r.room->tid[1], SIGKILL);
    free(read_all(r.out));
    assert_int_equal(finish(&r, &errors), EXIT_OK);
    assert_int_equal(count(errors, "exited"), 1);
    free(errors);
}

/* Until batch_run() catches it, the signal would kill. */
static void await_caught(pid_t pid, int sig)
{
    unsigned long long mask = 0;
    char path[64], line[256];

    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    while (!(mask & 1ULL << (sig - 1))) {
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        while (fgets(line, sizeof(line), f) && sscanf(line, "SigCgt: %llx", &mask) != 1)
            continue;
        fclose(f);
    }
}

static void test_signals(void **state UNUSED)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

    for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
        struct plan plan = {.targets = 1, .delay = 1000 * NSEC_PER_SEC};
        struct runner r = run(&plan);
        char *errors;

        await_value(&r.room->ready);
        await_caught(r.pid, signals[i]);
        kill(r.pid, signals[i]);
        await_value(&r.room->go);
        free(read_all(r.out));
        assert_int_equal(finish(&r, &errors), EXIT_OK);
        assert_string_equal(errors, "");
        free(errors);
    }
}

/* Waits until nothing more fits into the pipe for a while. */
static void await_stall(int fd)
{
    nsec_t end = clock_mono() + PATIENCE, since = clock_mono();
    int before = -1, now;

    while (clock_mono() - since < 300 * NSEC_PER_MSEC) {
        assert_int_equal(ioctl(fd, FIONREAD, &now), 0);
        if (now != before || now == 0)
            since = clock_mono();
        before = now;
        assert_true(clock_mono() < end);
        nap();
    }
}

/* Its reader is there but does not read: it ends all the same, and is not killed. */
static void check_stalled(bool json, int sig)
{
    struct plan plan = {.batch = {.json = json}, .targets = 1, .delay = NSEC_PER_MSEC};
    struct runner r = run(&plan);
    char *errors;

    assert_true(fcntl(r.out, F_SETPIPE_SZ, 4096) >= 4096);
    await_stall(r.out);
    kill(r.pid, sig);
    await_value(&r.room->go);
    assert_int_equal(finish(&r, &errors), EXIT_OK);
    assert_string_equal(errors, "");
    free(errors);
}

static void test_reader_stalls(void **state UNUSED)
{
    check_stalled(true, SIGTERM);
    check_stalled(false, SIGINT);
    check_stalled(true, SIGHUP);
}

/* A stalled reader who goes on gets every line whole. */
static void test_reader_goes_on(void **state UNUSED)
{
    struct plan plan = {
        .batch = {.json = true, .iterations = 40}, .targets = 1, .delay = NSEC_PER_MSEC};
    struct runner r = run(&plan);
    char *errors, *save = NULL;
    int n = 0;

    assert_true(fcntl(r.out, F_SETPIPE_SZ, 4096) >= 4096);
    await_stall(r.out);
    char *text = read_all(r.out);
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *snap = json_loads(line, 0, NULL);
        assert_non_null(snap);
        json_decref(snap);
        n++;
    }
    assert_int_equal(n, 40);
    assert_int_equal(finish(&r, &errors), EXIT_OK);
    assert_string_equal(errors, "");
    free(errors);
    free(text);
}

/* The columns are chosen anew at each refresh. */
static void test_columns(void **state UNUSED)
{
    for (int targets = 1; targets <= 2; targets++) {
        struct plan plan = {.batch = {.iterations = 3, .columns = "+class"},
                            .targets = targets,
                            .delay = 50 * NSEC_PER_MSEC};
        struct runner r = run(&plan);
        char *errors, *text = read_all(r.out);

        assert_int_equal(finish(&r, &errors), EXIT_OK);
        assert_true(count(text, " CLASS ") > 0);
        assert_int_equal(count(text, "    PID ") > 0, targets > 1);
        free(errors);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(test_text),         leak_test(test_json),
        leak_test(test_reader_goes_away),
        leak_test(test_disk_full),    leak_test(test_target_ends),
        leak_test(test_all_targets_end),
        leak_test(test_signals),
        leak_test(test_reader_stalls),
        leak_test(test_reader_goes_on),
        leak_test(test_columns),
    };

    return cmocka_run_group_tests_name("batch", tests, NULL, NULL);
}

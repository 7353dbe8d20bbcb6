/* unit_inspector - stacks and names of a real child, asked for and answered across threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "source_child.h"

#include "../src/inspector.h"
#include "../src/procfs.h"

static int some_data[64];

/* A frame of its own. */
#if defined(__clang__)
#define APART __attribute__((noinline))
#else
#define APART __attribute__((noinline, noclone))
#endif

APART static void level3(struct room *r)
{
    futex(&r->word, FUTEX_WAIT, 0, NULL);
    __asm__ volatile("" ::: "memory");
}
APART static void level2(struct room *r)
{
    level3(r);
    __asm__ volatile("" ::: "memory");
}
APART static void level1(struct room *r)
{
    level2(r);
    __asm__ volatile("" ::: "memory");
}

static int sleeper(struct room *r)
{
    room_thread(r, 0, level1);
    return be_ready(r);
}

static void spin(struct room *r)
{
    while (!atomic_load(&r->go))
        atomic_fetch_add(&r->word, 1);
}

static int spinner(struct room *r)
{
    room_thread(r, 0, spin);
    return be_ready(r);
}

static struct inspector *start(bool may_stop)
{
    const struct inspector_config cfg = {
        .root = "/proc",
        .read_memory = remote_read,
        .cpu_share = 1,
        .may_stop = may_stop,
        .stops = TRACER_LIMITS_DEFAULT,
    };
    int err;
    struct inspector *in = inspector_new(&cfg, &err);

    assert_non_null(in);
    return in;
}

static uint64_t start_ticks(pid_t pid, pid_t tid)
{
    char path[64];
    struct procfs_stat st;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
    assert_int_equal(procfs_read_stat(AT_FDCWD, path, &st), 0);
    return st.start_ticks;
}

/* The job for thread TID once it sleeps in a call. */
static struct inspect_job job_of_sleeper(pid_t pid, pid_t tid)
{
    struct inspect_job job = {.kind = INSPECT_STACK,
                              .pid = pid,
                              .tid = tid,
                              .slot = 7,
                              .start_ticks = start_ticks(pid, tid),
                              .process_start = start_ticks(pid, pid),
                              .blocked = true};
    char path[64], text[256];
    struct procfs_syscall call = {0};
    struct procfs_schedstat sched;
    nsec_t end = clock_mono() + PATIENCE;

    do {
        assert_true(clock_mono() < end);
        nap();
        snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", pid, tid);
        assert_true(procfs_slurp(AT_FDCWD, path, text, sizeof(text)) > 0);
        assert_true(procfs_parse_syscall(text, &call));
    } while (call.kind != SYSCALL_BLOCKED);
    snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", pid, tid);
    assert_true(procfs_slurp(AT_FDCWD, path, text, sizeof(text)) > 0);
    assert_true(procfs_parse_schedstat(text, &sched));
    job.sp = call.sp;
    job.pc = call.pc;
    job.runs = sched.runs;
    return job;
}

static struct inspection *answer(struct inspector *in, const struct inspect_job *job)
{
    struct inspection *i = NULL;
    nsec_t end = clock_mono() + PATIENCE;

    assert_true(inspector_ask(in, job));
    while (inspector_take(in, &i, 1) == 0) {
        assert_true(clock_mono() < end);
        nap();
    }
    return i;
}

static bool has_function(const struct stack_fact *s, const char *name)
{
    for (size_t i = 0; i < s->nframes; i++) {
        if (s->frames[i].n.name && strcmp(s->frames[i].n.name, name) == 0)
            return true;
    }
    return false;
}

static void test_sleeping_thread(void **state)
{
    (void)state;
    struct room *r = room_new();
    pid_t pid = child_start(r, sleeper);
    await_value(&r->ready);
    struct inspector *in = start(false);
    struct inspect_job job = job_of_sleeper(pid, r->tid[0]);

    struct inspection *i = answer(in, &job);
    assert_int_equal(i->stack.taken, STACK_ASLEEP);
    assert_int_equal(i->stack.end, STACK_COMPLETE);
    assert_int_equal(i->stack.tid, r->tid[0]);
    assert_int_equal(i->stack.slot, 7);
    assert_true(has_function(&i->stack, "level3"));
    assert_true(has_function(&i->stack, "level1"));
    assert_true(has_function(&i->stack, "syscall"));
    inspection_free(i);

    job.runs++; /* as though it had run since */
    i = answer(in, &job);
    assert_int_equal(i->stack.taken, STACK_MOVED);
    assert_int_equal(i->stack.nframes, 0);
    inspection_free(i);
    assert_int_equal(inspector_stops(in).stops, 0);
    assert_true(inspector_free(in));
    child_kill(pid);
    room_free(r);
}

static void test_running_thread(void **state)
{
    (void)state;
    struct room *r = room_new();
    pid_t pid = child_start(r, spinner);
    await_value(&r->ready);
    struct inspect_job job = {.kind = INSPECT_STACK,
                              .pid = pid,
                              .tid = r->tid[0],
                              .start_ticks = start_ticks(pid, r->tid[0]),
                              .process_start = start_ticks(pid, pid),
                              .may_stop = true};

    struct inspector *in = start(false);
    struct inspection *i = answer(in, &job);
    assert_int_equal(i->stack.taken, STACK_DENIED);
    assert_non_null(i->stack.why);
    inspection_free(i);
    assert_true(inspector_free(in));

    in = start(true);
    i = answer(in, &job);
    assert_int_equal(i->stack.taken, STACK_STOPPED);
    assert_true(has_function(&i->stack, "spin"));
    inspection_free(i);
    assert_int_equal(inspector_stops(in).stops, 1);
    assert_true(inspector_free(in));
    int before = atomic_load(&r->word);
    nsec_t end = clock_mono() + PATIENCE;
    while (atomic_load(&r->word) == before) {
        assert_true(clock_mono() < end);
        nap();
    }
    child_kill(pid);
    room_free(r);
}

static void test_name(void **state)
{
    (void)state;
    struct room *r = room_new();
    pid_t pid = child_start(r, sleeper);
    await_value(&r->ready);
    struct inspector *in = start(false);
    struct inspect_job job = {.kind = INSPECT_NAME,
                              .pid = pid,
                              .tid = pid,
                              .process_start = start_ticks(pid, pid),
                              .addr = (uintptr_t)&some_data[4]};
    some_data[4] = 1;

    struct inspection *i = answer(in, &job);
    assert_int_equal(i->kind, INSPECT_NAME);
    assert_string_equal(i->name.name, "some_data+0x10");
    inspection_free(i);
    assert_true(inspector_free(in));
    child_kill(pid);
    room_free(r);
}

/* A process that is gone, or another of the same PID: no answer, and the next job is served. */
static void test_gone(void **state)
{
    (void)state;
    struct room *r = room_new();
    pid_t pid = child_start(r, sleeper);
    await_value(&r->ready);
    struct inspect_job job = job_of_sleeper(pid, r->tid[0]), wrong = job;
    struct inspector *in = start(false);

    wrong.process_start++;
    assert_true(inspector_ask(in, &wrong));
    struct inspection *i = answer(in, &job);
    assert_int_equal(i->stack.taken, STACK_ASLEEP);
    inspection_free(i);
    child_kill(pid);
    inspector_forget(in, pid);
    assert_true(inspector_ask(in, &job));
    assert_true(inspector_free(in));
    room_free(r);
}

static void test_full_queue_refuses(void **state)
{
    (void)state;
    struct room *r = room_new();
    pid_t pid = child_start(r, sleeper);
    await_value(&r->ready);
    struct inspect_job job = job_of_sleeper(pid, r->tid[0]);
    struct inspector *in = start(false);
    nsec_t end = clock_mono() + PATIENCE;

    /* Nobody takes the answers: sooner or later there is no room. */
    while (inspector_ask(in, &job))
        assert_true(clock_mono() < end);
    assert_true(inspector_free(in));
    child_kill(pid);
    room_free(r);
}

/* Searches for files --------------------------------------------------------------------- */

static struct inspect_job job_of_files(void)
{
    struct file_id files[2] = {{.dev = 1, .inode = 11}, {.dev = 2, .inode = 22}};
    pid_t pids[1] = {getpid()};
    const struct scan_wish wish = {.files = files, .nfiles = 2, .pids = pids, .npids = 1};
    struct inspect_job job = {.kind = INSPECT_FILES, .wish = inspect_wish(&wish)};

    /* The copy is to be one of the arrays, too. */
    memset(files, 0xff, sizeof(files));
    memset(pids, 0xff, sizeof(pids));
    return job;
}

static void test_wish_is_copied(void **state)
{
    (void)state;
    struct inspect_job job = job_of_files();

    assert_int_equal(job.wish->nfiles, 2);
    assert_int_equal(job.wish->files[0].inode, 11);
    assert_int_equal(job.wish->files[1].dev, 2);
    assert_int_equal(job.wish->npids, 1);
    assert_int_equal(job.wish->pids[0], getpid());
    free(job.wish);
    job.wish = inspect_wish(&(struct scan_wish){.everybody = true});
    assert_int_equal(job.wish->nfiles, 0);
    assert_true(job.wish->everybody);
    free(job.wish);
}

static void test_files(void **state)
{
    (void)state;
    struct inspector *in = start(false);
    struct inspect_job job = job_of_files();
    struct inspection *i = answer(in, &job);

    assert_int_equal(i->kind, INSPECT_FILES);
    assert_int_equal(i->files.nfiles, 2);
    assert_int_equal(i->files.files[1].file.inode, 22);
    assert_int_equal(i->files.nfds, 0);
    assert_true(i->files.at > 0);
    inspection_free(i);
    assert_true(inspector_free(in));
}

/* What nobody takes, and what was never begun, goes with the inspector. */
static void test_files_left_behind(void **state)
{
    (void)state;
    struct inspector *in = start(false);
    struct inspect_job job = job_of_files();
    nsec_t end = clock_mono() + PATIENCE;

    while (inspector_ask(in, &job)) {
        assert_true(clock_mono() < end);
        job = job_of_files();
    }
    free(job.wish); /* refused: still the caller's */
    assert_true(inspector_free(in));
}

/* Asks for many stacks and then for files; true when these came before the last stack. */
static bool came_first(struct inspector *in, const struct inspect_job *stack)
{
    struct inspect_job job = job_of_files();
    size_t asked = 0, before = 0, got = 0;
    nsec_t end = clock_mono() + PATIENCE;
    bool seen = false;

    while (asked < 200 && inspector_ask(in, stack))
        asked++;
    assert_true(inspector_ask(in, &job));
    while (got < asked + 1) {
        struct inspection *i;
        assert_true(clock_mono() < end);
        if (inspector_take(in, &i, 1) == 0) {
            nap();
            continue;
        }
        got++;
        seen |= i->kind == INSPECT_FILES;
        before += !seen;
        inspection_free(i);
    }
    assert_true(seen);
    return before < asked;
}

static void test_files_come_first(void **state)
{
    (void)state;
    struct room *r = room_new();
    pid_t pid = child_start(r, sleeper);
    await_value(&r->ready);
    struct inspect_job job = job_of_sleeper(pid, r->tid[0]);
    struct inspector *in = start(false);
    bool first = false;

    /* The stacks may all have been taken before the last was asked for, but not always. */
    for (int i = 0; i < 20 && !first; i++)
        first = came_first(in, &job);
    assert_true(first);
    assert_true(inspector_free(in));
    child_kill(pid);
    room_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sleeping_thread),
        cmocka_unit_test(test_running_thread),
        cmocka_unit_test(test_name),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_full_queue_refuses),
        cmocka_unit_test(test_wish_is_copied),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_files_left_behind),
        cmocka_unit_test(test_files_come_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

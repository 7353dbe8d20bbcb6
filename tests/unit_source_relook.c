/* A second look at threads that wait for a lock on a file or a semaphore. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <sys/file.h>

#include "../src/source_relook.h"
#include "source_child.h"
#include "source_tree.h"

#define SEMOP "65 0x3 0x5000 0x2 0x0 0x0 0x0 0x7ffc0000 0x7f02"
#define OTHER "65 0x4 0x5000 0x2 0x0 0x0 0x0 0x7ffc0000 0x7f02"
#define MS    NSEC_PER_MSEC

static void want(struct watch *w, nsec_t delay)
{
    const struct request r = {.kind = REQUEST_RELOOK, .delay = delay};

    w->source->ops->request(w->source, &r);
}

static nsec_t delay_of(const struct watch *w)
{
    return w->source->ops->relook_delay(w->source);
}

static struct sample relook(struct watch *w)
{
    struct sample s;

    w->source->ops->relook(w->source, &s);
    assert_int_equal(s.kind, SAMPLE_RELOOK);
    for (size_t i = 0; i < s.nran; i++) /* from its own look on, within the sweep */
        assert_true(s.ran[i].delay >= 0 && s.ran[i].delay <= clock_mono() - w->s.mono);
    return s;
}

static const struct ran_fact *fact_of(const struct sample *s, const struct thread_fact *f)
{
    for (size_t i = 0; i < s->nran; i++) {
        if (s->ran[i].slot == f->slot && s->ran[i].start_ticks == f->start_ticks)
            return &s->ran[i];
    }
    return NULL;
}

static void test_who_is_asked(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    open_tree(&t, &w, 'S');
    tree_thread(&t, PID, PID + 1, 101, 3, LOCK); /* a futex: told by other means */
    want(&w, 3 * MS);
    sweep(&w);
    assert_int_equal(delay_of(&w), 0);
    assert_int_equal(relook(&w).nran, 0);
    tree_thread(&t, PID, PID + 2, 102, 3, SEMOP);
    tree_thread(&t, PID, PID + 3, 103, 3, "running");
    assert_non_null(await_call(&w, PID + 2, CALL_semop));
    assert_int_equal(delay_of(&w), 3 * MS);
    struct sample s = relook(&w);
    assert_int_equal(s.nran, 1);
    assert_non_null(fact_of(&s, thread_in(&w.s, PID + 2)));
    close_tree(&t, &w);
}

static void test_wish_ends(void **state UNUSED)
{
    struct relook r = {0};

    r.nwaiting = 1;
    r.swept = 100 * NSEC_PER_SEC;
    assert_int_equal(relook_delay(&r), 0);
    relook_want(&r, 7 * MS, r.swept - NSEC_PER_SEC / 2);
    assert_int_equal(relook_delay(&r), 7 * MS);
    r.swept += NSEC_PER_SEC;
    assert_int_equal(relook_delay(&r), 0);
}

/* Whether it counts as having left when it has run RUNS times since and is in CALL. */
static bool has_left(unsigned runs, const char *call)
{
    struct tree t;
    struct watch w;

    open_tree(&t, &w, 'S');
    tree_thread(&t, PID, PID + 1, 101, 3, SEMOP);
    struct thread_fact before = *await_call(&w, PID + 1, CALL_semop);
    tree_thread(&t, PID, PID + 1, 101, 3 + runs, call);
    struct sample s = relook(&w);
    const struct ran_fact *f = fact_of(&s, &before);
    assert_non_null(f);
    bool left = f->left;
    /* What the sweep found stands as it was. */
    assert_memory_equal(&before, thread_in(&w.s, PID + 1), sizeof(before));
    close_tree(&t, &w);
    return left;
}

static void test_who_has_left(void **state UNUSED)
{
    assert_false(has_left(0, SEMOP));
    assert_false(has_left(0, "running")); /* woken, but not run: it still waits */
    assert_false(has_left(1, SEMOP));     /* too late: another has taken it */
    assert_true(has_left(1, "running"));
    assert_true(has_left(1, OTHER));
    assert_true(has_left(1, IDLE));
    assert_false(has_left(2, SEMOP));     /* and again */
}

static void test_what_cannot_be_told(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    open_tree(&t, &w, 'S');
    tree_thread(&t, PID, PID + 1, 101, 3, SEMOP);
    await_call(&w, PID + 1, CALL_semop);
    tree_put(&t, "4000/task/4001/schedstat", "no numbers\n");
    assert_int_equal(relook(&w).nran, 0);
    tree_put(&t, "4000/task/4001/schedstat", "0 0 2\n"); /* less than before */
    assert_int_equal(relook(&w).nran, 0);
    close_tree(&t, &w);
}

/* Each gets its turn, as often as any other. */
static void test_many(void **state UNUSED)
{
    enum { MANY = 2 * RELOOK_MAX + 10 };
    struct tree t;
    struct watch w;
    int seen[MANY] = {0};

    make_tree(&t, 'S');
    for (int i = 0; i < MANY; i++)
        tree_thread(&t, PID, PID + 1 + i, 101, 3, SEMOP);
    watch_tree(&w, t.root, read_pattern, &the_pid, 1);
    sweep(&w);
    for (int look = 0; look < 9; look++) {
        struct sample s = relook(&w);
        assert_true(s.nran > 0 && s.nran <= RELOOK_MAX);
        for (int i = 0; i < MANY; i++)
            seen[i] += fact_of(&s, thread_in(&w.s, PID + 1 + i)) != NULL;
    }
    for (int i = 0; i < MANY; i++)
        assert_int_equal(seen[i], 3);
    close_tree(&t, &w);
}

/* Real threads ---------------------------------------------------------------------------- */

static void want_flock(struct room *r)
{
    flock(open(r->path, O_RDWR | O_CLOEXEC), LOCK_EX);
}

static int three_lockers(struct room *r)
{
    for (int i = 0; i < 3; i++)
        room_thread(r, i, want_flock);
    return be_ready(r);
}

static size_t left_in(const struct sample *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->nran; i++)
        n += s->ran[i].left;
    return n;
}

static void test_real_locks(void **state UNUSED)
{
    struct room *r = room_new();
    struct watch w;
    nsec_t end = clock_mono() + PATIENCE;

    strcpy(r->path, "/tmp/lock-top-relook.XXXXXX");
    int fd = mkstemp(r->path);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    pid_t pid = child_start(r, three_lockers);
    await_value(&r->ready);
    watch_pid(&w, &pid);
    want(&w, MS);
    for (int i = 0; i < 3; i++)
        await_call(&w, r->tid[i], CALL_flock);
    assert_int_equal(delay_of(&w), MS);
    struct sample s = relook(&w);
    assert_int_equal(s.nran, 3);
    assert_int_equal(left_in(&s), 0);
    /* One gets it and ends; its process keeps the lock, and the others wait on. */
    assert_int_equal(flock(fd, LOCK_UN), 0);
    do {
        nap();
        s = relook(&w);
    } while (left_in(&s) == 0 && clock_mono() < end);
    for (int i = 0; i < 10; i++) {
        nap();
        s = relook(&w);
        assert_int_equal(s.nran, 3);
        assert_int_equal(left_in(&s), 1);
    }
    sweep(&w);
    s = relook(&w);
    assert_int_equal(s.nran, 2);
    assert_int_equal(left_in(&s), 0);
    watch_end(&w);
    child_kill(pid);
    close(fd);
    unlink(r->path);
    room_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(test_who_is_asked),
        leak_test(test_wish_ends),
        leak_test(test_who_has_left),
        leak_test(test_what_cannot_be_told),
        leak_test(test_many),
        leak_test(test_real_locks),
    };

    return cmocka_run_group_tests_name("source_relook", tests, NULL, NULL);
}

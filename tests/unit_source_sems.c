/* System V semaphores that real threads wait for. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/ipc.h>
#include <sys/sem.h>

#include "source_child.h"

static int the_set;

static int op(int num, int by, int flags)
{
    struct sembuf b = {
        .sem_num = (unsigned short)num, .sem_op = (short)by, .sem_flg = (short)flags};

    return semop(the_set, &b, 1);
}

static void take_two(struct room *r UNUSED)
{
    struct sembuf b[] = {
        {.sem_num = 0, .sem_op = 1}, {.sem_num = 3, .sem_op = -2, .sem_flg = SEM_UNDO}};

    semop(the_set, b, 2);
}

static void await_zero(struct room *r UNUSED)
{
    struct sembuf b = {.sem_num = 1, .sem_op = 0};

    semtimedop(the_set, &b, 1, &(struct timespec){.tv_sec = 1000});
}

static int waiting_child(struct room *r)
{
    op(1, 5, 0);
    room_thread(r, 0, take_two);
    room_thread(r, 1, await_zero);
    return be_ready(r);
}

static const struct sem_fact *sem_in(const struct sample *s, int num)
{
    for (size_t i = 0; i < s->nsems; i++) {
        if (s->sems[i].id == the_set && s->sems[i].num == num)
            return &s->sems[i];
    }
    return NULL;
}

/* Sweeps until NUM stands there, KNOWN or not, with VALUE. */
static const struct sem_fact *await_sem(struct watch *w, int num, bool known, int value)
{
    nsec_t end = clock_mono() + PATIENCE;

    while (clock_mono() < end) {
        sweep(w);
        const struct sem_fact *f = sem_in(&w->s, num);
        if (f && f->known == known && f->value == value)
            return f;
        nap();
    }
    fail_msg("semaphore %d never came to be so", num);
    return NULL;
}

/* The C library may use semtimedop for both. */
static bool waits_for_sem(const struct thread_fact *f)
{
    return f && f->seen == SEEN_CALL && f->sem.id >= 0 &&
           (f->call == CALL_semop || f->call == CALL_semtimedop);
}

static void test_threads_in_semop(void **state UNUSED)
{
    struct room *r = room_new();
    struct watch w;

    the_set = semget(IPC_PRIVATE, 4, 0600);
    assert_true(the_set >= 0);
    pid_t pid = child_start(r, waiting_child);
    await_value(&r->ready);
    watch_pid(&w, &pid);

    const struct thread_fact *f = await(&w, r->tid[0], waits_for_sem);
    assert_int_equal(f->sem.id, the_set);
    assert_int_equal(f->sem.num, 3);
    assert_int_equal(f->sem.op, -2);
    assert_int_equal(f->sem.nops, 2);
    assert_true(f->sem.undo && !f->sem.timed);
    f = await(&w, r->tid[1], waits_for_sem);
    assert_int_equal(f->sem.id, the_set);
    assert_int_equal(f->sem.num, 1);
    assert_int_equal(f->sem.op, 0);
    assert_true(!f->sem.undo && f->sem.timed);

    const struct sem_fact *s = await_sem(&w, 3, true, 0);
    assert_int_equal(s->nwait, 1);
    assert_int_equal(s->zwait, 0);
    assert_int_equal(s->last_pid, 0);
    assert_int_equal(s->nsems, 4);
    assert_int_equal(s->key, 0);
    s = await_sem(&w, 1, true, 5);
    assert_int_equal(s->zwait, 1);
    assert_int_equal(s->nwait, 0);
    assert_int_equal(s->last_pid, pid);
    assert_int_equal(w.s.nsems, 2);

    assert_int_equal(op(1, -1, 0), 0); /* followed, though its waiter sleeps on */
    s = await_sem(&w, 1, true, 4);
    assert_int_equal(s->last_pid, getpid());

    child_kill(pid);
    sweep(&w);
    assert_int_equal(w.s.nsems, 0);
    semctl(the_set, 0, IPC_RMID);
    watch_end(&w);
    room_free(r);
}

/* In a namespace of its own, a set that has the number of ours if the kernel lets us choose it. */
static int foreign_child(struct room *r)
{
    if (unshare(CLONE_NEWIPC) != 0) {
        atomic_store(&r->word, 1);
        return be_ready(r);
    }
    FILE *next = fopen("/proc/sys/kernel/sem_next_id", "w");
    if (next) {
        fprintf(next, "%d\n", the_set);
        fclose(next);
    }
    the_set = semget(IPC_PRIVATE, 4, 0600);
    atomic_store(&r->addr, (uint64_t)the_set);
    return waiting_child(r);
}

/* Nothing is said of what our set of that number would tell. */
static void test_another_namespace(void **state UNUSED)
{
    struct room *r = room_new();
    struct watch w;
    int ours = semget(IPC_PRIVATE, 4, 0600);

    assert_true(ours >= 0);
    the_set = ours;
    pid_t pid = child_start(r, foreign_child);
    await_value(&r->ready);
    bool apart = !atomic_load(&r->word);
    if (apart) {
        the_set = (int)atomic_load(&r->addr);
        watch_pid(&w, &pid);
        const struct sem_fact *s = await_sem(&w, 1, false, 0);
        assert_true(s->nsems == 0 && s->last_pid == 0 && s->nwait == 0 && s->zwait == 0);
        watch_end(&w);
    }
    child_kill(pid);
    semctl(ours, 0, IPC_RMID);
    room_free(r);
    if (!apart)
        skip();
}

static void test_nobody_waits(void **state UNUSED)
{
    struct room *r = room_new();
    struct watch w;
    pid_t pid = child_start(r, be_ready);

    await_value(&r->ready);
    watch_pid(&w, &pid);
    for (int i = 0; i < 3; i++) {
        sweep(&w);
        assert_int_equal(w.s.nsems, 0);
    }
    child_kill(pid);
    watch_end(&w);
    room_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(test_threads_in_semop),
        leak_test(test_another_namespace),
        leak_test(test_nobody_waits),
    };

    return cmocka_run_group_tests_name("source_sems", tests, NULL, NULL);
}

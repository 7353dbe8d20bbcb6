/* unit_model_stacks - what the model asks for, and what it makes of stacks and names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model_build.h"

#define PID  100
#define ADDR UINT64_C(0x7f0000001000)

static struct world *world_with(enum stacks_mode mode, bool may_stop)
{
    struct world *w = world_new();

    model_configure(w->model, &(struct model_config){.stacks = mode, .may_stop = may_stop});
    return w;
}

/* How many requests of KIND there are for TID (0: any). */
static int count_asked(struct world *w, enum request_kind kind, pid_t tid)
{
    struct request out[256];
    size_t n = model_requests(w->model, out, ARRAY_SIZE(out));
    int count = 0;

    for (size_t i = 0; i < n; i++)
        count += out[i].kind == kind && (!tid || out[i].tid == tid);
    return count;
}

static void sleeps_at(struct built_process *p, pid_t tid, uint64_t sp)
{
    thread_of(p, tid)->fact.sp = sp;
    thread_of(p, tid)->fact.pc = 0x401234;
}

/* Three threads, each on a condition variable of its own. */
static struct built_process *parked(struct world *w)
{
    struct built_process *p = add_busy_process(w, PID, 4);

    for (pid_t tid = PID + 1; tid < PID + 4; tid++) {
        uint64_t addr = ADDR + 4096 * (uint64_t)tid;
        waits(p, tid, addr + 40, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME | FUTEX_PRIVATE_FLAG, 0);
        put_cond(&word_at(p, addr + 40)->memory, -40, 1, 0);
        word_at(p, addr + 40)->fact.maybe_lock = false;
        sleeps_at(p, tid, 0x7ffe0000 + 0x10000 * (uint64_t)tid);
    }
    return p;
}

static const struct frame_fact *frames_of(const char *outer)
{
    static struct frame_fact f[3];

    f[0] = frame("pthread_cond_wait", MODULE_GLIBC);
    f[1] = frame(outer, MODULE_OTHER);
    f[2] = frame("main", MODULE_OTHER);
    return f;
}

static void test_off_asks_nothing(void **state)
{
    (void)state;
    struct world *w = world_with(STACKS_OFF, true);
    struct built_process *p = add_busy_process(w, PID, 6);

    mutex_convoy(p, ADDR, 103, 104, 2);
    sweep(w, TICK);
    assert_int_equal(count_asked(w, REQUEST_STACK, 0), 0);
    assert_int_equal(count_asked(w, REQUEST_NAME, 0), 0);
    struct snapshot *s = snapshot_now(w);
    assert_false(s->has_stacks);
    snapshot_free(s);
    world_free(w);
}

static void test_waiters_are_asked_for_once(void **state)
{
    (void)state;
    struct world *w = world_with(STACKS_AUTO, false);
    struct built_process *p = add_busy_process(w, PID, 6);

    mutex_convoy(p, ADDR, 103, 104, 2);
    sleeps_at(p, 104, 0x7ffe1000);
    sleeps_at(p, 105, 0x7ffe2000);
    sweep(w, TICK);
    assert_int_equal(count_asked(w, REQUEST_STACK, 104), 1);
    assert_int_equal(count_asked(w, REQUEST_STACK, 0), 0); /* all have been, just now */
    stack_comes(w, p, 104, frames_of("queue_push"), 3);
    sweep(w, TICK);
    assert_int_equal(count_asked(w, REQUEST_STACK, 104), 0);
    sweep(w, 400 * NSEC_PER_MSEC); /* one was answered; the other's request was lost */
    struct request out[64];
    size_t n = model_requests(w->model, out, 64);
    int again = 0;
    for (size_t i = 0; i < n; i++) {
        assert_false(out[i].kind == REQUEST_STACK && out[i].tid == 104);
        again += out[i].kind == REQUEST_STACK && out[i].tid == 105;
    }
    assert_int_equal(again, 1);
    world_free(w);
}

static void test_waiters_grouped_by_stack(void **state)
{
    (void)state;
    struct world *w = world_with(STACKS_AUTO, false);
    struct built_process *p = add_busy_process(w, PID, 8);
    struct frame_fact other[2] = {frame("pthread_mutex_lock", MODULE_GLIBC),
                                  frame("queue_pop", MODULE_OTHER)};
    struct frame_fact usual[2] = {frame("pthread_mutex_lock", MODULE_GLIBC),
                                  frame("queue_push", MODULE_OTHER)};

    mutex_convoy(p, ADDR, 103, 104, 4);
    sweep(w, TICK);
    stack_comes(w, p, 104, usual, 2);
    stack_comes(w, p, 105, other, 2);
    stack_comes(w, p, 106, usual, 2);
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    const struct snap_lock *l = only_lock(s);
    assert_true(s->has_stacks);
    assert_int_equal(l->stacks[0].count, 2);
    assert_int_equal(l->stacks[0].nframes, 2);
    assert_string_equal(l->stacks[0].frames[1].name, "queue_push");
    assert_true(fabs(l->stacks[0].share - 0.5) < 1e-9);
    assert_string_equal(l->site, "queue_push");
    int unknown = 0;
    for (size_t i = 0; i < l->nstacks; i++)
        unknown += l->stacks[i].role == ROLE_WAITER && l->stacks[i].nframes == 0;
    assert_int_equal(unknown, 1); /* 107 */
    snapshot_free(s);
    world_free(w);
}

/* A stack is that of one sleep; of a later one only where it looks the same from outside. */
static void test_next_sleep(void **state)
{
    (void)state;
    struct world *w = world_with(STACKS_AUTO, false);
    struct built_process *p = add_busy_process(w, PID, 6);

    mutex_convoy(p, ADDR, 103, 104, 1);
    sleeps_at(p, 104, 0x7ffe1000);
    sweep(w, TICK);
    stack_comes(w, p, 104, frames_of("queue_push"), 3);
    sweep(w, TICK);
    wakes(p, 104);
    mutex_convoy(p, ADDR, 103, 104, 1);
    sleeps_at(p, 104, 0x7ffe1000);
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    const struct snap_lock *l = only_lock(s);
    assert_int_equal(l->stacks[0].nframes, 3);
    assert_true(l->stacks[0].presumed);
    snapshot_free(s);
    wakes(p, 104);
    mutex_convoy(p, ADDR, 103, 104, 1);
    sleeps_at(p, 104, 0x7ffe1040); /* from deeper or elsewhere */
    sweep(w, TICK);
    s = snapshot_now(w);
    assert_int_equal(only_lock(s)->stacks[0].nframes, 0);
    assert_non_null(only_lock(s)->stacks[0].note);
    snapshot_free(s);
    world_free(w);
}

static void test_answer_of_another_thread_is_dropped(void **state)
{
    (void)state;
    struct world *w = world_with(STACKS_AUTO, false);
    struct built_process *p = add_busy_process(w, PID, 6);

    mutex_convoy(p, ADDR, 103, 104, 1);
    sweep(w, TICK);
    stack_comes(w, p, 104, frames_of("queue_push"), 3)->start_ticks++; /* a TID used before */
    stack_comes(w, p, 104, frames_of("queue_push"), 3)->execs++;
    stack_comes(w, p, 104, frames_of("queue_push"), 3)->slot = 4711;
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(only_lock(s)->stacks[0].nframes, 0);
    snapshot_free(s);
    world_free(w);
}

/* Each on a word of its own: together they are one lock-like row when a signature says so. */
static void test_call_site_makes_one_row(void **state)
{
    (void)state;
    struct world *w = world_with(STACKS_AUTO, false);
    struct built_process *p = parked(w);

    sweep(w, TICK);
    sweep(w, TICK);
    assert_true(count_asked(w, REQUEST_STACK, 0) == 3);
    for (pid_t tid = PID + 1; tid < PID + 4; tid++)
        stack_comes(w, p, tid, frames_of("absl::Mutex::Lock"), 3);
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    int monitors = 0;
    for (size_t i = 0; i < s->nlocks; i++) {
        const struct snap_lock *l = &s->locks[i];
        if (l->waiters == 0)
            continue;
        monitors++;
        assert_int_equal(l->kind, KIND_MONITOR);
        assert_int_equal(l->class, CLASS_LOCK);
        assert_int_equal(l->confidence, CONF_LIKELY);
        assert_int_equal(l->waiters, 3);
        assert_non_null(l->name);
        assert_int_equal(l->nholders, 1);
        assert_int_equal(l->holders[0].tid, -1);
        assert_true(l->holders[0].unrecorded);
    }
    assert_int_equal(monitors, 1);
    snapshot_free(s);
    world_free(w);
}

/* What no signature knows stays what it was: an idle pool must not become a lock. */
static void test_unknown_code_stays_sync(void **state)
{
    (void)state;
    struct world *w = world_with(STACKS_AUTO, false);
    struct built_process *p = parked(w);

    sweep(w, TICK);
    for (pid_t tid = PID + 1; tid < PID + 4; tid++)
        stack_comes(w, p, tid, frames_of("some_function"), 3);
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nlocks, 3);
    for (size_t i = 0; i < s->nlocks; i++)
        assert_int_equal(s->locks[i].kind, KIND_COND);
    snapshot_free(s);
    world_free(w);
}

static void test_names(void **state)
{
    (void)state;
    struct world *w = world_with(STACKS_AUTO, false);
    struct built_process *p = add_busy_process(w, PID, 6);

    mutex_convoy(p, ADDR, 103, 104, 2);
    sweep(w, TICK);
    assert_int_equal(count_asked(w, REQUEST_NAME, 0), 1);
    assert_int_equal(count_asked(w, REQUEST_NAME, 0), 0);
    w->names[w->nnames++] = (struct name_fact){
        .pid = PID, .start_ticks = 777, .addr = ADDR, .name = "buf_pool+0x40"};
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_string_equal(only_lock(s)->name, "buf_pool+0x40");
    snapshot_free(s);
    sweep(w, 5 * NSEC_PER_SEC);
    assert_int_equal(count_asked(w, REQUEST_NAME, 0), 0);
    world_free(w);
}

static void test_user_names(void **state)
{
    (void)state;
    char err[128];
    struct name_rules *rules = name_rules_new("queue_* the job queue\n", err, sizeof(err));
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, PID, 6);

    assert_non_null(rules);
    model_configure(w->model, &(struct model_config){.stacks = STACKS_AUTO, .names = rules});
    mutex_convoy(p, ADDR, 103, 104, 2);
    sweep(w, TICK);
    stack_comes(w, p, 104, frames_of("queue_push"), 3);
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_string_equal(only_lock(s)->name, "the job queue");
    snapshot_free(s);
    world_free(w);
    name_rules_free(rules);
}

static const struct snap_stack *profile_of(const struct snap_lock *l)
{
    for (size_t i = 0; i < l->nstacks; i++) {
        if (l->stacks[i].role == ROLE_PROFILE)
            return &l->stacks[i];
    }
    return NULL;
}

/* A blocked holder's stack is taken once and counted at each sighting. */
static void test_profile_of_blocked_holder(void **state)
{
    (void)state;
    struct world *w = world_with(STACKS_AUTO, false);
    struct built_process *p = add_busy_process(w, PID, 6);
    struct frame_fact f[2] = {frame("fsync", MODULE_GLIBC), frame("log_flush", MODULE_OTHER)};

    mutex_convoy(p, ADDR, 103, 104, 2);
    calls(p, 103, CALL_fsync);
    sleeps_at(p, 103, 0x7ffe3000);
    sweep(w, TICK);
    sweep(w, TICK);
    assert_int_equal(count_asked(w, REQUEST_STACK, 103), 1);
    stack_comes(w, p, 103, f, 2);
    for (int i = 0; i < 10; i++) {
        sweep(w, 150 * NSEC_PER_MSEC);
        assert_int_equal(count_asked(w, REQUEST_STACK, 103), 0);
    }
    struct snapshot *s = snapshot_now(w);
    const struct snap_stack *top = profile_of(only_lock(s));
    assert_non_null(top);
    assert_string_equal(top->frames[1].name, "log_flush");
    assert_in_range(top->count, 10, 11);
    assert_true(fabs(top->share - 1) < 1e-9);
    assert_string_equal(top->note, "disk");
    snapshot_free(s);
    world_free(w);
}

/* A running holder is looked at only where stops are allowed; else it is counted as not seen. */
static void test_profile_of_running_holder(void **state)
{
    (void)state;
    for (int may = 0; may < 2; may++) {
        struct world *w = world_with(STACKS_AUTO, may);
        struct built_process *p = add_busy_process(w, PID, 6);

        mutex_convoy(p, ADDR, 103, 104, 2);
        sweep(w, TICK);
        sweep(w, TICK);
        struct request out[64];
        size_t n = model_requests(w->model, out, 64);
        int stops = 0;
        for (size_t i = 0; i < n; i++)
            stops += out[i].kind == REQUEST_STACK && out[i].tid == 103 && out[i].may_stop;
        assert_int_equal(stops, may);
        struct frame_fact f[1] = {frame("compress", MODULE_OTHER)};
        if (may)
            stack_comes(w, p, 103, f, 1);
        sweep(w, TICK);
        struct snapshot *s = snapshot_now(w);
        const struct snap_stack *top = profile_of(only_lock(s));
        assert_non_null(top);
        assert_int_equal(top->count, 1);
        assert_int_equal(top->nframes, may);
        assert_true(strcmp(top->note, "running") == 0 || strcmp(top->note, "runq") == 0);
        snapshot_free(s);
        world_free(w);
    }
}

/* Who had let go of the lock, or waited for it again, when its stack was taken is no holder. */
static void test_profile_without_former_holders(void **state)
{
    (void)state;
    struct world *w = world_with(STACKS_AUTO, true);
    struct built_process *p = add_busy_process(w, PID, 6);
    struct frame_fact f[1] = {frame("unlock", MODULE_OTHER)};

    mutex_convoy(p, ADDR, 103, 104, 2);
    sweep(w, TICK);
    sweep(w, TICK);
    struct request out[64];
    size_t n = model_requests(w->model, out, 64);
    for (size_t i = 0; i < n; i++) {
        if (out[i].kind != REQUEST_STACK || out[i].tid != 103)
            continue;
        assert_true(out[i].check.addr == ADDR + 8 && out[i].check.mask == UINT32_MAX);
        assert_int_equal(out[i].check.value, 103);
    }
    stack_comes(w, p, 103, f, 1)->not_holder = true;
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_null(profile_of(only_lock(s)));
    snapshot_free(s);
    world_free(w);
}

/* A request whose answer was lost must not count later, when the thread waits elsewhere. */
static void test_profile_forgets_lost_requests(void **state)
{
    (void)state;
    struct world *w = world_with(STACKS_AUTO, true);
    struct built_process *p = add_busy_process(w, PID, 8);
    struct frame_fact f[1] = {frame("elsewhere", MODULE_OTHER)};

    mutex_convoy(p, ADDR, 103, 104, 2);
    sweep(w, TICK);
    sweep(w, TICK);
    assert_int_equal(count_asked(w, REQUEST_STACK, 103), 1); /* as a holder; it is lost */
    mutex_convoy(p, ADDR + 4096, 107, 103, 1);
    mutex_convoy(p, ADDR, 106, 104, 2);
    sleeps_at(p, 103, 0x7ffe3000);
    sweep(w, 400 * NSEC_PER_MSEC);
    assert_int_equal(count_asked(w, REQUEST_STACK, 103), 1); /* as a waiter */
    stack_comes(w, p, 103, f, 1);
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    for (size_t i = 0; i < s->nlocks; i++) {
        const struct snap_stack *top = profile_of(&s->locks[i]);
        assert_true(!top || top->nframes == 0);
    }
    snapshot_free(s);
    world_free(w);
}

/* The budget of stops was used up while it ran; now it sleeps, and its stack costs nothing. */
static void test_sleeper_is_asked_for_after_a_refusal(void **state)
{
    (void)state;
    struct world *w = world_with(STACKS_AUTO, true);
    struct built_process *p = add_busy_process(w, PID, 6);

    mutex_convoy(p, ADDR, 103, 104, 2);
    sweep(w, TICK);
    sweep(w, TICK);
    assert_int_equal(count_asked(w, REQUEST_STACK, 103), 1);
    struct stack_fact *no = stack_comes(w, p, 103, NULL, 0);
    no->taken = STACK_NOT_NOW;
    no->why = "the budget of stops is used up";
    sweep(w, TICK);
    calls(p, 103, CALL_fsync);
    thread_of(p, 103)->fact.runs--; /* in the same time slice */
    sleeps_at(p, 103, 0x7ffe3000);
    sweep(w, 150 * NSEC_PER_MSEC);
    assert_int_equal(count_asked(w, REQUEST_STACK, 103), 1);
    world_free(w);
}

/* One stack is one piece of evidence, however often it is looked at. */
static void test_stack_makes_likely_once(void **state)
{
    (void)state;
    struct world *w = world_with(STACKS_AUTO, false);
    struct built_process *p = add_busy_process(w, PID, 6);
    struct frame_fact f[2] = {frame("pthread_mutex_lock", MODULE_GLIBC),
                              frame("own_lock", MODULE_OTHER)};

    waits(p, 104, ADDR, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 2);
    put32(&word_at(p, ADDR)->memory, 0, 2); /* nothing around it looks like a mutex */
    put32(&word_at(p, ADDR)->memory, 8, 0x7fffff);
    sweep(w, TICK);
    stack_comes(w, p, 104, f, 2);
    sweeps(w, 5, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(only_lock(s)->kind, KIND_MUTEX);
    assert_int_equal(only_lock(s)->confidence, CONF_LIKELY);
    snapshot_free(s);
    world_free(w);
}

/* glibc parks who may not take a PI mutex on a word of its own stack: that is no condition variable
 * and not held by anybody. */
static void test_refused_pi_mutex(void **state)
{
    (void)state;
    struct world *w = world_with(STACKS_AUTO, false);
    struct built_process *p = add_busy_process(w, PID, 6);
    struct frame_fact f[2] = {frame("pthread_mutex_lock", MODULE_GLIBC),
                              frame("own_lock", MODULE_OTHER)};

    waits(p, 104, ADDR, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME | FUTEX_PRIVATE_FLAG, 0);
    thread_of(p, 104)->fact.futex.timed = false;
    word_at(p, ADDR)->fact.maybe_lock = false;
    sleeps_at(p, 104, ADDR - 64);
    sweep(w, TICK);
    stack_comes(w, p, 104, f, 2);
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nlocks, 1);
    assert_int_equal(s->locks[0].kind, KIND_FUTEX);
    assert_non_null(strstr(s->locks[0].name, "deadlock"));
    snapshot_free(s);
    world_free(w);
}

static void test_all_shows_every_thread(void **state)
{
    (void)state;
    struct world *w = world_with(STACKS_ALL, false);
    struct built_process *p = add_busy_process(w, PID, 3);
    struct frame_fact f[1] = {frame("read", MODULE_GLIBC)};

    calls(p, PID + 1, CALL_read);
    sleeps_at(p, PID + 1, 0x7ffe3000);
    sweep(w, TICK);
    assert_int_equal(count_asked(w, REQUEST_STACK, PID + 1), 1);
    stack_comes(w, p, PID + 1, f, 1);
    sweep(w, TICK);
    struct snapshot *s = snapshot_now(w);
    assert_int_equal(s->nthreads, 3);
    assert_int_equal(s->threads[1].tid, PID + 1);
    assert_int_equal(s->threads[1].stack.nframes, 1);
    assert_int_equal(s->threads[0].stack.nframes, 0);
    assert_string_equal(s->threads[0].stack.note, "it runs");
    snapshot_free(s);
    world_free(w);
}

/* However many threads there are, stacks are asked for at a bounded rate. */
static void test_rate_is_bounded(void **state)
{
    (void)state;
    struct world *w = world_with(STACKS_AUTO, false);
    struct built_process *p = add_busy_process(w, PID, 2000);
    int asked = 0;

    for (int i = 1; i < 2000; i++) {
        uint64_t addr = ADDR + 64 * (uint64_t)i;
        waits(p, PID + i, addr, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 7);
        word_at(p, addr)->fact.maybe_lock = false;
        sleeps_at(p, PID + i, 0x7ffe0000 + (uint64_t)i * 4096);
    }
    for (int i = 0; i < 50; i++) {
        sweep(w, TICK);
        asked += count_asked(w, REQUEST_STACK, 0);
    }
    assert_in_range(asked, 100, 260);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off_asks_nothing),
        cmocka_unit_test(test_waiters_are_asked_for_once),
        cmocka_unit_test(test_waiters_grouped_by_stack),
        cmocka_unit_test(test_next_sleep),
        cmocka_unit_test(test_answer_of_another_thread_is_dropped),
        cmocka_unit_test(test_call_site_makes_one_row),
        cmocka_unit_test(test_unknown_code_stays_sync),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_user_names),
        cmocka_unit_test(test_profile_of_blocked_holder),
        cmocka_unit_test(test_profile_of_running_holder),
        cmocka_unit_test(test_profile_without_former_holders),
        cmocka_unit_test(test_profile_forgets_lost_requests),
        cmocka_unit_test(test_sleeper_is_asked_for_after_a_refusal),
        cmocka_unit_test(test_stack_makes_likely_once),
        cmocka_unit_test(test_refused_pi_mutex),
        cmocka_unit_test(test_all_shows_every_thread),
        cmocka_unit_test(test_rate_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

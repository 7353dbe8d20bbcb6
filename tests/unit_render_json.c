/* unit_render_json - what must hold for the JSON of any snapshot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "snap_build.h"

static json_t *parsed(const struct snapshot *s)
{
    json_error_t error;
    char *text = render(s, true, false, 80);
    json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, &error);

    assert_non_null(o);
    assert_null(strcasestr(text, "nan"));
    assert_null(strstr(text, "00000000"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    free(text);
    return o;
}

/* WANT: the names in their order, with a blank behind each. */
static void assert_keys(json_t *object, const char *want)
{
    char keys[1024] = "";
    const char *key;
    json_t *value;

    assert_true(json_is_object(object));
    json_object_foreach(object, key, value)
    {
        strcat(keys, key);
        strcat(keys, " ");
    }
    assert_string_equal(keys, want);
}

static json_t *first(json_t *object, const char *array)
{
    return json_array_get(json_object_get(object, array), 0);
}

static void test_json_has_the_names_of_the_contract(void **state)
{
    struct mariadb m;

    (void)state;
    fill_mariadb(&m);
    json_t *o = parsed(&m.snapshot), *p = first(o, "processes"), *l = first(o, "locks");
    assert_keys(o, "schema time elapsed_s host self processes locks chains findings verdict "
                   "threads ");
    assert_keys(json_object_get(o, "host"), "name kernel cpus ");
    assert_keys(json_object_get(o, "self"), "cpu_pct rss_kb sweep_hz probe_hz samples stops "
                                            "stop_us_max unreadable vanished denied degraded ");
    assert_keys(p, "pid comm threads cpu_cores cpus_allowed rss_kb voluntary_per_s "
                   "involuntary_per_s minflt_per_s majflt_per_s states throttle "
                   "frozen ");
    assert_keys(json_object_get(p, "states"), "running runq lock filelock sync net pipe disk "
                                              "kernel sleep stopped other ");
    assert_keys(l, "id class kind confidence name site pid address path deleted range waiters "
                   "waiters_avg_1s waiters_avg_10s waiters_avg_60s waiters_max wait_share busy wait_ms "
                   "wait_ms_p99 wait_ms_max contended_per_s acquired_per_s hold_us ceiling_per_s "
                   "model_wait_ms queue_depth attempts_per_s refused_share only_held "
                   "holders waiter_threads stacks history held ");
    assert_keys(first(l, "holders"), "pid tid comm mode state detail confidence age_ms waits_for "
                                 "fd held_ms ");
    assert_keys(first(l, "waiter_threads"), "pid tid comm mode age_ms blocked_by level "
                                        "behind ");
    json_decref(o);
}

static void test_json_names_of_stacks_and_chains(void **state)
{
    struct shop m;

    (void)state;
    fill_shop(&m);
    json_t *o = parsed(&m.snapshot), *stack = first(first(o, "locks"), "stacks");
    json_t *chain = first(o, "chains"), *thread = first(o, "threads");
    assert_keys(stack, "role count share pid tid complete guessed presumed note frames ");
    assert_keys(first(stack, "frames"), "name into module offset file line ");
    assert_keys(chain, "root end confidence detail depth blocked cycle path text ");
    assert_keys(json_object_get(chain, "root"), "pid tid comm state ");
    assert_keys(first(chain, "path"), "pid tid comm state lock confidence ");
    assert_keys(thread, "pid tid comm state age_ms lock stack ");
    assert_keys(json_object_get(thread, "stack"), "complete guessed presumed note frames ");
    json_decref(o);
}

static const json_t *frame(const json_t *o, size_t i)
{
    const json_t *stack = first(first((json_t *)o, "locks"), "stacks");

    return json_array_get(json_object_get(stack, "frames"), i);
}

static void test_json_frames(void **state)
{
    struct shop m;

    (void)state;
    fill_shop(&m);
    json_t *o = parsed(&m.snapshot);
    assert_string_equal(json_string_value(json_object_get(frame(o, 2), "name")),
                        shop_wait_frames[2].name); /* whole, however long */
    assert_int_equal(json_integer_value(json_object_get(frame(o, 2), "line")), 45);
    assert_string_equal(json_string_value(json_object_get(frame(o, 1), "offset")), "0x8b482");
    assert_int_equal(json_integer_value(json_object_get(frame(o, 1), "into")), 0x112);
    assert_true(json_is_null(json_object_get(frame(o, 1), "line")));
    assert_true(json_is_null(json_object_get(frame(o, 3), "name")));
    assert_true(json_is_null(json_object_get(frame(o, 3), "into")));
    assert_true(json_is_null(json_object_get(frame(o, 4), "module")));
    json_decref(o);
}

static void test_json_without_stacks(void **state)
{
    struct shop m;

    (void)state;
    fill_shop(&m);
    m.snapshot.has_stacks = false;
    m.snapshot.threads = NULL;
    m.snapshot.chains = NULL;
    m.snapshot.nchains = 0;
    json_t *o = parsed(&m.snapshot);
    assert_true(json_is_null(json_object_get(first(o, "locks"), "stacks")));
    assert_true(json_is_null(json_object_get(o, "threads")));
    assert_int_equal(json_array_size(json_object_get(o, "chains")), 0);
    assert_true(json_is_array(json_object_get(o, "chains")));
    json_decref(o);
}

/* Stacks are taken, but none of this lock; all threads, but none is left. */
static void test_json_empty_stacks(void **state)
{
    struct shop m;

    (void)state;
    fill_shop(&m);
    m.locks[0].nstacks = 0;
    m.snapshot.nthreads = 0;
    json_t *o = parsed(&m.snapshot);
    assert_true(json_is_array(json_object_get(first(o, "locks"), "stacks")));
    assert_true(json_is_array(json_object_get(o, "threads")));
    json_decref(o);
}

static void test_json_unknown_is_null(void **state)
{
    struct snap_holder h = {.pid = -1, .tid = -1, .age_ms = NAN};
    struct snap_lock l = blank_lock("x", KIND_FUTEX_LOCK);

    (void)state;
    l.waiters = l.waiters_max = l.pid = -1;
    l.holders = &h;
    l.nholders = 1;
    struct snapshot s = snapshot_of(NULL, 0, &l, 1);
    s.verdict = NULL;
    s.cpus = 0;
    s.host[0] = '\0';
    json_t *o = parsed(&s), *lock = first(o, "locks"), *value;
    const char *key;
    size_t nulls = 0;

    json_object_foreach(lock, key, value) nulls += json_is_null(value);
    /* Name, site, pid, address, path, range; every figure; queue, attempts; stacks, held. */
    assert_int_equal(nulls, 6 + 15 + 3 + 2);
    nulls = 0;
    json_object_foreach(first(lock, "holders"), key, value) nulls += json_is_null(value);
    assert_int_equal(nulls, 10); /* all but the confidence */
    assert_true(json_is_null(json_object_get(o, "verdict")));
    assert_int_equal(json_array_size(json_object_get(lock, "history")), 0);
    assert_true(json_is_null(json_object_get(lock, "stacks")));
    json_decref(o);
}

static void test_json_holder_that_is_gone(void **state)
{
    struct mariadb m;

    (void)state;
    fill_mariadb(&m);
    json_t *o = parsed(&m.snapshot);
    json_t *h = first(json_array_get(json_object_get(o, "locks"), 2), "holders");
    assert_string_equal(json_string_value(json_object_get(h, "state")), "gone");
    json_decref(o);
}

static void assert_busy(double value, const char *want)
{
    struct snap_lock l = blank_lock("x", KIND_MUTEX);
    struct snapshot s = snapshot_of(NULL, 0, &l, 1);
    char pattern[64];

    l.busy = value;
    char *text = render(&s, true, true, 80);
    snprintf(pattern, sizeof(pattern), "\"busy\":%s,", want);
    if (!strstr(text, pattern))
        print_error("not in the text: %s\n", pattern);
    assert_non_null(strstr(text, pattern));
    free(text);
}

static void test_json_numbers(void **state)
{
    (void)state;
    assert_busy(5, "5.0");
    assert_busy(0, "0.0");
    assert_busy(0.1, "0.1");
    assert_busy(0.1 + 0.2, "0.3");
    assert_busy(1.0 / 3, "0.333");
    assert_busy(28.4, "28.4");
    assert_busy(-0.0001, "0.0");
    assert_busy(123456789.0625, "123456789.063");
    assert_busy(1e15, "1e15");
    assert_busy(1e308, "1e308");
    assert_busy(NAN, "null");
    assert_busy(INFINITY, "null");
    assert_busy(-INFINITY, "null");
}

static void test_json_whole_history(void **state)
{
    struct snap_lock l = blank_lock("x", KIND_MUTEX);
    struct snapshot s = snapshot_of(NULL, 0, &l, 1);

    (void)state;
    for (int i = 0; i < SNAP_HISTORY; i++)
        l.history[i] = (uint16_t)(65534 - i);
    l.nhistory = SNAP_HISTORY;
    json_t *o = parsed(&s), *history = json_object_get(first(o, "locks"), "history");
    assert_int_equal(json_array_size(history), SNAP_HISTORY);
    assert_int_equal(json_integer_value(json_array_get(history, 0)), 65534);
    assert_int_equal(json_integer_value(json_array_get(history, 59)), 65534 - 59);
    json_decref(o);
    l.history[7] = SNAP_NO_DATA; /* nobody looked in that second */
    o = parsed(&s);
    history = json_object_get(first(o, "locks"), "history");
    assert_true(json_is_null(json_array_get(history, 7)));
    json_decref(o);
}

static void test_json_tells_write_errors(void **state)
{
    struct snap_process p = healthy_process(1, "a");
    struct snapshot s = snapshot_of(&p, 1, NULL, 0);
    char small[16];
    FILE *out = fmemopen(small, sizeof(small), "w");

    (void)state;
    assert_non_null(out);
    setvbuf(out, NULL, _IONBF, 0);
    assert_int_equal(render_json(out, &s), -1);
    fclose(out);
}

#define MANY_LOCKS   200
#define MANY_WAITERS 100

static double seconds_to_render(const struct snapshot *s)
{
    nsec_t before = clock_thread_cpu();

    free(render(s, true, false, 80));
    return (double)(clock_thread_cpu() - before) / NSEC_PER_SEC;
}

/* The bound is loose: it is there to catch quadratic growth, under sanitizers too. */
static void test_json_of_many_locks(void **state)
{
    static struct snap_waiter waiters[MANY_WAITERS];
    static struct snap_lock locks[MANY_LOCKS];
    double best = INFINITY;

    (void)state;
    for (int i = 0; i < MANY_WAITERS; i++)
        waiters[i] = (struct snap_waiter){.pid = 100,
                                            .tid = 1000 + i,
                                            .comm = "worker",
                                            .mode = MODE_EXCLUSIVE,
                                            .age_ms = i / 3.0,
                                            .blocked_by = "hard"};
    for (int i = 0; i < MANY_LOCKS; i++) {
        locks[i] = waited_lock("p100:7f0000000000", KIND_MUTEX, MANY_WAITERS);
        locks[i].waiter_threads = waiters;
        locks[i].nwaiter_threads = MANY_WAITERS;
        locks[i].nhistory = SNAP_HISTORY;
    }
    struct snapshot s = snapshot_of(NULL, 0, locks, MANY_LOCKS);
    for (int round = 0; round < 5; round++)
        best = fmin(best, seconds_to_render(&s));
    print_message("%d locks with %d waiters: %.1f ms\n", MANY_LOCKS, MANY_WAITERS, best * 1000);
    assert_true(best < 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_has_the_names_of_the_contract),
        cmocka_unit_test(test_json_names_of_stacks_and_chains),
        cmocka_unit_test(test_json_frames),
        cmocka_unit_test(test_json_without_stacks),
        cmocka_unit_test(test_json_empty_stacks),
        cmocka_unit_test(test_json_unknown_is_null),
        cmocka_unit_test(test_json_holder_that_is_gone),
        cmocka_unit_test(test_json_numbers),
        cmocka_unit_test(test_json_whole_history),
        cmocka_unit_test(test_json_tells_write_errors),
        cmocka_unit_test(test_json_of_many_locks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

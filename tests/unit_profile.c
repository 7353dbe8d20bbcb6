/* unit_profile - where holders were seen: counting, making room, forgetting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../src/profile.h"

static struct kept_stack stacks[PROFILE_PATHS + 4];

static int setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(stacks) / sizeof(stacks[0]); i++)
        stacks[i].path = i + 1;
    return 0;
}

/* Wherever in these functions it was, and whether or not it had a CPU at the moment. */
static void test_one_path_of_functions(void **state)
{
    (void)state;
    struct kept_stack elsewhere = stacks[0];
    struct profile p = {0};
    struct profile_path out[PROFILE_PATHS];

    profile_add(&p, &stacks[0], THREAD_RUNNING, 0);
    profile_add(&p, &elsewhere, THREAD_RUNQ, 0);
    assert_int_equal(profile_sort(&p, out), 1);
    assert_int_equal(out[0].count, 2);
    assert_int_equal(out[0].state, THREAD_RUNNING);
    assert_ptr_equal(out[0].stack, &stacks[0]);
}

static void test_counts_and_order(void **state)
{
    (void)state;
    struct profile p = {0};
    struct profile_path out[PROFILE_PATHS];

    assert_int_equal(profile_sort(&p, out), 0);
    for (int i = 0; i < 3; i++)
        profile_add(&p, &stacks[1], THREAD_DISK, i);
    profile_add(&p, &stacks[0], THREAD_NET, 3);
    profile_add(&p, NULL, THREAD_RUNNING, 4);
    profile_add(&p, NULL, THREAD_RUNNING, 5);
    assert_int_equal(profile_sort(&p, out), 3);
    assert_ptr_equal(out[0].stack, &stacks[1]);
    assert_int_equal(out[0].count, 3);
    assert_null(out[1].stack);
    assert_int_equal(out[1].count, 2);
    assert_int_equal(out[2].state, THREAD_NET);
    assert_int_equal(p.total, 6);
}

/* The same path is another one when the holder does something else there. */
static void test_state_tells_paths_apart(void **state)
{
    (void)state;
    struct profile p = {0};
    struct profile_path out[PROFILE_PATHS];

    profile_add(&p, &stacks[0], THREAD_DISK, 0);
    profile_add(&p, &stacks[0], THREAD_LOCK, 0);
    assert_int_equal(profile_sort(&p, out), 2);
}

static void test_rarest_makes_room(void **state)
{
    (void)state;
    struct profile p = {0};
    struct profile_path out[PROFILE_PATHS];

    for (size_t i = 0; i < PROFILE_PATHS; i++) {
        profile_add(&p, &stacks[i], THREAD_DISK, 0);
        if (i != 5)
            profile_add(&p, &stacks[i], THREAD_DISK, 0);
    }
    profile_add(&p, &stacks[PROFILE_PATHS], THREAD_DISK, 0);
    size_t n = profile_sort(&p, out);
    assert_int_equal(n, PROFILE_PATHS);
    uint32_t sum = 0;
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        assert_ptr_not_equal(out[i].stack, &stacks[5]);
        found |= out[i].stack == &stacks[PROFILE_PATHS];
        sum += out[i].count;
    }
    assert_true(found);
    assert_int_equal(sum, p.total);
}

static void test_old_sightings_fade(void **state)
{
    (void)state;
    struct profile p = {0};
    struct profile_path out[PROFILE_PATHS];

    for (int i = 0; i < 8; i++)
        profile_add(&p, &stacks[0], THREAD_DISK, 1);
    profile_add(&p, &stacks[1], THREAD_NET, PROFILE_HALVES + 1);
    profile_sort(&p, out);
    assert_int_equal(out[0].count, 4);
    assert_int_equal(out[1].count, 1);
    assert_int_equal(p.total, 5);
}

/* Stops are rarer than sightings, and each stands for those in between. */
static void test_running_holders(void **state)
{
    (void)state;
    struct profile p = {0};
    struct profile_path out[PROFILE_PATHS];

    assert_true(profile_stop_due(&p, 0));
    profile_add_running(&p, &stacks[0], 1);
    for (int i = 1; i < 5; i++)
        assert_false(profile_stop_due(&p, i * PROFILE_EVERY));
    assert_true(profile_stop_due(&p, 1 + PROFILE_STOP_EVERY));
    profile_add_running(&p, &stacks[1], 1 + PROFILE_STOP_EVERY);
    assert_int_equal(profile_sort(&p, out), 2);
    assert_int_equal(out[0].count, 5);
    assert_ptr_equal(out[0].stack, &stacks[1]);
    assert_int_equal(p.total, 6);
}

static void test_due(void **state)
{
    (void)state;
    struct profile p = {0};

    assert_true(profile_due(&p, 0));
    assert_false(profile_due(&p, PROFILE_EVERY - 1));
    assert_true(profile_due(&p, PROFILE_EVERY + 1));
    assert_false(profile_due(&p, PROFILE_EVERY + 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_and_order),
        cmocka_unit_test(test_state_tells_paths_apart),
        cmocka_unit_test(test_rarest_makes_room),
        cmocka_unit_test(test_old_sightings_fade),
        cmocka_unit_test(test_running_holders),
        cmocka_unit_test(test_due),
        cmocka_unit_test(test_one_path_of_functions),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}

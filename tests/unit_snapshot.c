/* unit_snapshot - vocabularies, looking a lock up, and freeing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../src/snapshot.h"

static void test_states_are_those_of_the_contract(void **state)
{
    static const char *const want[] = {"running", "runq", "lock",   "filelock", "sync",    "net",
                                       "pipe",    "disk", "kernel", "sleep",    "stopped", "other"};

    (void)state;
    assert_int_equal(THREAD_STATES, sizeof(want) / sizeof(want[0]));
    for (enum thread_state s = 0; s < THREAD_STATES; s++)
        assert_string_equal(thread_state_name(s), want[s]);
    assert_string_equal(thread_state_label(THREAD_LOCK), "LOCK");
    assert_string_equal(thread_state_label(THREAD_STOPPED), "stop");
}

static void test_kinds_have_name_and_class(void **state)
{
    (void)state;
    assert_string_equal(lock_kind_name(KIND_MUTEX), "mutex");
    assert_string_equal(lock_kind_name(KIND_MUTEX_PI), "mutex-pi");
    assert_string_equal(lock_kind_name(KIND_FUTEX), "futex");
    assert_int_equal(lock_kind_class(KIND_MUTEX), CLASS_LOCK);
    assert_int_equal(lock_kind_class(KIND_RWLOCK), CLASS_LOCK);
    assert_int_equal(lock_kind_class(KIND_FLOCK), CLASS_FILELOCK);
    assert_int_equal(lock_kind_class(KIND_POSIX), CLASS_FILELOCK);
    assert_int_equal(lock_kind_class(KIND_COND), CLASS_SYNC);
    assert_int_equal(lock_kind_class(KIND_SEM), CLASS_SYNC);
    assert_int_equal(lock_kind_class(KIND_BARRIER), CLASS_SYNC);
    assert_int_equal(lock_kind_class(KIND_JOIN), CLASS_SYNC);
}

static void test_kind_names_differ(void **state)
{
    (void)state;
    for (enum lock_kind a = 0; a < LOCK_KINDS; a++)
        for (enum lock_kind b = 0; b < a; b++)
            assert_string_not_equal(lock_kind_name(a), lock_kind_name(b));
}

static void test_small_vocabularies(void **state)
{
    (void)state;
    assert_string_equal(lock_class_name(CLASS_LOCK), "lock");
    assert_string_equal(lock_class_name(CLASS_FILELOCK), "filelock");
    assert_string_equal(lock_class_name(CLASS_KERNEL), "kernel");
    assert_string_equal(lock_class_name(CLASS_SYNC), "sync");
    assert_string_equal(confidence_name(CONF_UNKNOWN), "unknown");
    assert_string_equal(confidence_name(CONF_LIKELY), "likely");
    assert_string_equal(confidence_name(CONF_CONFIRMED), "confirmed");
    assert_string_equal(stack_role_name(ROLE_WAITER), "waiter");
    assert_string_equal(stack_role_name(ROLE_HOLDER), "holder");
    assert_string_equal(stack_role_name(ROLE_PROFILE), "profile");
    assert_string_equal(chain_end_name(CHAIN_RUNS), "runs");
    assert_string_equal(chain_end_name(CHAIN_OUTSIDE), "outside");
    assert_string_equal(chain_end_name(CHAIN_HAND_OFF), "hand-off");
    assert_string_equal(chain_end_name(CHAIN_UNNAMED), "unnamed");
    assert_string_equal(chain_end_name(CHAIN_GONE), "gone");
    assert_string_equal(chain_end_name(CHAIN_CYCLE), "cycle");
    assert_string_equal(chain_end_name(CHAIN_CYCLE_TIMED), "cycle-timed");
    assert_null(lock_mode_name(MODE_NONE));
    assert_string_equal(lock_mode_name(MODE_EXCLUSIVE), "exclusive");
    assert_string_equal(lock_mode_name(MODE_SHARED), "shared");
    assert_string_equal(severity_name(SEVERITY_INFO), "info");
    assert_string_equal(severity_name(SEVERITY_WARNING), "warning");
    assert_string_equal(severity_name(SEVERITY_CRITICAL), "critical");
}

static void test_lock_is_found_by_id(void **state)
{
    struct snap_lock locks[] = {{.id = "a"}, {.id = "ab"}, {.id = "b"}};
    struct snapshot s = {.locks = locks, .nlocks = 3}, empty = {0};

    (void)state;
    assert_ptr_equal(snapshot_lock(&s, "ab"), &locks[1]);
    assert_ptr_equal(snapshot_lock(&s, "b"), &locks[2]);
    assert_null(snapshot_lock(&s, "abc"));
    assert_null(snapshot_lock(&s, ""));
    assert_null(snapshot_lock(&empty, "a"));
}

/* What is not freed is told by the leak checker; one of many, as a pointer to the last may linger
 * on the stack. */
static void test_free_takes_everything(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        struct snapshot *s = xcalloc(1, sizeof(*s));
        for (int k = 0; k < 30; k++)
            s->verdict = arena_printf(&s->arena, "%0500d", k);
        snapshot_free(s);
    }
    snapshot_free(NULL);
    snapshot_free(xcalloc(1, sizeof(struct snapshot)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_are_those_of_the_contract),
        cmocka_unit_test(test_kinds_have_name_and_class),
        cmocka_unit_test(test_kind_names_differ),
        cmocka_unit_test(test_small_vocabularies),
        cmocka_unit_test(test_lock_is_found_by_id),
        cmocka_unit_test(test_free_takes_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

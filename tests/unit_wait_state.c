/* unit_wait_state - what a thread is doing, by how and in which call it was seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "wait_build.h"

/* Thread states ------------------------------------------------------------------------------ */

static enum thread_state blocked_in(enum call call)
{
    struct thread_fact f = {.seen = SEEN_CALL, .call = call, .fd = -1};

    return wait_state(&f, KIND_NONE);
}

static void test_state_by_call(void **state)
{
    (void)state;
    static const enum thread_state by_wait[] = {
        [WAIT_FUTEX] = THREAD_SYNC,        [WAIT_RESTART] = THREAD_OTHER,
        [WAIT_FILELOCK] = THREAD_FILELOCK, [WAIT_FCNTL] = THREAD_DISK,
        [WAIT_SEMOP] = THREAD_SYNC,        [WAIT_FD] = THREAD_OTHER,
        [WAIT_NET] = THREAD_NET,           [WAIT_PIPE] = THREAD_PIPE,
        [WAIT_DISK] = THREAD_DISK,         [WAIT_KERNEL] = THREAD_KERNEL,
        [WAIT_SLEEP] = THREAD_SLEEP,       [WAIT_OTHER] = THREAD_OTHER,
    };

    for (enum call c = 0; c < CALL_COUNT; c++) {
        if (blocked_in(c) != by_wait[syscalls_wait(c)])
            fail_msg("%s: %s", syscalls_name(c), thread_state_name(blocked_in(c)));
    }
}

static void test_state_by_descriptor(void **state)
{
    (void)state;
    static const enum thread_state by_kind[] = {
        [FD_UNKNOWN] = THREAD_OTHER, [FD_FILE] = THREAD_DISK, [FD_SOCKET] = THREAD_NET,
        [FD_PIPE] = THREAD_PIPE,     [FD_TTY] = THREAD_PIPE,  [FD_EVENT] = THREAD_PIPE,
    };

    for (size_t i = 0; i < ARRAY_SIZE(by_kind); i++) {
        struct thread_fact f = {
            .seen = SEEN_CALL, .call = CALL_read, .fd = 3, .fd_kind = (enum fd_kind)i};
        assert_int_equal(wait_state(&f, KIND_NONE), by_kind[i]);
        f.call = CALL_recvfrom; /* is about a socket whatever is known of the descriptor */
        assert_int_equal(wait_state(&f, KIND_NONE), THREAD_NET);
    }
}

static void test_state_of_file_locks(void **state)
{
    (void)state;
    static const int waiting[] = {F_SETLKW, F_OFD_SETLKW, 14};
    struct thread_fact f = {.seen = SEEN_CALL, .call = CALL_fcntl, .fd = 3};

    for (size_t i = 0; i < ARRAY_SIZE(waiting); i++) {
        f.arg[1] = (uint64_t)waiting[i];
        assert_int_equal(wait_state(&f, KIND_NONE), THREAD_FILELOCK);
    }
    f.arg[1] = F_GETLK;
    assert_int_equal(wait_state(&f, KIND_NONE), THREAD_DISK);
}

static void test_state_by_kind(void **state)
{
    (void)state;
    struct thread_fact f = {.seen = SEEN_CALL, .call = CALL_futex};

    for (enum lock_kind k = 0; k < LOCK_KINDS; k++)
        assert_int_equal(wait_state(&f, k),
                         lock_kind_class(k) == CLASS_LOCK ? THREAD_LOCK : THREAD_SYNC);
}

static void test_state_by_how_it_was_seen(void **state)
{
    (void)state;
    static const enum thread_state by_seen[] = {
        [SEEN_ACTIVE] = THREAD_RUNNING, [SEEN_CALL] = THREAD_SYNC,
        [SEEN_FAULT] = THREAD_KERNEL,   [SEEN_STOPPED] = THREAD_STOPPED,
        [SEEN_DEAD] = THREAD_OTHER,     [SEEN_UNREADABLE] = THREAD_OTHER,
    };

    for (size_t i = 0; i < ARRAY_SIZE(by_seen); i++) {
        struct thread_fact f = {.seen = (enum seen)i, .call = CALL_futex};
        assert_int_equal(wait_state(&f, KIND_NONE), by_seen[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_by_call),
        cmocka_unit_test(test_state_by_descriptor),
        cmocka_unit_test(test_state_of_file_locks),
        cmocka_unit_test(test_state_by_kind),
        cmocka_unit_test(test_state_by_how_it_was_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

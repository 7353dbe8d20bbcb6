/* unit_signature_api - through which function of the C library, or of another library of locks, a
 * thread came to wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "signature_build.h"

static struct api_match classify(struct stack_of_names s)
{
    struct api_match m = api_classify(s.f, s.n);

    assert_true(m.caller <= s.n && m.frame <= s.n);
    release(&s);
    return m;
}

static void check_api(struct api_match m, enum lock_kind kind, const char *inside, size_t frame,
                      size_t caller)
{
    assert_int_equal(m.kind, kind);
    if (inside)
        assert_string_equal(m.inside, inside);
    else
        assert_null(m.inside);
    assert_int_equal(m.frame, frame);
    assert_int_equal(m.caller, caller);
}
#define CHECK(kind, inside, frame, caller, ...)                                                    \
    check_api(classify(STACK(__VA_ARGS__)), KIND_##kind, inside, frame, caller)

static void test_threads_of_glibc(void **state)
{
    (void)state;
    CHECK(MUTEX, NULL, 1, 2, "?@" LIBC, "pthread_mutex_lock@" LIBC, "work@prog", "?@" LIBC);
    CHECK(MUTEX, NULL, 1, 3, "__GI___lll_lock_wait@" LIBC, "___pthread_mutex_lock@" LIBC,
          "__gthread_mutex_lock(pthread_mutex_t*)@prog", "work@prog");
    CHECK(COND, NULL, 3, 4, "__futex_abstimed_wait_common64@" LIBC,
          "__GI___futex_abstimed_wait_cancelable64@" LIBC, "?@" LIBC,
          "___pthread_cond_timedwait64@" LIBC, "?@mariadbd");
    /* It takes its mutex again: that is for the memory to tell. */
    CHECK(COND, NULL, 1, 3, "?@" LIBC, "pthread_cond_wait@" LIBC,
          "std::condition_variable::wait(std::unique_lock<std::mutex>&)@libstdc++.so.6", "w@prog");
    CHECK(SEM, NULL, 3, 4, "?@" LIBC, "do_futex_wait@" LIBC, "?@" LIBC, "sem_wait@" LIBC, "m@prog");
    CHECK(JOIN, NULL, 1, 3, "?@" LIBC, "pthread_clockjoin_np@" LIBC, "std::thread::join()@prog",
          "main@prog");
    CHECK(BARRIER, NULL, 0, 1, "pthread_barrier_wait@" LIBC, "main@prog");
    CHECK(ONCE, NULL, 1, 2, "?@" LIBC, "pthread_once@" LIBC, "main@prog");
    CHECK(ONCE, NULL, 1, 2, "syscall@" LIBC, "__cxa_guard_acquire@libstdc++.so.6", "f()@prog");
    CHECK(COND, NULL, 1, 2, "?@libpthread.so.0", "pthread_cond_wait@libpthread.so.0", "main@prog");
}

/* With debug names: what was called decides, and of the library's own locks the innermost. */
static void test_local_functions(void **state)
{
    (void)state;
    CHECK(COND, NULL, 3, 4, "~__lll_lock_wait@" LIBC, "~__pthread_mutex_cond_lock@" LIBC,
          "~__pthread_cond_wait_common@" LIBC, "___pthread_cond_wait@" LIBC, "work@prog");
    CHECK(MUTEX, NULL, 2, 3, "~__lll_lock_wait@" LIBC, "~__pthread_mutex_lock_full@" LIBC,
          "___pthread_mutex_lock@" LIBC, "work@prog");
    CHECK(ONCE, NULL, 1, 2, "~futex_wait@" LIBC, "~__pthread_once_slow@" LIBC, "f@prog",
          "pthread_join@" LIBC);
    CHECK(MUTEX, NULL, 0, 1, "~__pthread_mutex_cond_lock@" LIBC, "f@prog");
    CHECK(LIBC, "malloc arena", 1, 3, "~__lll_lock_wait_private@" LIBC, "~arena_get2@" LIBC,
          "fopen@" LIBC, "work@prog");
    CHECK(LIBC, "stdio list", 1, 4, "~__lll_lock_wait_private@" LIBC, "~_IO_cleanup@" LIBC,
          "~__run_exit_handlers@" LIBC, "exit@" LIBC, "main@prog");
}

static void test_modes(void **state)
{
    (void)state;
    assert_int_equal(classify(STACK("?@" LIBC, "pthread_rwlock_rdlock@" LIBC, "m@prog")).mode,
                     MODE_SHARED);
    assert_int_equal(classify(STACK("?@" LIBC, "pthread_rwlock_timedwrlock@" LIBC, "m@prog")).mode,
                     MODE_EXCLUSIVE);
    assert_int_equal(classify(STACK("?@" LIBC, "pthread_cond_wait@" LIBC, "m@prog")).mode,
                     MODE_NONE);
    assert_int_equal(
        classify(STACK("syscall@" LIBC, "std::sys::sync::rwlock::futex::RwLock::read_contended@p",
                       "p::main@p"))
            .mode,
        MODE_SHARED);
}

static void test_locks_inside_the_library(void **state)
{
    (void)state;
    CHECK(LIBC, "malloc arena", 2, 3, "?@" LIBC, "?@" LIBC, "malloc@" LIBC, "work@prog");
    CHECK(LIBC, "malloc arena", 1, 3, "?@" LIBC, "malloc@" LIBC,
          "operator new(unsigned long)@libstdc++.so.6", "work@prog");
    CHECK(LIBC, "stdio stream", 1, 2, "?@" LIBC, "_IO_puts@" LIBC, "main@prog");
    CHECK(LIBC, "stdio stream", 1, 2, "?@" LIBC, "__fprintf_chk@" LIBC, "main@prog");
    CHECK(LIBC, "time zone (tzset_lock)", 2, 3, "__lll_lock_wait_private@" LIBC, "?@" LIBC,
          "localtime_r@" LIBC, "main@prog");
    CHECK(LIBC, "exit handlers", 1, 2, "?@" LIBC, "__cxa_atexit@" LIBC, "main@prog");
    CHECK(LIBC, "system log (syslog_lock)", 1, 2, "?@" LIBC, "__syslog_chk@" LIBC, "main@prog");
    CHECK(LIBC, "random numbers", 1, 2, "?@" LIBC, "random@" LIBC, "main@prog");
    CHECK(LIBC, "loader", 0, 1, "_dl_something_new@ld-linux-x86-64.so.2", "main@prog");
    /* The innermost decides: fopen() allocates. */
    CHECK(LIBC, "malloc arena", 1, 3, "?@" LIBC, "malloc@" LIBC, "fopen@" LIBC, "main@prog");
}

static void test_real_mutexes_inside_the_library(void **state)
{
    (void)state;
    CHECK(MUTEX, "loader", 1, 3, "?@" LIBC, "pthread_mutex_lock@" LIBC, "dl_iterate_phdr@" LIBC,
          "main@prog");
    CHECK(MUTEX, "loader", 1, 6, "?@" LIBC, "pthread_mutex_lock@" LIBC, "?@ld-linux-x86-64.so.2",
          "_dl_catch_exception@ld-linux-x86-64.so.2", "?@" LIBC, "dlopen@" LIBC, "main@prog");
    CHECK(RWLOCK, "message catalogues", 1, 3, "?@" LIBC, "pthread_rwlock_rdlock@" LIBC,
          "dcgettext@" LIBC, "main@prog");
    /* A callback of the program's own, or a function of another library, lies between. */
    CHECK(MUTEX, NULL, 1, 2, "?@" LIBC, "pthread_mutex_lock@" LIBC, "callback@prog",
          "dl_iterate_phdr@" LIBC, "main@prog");
    CHECK(MUTEX, NULL, 1, 4, "?@" LIBC, "pthread_mutex_lock@" LIBC, "?@libstdc++.so.6",
          "exit@" LIBC, "main@prog");
    /* Another allocator has its own locks. */
    CHECK(MUTEX, NULL, 1, 2, "?@" LIBC, "pthread_mutex_lock@" LIBC, "?@libjemalloc.so.2",
          "malloc@libjemalloc.so.2", "main@prog");
}

static void test_musl(void **state)
{
    (void)state;
    CHECK(MUTEX, NULL, 1, 2, "?@ld-musl-x86_64.so.1", "pthread_mutex_timedlock@ld-musl-x86_64.so.1",
          "main@prog");
    CHECK(LIBC, "stdio stream", 1, 3, "?@ld-musl-x86_64.so.1", "__lockfile@ld-musl-x86_64.so.1",
          "fputs@ld-musl-x86_64.so.1", "main@prog");
    CHECK(RWLOCK, "loader", 1, 3, "?@ld-musl-x86_64.so.1",
          "pthread_rwlock_rdlock@ld-musl-x86_64.so.1", "dl_iterate_phdr@ld-musl-x86_64.so.1",
          "main@prog");
}

static void test_static_programs(void **state)
{
    (void)state;
    CHECK(MUTEX, NULL, 1, 2, "__lll_lock_wait@prog", "pthread_mutex_lock@prog", "work@prog");
    CHECK(COND, NULL, 1, 4, "__futex_abstimed_wait_common64@prog",
          "__pthread_cond_wait_common@prog", "pthread_cond_wait@prog",
          "std::condition_variable::wait(X&)@prog", "work@prog");
    CHECK(LIBC, "malloc arena", 2, 3, "__lll_lock_wait_private@prog", "unknown@prog", "malloc@prog",
          "work@prog");
    CHECK(MUTEX, "loader", 1, 3, "__lll_lock_wait@prog", "pthread_mutex_lock@prog",
          "dl_iterate_phdr@prog", "work@prog");
    CHECK(MUTEX, NULL, 3, 4, "__syscall_cp_asm@prog", "__timedwait_cp@prog", "__timedwait@prog",
          "__pthread_mutex_timedlock@prog", "work@prog");
    /* A function of the program's that has a name of the library's. */
    CHECK(MUTEX, NULL, 1, 2, "__lll_lock_wait@prog", "pthread_mutex_lock@prog", "warn@prog",
          "main@prog");
    CHECK(NONE, NULL, 5, 1, "syscall@prog", "my_lock@prog", "cb@prog", "qsort@prog", "exit@prog");
    /* Where the library is a module, such names elsewhere are the program's. */
    CHECK(NONE, NULL, 3, 1, "?@" LIBC, "malloc@prog", "main@prog");
}
static void test_other_languages(void **state)
{
    (void)state;
    CHECK(FUTEX_LOCK, NULL, 1, 3, "syscall@" LIBC,
          "<std::sys::sync::mutex::futex::Mutex>::lock_contended@p",
          "std::sync::poison::mutex::Mutex<T>::lock@p", "p::work@p");
    CHECK(NONE, NULL, 4, 3, "syscall@" LIBC,
          "<parking_lot_core::thread_parker::imp::ThreadParker as "
          "parking_lot_core::thread_parker::ThreadParkerT>::park@p",
          "parking_lot::raw_mutex::RawMutex::lock_slow@p", "p::work@p");
    CHECK(FUTEX_LOCK, NULL, 2, 3, "runtime.futex.abi0@gop", "runtime.futexsleep@gop",
          "runtime.lock2@gop", "runtime.newobject@gop");
    CHECK(FUTEX, NULL, 2, 3, "runtime.futex@gop", "runtime.futexsleep@gop", "runtime.notesleep@gop",
          "runtime.mPark@gop");
    /* The slow path of a stripped library has no name. */
    CHECK(FUTEX_LOCK, NULL, 2, 3, "syscall@" LIBC, "?@libglib-2.0.so.0",
          "g_mutex_lock@libglib-2.0.so.0", "main@prog");
    /* A lambda that became part of the library's template is code of the program. */
    CHECK(MUTEX, NULL, 1, 2, "?@" LIBC, "pthread_mutex_lock@" LIBC,
          "std::thread::_State_impl<std::thread::_Invoker<std::tuple<main::{lambda()#1}> > >"
          "::_M_run()@prog",
          "?@libstdc++.so.6");
}

static void test_stacks_that_say_nothing(void **state)
{
    struct api_match m = api_classify(NULL, 0);

    (void)state;
    check_api(m, KIND_NONE, NULL, 0, 0);
    assert_false(m.other_call || m.in_handler);
    CHECK(NONE, NULL, 2, 0, "?@prog", "main@prog");
    CHECK(NONE, NULL, 2, 2, "?@" LIBC, "?@" LIBC);
    CHECK(NONE, NULL, 1, 1, "@" LIBC);
    m = classify(STACK("epoll_wait@" LIBC, "loop@prog"));
    assert_true(m.other_call);
    assert_int_equal(m.caller, 1);
    m = classify(STACK("write@" LIBC, "?@" LIBC, "fflush@" LIBC, "log@prog"));
    check_api(m, KIND_NONE, "stdio stream", 4, 3); /* which it holds */
    assert_true(
        classify(STACK("?@" LIBC, "__syscall_cancel@" LIBC, "read@" LIBC, "f@prog")).other_call);
    assert_true(
        classify(STACK("?@ld-musl-x86_64.so.1", "poll@ld-musl-x86_64.so.1", "f@prog")).other_call);
    assert_false(classify(STACK(COND_WAIT, "f@prog", "qsort@" LIBC, "g@prog")).other_call);
    assert_false(classify(STACK("syscall@" LIBC, "loop@prog")).other_call);
    assert_false(classify(STACK("?@" LIBC, "loop@prog")).other_call);
}

static void test_frames_without_a_module(void **state)
{
    struct frame_fact f[] = {{.pc = 1, .exact = true}, {.pc = 2}, {.pc = 3, .n.name = "java"}};

    (void)state;
    assert_int_equal(api_classify(f, 3).caller, 0);
    f[0].n.name = "__lll_lock_wait";
    f[1].n.name = "pthread_mutex_lock";
    assert_int_equal(api_classify(f, 3).kind, KIND_NONE); /* in a file it must be */
}

static void test_signal_handlers(void **state)
{
    struct api_match m;

    (void)state;
    m = classify(STACK("?@" LIBC, "malloc@" LIBC, "on_signal@prog", "__restore_rt@" LIBC,
                       "!?@" LIBC, "free@" LIBC, "main@prog"));
    check_api(m, KIND_LIBC, "malloc arena", 1, 2);
    assert_true(m.in_handler);
    /* Without the trampoline's name, and with another lock. */
    assert_true(classify(STACK("?@" LIBC, "malloc@" LIBC, "on@prog", "?@" LIBC, "!?@" LIBC,
                               "malloc@" LIBC, "main@prog"))
                    .in_handler);
    assert_false(classify(STACK("?@" LIBC, "malloc@" LIBC, "on@prog", "__restore_rt@" LIBC,
                                "!?@" LIBC, "puts@" LIBC, "main@prog"))
                     .in_handler);
    assert_false(classify(STACK("?@" LIBC, "malloc@" LIBC, "on@prog", "malloc@" LIBC, "main@prog"))
                     .in_handler);
    /* What was interrupted says nothing about the wait of the handler. */
    m = classify(STACK("?@" LIBC, "__restore_rt@" LIBC, "!?@" LIBC, "malloc@" LIBC, "main@prog"));
    check_api(m, KIND_NONE, NULL, 5, 4);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_of_glibc),
        cmocka_unit_test(test_local_functions),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_locks_inside_the_library),
        cmocka_unit_test(test_real_mutexes_inside_the_library),
        cmocka_unit_test(test_musl),
        cmocka_unit_test(test_static_programs),
        cmocka_unit_test(test_other_languages),
        cmocka_unit_test(test_stacks_that_say_nothing),
        cmocka_unit_test(test_frames_without_a_module),
        cmocka_unit_test(test_signal_handlers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

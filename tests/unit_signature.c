/* unit_signature - what the frames of a stack say: through which function of the C library a
 * thread came to wait, and which signature its stack has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../src/namematch.h"
#include "../src/signature.h"

/* Names ------------------------------------------------------------------------------------- */

static void test_plain_names(void **state)
{
    static const char *const cases[][2] = {
        {"main", "main"},
        {"", ""},
        {"ObjectMonitor::enter(JavaThread*)", "ObjectMonitor::enter"},
        {"WatcherThread::sleep() const", "WatcherThread::sleep"},
        {"void std::call_once<void (Foo::*)(), Foo*>(std::once_flag&, Foo*&&)", "std::call_once"},
        {"(anonymous namespace)::run(int)", "(anonymous namespace)::run"},
        {"void (anonymous namespace)::run<int>(int)", "(anonymous namespace)::run"},
        {"std::function<void ()>::operator()() const", "std::function::operator()"},
        {"operator new(unsigned long)", "operator new"},
        {"Foo::operator bool() const", "Foo::operator bool"},
        {"bool operator< <int>(Foo<int> const&, Foo<int> const&)", "operator<"},
        {"Foo::operator->()", "Foo::operator->"},
        {"std::vector<std::pair<int, A<B> > >::at(unsigned long)", "std::vector::at"},
        {"main::{lambda(int)#1}::operator()(int) const", "main::{lambda#1}::operator()"},
        {"f(int)::{unnamed type#1}::g()", "f::{unnamed type#1}::g"},
        {"pool::worker::h0123456789abcdef", "pool::worker"},
        {"pool::worker::h0123456789abcdeg", "pool::worker::h0123456789abcdeg"},
        {"<a::Lock as b::RawLock>::lock::h0123456789abcdef", "a::Lock::lock"},
        {"<std::sys::sync::mutex::futex::Mutex>::lock_contended",
         "std::sys::sync::mutex::futex::Mutex::lock_contended"},
        {"<a::Lock<b::C as d::E> as f::G>::lock::<h::I>", "a::Lock::lock::"},
        {"<>", ""},
        {"<a", "<a"},
        {"<a as ", "<a as "},
        {"core::ptr::drop_in_place<std::sync::Guard<i32>>", "core::ptr::drop_in_place"},
        {"sync.(*Mutex).Lock", "sync.(*Mutex).Lock"},
        {"do_wait.part.0.constprop.3", "do_wait"},
        {"Foo::bar(int) [clone .cold]", "Foo::bar"},
        {"broken<int::f", "broken<int::f"},
        {"broken(int", "broken(int"},
        {"<", "<"},
        {"(", "("},
        {"operator", "operator"},
    };
    char out[256];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(plain_name(out, sizeof(out), cases[i][0]), strlen(cases[i][1]));
        assert_string_equal(out, cases[i][1]);
    }
}

static void test_names_are_cut(void **state)
{
    char out[8];

    (void)state;
    assert_int_equal(plain_name(out, sizeof(out), "void a_rather_long_name(int)"), 2);
    assert_string_equal(out, "a_");
    assert_int_equal(plain_name(out, 1, "name"), 0);
    assert_string_equal(out, "");
    assert_int_equal(c_name(out, sizeof(out), "pthread_mutex_lock"), 7);
    assert_string_equal(out, "pthread");
    assert_int_equal(c_name(out, 1, "puts"), 0);
}

static void test_c_names(void **state)
{
    static const char *const cases[][2] = {
        {"puts", "puts"},
        {"_IO_puts", "puts"},
        {"___pthread_cond_timedwait64", "pthread_cond_timedwait"},
        {"__GI___pthread_mutex_unlock_usercnt", "pthread_mutex_unlock_usercnt"},
        {"__libc_malloc", "malloc"},
        {"__new_sem_wait_slow64.constprop.0", "sem_wait_slow"},
        {"__isoc99_fscanf", "fscanf"},
        {"__fprintf_chk", "fprintf"},
        {"__localtime64_r", "localtime_r"},
        {"pthread_cond_wait@@GLIBC_2.3.2", "pthread_cond_wait"},
        {"_chk", "chk"},
        {"64", ""},
        {"____", ""},
        {"", ""},
    };
    char out[64];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        c_name(out, sizeof(out), cases[i][0]);
        assert_string_equal(out, cases[i][1]);
    }
}

/* The C library's functions ------------------------------------------------------------------- */

#define LIBC "libc.so.6"

#define COND_WAIT "?@" LIBC, "pthread_cond_wait@" LIBC

struct stack_of_names {
    struct frame_fact f[64];
    size_t n;
};

/* Adds frames "name@module"; "?" is one without a name; a leading '!' marks an exact one, '~' a
 * local function. */
static struct stack_of_names stack(const char *const *names)
{
    struct stack_of_names s = {.n = 0};

    for (; *names; names++, s.n++) {
        struct frame_fact *f = &s.f[s.n];
        const char *name = *names, *at = strrchr(name, '@');
        f->exact = s.n == 0 || *name == '!';
        name += *name == '!';
        f->n.exported = *name != '~' && *name != '?';
        name += *name == '~';
        f->n.module = at + 1;
        f->n.name = *name == '?' ? NULL : strndup(name, (size_t)(at - name));
        if (strncmp(at + 1, "libc.so", 7) == 0)
            f->n.kind = MODULE_GLIBC;
        else if (strncmp(at + 1, "ld-musl", 7) == 0)
            f->n.kind = MODULE_MUSL;
    }
    return s;
}
#define STACK(...) stack((const char *const[]){__VA_ARGS__, NULL})

static void release(struct stack_of_names *s)
{
    for (size_t i = 0; i < s->n; i++)
        free((char *)s->f[i].n.name);
}

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

/* Signatures ---------------------------------------------------------------------------------- */

static void check_sig(const struct signatures *s, struct stack_of_names st, enum sig_role role,
                      const char *label, size_t frame)
{
    struct api_match api = api_classify(st.f, st.n);
    struct sig_match m = signatures_match(s, st.f, st.n, &api);

    assert_int_equal(m.role, role);
    assert_true(role == SIG_LOCK ? m.caller > m.frame && m.caller >= api.caller
                                 : m.caller == st.n && !m.by_caller);
    assert_int_equal(m.frame, role == SIG_NONE && !label ? st.n : frame);
    if (label)
        assert_string_equal(m.label, label);
    else
        assert_null(m.label);
    release(&st);
}

#define SESSION                                                                                    \
    "mysql_execute_command(THD*, bool)@mariadbd",                                                  \
        "dispatch_command(enum_server_command, THD*, char*, unsigned int, bool)@mariadbd",         \
        "do_handle_one_connection(CONNECT*, bool)@mariadbd", "?@" LIBC

static void test_mariadb(void **state)
{
    struct signatures *s = signatures_new();

    (void)state;
    check_sig(s,
              STACK(COND_WAIT, "?@mariadbd", "?@mariadbd",
                    "handler::ha_index_read_map(unsigned char*)@mariadbd", SESSION),
              SIG_LOCK, "row lock or engine wait", 4);
    check_sig(s,
              STACK(COND_WAIT, "MDL_wait::timed_wait(MDL_context_owner*)@mariadbd",
                    "MDL_context::acquire_lock(MDL_request*, double)@mariadbd", SESSION),
              SIG_LOCK, "metadata or user lock", 2);
    check_sig(s,
              STACK(COND_WAIT, "Interruptible_wait::wait(st_mysql_cond*)@mariadbd", "?@mariadbd",
                    "Item_func_sleep::val_int()@mariadbd", SESSION),
              SIG_IDLE, "SELECT SLEEP()", 4);
    check_sig(s, STACK(COND_WAIT, "?@mariadbd", "ha_commit_trans(THD*, bool)@mariadbd", SESSION),
              SIG_LOCK, "commit: order, log or row lock", 3);
    /* It may be anything. */
    check_sig(s, STACK(COND_WAIT, "?@mariadbd", SESSION), SIG_NONE, NULL, 0);
    check_sig(s, STACK(COND_WAIT, "do_handle_one_connection(CONNECT*, bool)@mariadbd"), SIG_IDLE,
              "session cache", 2);
    /* A disk or a client is no lock. */
    check_sig(s,
              STACK("pread64@" LIBC, "?@mariadbd", "handler::ha_rnd_next(unsigned char*)@mariadbd",
                    SESSION),
              SIG_NONE, NULL, 0);
    check_sig(s, STACK("poll@" LIBC, "vio_io_wait@mariadbd", "vio_write@mariadbd", SESSION),
              SIG_NONE, NULL, 0);
    check_sig(s, STACK(COND_WAIT, "?@mariadbd", "?@mariadbd", "?@" LIBC), SIG_NONE, NULL, 0);
    signatures_free(s);
}

/* Functions of a program that has nothing to do with a server. */
static void test_names_of_others(void **state)
{
    static const char *const names[] = {
        "handler::next_job()",
        "dispatch_command(int)",
        "lock_wait",
        "thr_lock",
        "open_table",
        "tdc_acquire_share",
        "Query_cache::get(int)",
        "get_event",
        "IOThreadMain",
        "bioProcessBackgroundJobs",
        "take_gil",
        "PyEval_RestoreThread",
        "LWLockAcquire",
        "s_lock",
        "ProcSleep",
        "ThreadPoolImpl::worker",
        "handle_manager",
        "log_writer",
        "erts_schedule",
        "gvl_acquire",
        "background_thread_entry",
    };
    struct signatures *s = signatures_new();
    char frame[64];

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        snprintf(frame, sizeof(frame), "%s@prog", names[i]);
        check_sig(s, STACK(COND_WAIT, frame, "main@prog"), SIG_NONE, NULL, 0);
    }
    signatures_free(s);
}

/* One name may stand in several files. */
static void test_modules(void **state)
{
    static const char *const modules[] = {"mysqld", "mariadbd", "libmysqld.so.20", "ha_innodb.so"};
    struct signatures *s = signatures_new();
    char frame[64], err[64];

    (void)state;
    for (size_t i = 0; i < sizeof(modules) / sizeof(*modules); i++) {
        snprintf(frame, sizeof(frame), "lock_wait@%s", modules[i]);
        check_sig(s, STACK(COND_WAIT, frame), SIG_LOCK, "InnoDB row lock", 2);
    }
    check_sig(s, STACK(COND_WAIT, "get_event@mariadbd", "?@mariadbd"), SIG_IDLE,
              "server worker without work", 2);
    check_sig(s, STACK(COND_WAIT, "lock_wait@libmariadb.so.3"), SIG_NONE, NULL, 0);
    assert_true(signatures_add(s, "lock f @a|b*|c* ours\nlock g @a| ours", err, sizeof(err)));
    check_sig(s, STACK(COND_WAIT, "f@a"), SIG_LOCK, "ours", 2);
    check_sig(s, STACK(COND_WAIT, "f@cd"), SIG_LOCK, "ours", 2);
    check_sig(s, STACK(COND_WAIT, "f@ab"), SIG_NONE, NULL, 0);
    check_sig(s, STACK(COND_WAIT, "g@ab"), SIG_NONE, NULL, 0);
    signatures_free(s);
}

static void check_caller(const struct signatures *s, struct stack_of_names st, bool by_caller,
                         size_t caller)
{
    struct api_match api = api_classify(st.f, st.n);
    struct sig_match m = signatures_match(s, st.f, st.n, &api);

    assert_int_equal(m.role, SIG_LOCK);
    assert_int_equal(m.by_caller, by_caller);
    assert_int_equal(m.caller, caller);
    release(&st);
}

static void test_callers(void **state)
{
    struct signatures *s = signatures_new();
    char err[64];

    (void)state;
    check_caller(s,
                 STACK("syscall@" LIBC, "parking_lot::raw_mutex::RawMutex::lock_slow@p",
                       "lock_api::mutex::Mutex<R,T>::lock@p", "p::queue::push@p", "p::main@p"),
                 true, 3);
    check_caller(s,
                 STACK("syscall@" LIBC, "absl::lts_20220623::Mutex::ReaderLock()@p",
                       "absl::lts_20220623::ReaderMutexLock::ReaderMutexLock(int)@p", "f()@p"),
                 true, 3);
    check_caller(s,
                 STACK("syscall@" LIBC, "?@libglib-2.0.so.0", "g_mutex_lock@libglib-2.0.so.0",
                       "push@prog", "main@prog"),
                 true, 3);
    check_caller(s,
                 STACK("?@" LIBC, "PGSemaphoreLock@postgres", "LWLockQueueSelf@postgres",
                       "?@postgres", "LWLockAcquire@postgres", "?@postgres", "XLogFlush@postgres"),
                 true, 5);
    /* The caller of a lock, not another lock that is taken farther out. */
    check_caller(s,
                 STACK("?@" LIBC, "LWLockAcquire@postgres", "f@postgres", "LWLockAcquire@postgres"),
                 true, 2);
    check_caller(s,
                 STACK("?@" LIBC, "LWLockAcquire@postgres", "?@ext.so", "LWLockAcquire@postgres"),
                 true, 2);
    check_caller(s, STACK("?@" LIBC, "LWLockAcquire@postgres"), true, 2); /* nobody */
    /* One lock a process, or callers that do not tell which. */
    check_caller(s, STACK(COND_WAIT, "take_gil@python3.12", "?@python3.12"), false, 3);
    check_caller(s,
                 STACK(COND_WAIT, "PlatformEvent::park()@libjvm.so",
                       "ObjectMonitor::enter(JavaThread*)@libjvm.so", "?@"),
                 false, 4);
    check_caller(s,
                 STACK(COND_WAIT, "?@mariadbd", "handler::ha_write_row(char*)@mariadbd",
                       "handler::ha_x()@mariadbd", SESSION),
                 false, 5);
    assert_true(signatures_add(s, "lock Pool::checkout pool", err, sizeof(err)));
    check_caller(s, STACK(COND_WAIT, "Pool::checkout()@prog", "main@prog"), false, 3);
    signatures_free(s);
}

static void test_jvm(void **state)
{
    struct signatures *s = signatures_new();

    (void)state;
    check_sig(s,
              STACK(COND_WAIT, "os::PlatformEvent::park()@libjvm.so",
                    "ObjectMonitor::EnterI(JavaThread*)@libjvm.so",
                    "ObjectMonitor::enter(JavaThread*)@libjvm.so", "?@"),
              SIG_LOCK, "Java monitor", 3);
    check_sig(s,
              STACK(COND_WAIT, "os::PlatformEvent::park()@libjvm.so",
                    "ObjectMonitor::wait(long, bool, JavaThread*)@libjvm.so",
                    "ObjectSynchronizer::wait(Handle, long)@libjvm.so",
                    "JVM_MonitorWait@libjvm.so"),
              SIG_NONE, NULL, 0);
    check_sig(s, STACK(COND_WAIT, "Parker::park(bool, long)@libjvm.so", "Unsafe_Park@libjvm.so"),
              SIG_NONE, "parked Java threads", 2);
    check_sig(s,
              STACK(COND_WAIT, "os::PlatformEvent::park()@libjvm.so",
                    "ObjectMonitor::wait(long, bool, JavaThread*)@libjvm.so",
                    "InstanceKlass::initialize_impl(JavaThread*)@libjvm.so", "?@"),
              SIG_LOCK, "Java class initialisation", 4);
    /* The thread that initialises the class waits for something else. */
    check_sig(s,
              STACK(COND_WAIT, "?@libnative.so", "?@", "JavaCalls::call_helper()@libjvm.so",
                    "InstanceKlass::initialize_impl(JavaThread*)@libjvm.so", "?@"),
              SIG_NONE, NULL, 0);
    check_sig(s,
              STACK(COND_WAIT, "PlatformMonitor::wait(unsigned long)@libjvm.so",
                    "Monitor::wait(unsigned long)@libjvm.so",
                    "CompileQueue::get(CompilerThread*)@libjvm.so", "?@libjvm.so"),
              SIG_IDLE, "JVM compiler without work", 4);
    /* The same names elsewhere. */
    check_sig(s, STACK(COND_WAIT, "ObjectMonitor::enter(int)@prog", "main@prog"), SIG_NONE, NULL,
              0);
    signatures_free(s);
}

static void test_cpython(void **state)
{
    struct signatures *s = signatures_new();

    (void)state;
    check_sig(s, STACK(COND_WAIT, "?@python3.11", "_PyEval_EvalFrameDefault@python3.11"), SIG_LOCK,
              "CPython GIL", 3);
    check_sig(s, STACK(COND_WAIT, "take_gil@python3.12", "?@python3.12"), SIG_LOCK, "CPython GIL",
              2);
    check_sig(s,
              STACK(COND_WAIT, "?@libpython3.11.so.1.0",
                    "PyEval_RestoreThread@libpython3.11.so.1.0", "?@_ssl.so"),
              SIG_LOCK, "CPython GIL", 3);
    /* An extension waits; the interpreter computes; a queue or a lock: nobody can tell. */
    check_sig(s,
              STACK(COND_WAIT, "?@ext.so", "?@python3.11", "_PyEval_EvalFrameDefault@python3.11"),
              SIG_NONE, NULL, 0);
    check_sig(s, STACK("?@python3.11", "?@python3.11", "_PyEval_EvalFrameDefault@python3.11"),
              SIG_NONE, NULL, 0);
    check_sig(s,
              STACK("?@" LIBC, "PyThread_acquire_lock_timed@python3.11", "?@python3.11",
                    "_PyEval_EvalFrameDefault@python3.11"),
              SIG_NONE, NULL, 0);
    signatures_free(s);
}

static void test_postgres_and_redis(void **state)
{
    struct signatures *s = signatures_new();

    (void)state;
    check_sig(s,
              STACK("epoll_wait@" LIBC, "WaitEventSetWait@postgres", "WaitLatch@postgres",
                    "ProcSleep@postgres", "?@postgres"),
              SIG_LOCK, "heavyweight lock (row, table, advisory)", 3);
    check_sig(s, STACK("?@" LIBC, "PGSemaphoreLock@postgres", "LWLockAcquire@postgres"), SIG_LOCK,
              "LWLock", 2);
    check_sig(s,
              STACK("epoll_wait@" LIBC, "WaitEventSetWait@postgres", "secure_read@postgres",
                    "?@postgres", "PostmasterMain@postgres"),
              SIG_IDLE, "session without a request", 2);
    /* All processes of the server have this below them. */
    check_sig(s,
              STACK("epoll_wait@" LIBC, "WaitEventSetWait@postgres", "?@postgres", "?@postgres",
                    "PostgresMain@postgres", "?@postgres", "PostmasterMain@postgres"),
              SIG_NONE, NULL, 0);
    check_sig(s, STACK("?@" LIBC, "pthread_mutex_lock@" LIBC, "IOThreadMain@redis-server"),
              SIG_PARKED, "Redis I/O thread without work", 2);
    check_sig(s, STACK("?@" LIBC, "pthread_mutex_lock@" LIBC, "IOThreadMain@valkey-server"),
              SIG_PARKED, "Redis I/O thread without work", 2);
    check_sig(s, STACK(COND_WAIT, "bioProcessBackgroundJobs@redis-check-rdb"), SIG_IDLE,
              "Redis background thread without work", 2);
    signatures_free(s);
}

static void test_worker_loops(void **state)
{
    struct signatures *s = signatures_new();

    (void)state;
    check_sig(s,
              STACK(COND_WAIT, "boost::asio::detail::posix_event::wait<L>(L&)@prog",
                    "boost::asio::detail::scheduler::do_run_one(L&, T&)@prog"),
              SIG_IDLE, "asio worker without work", 3);
    /* What a worker runs waits for other things, here and in another module. */
    check_sig(s,
              STACK(COND_WAIT, "job@prog", "job2@prog",
                    "boost::asio::detail::scheduler::do_run_one(L&, T&)@prog"),
              SIG_NONE, NULL, 0);
    check_sig(s,
              STACK(COND_WAIT, "?@plugin.so", "boost::asio::detail::scheduler::do_run_one()@prog"),
              SIG_NONE, NULL, 0);
    check_sig(s,
              STACK("runtime.futex@gop", "runtime.futexsleep@gop", "runtime.notesleep@gop",
                    "runtime.mPark@gop", "runtime.stopm@gop"),
              SIG_IDLE, "Go thread without work", 3);
    check_sig(s, STACK("syscall@" LIBC, "parking_lot::raw_mutex::RawMutex::lock_slow@p", "p::f@p"),
              SIG_LOCK, "parking_lot Mutex", 1);
    check_sig(s,
              STACK("?@" LIBC, "absl::lts_20220623::Mutex::Block(absl::PerThreadSynch*)@p",
                    "absl::lts_20220623::Mutex::LockSlow(absl::MuHow, absl::Condition*, int)@p"),
              SIG_NONE, NULL, 0);
    signatures_free(s);
}

static void test_nothing_to_match(void **state)
{
    struct signatures *s = signatures_new();
    struct api_match api = api_classify(NULL, 0);
    struct sig_match m = signatures_match(s, NULL, 0, &api);

    (void)state;
    assert_int_equal(m.role, SIG_NONE);
    assert_null(m.label);
    assert_int_equal(m.frame, 0);
    assert_int_equal(m.caller, 0);
    check_sig(s, STACK(COND_WAIT, "work@prog", "main@prog"), SIG_NONE, NULL, 0);
    signatures_free(s);
    signatures_free(NULL);
}

static void test_long_names(void **state)
{
    struct signatures *s = signatures_new();
    char *name = malloc(100001);
    struct frame_fact f = {.exact = true};

    (void)state;
    memset(name, 'x', 100000);
    name[100000] = '\0';
    memcpy(name, "QReadWriteLock::", 16);
    f.n.name = name;
    struct api_match api = api_classify(&f, 1);
    assert_int_equal(signatures_match(s, &f, 1, &api).role, SIG_LOCK);
    memset(name, '<', 100000);
    api = api_classify(&f, 1);
    assert_int_equal(api.kind, KIND_NONE);
    assert_int_equal(signatures_match(s, &f, 1, &api).role, SIG_NONE);
    free(name);
    signatures_free(s);
}

/* Lines of the user's ------------------------------------------------------------------------- */

static void test_who_tells(void **state)
{
    (void)state;
    assert_non_null(strstr(signature_who_tells("Java monitor"), "jcmd"));
    assert_null(signature_who_tells("connection pool"));
}

static void test_user_signatures(void **state)
{
    static const char text[] = "# ours\n"
                               "lock  Pool::checkout  @libpool*  connection pool  # the big one\n"
                               "\tidle\tworker_*\r\n"
                               "parked consume\n"
                               "\n"
                               "none handler::ha_rnd_next\n"
                               "idle handler::*\n"
                               "lock *::{closure#0}";
    struct signatures *s = signatures_new();
    char err[128] = "";

    (void)state;
    assert_true(signatures_add(s, text, err, sizeof(err)));
    check_sig(s, STACK(COND_WAIT, "Pool::checkout(int)@libpool.so.1", "main@prog"), SIG_LOCK,
              "connection pool", 2);
    check_sig(s, STACK(COND_WAIT, "Pool::checkout(int)@prog", "main@prog"), SIG_NONE, NULL, 0);
    check_sig(s, STACK("read@" LIBC, "Pool::checkout(int)@libpool.so"), SIG_LOCK, "connection pool",
              1);
    check_sig(s, STACK(COND_WAIT, "worker_2(void*)@prog"), SIG_IDLE, "worker_*", 2);
    check_sig(s, STACK("pthread_mutex_lock@" LIBC, "consume@prog"), SIG_PARKED, "consume", 1);
    check_sig(s, STACK(COND_WAIT, "handler::ha_rnd_next(char*)@mariadbd"), SIG_NONE, NULL, 0);
    check_sig(s, STACK(COND_WAIT, "handler::ha_index_first(char*)@mariadbd"), SIG_IDLE,
              "handler::*", 2);
    check_sig(s, STACK("?@" LIBC, "p::main::{closure#0}@p"), SIG_LOCK, "*::{closure#0}", 1);
    signatures_free(s);
}

static void test_first_line_decides(void **state)
{
    struct signatures *s = signatures_new();
    char err[128];

    (void)state;
    assert_true(signatures_add(s, "lock f* first\nidle fo second\n", err, sizeof(err)));
    assert_true(
        signatures_add(s, "idle foo third\nlock take_gil\nidle take_gil", err, sizeof(err)));
    check_sig(s, STACK(COND_WAIT, "foo@prog"), SIG_LOCK, "first", 2);
    check_sig(s, STACK(COND_WAIT, "take_gil@python3"), SIG_LOCK, "take_gil", 2);
    assert_true(signatures_add(s, "", err, sizeof(err)));
    assert_true(signatures_add(s, "   # nothing\n\n\n", err, sizeof(err)));
    signatures_free(s);
}

static void test_bad_signatures(void **state)
{
    static const char *const bad[][2] = {
        {"lock", "line 1: no function"},    {"lock @libfoo.so", "line 1: no function"},
        {"lock f @", "line 1: no module"},  {"lock f @ label", "line 1: no module"},
        {"\n\nLock f\n", "line 3: 'Lock'"}, {"lock good\nwait f\n", "line 2: 'wait'"},
        {"locks f", "line 1: 'locks'"},
    };
    char err[128];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct signatures *s = signatures_new();
        assert_false(signatures_add(s, bad[i][0], err, sizeof(err)));
        assert_memory_equal(err, bad[i][1], strlen(bad[i][1]));
        check_sig(s, STACK(COND_WAIT, "good@prog"), SIG_NONE, NULL, 0); /* nothing was added */
        signatures_free(s);
    }
}

/* Names that the user gives ------------------------------------------------------------------- */

static void test_name_rules(void **state)
{
    static const char text[] = "# locks of ours\n"
                               "order_book+0x*   order book\n"
                               "0x7f00*\tshared table  # in the segment\n"
                               "Cache::get  the cache\n"
                               "*  another lock\n";
    char err[128];
    struct name_rules *r = name_rules_new(text, err, sizeof(err));

    (void)state;
    assert_non_null(r);
    assert_string_equal(name_rules_find(r, "order_book+0x40", NULL, "0x1"), "order book");
    assert_string_equal(name_rules_find(r, NULL, "f", "0x7f001234"), "shared table");
    assert_string_equal(name_rules_find(r, NULL, "Cache<int>::get(long) const", NULL), "the cache");
    assert_string_equal(name_rules_find(r, "x", NULL, NULL), "another lock");
    assert_null(name_rules_find(r, NULL, NULL, NULL));
    name_rules_free(r);
}

static void test_name_rules_without_any(void **state)
{
    char err[128];
    struct name_rules *r = name_rules_new("\n# none\n", err, sizeof(err));

    (void)state;
    assert_non_null(r);
    assert_null(name_rules_find(r, "a", "b", "0x1"));
    name_rules_free(r);
    name_rules_free(NULL);
}

static void test_bad_name_rules(void **state)
{
    char err[32];

    (void)state;
    assert_null(name_rules_new("a b\nonly_a_pattern   # no name\n", err, sizeof(err)));
    assert_memory_equal(err, "line 2: no name behind", 22);
    assert_int_equal(strlen(err), sizeof(err) - 1); /* cut, not overrun */
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_names),
        cmocka_unit_test(test_names_are_cut),
        cmocka_unit_test(test_c_names),
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
        cmocka_unit_test(test_mariadb),
        cmocka_unit_test(test_names_of_others),
        cmocka_unit_test(test_modules),
        cmocka_unit_test(test_callers),
        cmocka_unit_test(test_jvm),
        cmocka_unit_test(test_cpython),
        cmocka_unit_test(test_postgres_and_redis),
        cmocka_unit_test(test_worker_loops),
        cmocka_unit_test(test_nothing_to_match),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_who_tells),
        cmocka_unit_test(test_user_signatures),
        cmocka_unit_test(test_first_line_decides),
        cmocka_unit_test(test_bad_signatures),
        cmocka_unit_test(test_name_rules),
        cmocka_unit_test(test_name_rules_without_any),
        cmocka_unit_test(test_bad_name_rules),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

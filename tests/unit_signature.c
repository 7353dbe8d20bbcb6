/* unit_signature - which signature a stack has: those of known programs, and lines of the
 * user's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "signature_build.h"

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

int main(void)
{
    static const struct CMUnitTest tests[] = {
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

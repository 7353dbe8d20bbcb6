/* unit_namematch - names of functions as tables list them, and the names that the user gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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
        cmocka_unit_test(test_name_rules),
        cmocka_unit_test(test_name_rules_without_any),
        cmocka_unit_test(test_bad_name_rules),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

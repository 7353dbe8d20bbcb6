/* unit_funcname - long names of functions, cut so that what tells them apart stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../src/fmt.h"
#include "../src/funcname.h"

static void assert_fit(const char *name, int width, const char *want)
{
    char text[512];

    assert_string_equal(funcname_fit(text, sizeof(text), name, width, true), want);
}

static void test_what_fits_stays(void **state)
{
    (void)state;
    assert_fit("queue_push", 0, "queue_push");
    assert_fit("queue_push", 10, "queue_push");
    assert_fit("a::b<int>::c(char)", 18, "a::b<int>::c(char)");
    assert_fit("", 5, "");
}

static void test_plain_name_loses_its_end(void **state)
{
    (void)state;
    assert_fit("buf_page_get_gen", 10, "buf_page_~");
    assert_fit("buf_page_get_gen", 1, "~");
}

static void test_arguments_and_templates_go_first(void **state)
{
    (void)state;
    assert_fit("std::vector<std::pair<int, char>, std::allocator<int> >::push_back(int&&)", 40,
               "std::vector::push_back");
    assert_fit("shop::Cart::add(shop::Item const&) const", 30, "shop::Cart::add");
    assert_fit("(anonymous namespace)::work(int, long)", 30, "(anonymous namespace)::work");
    assert_fit("std::ostream& std::operator<<(std::ostream&, char)", 40, "std::operator<<");
    assert_fit("void std::call_once<void (*)()>(std::once_flag&)", 20, "std::call_once");
}

/* Names of data and those that the user gives are no functions, but come along the same way. */
static void test_names_of_locks(void **state)
{
    (void)state;
    assert_fit("shop::locks<int, char, long>+0x40", 20, "shop::locks+0x40");
    assert_fit("(the great lock)", 10, "(the grea~");
    assert_fit("the lock (of all)", 10, "the lock ~");
}

static void test_then_what_stands_in_front(void **state)
{
    (void)state;
    assert_fit("folly::detail::distributed_mutex::lock(int)", 28, "~distributed_mutex::lock");
    assert_fit("folly::detail::distributed_mutex::lock(int)", 8, "~lock");
    assert_fit("folly::detail::acquire_everything(int)", 10, "~acquire_~");
}

static void test_brackets_that_do_not_match(void **state)
{
    (void)state;
    assert_fit("a<b<c::defghijklmnop", 20, "a<b<c::defghijklmnop");
    assert_fit("a<b<c::defghijklmnop", 16, "~defghijklmnop");
    assert_fit("<<<<<<<<", 4, "<<<~");
}

static void test_hostile(void **state)
{
    (void)state;
    assert_fit("a\033[2J\nb", 0, "a\\x1b[2J\\nb");
    assert_fit("a\033[2J\nb", 9, "a\\x1b[2J~");
    assert_fit("\xff\xfe", 20, "\\xff\\xfe");
}

static void test_names_in_a_sentence(void **state)
{
    static const char *const names[] = {"std::map<int, int>::find(int const&)",
                                        "std::map<int, int>::find(int const&) const"};
    char text[256];

    (void)state;
    funcname_fit_all(text, sizeof(text),
                     "5 wait (in std::map<int, int>::find(int const&) const); caf\xc3\xa9\n", names,
                     2, 20, true);
    assert_string_equal(text, "5 wait (in std::map::find); caf\\xc3\\xa9\\n");
    funcname_fit_all(text, sizeof(text), names[0], names, 2, 12, true);
    assert_string_equal(text, "~map::find");
    funcname_fit_all(text, sizeof(text), "", names, 2, 12, true);
    assert_string_equal(text, "");
    funcname_fit_all(text, sizeof(text), "plain", names, 0, 12, true);
    assert_string_equal(text, "plain");
    for (size_t size = 1; size <= sizeof(text); size++) {
        char *dst = malloc(size);
        funcname_fit_all(dst, size, "a std::map<int, int>::find(int const&) b\xff", names, 2, 20,
                         false);
        assert_true(strlen(dst) < size);
        free(dst);
    }
}

/* Whatever the name and the width: no more cells than asked for, and no more bytes than there are;
 * a name of a megabyte of brackets takes no time worth mentioning. */
static void test_bounds(void **state)
{
    size_t len = 1 << 20;
    char *big = malloc(len + 1), text[64];

    (void)state;
    memset(big, '<', len);
    big[len] = '\0';
    assert_true(text_cells(funcname_fit(text, sizeof(text), big, 30, true)) <= 30);
    free(big);
    for (int width = 1; width < 60; width++)
        for (size_t size = 1; size <= sizeof(text); size++) {
            char *dst = malloc(size);
            funcname_fit(dst, size, "std::map<int, caf\xc3\xa9>::find(int) const", width, false);
            assert_true(strlen(dst) < size && text_cells(dst) <= width);
            free(dst);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_fits_stays),
        cmocka_unit_test(test_plain_name_loses_its_end),
        cmocka_unit_test(test_arguments_and_templates_go_first),
        cmocka_unit_test(test_names_of_locks),
        cmocka_unit_test(test_then_what_stands_in_front),
        cmocka_unit_test(test_brackets_that_do_not_match),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_names_in_a_sentence),
        cmocka_unit_test(test_bounds),
    };

    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

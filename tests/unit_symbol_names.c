#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "../src/clock.h"
#include "../src/symbol_perfmap.h"
#include "symbol_build.h"

/* Demangling --------------------------------------------------------------------------------- */

static void assert_demangled(const char *raw, const char *expected)
{
    char *name = symbol_demangle(raw);

    if (!expected) {
        assert_null(name);
        return;
    }
    assert_non_null(name);
    assert_string_equal(name, expected);
    free(name);
}

static void test_cpp_names(void **state UNUSED)
{
    assert_demangled("_ZN4shop5Table4findEi", "shop::Table::find(int)");
    assert_demangled("_ZNSt6vectorIiSaIiEE9push_backERKi",
                     "std::vector<int, std::allocator<int> >::push_back(int const&)");
    assert_demangled("_ZN3foo3barEv.cold", "foo::bar() [clone .cold]");
    assert_demangled("_ZGVZN1A3getEvE1x", "guard variable for A::get()::x");
}

static void test_rust_names(void **state UNUSED)
{
    assert_demangled("_ZN3std3sys4sync5mutex5futex5Mutex14lock_contended17h0123456789abcdefE",
                     "std::sys::sync::mutex::futex::Mutex::lock_contended");
    assert_demangled("_ZN48_$LT$std..io..Stdin$u20$as$u20$std..io..Read$GT$4read17h"
                     "0123456789abcdefE",
                     "<std::io::Stdin as std::io::Read>::read");
    assert_demangled("_RNvCs15kBYyAo9fc_7mycrate7example", "mycrate::example");
    assert_demangled("_RINvNtCs6GmmlP4bgsG_1r3foo4callNCNvB4_4main0EB4_",
                     "r::foo::call::<r::main::{closure#0}>");
    assert_demangled("_RINvMsi_NtNtNtCslNYArtu3iFV_5alloc11collections5btree3mapINtB6_8BTreeMapy"
                     "NtNtNtCsduwmD7cSIQq_5gimli4read6abbrev12AbbreviationE3getyEB1f_",
                     "<alloc::collections::btree::map::BTreeMap<u64, "
                     "gimli::read::abbrev::Abbreviation>>::get::<u64>");
}

static void test_plain_names(void **state UNUSED)
{
    static const char *const plain[] = {
        "",       "_",        "_Z",   "_R",      "poll", "__poll",         "main.cold",
        "_Zebra", "_Results", "Zone", "ZN3fooE", "_ZN",  "_ZN99999999999a"};

    for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
        assert_demangled(plain[i], NULL);
}

static void test_long_names(void **state UNUSED)
{
    char *raw = xcalloc(1 << 20, 1);

    strcpy(raw, "_ZN");
    for (size_t i = 3; i < 3800; i += 38)
        memcpy(raw + i, "36an_identifier_of_thirty_six_letters_", 39);
    strcat(raw, "Ev");
    char *name = symbol_demangle(raw);
    assert_non_null(name);
    assert_memory_equal(name, "an_identifier_of_thirty_six_letters_::", 38);
    free(name);

    for (size_t i = 3; i < (1 << 20) - 8; i += 2)
        memcpy(raw + i, "1a", 3);
    strcat(raw, "Ev");
    assert_demangled(raw, NULL);
    free(raw);
}

/* Few letters that mean gigabytes: each argument is twice the one before. */
static void test_exploding_names(void **state UNUSED)
{
    char raw[4000] = "_Z1f1AIiiE";
    nsec_t began = clock_mono();

    for (int i = 0; i < 36; i++) {
        char c = (char)(i < 10 ? '0' + i : 'A' + i - 10),
             part[] = {'S', '_', 'I', 'S', c, '_', 'S', c, '_', 'E', '\0'};
        strcat(raw, part);
        if (i == 1)
            assert_demangled(raw,
                             "f(A<int, int>, A<A<int, int>, A<int, int> >, "
                             "A<A<A<int, int>, A<int, int> >, A<A<int, int>, A<int, int> > >)");
    }
    assert_demangled(raw, NULL);
    strcpy(raw, "_Z1f");
    for (int i = 0; i < 1900; i++)
        strcat(raw, "PF");
    free(symbol_demangle(raw));
    strcpy(raw, "_RN");
    for (int i = 0; i < 1900; i++)
        strcat(raw, "Nv");
    free(symbol_demangle(raw));
    strcpy(raw, "_RMC0TTTTTTTTTTTTTTTTTTTTTTTTTTTTTTpB8_EB7_EB6_EB5_EB4_EB3_EB2_EB1_EB0_EB_E");
    free(symbol_demangle(raw));
    assert_true(clock_mono() - began < 5 * NSEC_PER_SEC);
}

/* Perf maps ---------------------------------------------------------------------------------------
 */

static char map_path[64];

static int map_setup(void **state UNUSED)
{
    snprintf(map_path, sizeof(map_path), "/tmp/perf-%d.map", getpid());
    perf_map_forget(getpid());
    return 0;
}

static int map_teardown(void **state UNUSED)
{
    perf_map_forget(getpid());
    unlink(map_path);
    rmdir(map_path);
    return 0;
}

static void map_append(const char *text)
{
    FILE *f = fopen(map_path, "a");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void assert_code(struct space *s, uint64_t pc, const char *name, uint64_t into)
{
    struct frame_name f;

    symbol_function(s, pc, true, &f);
    assert_null(f.module);
    assert_int_equal(f.offset, pc);
    if (!name) {
        assert_null(f.name);
        return;
    }
    assert_non_null(f.name);
    assert_string_equal(f.name, name);
    assert_int_equal(f.into, into);
    assert_false(f.exported);
}

static void test_perf_map(void **state UNUSED)
{
    struct frame_name f;

    map_append("10000 40 Interpreter\n"
               "no numbers here\n\n10040\n10040 \n10040 40\n10040 40 \n zz\n"
               "0x20000 0x10 LTest;::run\n"
               "30000 0 empty\n"
               "40000 100 old code\n40080 100 new code\n"
               "60080 10 old stub\n60000 100 new method\n"
               "50000 10 cut of");
    struct own_view v = own_view();
    assert_code(v.space, 0x10000, "Interpreter", 0);
    assert_code(v.space, 0x1003f, "Interpreter", 0x3f);
    assert_code(v.space, 0x10040, NULL, 0);
    assert_code(v.space, 0x20008, "LTest;::run", 8);
    assert_code(v.space, 0x30000, NULL, 0);
    assert_code(v.space, 0x40090, "new code", 0x10);
    assert_code(v.space, 0x60084, "new method", 0x84);
    assert_code(v.space, 0x50000, NULL, 0); /* the line is not whole yet */
    symbol_function(v.space, 0x10040, false, &f);
    assert_string_equal(f.name, "Interpreter");
    assert_int_equal(f.into, 0x40);
    own_view_free(&v);
}

/* What is written later is found, and counts. */
static void test_perf_map_grows(void **state UNUSED)
{
    struct frame_name f = {0};

    map_append("10000 40 first\n20000 40 par");
    struct own_view v = own_view();
    assert_code(v.space, 0x10010, "first", 0x10);
    map_append("tial\n10000 40 second\n");
    nsec_t until = clock_mono() + 20 * NSEC_PER_SEC;
    while (!f.name && clock_mono() < until) {
        usleep(20000);
        symbol_function(v.space, 0x20010, true, &f);
    }
    assert_code(v.space, 0x20010, "partial", 0x10);
    assert_code(v.space, 0x10010, "second", 0x10);
    own_view_free(&v);
}

static void test_perf_map_untrusted(void **state UNUSED)
{
    struct own_view v = own_view();

    assert_int_equal(mkfifo(map_path, 0600), 0); /* opening it would hang */
    assert_code(v.space, 0x10000, NULL, 0);
    perf_map_forget(getpid());
    unlink(map_path);
    map_append("10000 40 planted\n");
    if (geteuid() == 0) {
        assert_int_equal(chown(map_path, 12345, 0), 0);
        assert_code(v.space, 0x10000, NULL, 0);
        perf_map_forget(getpid());
        assert_int_equal(chown(map_path, 0, 0), 0);
    }
    assert_code(v.space, 0x10000, "planted", 0);
    unlink(map_path);
    assert_code(v.space, 0x10000, "planted", 0);
    symbol_forget(getpid());
    assert_code(v.space, 0x10000, NULL, 0);
    own_view_free(&v);
}

/* Code in a mapping of its own, as runtimes have it. */
static void test_perf_map_mapped(void **state UNUSED)
{
    char line[64];
    void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(p != MAP_FAILED);
    snprintf(line, sizeof(line), "%lx 100 compiled\n", (unsigned long)(uintptr_t)p);
    map_append(line);
    struct own_view v = own_view();
    assert_code(v.space, (uint64_t)(uintptr_t)p + 16, "compiled", 16);
    assert_code(v.space, (uint64_t)(uintptr_t)p + 0x100, NULL, 0);
    own_view_free(&v);
    munmap(p, 4096);
}

#define MAP_TEST(f) cmocka_unit_test_setup_teardown(f, map_setup, map_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpp_names),       cmocka_unit_test(test_rust_names),
        cmocka_unit_test(test_plain_names),     cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_exploding_names), MAP_TEST(test_perf_map),
        MAP_TEST(test_perf_map_grows),          MAP_TEST(test_perf_map_untrusted),
        MAP_TEST(test_perf_map_mapped),
    };
    return cmocka_run_group_tests(tests, build_setup, build_teardown);
}

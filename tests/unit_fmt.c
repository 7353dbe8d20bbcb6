#include <float.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/fmt.h"

/* Safe names ------------------------------------------------------------------ */

static void check_safe(const char *src, bool ascii, const char *want)
{
    char dst[256];
    size_t n = fmt_safe(dst, sizeof(dst), src, strlen(src), ascii);

    assert_string_equal(dst, want);
    assert_int_equal(n, strlen(want));
}

static void test_safe_controls(void **state UNUSED)
{
    check_safe("", false, "");
    check_safe("plain name ~", false, "plain name ~");
    check_safe("a\nb\tc\\d", false, "a\\nb\\tc\\\\d");
    check_safe("\x1b[31m\r\x7f\x01", false, "\\x1b[31m\\x0d\\x7f\\x01");
    check_safe("x) R 1 1 (", false, "x) R 1 1 (");
}

static void test_safe_utf8(void **state UNUSED)
{
    static const char *const valid[] = {
        "\xc2\xa0", /* U+00A0, the first behind C1 */
        "gr\xc3\xbc\xc3\x9f", "\xdf\xbf",     "\xe0\xa0\x80", "\xed\x9f\xbf",
        "\xee\x80\x80",       "\xe2\x80\xa9", /* U+2029, U+202F, U+2065, U+206A: beside the
                                                 overrides */
        "\xe2\x80\xaf",       "\xe2\x81\xa5", "\xe2\x81\xaa", "\xf0\x90\x80\x80",
        "\xf4\x8f\xbf\xbf"};

    for (size_t i = 0; i < ARRAY_SIZE(valid); i++)
        check_safe(valid[i], false, valid[i]);
    check_safe("\xc3\xbc", true, "\\xc3\\xbc");
}

static void test_safe_broken_utf8(void **state UNUSED)
{
    check_safe("\x80", false, "\\x80");
    check_safe("\xff\xfe", false, "\\xff\\xfe");
    check_safe("\xc3(", false, "\\xc3(");                          /* no continuation */
    check_safe("a\xe2\x82", false, "a\\xe2\\x82");                 /* cut in the middle */
    check_safe("\xc0\xaf\xc1\xbf", false, "\\xc0\\xaf\\xc1\\xbf"); /* overlong, 2 bytes */
    check_safe("\xe0\x9f\xbf", false, "\\xe0\\x9f\\xbf");          /* overlong, 3 bytes */
    check_safe("\xf0\x8f\xbf\xbf", false, "\\xf0\\x8f\\xbf\\xbf"); /* overlong, 4 bytes */
    check_safe("\xed\xa0\x80", false, "\\xed\\xa0\\x80");          /* surrogates */
    check_safe("\xed\xbf\xbf", false, "\\xed\\xbf\\xbf");
    check_safe("\xf4\x90\x80\x80", false, "\\xf4\\x90\\x80\\x80"); /* U+110000 */
    check_safe("\xf8\x88\x80\x80\x80", false, "\\xf8\\x88\\x80\\x80\\x80");
    check_safe("\xe2\xc3\xbc", false, "\\xe2\xc3\xbc"); /* goes on behind it */
}

static void test_safe_tricks(void **state UNUSED)
{
    check_safe("\xc2\x9b"
               "31m",
               false, "\\xc2\\x9b31m"); /* C1: CSI */
    check_safe("\xc2\x80\xc2\x9f", false, "\\xc2\\x80\\xc2\\x9f");
    check_safe("\xe2\x80\xaa", false, "\\xe2\\x80\\xaa");
    check_safe("\xe2\x80\xae", false, "\\xe2\\x80\\xae");
    check_safe("\xe2\x81\xa6", false, "\\xe2\\x81\\xa6");
    check_safe("\xe2\x81\xa9", false, "\\xe2\\x81\\xa9");
}

static void test_safe_room(void **state UNUSED)
{
    char dst[8] = "1234567";

    assert_int_equal(fmt_safe(dst, 0, "abc", 3, false), 0);
    assert_string_equal(dst, "1234567");
    assert_int_equal(fmt_safe(dst, 1, "abc", 3, false), 0);
    assert_string_equal(dst, "");
    assert_int_equal(fmt_safe(dst, 4, "abcd", 4, false), 3);
    assert_string_equal(dst, "abc");
    /* Neither half an escape nor half a character, and nothing behind what was left out. */
    assert_int_equal(fmt_safe(dst, 5,
                              "a\x1b"
                              "b",
                              3, false),
                     1);
    assert_string_equal(dst, "a");
    assert_int_equal(fmt_safe(dst, 6,
                              "a\x1b"
                              "b",
                              3, false),
                     5);
    assert_string_equal(dst, "a\\x1b");
    assert_int_equal(fmt_safe(dst, 3, "a\xc3\xbc", 3, false), 1);
    assert_string_equal(dst, "a");
}

static void test_safe_length(void **state UNUSED)
{
    char dst[64];
    const char raw[15] = "fifteen-bytes-!"; /* no NUL behind it */

    assert_int_equal(fmt_safe(dst, sizeof(dst), raw, sizeof(raw), false), 15);
    assert_string_equal(dst, "fifteen-bytes-!");
    assert_int_equal(fmt_safe(dst, sizeof(dst), "ab\0cd", 5, false), 2);
    assert_string_equal(dst, "ab");
    /* A character that goes on beyond the given length is cut, not read. */
    assert_int_equal(fmt_safe(dst, sizeof(dst), "\xe2\x82\xac", 2, false), 8);
    assert_string_equal(dst, "\\xe2\\x82");
}

/* Whatever the bytes, the result is printable. */
static void test_safe_every_pair(void **state UNUSED)
{
    for (unsigned i = 0; i < 65536; i++) {
        char src[2] = {(char)(i >> 8), (char)(i & 255)}, dst[16];
        size_t n = fmt_safe(dst, sizeof(dst), src, 2, true);

        assert_int_equal(n, strlen(dst));
        for (size_t k = 0; k < n; k++)
            assert_in_range(dst[k], 0x20, 0x7e);
    }
}

/* Numbers -------------------------------------------------------------------- */

struct number {
    double value;
    const char *want;
};

static void check_numbers(char *(*fmt)(char *, size_t, double), const struct number *n,
                          size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char dst[64];
        assert_string_equal(fmt(dst, sizeof(dst), n[i].value), n[i].want);
    }
}

static void test_duration(void **state UNUSED)
{
    static const struct number n[] = {
        {-1, "-"},           {NAN, "-"},         {0, "0us"},           {500, "0.5us"},
        {99.94e3, "99.9us"}, {99.96e3, "100us"}, {640e3, "640us"},     {999.4e3, "999us"},
        {999.6e3, "1.0ms"},  {18.4e6, "18.4ms"}, {999.7e6, "1.0s"},    {3.2e9, "3.2s"},
        {59.94e9, "59.9s"},  {59.96e9, "1m00s"}, {312e9, "5m12s"},     {3599.4e9, "59m59s"},
        {3599.6e9, "1h00m"}, {11100e9, "3h05m"}, {359999e9, "99h59m"}, {360000e9, "4d04h"}};

    check_numbers(fmt_duration, n, ARRAY_SIZE(n));
    for (double ns = 1; ns < 359999e9; ns *= 1.001) {
        char dst[64];
        assert_in_range(strlen(fmt_duration(dst, sizeof(dst), ns)), 1, 6);
    }
}

static void test_si(void **state UNUSED)
{
    static const struct number n[] = {
        {NAN, "-"},     {0, "0"},       {-0.0, "0"},     {7.3, "7.3"},     {0.25, "0.25"},
        {0.004, "0"},   {9.996, "10"},  {12.34, "12.3"}, {980, "980"},     {999.4, "999"},
        {999.5, "1k"},  {1500, "1.5k"}, {1530, "1.53k"}, {8200, "8.2k"},   {999499, "999k"},
        {999500, "1M"}, {12e6, "12M"},  {2e9, "2G"},     {-1500, "-1.5k"}, {100, "100"},
        {3e12, "3T"},   {4e15, "4P"},   {5e18, "5E"},    {7e21, "7000E"}};

    check_numbers(fmt_si, n, ARRAY_SIZE(n));
}

static void test_kib(void **state UNUSED)
{
    static const struct number n[] = {{NAN, "-"},
                                      {0, "0"},
                                      {0.4, "0"},
                                      {5, "5K"},
                                      {999, "999K"},
                                      {1000, "1.0M"},
                                      {1024, "1.0M"},
                                      {317440, "310M"},
                                      {10 * 1024.0, "10M"},
                                      {9.94 * 1024, "9.9M"},
                                      {9.96 * 1024, "10M"},
                                      {1.2 * 1048576, "1.2G"},
                                      {-1.2 * 1048576, "-1.2G"},
                                      {-512, "-512K"}};

    check_numbers(fmt_kib, n, ARRAY_SIZE(n));
    for (double kb = 1; kb < 1e18; kb *= 1.001) {
        char dst[64];
        assert_in_range(strlen(fmt_kib(dst, sizeof(dst), -kb)), 1, 5);
    }
}

static void test_count(void **state UNUSED)
{
    static const struct number n[] = {
        {NAN, "-"},     {0, "0.0"},   {-0.04, "0.0"}, {30.2, "30.2"},  {99.94, "99.9"},
        {99.96, "100"}, {128, "128"}, {128.6, "129"}, {-3.14, "-3.1"}, {12345, "12345"}};

    check_numbers(fmt_count, n, ARRAY_SIZE(n));
}

static void test_fixed(void **state UNUSED)
{
    char dst[32];

    assert_string_equal(fmt_fixed(dst, sizeof(dst), NAN, 1, "%"), "-");
    assert_string_equal(fmt_fixed(dst, sizeof(dst), 0.64, 1, "%"), "0.6%");
    assert_string_equal(fmt_fixed(dst, sizeof(dst), 128.26, 1, ""), "128.3");
    assert_string_equal(fmt_fixed(dst, sizeof(dst), -0.04, 1, ""), "0.0");
    assert_string_equal(fmt_fixed(dst, sizeof(dst), -0.06, 1, ""), "-0.1");
    assert_string_equal(fmt_fixed(dst, sizeof(dst), 97.8, 0, "%"), "98%");
    assert_string_equal(fmt_fixed(dst, sizeof(dst), 1.005, 2, ""), "1.00");
    assert_string_equal(fmt_fixed(dst, sizeof(dst), INFINITY, 0, ""), "1000000000000000");
}

static void test_msec(void **state UNUSED)
{
    static const struct number n[] = {
        {NAN, "-"}, {-1, "-"}, {18.4, "18.4ms"}, {0.0005, "0.5us"}, {312000, "5m12s"}};

    check_numbers(fmt_msec, n, ARRAY_SIZE(n));
}

static void test_extremes(void **state UNUSED)
{
    static char *(*const all[])(char *, size_t, double) = {fmt_duration, fmt_si, fmt_kib,
                                                           fmt_count,    fmt_msec};
    static const double values[] = {INFINITY, -INFINITY, DBL_MAX, -DBL_MAX, DBL_MIN};

    for (size_t f = 0; f < ARRAY_SIZE(all); f++) {
        for (size_t v = 0; v < ARRAY_SIZE(values); v++) {
            char dst[32];
            assert_in_range(strlen(all[f](dst, sizeof(dst), values[v])), 1, 24);
            assert_ptr_equal(all[f](dst, 3, values[v]), dst);
            assert_in_range(strlen(dst), 1, 2);
        }
    }
}

/* A comma for a decimal point would break scripts that read the batch output. */
static void test_no_locale(void **state UNUSED)
{
    char dst[16];

    if (!setlocale(LC_ALL, "de_DE.UTF-8")) {
        print_message("no locale with a decimal comma (de_DE.UTF-8) here\n");
        skip();
    }
    fmt_count(dst, sizeof(dst), 30.2);
    setlocale(LC_ALL, "C");
    assert_string_equal(dst, "30.2");
}

/* Text on the terminal ---------------------------------------------------------- */

static bool utf8_locale(void)
{
    return setlocale(LC_CTYPE, "C.UTF-8") || setlocale(LC_CTYPE, "C.utf8");
}

static void test_widths_in_utf8(void **state UNUSED)
{
    char s[64];

    if (!utf8_locale())
        skip();
    assert_int_equal(text_cells(""), 0);
    assert_int_equal(text_cells("abc"), 3);
    assert_int_equal(text_cells("h\u00e9llo"), 5);
    assert_int_equal(text_cells("\u65e5\u672c"), 4);
    assert_int_equal(text_cells("e\u0301"), 1);
    assert_int_equal(text_cells("a\xff\xfe"), 3);
    assert_int_equal(text_cells("a\xe6\x97"), 3); /* broken off in a character */
    text_cut(strcpy(s, "\u65e5\u672c\u8a9e"), sizeof(s), 6, false);
    assert_string_equal(s, "\u65e5\u672c\u8a9e");
    text_cut(strcpy(s, "\u65e5\u672c\u8a9e"), sizeof(s), 5, false);
    assert_string_equal(s, "\u65e5\u672c\u2026");
    text_cut(strcpy(s, "\u65e5\u672c\u8a9e"), sizeof(s), 4, true);
    assert_string_equal(s, "\u65e5~");
    text_cut(strcpy(s, "abc"), sizeof(s), 1, false);
    assert_string_equal(s, "\u2026");
    text_cut(strcpy(s, "abc"), 4, 2, false); /* the mark needs 3 bytes and a NUL */
    assert_string_equal(s, "\u2026");
    text_cut(strcpy(s, "abc"), sizeof(s), 0, false);
    assert_string_equal(s, "abc");
}

static void test_widths_in_c_locale(void **state UNUSED)
{
    char s[16];

    setlocale(LC_CTYPE, "C");
    assert_int_equal(text_cells("h\u00e9llo"), 6);
    text_cut(strcpy(s, "h\u00e9llo"), sizeof(s), 4, true);
    assert_string_equal(s, "h\u00e9~");
}

static void check_next(const char *s, size_t bytes, int cells)
{
    int got = 99;

    assert_int_equal(text_next(s, &got), bytes);
    assert_int_equal(got, cells);
}

static void test_next(void **state UNUSED)
{
    setlocale(LC_CTYPE, "C");
    check_next("ab", 1, 1);
    check_next("\033[", 1, -1);
    check_next("\xc3\xa9", 1, -1);
    if (!utf8_locale())
        skip();
    check_next("\u00e9x", 2, 1);
    check_next("\u65e5", 3, 2);
    check_next("\u0301", 2, 0);
    check_next("\xc2\x85", 2, -1); /* a control character */
    check_next("\n", 1, -1);
    check_next("\xff", 1, -1);
    check_next("\xe6\x97", 1, -1);     /* broken off by the end */
    check_next("\xe6\x97" "abc", 1, -1); /* and by something else */
    check_next("\xf0\x9f\x94\x92", 4, 2);
}

/* A megabyte is walked through, not measured anew at each character. */
static void test_long_text(void **state UNUSED)
{
    size_t n = 1 << 20;
    char *s = malloc(n + 1);

    setlocale(LC_CTYPE, "C");
    memset(s, 'x', n);
    s[n] = '\0';
    assert_int_equal(text_cells(s), n);
    text_cut(s, n + 1, (int)n - 1, true);
    assert_int_equal(strlen(s), n - 1);
    assert_string_equal(s + n - 3, "x~");
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safe_controls),
        cmocka_unit_test(test_safe_utf8),
        cmocka_unit_test(test_safe_broken_utf8),
        cmocka_unit_test(test_safe_tricks),
        cmocka_unit_test(test_safe_room),
        cmocka_unit_test(test_safe_length),
        cmocka_unit_test(test_safe_every_pair),
        cmocka_unit_test(test_duration),
        cmocka_unit_test(test_si),
        cmocka_unit_test(test_kib),
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_msec),
        cmocka_unit_test(test_no_locale),
        cmocka_unit_test(test_widths_in_utf8),
        cmocka_unit_test(test_widths_in_c_locale),
        cmocka_unit_test(test_next),
        cmocka_unit_test(test_long_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

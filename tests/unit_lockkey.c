/* lockkey.c: one identity for all who wait for the same lock, and for nobody else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../src/lockkey.h"

static const struct process_fact SHOP = {.pid = 16147, .start_ticks = 5000};

static bool same(struct lockkey a, struct lockkey b)
{
    return memcmp(&a, &b, sizeof(a)) == 0;
}

static void test_private(void **state)
{
    (void)state;
    const struct word_fact word = {.addr = 0x1008, .region = REGION_ANON};
    struct lockkey k = lockkey_make(&SHOP, NULL, 0x1000);
    struct process_fact other = SHOP;

    assert_int_equal(k.space, LOCKKEY_PRIVATE);
    assert_true(same(k, lockkey_make(&SHOP, &word, 0x1000)));
    assert_false(same(k, lockkey_make(&SHOP, NULL, 0x1008)));
    other.pid++;
    assert_false(same(k, lockkey_make(&other, NULL, 0x1000)));
}

static void test_another_program_or_process_at_the_same_place(void **state)
{
    (void)state;
    struct lockkey k = lockkey_make(&SHOP, NULL, 0x1000);
    struct process_fact execed = SHOP, reused = SHOP;

    execed.execs = 1;
    reused.start_ticks = 9000;
    assert_false(same(k, lockkey_make(&execed, NULL, 0x1000)));
    assert_false(same(k, lockkey_make(&reused, NULL, 0x1000)));
}

/* Only a shared mapping makes words of two processes one; a file mapped privately does not. */
static void test_every_region(void **state)
{
    (void)state;
    for (int region = REGION_UNKNOWN; region <= REGION_SHARED; region++) {
        const struct word_fact word = {
            .addr = 0x1000, .region = (enum region)region, .dev = 1, .inode = 2, .offset = 3};
        struct lockkey k = lockkey_make(&SHOP, &word, 0x1000);
        assert_int_equal(k.space, region == REGION_SHARED ? LOCKKEY_SHARED : LOCKKEY_PRIVATE);
    }
}

static void test_shared_at_other_addresses(void **state)
{
    (void)state;
    /* The word is a rwlock's +12 here and its +8 there. */
    const struct word_fact here = {
        .addr = 0x7f000000100c, .region = REGION_SHARED, .dev = 0xfe00, .inode = 9, .offset = 0x4c};
    const struct word_fact there = {
        .addr = 0x55000048, .region = REGION_SHARED, .dev = 0xfe00, .inode = 9, .offset = 0x48};
    const struct process_fact other = {.pid = 99, .start_ticks = 1, .execs = 3};
    struct lockkey k = lockkey_make(&SHOP, &here, 0x7f0000001000);
    struct word_fact elsewhere = there;

    assert_true(same(k, lockkey_make(&other, &there, 0x55000040)));
    elsewhere.inode = 8;
    assert_false(same(k, lockkey_make(&other, &elsewhere, 0x55000040)));
    elsewhere.inode = 9;
    elsewhere.dev = 0xfe01;
    assert_false(same(k, lockkey_make(&other, &elsewhere, 0x55000040)));
    elsewhere.dev = 0xfe00;
    elsewhere.offset += 64;
    assert_false(same(k, lockkey_make(&other, &elsewhere, 0x55000040)));
}

static void expect_text(struct lockkey k, const char *expected)
{
    char text[64];

    lockkey_text(text, sizeof(text), &k);
    assert_string_equal(text, expected);
}

static void test_text(void **state)
{
    (void)state;
    const struct word_fact word = {
        .addr = 0x1008, .region = REGION_SHARED, .dev = 0xfe00, .inode = 1234, .offset = 0x48};
    struct process_fact execed = SHOP;

    execed.execs = 2;
    expect_text(lockkey_make(&SHOP, NULL, 0x7f1200000040), "16147:0x7f1200000040");
    expect_text(lockkey_make(&execed, NULL, 0x7f1200000040), "16147.2:0x7f1200000040");
    expect_text(lockkey_make(&SHOP, &word, 0x1000), "shm:fe00:1234+0x40");
}

static void test_longest_text_fits(void **state)
{
    (void)state;
    const struct word_fact word = {
        .region = REGION_SHARED, .dev = UINT64_MAX, .inode = UINT64_MAX, .offset = UINT64_MAX};
    const struct process_fact p = {.pid = 4194304, .execs = UINT32_MAX};
    struct lockkey shared = lockkey_make(&SHOP, &word, 0);
    struct lockkey private = lockkey_make(&p, NULL, UINT64_MAX);
    char text[64];

    lockkey_text(text, sizeof(text), &shared);
    assert_true(strlen(text) < sizeof(text) - 1);
    assert_string_equal(strchr(text, '+'), "+0xffffffffffffffff");
    lockkey_text(text, sizeof(text), &private);
    assert_string_equal(strchr(text, ':'), ":0xffffffffffffffff");
}

/* Waits that have no word in common: their code is what they share. */
static void test_sites(void **state)
{
    (void)state;
    struct process_fact p = {.pid = 4711, .start_ticks = 9, .execs = 1}, other = p;
    char a[64], b[64];

    other.pid = 4712;
    struct lockkey one = lockkey_site(&p, false, "CPython GIL", 0);
    struct lockkey same = lockkey_site(&p, false, "CPython GIL", 0);
    struct lockkey caller = lockkey_site(&p, false, "CPython GIL", 0x1000);
    struct lockkey elsewhere = lockkey_site(&other, false, "CPython GIL", 0);
    assert_memory_equal(&one, &same, sizeof(one));
    assert_memory_not_equal(&one, &caller, sizeof(one));
    assert_memory_not_equal(&one, &elsewhere, sizeof(one));
    struct lockkey shared = lockkey_site(&p, true, "LWLock", 0);
    struct lockkey also = lockkey_site(&other, true, "LWLock", 0);
    assert_memory_equal(&shared, &also, sizeof(shared));
    lockkey_site_text(a, sizeof(a), &one, "CPython GIL", 0);
    assert_string_equal(a, "4711@CPython GIL");
    lockkey_site_text(a, sizeof(a), &caller, "CPython GIL", 0x1000);
    assert_string_equal(a, "4711@CPython GIL+0x1000");
    lockkey_site_text(a, sizeof(a), &shared, "LWLock", 0);
    assert_string_equal(a, "@LWLock");
    /* Long labels that begin alike stay apart. */
    const char *long1 = "connection pool of the shop, primary", *long2 =
        "connection pool of the shop, replica";
    struct lockkey k1 = lockkey_site(&p, false, long1, 0), k2 = lockkey_site(&p, false, long2, 0);
    lockkey_site_text(a, sizeof(a), &k1, long1, 0);
    lockkey_site_text(b, sizeof(b), &k2, long2, 0);
    assert_string_not_equal(a, b);
    assert_true(strlen(a) < 60 && strncmp(a, "4711@connection pool", 20) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_private),
        cmocka_unit_test(test_another_program_or_process_at_the_same_place),
        cmocka_unit_test(test_every_region),
        cmocka_unit_test(test_shared_at_other_addresses),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_longest_text_fits),
        cmocka_unit_test(test_sites),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

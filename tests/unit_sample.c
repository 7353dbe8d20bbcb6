#include <linux/futex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/sample.h"

/* Words --------------------------------------------------------------------------------- */

static struct word_view counted(uint8_t lo, uint8_t hi)
{
    struct word_view v = {.lo = lo, .hi = hi};

    for (int i = 0; i < WORD_WINDOW; i++)
        v.bytes[i] = (uint8_t)i;
    return v;
}

static void test_word_values(void **state UNUSED)
{
    struct word_view v = counted(0, WORD_WINDOW);
    uint32_t w;
    uint64_t d;

    assert_true(word_u32(&v, 0, &w));
    assert_int_equal(w, 0x33323130);
    assert_true(word_u32(&v, 1, &w)); /* no alignment is asked for */
    assert_int_equal(w, 0x34333231);
    assert_true(word_u32(&v, -WORD_BEFORE, &w));
    assert_int_equal(w, 0x03020100);
    assert_true(word_u32(&v, WORD_AFTER - 4, &w));
    assert_int_equal(w, 0x5f5e5d5c);
    assert_true(word_u64(&v, -44, &d));
    assert_int_equal(d, 0x0b0a090807060504);
    assert_true(word_u64(&v, WORD_AFTER - 8, &d));
}

static void test_word_borders(void **state UNUSED)
{
    struct word_view v = counted(0, WORD_WINDOW);
    uint32_t w = 0xabcd;
    uint64_t d = 0xabcd;

    assert_false(word_u32(&v, -WORD_BEFORE - 1, &w));
    assert_false(word_u32(&v, WORD_AFTER - 3, &w));
    assert_false(word_u64(&v, WORD_AFTER - 7, &d));
    assert_false(word_u32(&v, 1000, &w));
    assert_false(word_u32(&v, -1000, &w));
    v = counted(WORD_BEFORE, WORD_BEFORE + 4); /* only the word itself */
    assert_true(word_u32(&v, 0, &w));
    w = 0xabcd;
    assert_false(word_u32(&v, -4, &w));
    assert_false(word_u32(&v, 4, &w));
    assert_false(word_u32(&v, 1, &w));
    assert_false(word_u64(&v, 0, &d));
    v = counted(WORD_BEFORE, WORD_BEFORE); /* nothing could be read */
    assert_false(word_u32(&v, 0, &w));
    v = counted(0, 0);
    assert_false(word_u32(&v, 0, &w));
    assert_false(word_u32(&v, -WORD_BEFORE, &w));
    assert_int_equal(w, 0xabcd);
    assert_int_equal(d, 0xabcd);
}

/* Futex calls ------------------------------------------------------------------------------ */

static const struct decoded {
    const char *what;
    enum call call;
    uint64_t arg[6];
    bool is_wait;
    struct futex_wait f;
} decoded[] = {
    {"mutex", CALL_futex, {0x5000, 0x80, 2, 0}, true,
     {.addr = 0x5000, .cmd = FUTEX_WAIT, .val = 2, .is_private = true, .words = 1}},
    {"shared mutex", CALL_futex, {0x5000, 0, 2, 0}, true,
     {.addr = 0x5000, .cmd = FUTEX_WAIT, .val = 2, .words = 1}},
    {"timedlock", CALL_futex, {0x5000, 0x189, 2, 0x7f00}, true,
     {.addr = 0x5000, .cmd = FUTEX_WAIT_BITSET, .val = 2, .is_private = true, .realtime = true,
      .timed = true, .words = 1}},
    {"clocklock", CALL_futex, {0x5000, 0x89, 2, 0x7f00}, true,
     {.addr = 0x5000, .cmd = FUTEX_WAIT_BITSET, .val = 2, .is_private = true, .timed = true,
      .words = 1}},
    {"PI", CALL_futex, {0x5000, 0x86, 0, 0}, true,
     {.addr = 0x5000, .cmd = FUTEX_LOCK_PI, .is_private = true, .words = 1}},
    {"PI2", CALL_futex, {0x5000, 0x8d, 0, 0}, true,
     {.addr = 0x5000, .cmd = 13, .is_private = true, .words = 1}},
    {"requeue to PI", CALL_futex, {0x5000, 0x8b, 7, 0}, true,
     {.addr = 0x5000, .cmd = FUTEX_WAIT_REQUEUE_PI, .val = 7, .is_private = true, .words = 1}},
    {"join", CALL_futex, {0x5000, 0x109, 8333, 0}, true,
     {.addr = 0x5000, .cmd = FUTEX_WAIT_BITSET, .val = 8333, .realtime = true, .words = 1}},
    {"robust", CALL_futex, {0x5000, 0, 0x80000000 + 8333, 0}, true,
     {.addr = 0x5000, .cmd = FUTEX_WAIT, .val = 0x80000000 + 8333, .words = 1}},
    {"musl: val is sign-extended", CALL_futex, {0x5000, 0x80, 0xffffffff80000010, 0}, true,
     {.addr = 0x5000, .cmd = FUTEX_WAIT, .val = 0x80000010, .is_private = true, .words = 1}},
    {"noise above op", CALL_futex, {0x5000, 0xdeadbeef00000080, 0xdeadbeef00000002, 0}, true,
     {.addr = 0x5000, .cmd = FUTEX_WAIT, .val = 2, .is_private = true, .words = 1}},
    {"i386 time64", CALL_futex_time64, {0x5000, 0x80, 2, 0}, true,
     {.addr = 0x5000, .cmd = FUTEX_WAIT, .val = 2, .is_private = true, .words = 1}},
    {"futex_wait", CALL_futex_wait, {0x5000, 0xffffffff00000002, ~UINT64_C(0), 0x82, 0, 1}, true,
     {.addr = 0x5000, .cmd = FUTEX_WAIT_BITSET, .val = 2, .is_private = true, .words = 1}},
    {"futex_wait, shared, timed", CALL_futex_wait, {0x5000, 2, ~UINT64_C(0), 2, 0x7f00, 1}, true,
     {.addr = 0x5000, .cmd = FUTEX_WAIT_BITSET, .val = 2, .timed = true, .words = 1}},
    {"futex_waitv", CALL_futex_waitv, {0x6000, 3, 0, 0x7f00, 1}, true,
     {.cmd = FUTEX_WAIT_BITSET, .timed = true, .words = 3}},
    {"futex_waitv of nothing", CALL_futex_waitv, {0x6000, 0, 0, 0, 1}, false, {0}},
    {"wake", CALL_futex, {0x5000, 0x81, 1, 0}, false, {0}},
    {"requeue", CALL_futex, {0x5000, 0x83, 1, 0}, false, {0}},
    {"unlock PI", CALL_futex, {0x5000, 0x87, 0, 0}, false, {0}},
    {"unknown op", CALL_futex, {0x5000, 0xffffffff, 0, 0}, false, {0}},
    {"unknown flag", CALL_futex, {0x5000, 0x280, 2, 0}, false, {0}},
    {"null", CALL_futex, {0, 0x80, 2, 0}, false, {0}},
    {"null futex_wait", CALL_futex_wait, {0, 2, 0, 2, 0, 1}, false, {0}},
    {"read", CALL_read, {0x5000, 0x80, 2, 0}, false, {0}},
    {"restart", CALL_restart_syscall, {0x5000, 0x80, 2, 0}, false, {0}},
    {"other", CALL_OTHER, {0x5000, 0x80, 2, 0}, false, {0}},
};

static void test_decode(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_SIZE(decoded); i++) {
        const struct decoded *d = &decoded[i];
        struct futex_wait f;

        memset(&f, 0xa5, sizeof(f));
        if (futex_decode(d->call, d->arg, &f) != d->is_wait)
            fail_msg("%s", d->what);
        if (!d->is_wait) {
            assert_int_equal(f.addr, 0); /* which says: no futex wait */
            continue;
        }
        if (f.addr != d->f.addr || f.cmd != d->f.cmd || f.val != d->f.val ||
            f.is_private != d->f.is_private || f.realtime != d->f.realtime ||
            f.timed != d->f.timed || f.words != d->f.words)
            fail_msg("%s", d->what);
    }
}

static void test_decode_garbage(void **state UNUSED)
{
    uint64_t x = 88172645463325252, arg[6];
    struct futex_wait f;

    for (int i = 0; i < 100000; i++) {
        for (int k = 0; k < 6; k++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            arg[k] = x;
        }
        for (int c = 0; c < CALL_COUNT; c++) {
            if (futex_decode((enum call)c, arg, &f))
                assert_true(c == CALL_futex_waitv ? f.addr == 0 : f.addr == arg[0]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_word_values),
        cmocka_unit_test(test_word_borders),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_decode_garbage),
    };

    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}

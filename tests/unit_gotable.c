#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/gotable.h"

#define TEXT 0x401000

/* A table as Go 1.18 writes it, of two functions at TEXT (64 bytes) and TEXT + 64 (32 bytes). */
struct go {
    struct {
        uint32_t magic;
        uint8_t zero[2], unit, pointer;
        uint64_t words[8];
    } header;
    uint8_t values[16];
    struct {
        uint32_t start, into;
    } index[2];
    uint32_t end, padding;
    struct {
        uint32_t start, name, args, deferreturn, values, file, line, ndata, unit;
        uint8_t bytes[12];
    } about[2];
};

static void go_init(struct go *g)
{
    const size_t index = offsetof(struct go, index);

    *g = (struct go){
        .header =
            {0xfffffff0, {0, 0}, 1, 8, {2, 0, TEXT, 0, 0, 0, offsetof(struct go, values), index}},
        /* At 1: 0 for 4 bytes, 0x80 for 50, 0 for the rest. At 9: 8 for 32 bytes. */
        .values = {0, 2, 4, 0x80, 2, 50, 0xff, 1, 10, 18, 32, 0},
        .index = {{0, offsetof(struct go, about[0]) - index},
                  {64, offsetof(struct go, about[1]) - index}},
        .end = 96,
    };
    g->about[0].values = 1;
    g->about[1].start = 64;
    g->about[1].values = 9;
}

static bool find(const struct go *g, uint64_t pc, struct go_frame *f)
{
    *f = (struct go_frame){.size = 12345};
    return gotable_find((const uint8_t *)g, sizeof(*g), 0, pc, f);
}

static void test_sizes(void **state UNUSED)
{
    static const struct {
        uint64_t into, size;
    } cases[] = {{0, 0}, {3, 0}, {4, 0x80}, {53, 0x80}, {54, 0}, {63, 0}, {64, 8}, {95, 8}};
    struct go g;
    struct go_frame f;

    go_init(&g);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_true(find(&g, TEXT + cases[i].into, &f));
        assert_int_equal(f.size, cases[i].size);
        assert_false(f.outermost);
    }
    assert_false(find(&g, TEXT + 96, &f));
    assert_false(find(&g, TEXT - 1, &f));
    assert_false(find(&g, UINT64_MAX, &f));
}

static void test_flags(void **state UNUSED)
{
    struct go g;
    struct go_frame f;

    for (uint8_t flag = 1; flag <= 2; flag++) {
        go_init(&g);
        g.about[1].bytes[1] = flag; /* 36: what it is; 37: flags */
        assert_true(find(&g, TEXT + 64, &f) && f.outermost);
        assert_true(find(&g, TEXT, &f) && !f.outermost);
        g.header.magic = 0xfffffff1; /* four bytes further on */
        assert_true(find(&g, TEXT + 64, &f) && !f.outermost);
        g.about[1].bytes[5] = flag;
        assert_true(find(&g, TEXT + 64, &f) && f.outermost);
    }
}

static void test_text(void **state UNUSED)
{
    struct go g;
    struct go_frame f;

    go_init(&g);
    g.header.words[2] = 0;
    assert_true(gotable_find((const uint8_t *)&g, sizeof(g), 0x5000, 0x5000 + 70, &f));
    assert_int_equal(f.size, 8);
}

static void test_not_known(void **state UNUSED)
{
    struct go g;
    struct go_frame f;

    go_init(&g);
    g.header.magic = 0xfffffffb;
    assert_false(find(&g, TEXT, &f));
    go_init(&g);
    g.header.pointer = 4;
    assert_false(find(&g, TEXT, &f));
    go_init(&g);
    g.values[1] = 1; /* negative */
    g.values[3] = 0;
    assert_false(find(&g, TEXT, &f));
    assert_false(gotable_find((const uint8_t *)&g, 0, 0, TEXT, &f));
}

/* In memory of its very size, so that a sanitizer sees a byte too many. */
static void test_hostile(void **state UNUSED)
{
    static const uint8_t bytes[] = {0, 1, 0x7f, 0x80, 0xff};
    struct go g;
    struct go_frame f;
    uint32_t x = 5;

    for (int i = 0; i < 20000; i++) {
        go_init(&g);
        for (int k = 0; k < 3; k++) {
            x = x * 1664525 + 1013904223;
            ((uint8_t *)&g)[4 + (x >> 8) % (sizeof(g) - 4)] = bytes[(x >> 20) % sizeof(bytes)];
        }
        size_t len = i % 2 ? sizeof(g) : (x >> 6) % sizeof(g);
        uint8_t *copy = malloc(len + 1);
        memcpy(copy + 1, &g, len);
        for (uint64_t pc = TEXT; pc < TEXT + 100; pc += 9)
            gotable_find(copy + 1, len, TEXT, pc, &f);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),   cmocka_unit_test(test_flags),
        cmocka_unit_test(test_text),    cmocka_unit_test(test_not_known),
        cmocka_unit_test(test_hostile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

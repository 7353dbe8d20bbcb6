#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/ehframe.h"
#include "module_tree.h"

/* The test's own .eh_frame, and the linker's table of it. */
struct own {
    uint8_t *image;
    size_t size;
    const Elf64_Shdr *frame, *header;
};

static const Elf64_Shdr *section(const struct own *o, const char *name)
{
    const Elf64_Ehdr *e = (const Elf64_Ehdr *)o->image;
    const Elf64_Shdr *sh = (const Elf64_Shdr *)(o->image + e->e_shoff);

    for (unsigned i = 0; i < e->e_shnum; i++) {
        const char *names = (const char *)o->image + sh[e->e_shstrndx].sh_offset;
        if (strcmp(names + sh[i].sh_name, name) == 0)
            return &sh[i];
    }
    fail_msg("no %s here", name);
    return NULL;
}

static int open_own(void **state)
{
    static struct own o;

    o.image = slurp_file("/proc/self/exe", &o.size);
    o.frame = section(&o, ".eh_frame");
    o.header = section(&o, ".eh_frame_hdr");
    *state = &o;
    return 0;
}

static int close_own(void **state)
{
    free(((struct own *)*state)->image);
    return 0;
}

static struct eh_entry *build(const struct own *o, const uint8_t *frame, size_t len, size_t *n)
{
    return ehframe_build(o->image, frame, len, o->frame->sh_addr, n);
}

/* What is built is what the linker built. */
static void test_as_linker(void **state)
{
    const struct own *o = *state;
    const uint8_t *header = o->image + o->header->sh_offset;
    uint32_t count;
    size_t n;
    struct eh_entry *e = build(o, o->image + o->frame->sh_offset, o->frame->sh_size, &n);

    memcpy(&count, header + 8, 4);
    assert_int_equal(n, count);
    for (size_t i = 0; i < n; i++) {
        struct eh_entry l;
        memcpy(&l, header + 12 + i * sizeof(l), sizeof(l));
        assert_int_equal(e[i].code + (int64_t)o->frame->sh_addr,
                         l.code + (int64_t)o->header->sh_addr);
        assert_int_equal(e[i].fde + (int64_t)o->frame->sh_addr,
                         l.fde + (int64_t)o->header->sh_addr);
    }
    free(e);
}

static void test_find(void **state UNUSED)
{
    const struct eh_entry table[] = {{-20, 1}, {0, 2}, {0x7fffffff, 3}};
    uint8_t odd[sizeof(table) + 1];
    struct eh_entry e;

    memcpy(odd + 1, table, sizeof(table));
    assert_false(ehframe_find(odd + 1, 3, -21, &e));
    assert_true(ehframe_find(odd + 1, 3, -20, &e));
    assert_int_equal(e.fde, 1);
    assert_true(ehframe_find(odd + 1, 3, -1, &e));
    assert_int_equal(e.fde, 1);
    assert_true(ehframe_find(odd + 1, 3, 100, &e));
    assert_int_equal(e.fde, 2);
    assert_true(ehframe_find(odd + 1, 3, INT64_MAX, &e));
    assert_int_equal(e.fde, 3);
    assert_false(ehframe_find(odd + 1, 0, 0, &e));
}

/* In memory of its very size, so that a sanitizer sees a byte too many. */
static void build_exact(const struct own *o, const uint8_t *bytes, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    size_t n;

    memcpy(copy, bytes, len);
    free(build(o, copy, len, &n));
    free(copy);
}

static void test_hostile(void **state)
{
    const struct own *o = *state;
    const uint8_t *frame = o->image + o->frame->sh_offset;
    const size_t len = MIN(o->frame->sh_size, (Elf64_Xword)600);
    uint8_t bytes[600];
    uint32_t x = 3;

    for (size_t cut = 0; cut < len; cut += 7)
        build_exact(o, frame, cut);
    for (int i = 0; i < 3000; i++) {
        memcpy(bytes, frame, len);
        for (int k = 0; k < 4; k++) {
            x = x * 1664525 + 1013904223;
            bytes[(x >> 8) % len] = (uint8_t)(x >> 24);
        }
        build_exact(o, bytes, len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_linker),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_hostile),
    };

    return cmocka_run_group_tests(tests, open_own, close_own);
}

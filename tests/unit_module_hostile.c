#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/ehframe.h"
#include "../src/filemap.h"
#include "module_tree.h"

#define LOADED_AT 0x10000

/* A small 64-bit library: one segment of the whole file, an .eh_frame_hdr and a build-id. */
struct small {
    Elf64_Ehdr e;
    Elf64_Phdr ph[3];
    struct {
        Elf64_Nhdr n;
        char name[4];
        uint8_t id[20];
    } note;
    struct {
        uint8_t version, pointer, count_format, table_format;
        uint32_t frame, count;
        struct eh_entry table[2];
    } hdr;
    uint8_t code[64];
};

static void small_init(struct small *s)
{
    *s = (struct small){
        .e = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
              .e_type = ET_DYN,
              .e_machine = EM_X86_64,
              .e_version = EV_CURRENT,
              .e_phoff = offsetof(struct small, ph),
              .e_ehsize = sizeof(Elf64_Ehdr),
              .e_phentsize = sizeof(Elf64_Phdr),
              .e_phnum = 3},
        .ph = {{.p_type = PT_LOAD,
                .p_flags = PF_R | PF_X,
                .p_filesz = sizeof(*s),
                .p_memsz = sizeof(*s),
                .p_align = 0x1000},
               {.p_type = PT_GNU_EH_FRAME,
                .p_flags = PF_R,
                .p_offset = offsetof(struct small, hdr),
                .p_vaddr = offsetof(struct small, hdr),
                .p_filesz = sizeof(s->hdr),
                .p_memsz = sizeof(s->hdr)},
               {.p_type = PT_NOTE,
                .p_flags = PF_R,
                .p_offset = offsetof(struct small, note),
                .p_vaddr = offsetof(struct small, note),
                .p_filesz = sizeof(s->note),
                .p_memsz = sizeof(s->note)}},
        .note = {{4, 20, NT_GNU_BUILD_ID}, "GNU", {1, 2, 3}},
        .hdr = {1, 0x1b, 0x03, 0x3b, 0, 2, {{16, 4}, {32, 8}}},
    };
}

/* Loads LEN bytes of a file and calls LOOK with what it is taken for. */
static void with_file(const void *bytes, size_t len, void (*look)(const struct module *))
{
    struct made m;

    made_new(&m, true);
    const char *path = made_file(&m, "x.so", bytes, len);
    tree_put(&m.tree, "1/task/1/maps", "%s", maps_line(path, LOADED_AT, LOADED_AT + 0x10000));
    struct space *s = made_space(&m);
    look(space_find(s, LOADED_AT)->module);
    space_free(s);
    made_free(&m);
}

static void is_good(const struct module *m)
{
    assert_int_equal(m->elf_class, 64);
    assert_int_equal(m->machine, EM_X86_64);
    assert_int_equal(m->nsegments, 1);
    assert_int_equal(m->eh_entries, 2);
    assert_int_equal(m->eh_base, offsetof(struct small, hdr));
    assert_int_equal(m->build_id_len, 20);
    assert_int_equal(m->build_id[1], 2);
    assert_ptr_equal(module_at(m, 8, 8), m->image + 8);
    assert_non_null(module_at(m, 0, sizeof(struct small)));
    assert_null(module_at(m, 0, sizeof(struct small) + 1));
    assert_null(module_at(m, 1, SIZE_MAX));
    assert_null(module_at(m, UINT64_MAX, 2));
}

static void is_nothing(const struct module *m)
{
    assert_int_equal(m->elf_class, 0);
    assert_int_equal(m->nsegments, 0);
    assert_int_equal(m->eh_entries, 0);
    assert_int_equal(m->build_id_len, 0);
}

static void has_no_table(const struct module *m)
{
    assert_int_equal(m->elf_class, 64);
    assert_int_equal(m->eh_entries, 0);
    assert_int_equal(m->build_id_len, 20);
}

static void test_good(void **state UNUSED)
{
    struct small s;

    small_init(&s);
    with_file(&s, sizeof(s), is_good);
}

static void test_no_elf(void **state UNUSED)
{
    struct small s;

    with_file("", 0, is_nothing);
    with_file("#!/bin/sh\n", 10, is_nothing);
    with_file("\177ELF", 4, is_nothing);
    small_init(&s);
    s.e.e_ident[EI_DATA] = ELFDATA2MSB;
    with_file(&s, sizeof(s), is_nothing);
    small_init(&s);
    s.e.e_ident[EI_CLASS] = 3;
    with_file(&s, sizeof(s), is_nothing);
    small_init(&s);
    with_file(&s, sizeof(s.e) - 1, is_nothing);
}

/* What linkers do not write is not taken for a table. */
static void test_tables_not_known(void **state UNUSED)
{
    struct small s;
    uint8_t *const fields[] = {&s.hdr.version, &s.hdr.pointer, &s.hdr.count_format,
                               &s.hdr.table_format};

    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        small_init(&s);
        *fields[i] = 0xff;
        with_file(&s, sizeof(s), has_no_table);
    }
    small_init(&s);
    s.ph[1].p_vaddr = UINT64_MAX - 2;
    with_file(&s, sizeof(s), has_no_table);
}

static void is_clamped(const struct module *m)
{
    assert_int_equal(m->eh_entries, (sizeof(struct small) - offsetof(struct small, hdr.table)) / 8);
    assert_non_null(module_at(m, m->eh_base + 12, m->eh_entries * 8));
}

static void test_table_too_long(void **state UNUSED)
{
    struct small s;

    small_init(&s);
    s.hdr.count = UINT32_MAX;
    with_file(&s, sizeof(s), is_clamped);
}

/* Everything that is said of the file must lie within it, whatever its headers say. */
static void is_within(const struct module *m)
{
    for (size_t i = 0; i < m->nsegments; i++) {
        const struct segment *g = &m->segments[i];
        const uint8_t *p = module_at(m, g->vaddr, 1);
        assert_true(!p || (p >= m->image && p < m->image + m->size));
        p = module_at(m, g->vaddr, g->filesz);
        assert_true(!p || g->filesz <= m->size);
        module_at(m, g->vaddr + g->filesz - 1, 2);
    }
    assert_true(m->build_id_len <= BUILD_ID_MAX);
    struct eh_entry e;
    if (m->eh_entries)
        ehframe_find(m->eh_table, m->eh_entries, 24, &e);
}

static void test_truncated(void **state UNUSED)
{
    struct small s;

    small_init(&s);
    for (size_t len = 0; len < sizeof(s); len += 3)
        with_file(&s, len, is_within);
}

static uint32_t next_random(uint32_t *x)
{
    *x = *x * 1664525 + 1013904223;
    return *x >> 8;
}

static void test_mutated(void **state UNUSED)
{
    static const uint8_t values[] = {0, 1, 4, 0x7f, 0x80, 0xfe, 0xff};
    uint32_t x = 7;

    for (int i = 0; i < 1500; i++) {
        struct small s;
        small_init(&s);
        for (uint32_t n = 1 + next_random(&x) % 6; n > 0; n--)
            ((uint8_t *)&s)[next_random(&x) % offsetof(struct small, code)] =
                values[next_random(&x) % sizeof(values)];
        with_file(&s, sizeof(s), is_within);
    }
}

static void is_32(const struct module *m)
{
    assert_int_equal(m->elf_class, 32);
    assert_int_equal(m->machine, EM_386);
    assert_int_equal(m->nsegments, 1);
    assert_int_equal(m->segments[0].vaddr, 0x8048000);
    assert_true(m->segments[0].exec);
    assert_int_equal(m->entry, 0x8048010);
    assert_non_null(module_at(m, 0x8048000, 4));
}

static void test_32_bit(void **state UNUSED)
{
    struct {
        Elf32_Ehdr e;
        Elf32_Phdr ph;
    } file = {
        .e = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS32, ELFDATA2LSB, EV_CURRENT},
              .e_machine = EM_386,
              .e_entry = 0x8048010,
              .e_phoff = sizeof(Elf32_Ehdr),
              .e_phentsize = sizeof(Elf32_Phdr),
              .e_phnum = 1},
        .ph = {.p_type = PT_LOAD,
               .p_vaddr = 0x8048000,
               .p_filesz = 64,
               .p_memsz = 64,
               .p_flags = PF_R | PF_X},
    };

    with_file(&file, sizeof(file), is_32);
}

/* The file is cut off while it is mapped: zeros, and no SIGBUS. */
static void test_cut_off(void **state UNUSED)
{
    struct made m;
    uint8_t bytes[3 * 4096];

    memset(bytes, 0x5a, sizeof(bytes));
    made_new(&m, false);
    const char *path = made_file(&m, "x", bytes, sizeof(bytes));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    const volatile uint8_t *image = filemap_new(fd, sizeof(bytes));
    assert_non_null((const void *)image);
    assert_int_equal(image[5000], 0x5a);
    assert_int_equal(ftruncate(fd, 4096), 0);
    close(fd);
    assert_int_equal(image[100], 0x5a);
    assert_int_equal(image[5000], 0);
    assert_int_equal(image[9000], 0);
    filemap_free((const uint8_t *)(uintptr_t)image, sizeof(bytes));
    assert_null(filemap_new(-1, 10));
    assert_null(filemap_new(0, 0));
    filemap_free(NULL, 0);
    made_free(&m);
}

static sigjmp_buf back;

static void jump_back(int sig UNUSED)
{
    siglongjmp(back, 1);
}

/* Faults elsewhere go to whom they went before. */
static void test_other_faults(void **state UNUSED)
{
    struct sigaction action = {.sa_handler = jump_back}, before;
    struct made m;
    uint8_t bytes[8192] = {0};

    made_new(&m, false);
    sigaction(SIGBUS, &action, &before);
    const char *path = made_file(&m, "x", bytes, sizeof(bytes));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    const uint8_t *image = filemap_new(fd, sizeof(bytes));
    volatile uint8_t *other = mmap(NULL, sizeof(bytes), PROT_READ, MAP_PRIVATE, fd, 0);
    volatile bool jumped = true;

    assert_int_equal(ftruncate(fd, 0), 0);
    if (sigsetjmp(back, 1) == 0)
        jumped = other[4096] == 77;
    assert_true(jumped);
    close(fd);
    munmap((void *)(uintptr_t)other, sizeof(bytes));
    filemap_free(image, sizeof(bytes));
    sigaction(SIGBUS, &before, NULL);
    made_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_no_elf),
        cmocka_unit_test(test_tables_not_known),
        cmocka_unit_test(test_table_too_long),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_mutated),
        cmocka_unit_test(test_32_bit),
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_other_faults),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../src/symbol_debug.h"
#include "../src/symbol_index.h"
#include "../src/symbol_inline.h"
#include "../src/symbol_lines.h"
#include "symbol_build.h"

/* A file of the directory in memory of exactly its size, so that a sanitizer sees the first byte
 * too many. */
struct image {
    uint8_t *bytes;
    size_t size;
};

static struct image image_read(const char *name)
{
    char path[256];
    struct image i;

    snprintf(path, sizeof(path), "%s/%s", build_dir, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    i.size = (size_t)ftell(f);
    rewind(f);
    i.bytes = xmalloc(i.size);
    assert_int_equal(fread(i.bytes, 1, i.size, f), i.size);
    fclose(f);
    return i;
}

static const char source[] = "int table[8]; int first(int n); int second(int n);\n"
                             "int first(int n) { return table[n & 7] + 1; }\n"
                             "int second(int n) { return first(n) * 3; }\n";

static void build(const char *name, const char *flags)
{
    build_write("elf.c", source);
    BUILD("gcc -shared -fPIC -O1 -g %s -o %s elf.c", flags, name);
}

static size_t count_named(const struct symtab *t, const char *name, uint64_t *value)
{
    struct elf_symbol s;
    size_t n = 0;

    *value = 0;
    for (size_t i = 0; i < t->n; i++) {
        symtab_get(t, i, &s);
        size_t len;
        const char *found = symtab_name(t, &s, &len);
        if (found && len == strlen(name) && memcmp(found, name, len) == 0) {
            *value = s.value;
            n++;
        }
    }
    return n;
}

/* Without section headers the loader's tables give the same symbols, by either hash table. */
static void test_dynamic(void **state UNUSED)
{
    /* The last exports nothing, and then the table does not count the others. */
    static const char *const styles[] = {"sysv", "gnu", "both", "gnu -fvisibility=hidden"};

    for (size_t i = 0; i < ARRAY_SIZE(styles); i++) {
        char flags[64];
        struct elf_view v;
        struct symtab by_section, by_dynamic;
        uint64_t a, b;

        snprintf(flags, sizeof(flags), "-Wl,--hash-style=%s", styles[i]);
        build("dyn.so", flags);
        struct image im = image_read("dyn.so");
        assert_true(elf_view_init(&v, im.bytes, im.size));
        assert_true(symtab_of_section(&v, SHT_DYNSYM, &by_section));
        v.shnum = 0;
        assert_true(symtab_of_dynamic(&v, 0, &by_dynamic));
        assert_true(i == 3 || by_dynamic.n == by_section.n);
        assert_int_equal(count_named(&by_section, "second", &a), i < 3);
        assert_int_equal(count_named(&by_dynamic, "second", &b), i < 3);
        assert_int_equal(a, b);
        free(im.bytes);
    }
}

/* The loader writes addresses of the process over those of the file. */
static void test_dynamic_moved(void **state UNUSED)
{
    const uint64_t bias = 0x7f1234560000;
    struct elf_view v;
    struct symtab t;
    struct elf_segment p;
    uint64_t value;

    build("moved.so", "");
    struct image im = image_read("moved.so");
    assert_true(elf_view_init(&v, im.bytes, im.size));
    if (!v.is64)
        skip();
    for (unsigned i = 0; elf_segment(&v, i, &p); i++) {
        for (uint64_t at = 0; p.type == PT_DYNAMIC && at < p.filesz; at += sizeof(Elf64_Dyn)) {
            Elf64_Dyn d;
            memcpy(&d, im.bytes + p.offset + at, sizeof(d));
            if (d.d_tag == DT_SYMTAB || d.d_tag == DT_STRTAB || d.d_tag == DT_GNU_HASH)
                d.d_un.d_ptr += bias;
            memcpy(im.bytes + p.offset + at, &d, sizeof(d));
        }
    }
    v.shnum = 0;
    assert_false(symtab_of_dynamic(&v, 0, &t));
    assert_true(symtab_of_dynamic(&v, bias, &t));
    assert_int_equal(count_named(&t, "first", &value), 1);
    free(im.bytes);
}

static void test_32_bits(void **state UNUSED)
{
    struct elf_view v;
    struct symtab t;
    uint64_t value;
    struct source_line at;

    build_write("elf.c", source);
    if (!build_try("gcc -m32 -shared -fPIC -g -gz -nostdlib -o narrow.so elf.c >/dev/null"))
        skip();
    struct image im = image_read("narrow.so");
    assert_true(elf_view_init(&v, im.bytes, im.size));
    assert_false(v.is64);
    assert_true(symtab_of_section(&v, SHT_SYMTAB, &t));
    assert_int_equal(count_named(&t, "second", &value), 1);
    assert_true(symtab_of_dynamic(&v, 0, &t));
    assert_int_equal(count_named(&t, "second", &value), 1);
    struct line_tables *lines = line_tables_open(&v);
    assert_non_null(lines);
    assert_true(line_tables_find(lines, value, &at));
    assert_int_equal(at.line, 3);
    struct inline_info *inlined = inline_info_open(&v);
    assert_true(inline_info_find(inlined, lines, value, &at));
    assert_int_equal(at.line, 3);
    inline_info_free(inlined);
    line_tables_free(lines);
    free(im.bytes);
}

static void test_lines(void **state UNUSED)
{
    struct elf_view v;
    struct symtab t;
    struct elf_section debug;
    uint64_t first, second;
    struct source_line at, again;

    build("lines.so", "");
    struct image im = image_read("lines.so");
    assert_true(elf_view_init(&v, im.bytes, im.size));
    assert_true(elf_section_named(&v, ".debug_line", &debug));
    assert_true(symtab_of_section(&v, SHT_SYMTAB, &t));
    assert_int_equal(count_named(&t, "first", &first), 1);
    assert_int_equal(count_named(&t, "second", &second), 1);
    struct line_tables *lines = line_tables_open(&v);
    assert_non_null(lines);
    free(im.bytes); /* it is not needed any more */
    assert_true(line_tables_find(lines, first, &at));
    assert_int_equal(at.line, 2);
    assert_non_null(strstr(at.file, "elf.c"));
    assert_true(line_tables_find(lines, second, &again));
    assert_int_equal(again.line, 3);
    assert_ptr_equal(at.file, again.file);
    assert_ptr_equal(line_tables_file(lines, at.table, 1), at.file);
    assert_null(line_tables_file(lines, at.table, UINT64_MAX));
    assert_null(line_tables_file(lines, UINT64_MAX, 1));
    assert_false(line_tables_find(lines, 0, &at));
    assert_false(line_tables_find(lines, second + 4096, &at));
    assert_false(line_tables_find(lines, UINT64_MAX, &at));
    line_tables_free(lines);
    line_tables_free(NULL);
}

/* Rows of no line, and rows that begin no statement. */
static void test_rows(void **state UNUSED)
{
    static const int expected[] = {10, 20, 20, 31, 31, 41};
    struct elf_view v;
    struct symtab t;
    uint64_t at;
    struct source_line found;

    build_write("rows.s", ".file \"rows.c\"\n.file 1 \"rows.c\"\n.text\n.globl rows\n"
                          ".type rows,@function\nrows:\n.loc 1 10 0\nnop\n"
                          ".loc 1 20 0 is_stmt 0\nnop\n.loc 1 0 0 is_stmt 1\nnop\n"
                          ".loc 1 31 0 is_stmt 1\n.loc 1 32 0 is_stmt 0\nnop\nnop\n"
                          ".loc 1 40 0 is_stmt 0\n.loc 1 41 0 is_stmt 0\nnop\n"
                          ".size rows,.-rows\n");
    /* gcc's assembler leaves out the row of no line. */
    if (!build_try("%s -shared -o rows.so rows.s 2>/dev/null",
                   have_program("clang") ? "clang" : "gcc"))
        skip();
    struct image im = image_read("rows.so");
    assert_true(elf_view_init(&v, im.bytes, im.size));
    assert_true(symtab_of_section(&v, SHT_SYMTAB, &t));
    assert_int_equal(count_named(&t, "rows", &at), 1);
    struct line_tables *lines = line_tables_open(&v);
    assert_non_null(lines);
    for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
        assert_true(line_tables_find(lines, at + i, &found));
        assert_int_equal(found.line, expected[i]);
    }
    line_tables_free(lines);
    free(im.bytes);
}

/* A sequence that ends with rows of no code, before code of another file or of none, and goes on
 * behind. */
static void test_empty_rows(void **state UNUSED)
{
    static const struct {
        const char *name;
        int line;
    } expected[] = {{"f", 10}, {"g", 5}, {"h", 20}};
    struct elf_view v;
    struct symtab t;
    uint64_t at;
    struct source_line found;

    build_write("f.s", ".file 1 \"f.c\"\n.section .text.unlikely,\"ax\",@progbits\n"
                       ".globl f\n.type f,@function\nf:\n.loc 1 10 0\nnop\nnop\n"
                       ".loc 1 11 0\n.loc 1 12 0\n.size f,.-f\n.text\n.globl h\n"
                       ".type h,@function\nh:\n.loc 1 20 0\nnop\n.size h,.-h\n");
    build_write("g.s", ".file 1 \"g.c\"\n.text\n.globl g\n.type g,@function\ng:\n"
                       ".loc 1 5 0\n.rept 600\nnop\n.endr\n.size g,.-g\n");
    if (!build_try("gcc -shared -o fgh.so g.s f.s 2>/dev/null"))
        skip();
    struct image im = image_read("fgh.so");
    assert_true(elf_view_init(&v, im.bytes, im.size));
    assert_true(symtab_of_section(&v, SHT_SYMTAB, &t));
    struct line_tables *lines = line_tables_open(&v);
    assert_non_null(lines);
    for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
        assert_int_equal(count_named(&t, expected[i].name, &at), 1);
        assert_true(line_tables_find(lines, at, &found));
        assert_int_equal(found.line, expected[i].line);
    }
    assert_int_equal(count_named(&t, "f", &at), 1);
    assert_true(line_tables_find(lines, at + 1, &found));
    for (unsigned i = 2; i < 16; i++) /* padding, up to g */
        assert_false(line_tables_find(lines, at + i, &found));
    line_tables_free(lines);
    free(im.bytes);
}

static void test_no_lines(void **state UNUSED)
{
    struct elf_view v;

    build("bare.so", "-g0");
    struct image im = image_read("bare.so");
    assert_true(elf_view_init(&v, im.bytes, im.size));
    assert_null(line_tables_open(&v));
    free(im.bytes);
}

/* The index ------------------------------------------------------------------------------------ */

/* A table of symbols built by hand. */
static Elf64_Sym made[16];
static char made_names[256] = "";

static struct symtab make_table(size_t n)
{
    return (struct symtab){.symbols = (const uint8_t *)made,
                           .n = n,
                           .strings = made_names,
                           .strings_size = sizeof(made_names),
                           .is64 = true};
}

static void make(size_t i, const char *name, uint64_t value, uint64_t size, int bind, int type)
{
    static size_t used = 1;

    if (i == 1)
        used = 1;
    made[i] = (Elf64_Sym){.st_name = (uint32_t)used,
                          .st_info = ELF64_ST_INFO(bind, type),
                          .st_shndx = 1,
                          .st_value = value,
                          .st_size = size};
    used += (size_t)sprintf(made_names + used, "%s", name) + 1;
}

static struct segment code = {.vaddr = 0x1000, .memsz = 0x10000, .exec = true};
static struct module fake = {.elf_class = 64, .segments = &code, .nsegments = 1};

static void assert_found(const struct symbol_index *ix, uint64_t vaddr, const char *name)
{
    struct symbol_found f;
    bool found = symbol_index_find(ix, vaddr, &f);

    if (!name) {
        assert_false(found);
        return;
    }
    assert_true(found);
    assert_int_equal(f.name_len, strlen(name));
    assert_memory_equal(f.name, name, f.name_len);
}

static void test_choice(void **state UNUSED)
{
    struct symtab tables[TABLE_COUNT] = {0};
    struct symbol_index ix;

    make(1, "__poll", 0x2000, 32, STB_GLOBAL, STT_FUNC);
    make(2, "poll", 0x2000, 32, STB_WEAK, STT_FUNC);
    make(3, "untyped", 0x2000, 32, STB_GLOBAL, STT_NOTYPE);
    make(4, "outer", 0x3000, 0x100, STB_LOCAL, STT_FUNC);
    make(5, "inner", 0x3010, 0x10, STB_LOCAL, STT_FUNC);
    make(6, "empty", 0x3018, 0, STB_LOCAL, STT_FUNC);
    make(7, "outside", 0x90000, 16, STB_GLOBAL, STT_FUNC);
    make(8, "object", 0x4000, 16, STB_GLOBAL, STT_OBJECT);
    make(9, "endless", 0x5000, UINT64_MAX, STB_GLOBAL, STT_FUNC);
    tables[TABLE_FULL] = make_table(10);
    symbol_index_build(&ix, &fake, tables, true);
    assert_int_equal(ix.n, 6);
    assert_found(&ix, 0x2000, "poll");
    assert_found(&ix, 0x201f, "poll");
    assert_found(&ix, 0x2020, NULL);
    assert_found(&ix, 0x1fff, NULL);
    assert_found(&ix, 0x300f, "outer");
    assert_found(&ix, 0x3018, "inner");
    assert_found(&ix, 0x3020, "outer"); /* behind the one within */
    assert_found(&ix, 0x30ff, "outer");
    assert_found(&ix, 0x3100, NULL);
    assert_found(&ix, 0x4000, NULL);
    assert_found(&ix, 0, NULL);
    assert_found(&ix, 0xfff, NULL);
    assert_found(&ix, UINT64_MAX, NULL);
    assert_found(&ix, 0x6000, "endless");
    ix.global_first = true;
    assert_found(&ix, 0x2000, "__poll");
    symbol_index_free(&ix);

    symbol_index_build(&ix, &fake, tables, false);
    assert_int_equal(ix.n, 1);
    assert_found(&ix, 0x4008, "object");
    symbol_index_free(&ix);
}

static void test_exported_first(void **state UNUSED)
{
    struct symtab tables[TABLE_COUNT] = {0};
    struct symbol_index ix;
    struct symbol_found f;

    make(1, "internal", 0x2000, 32, STB_LOCAL, STT_FUNC);
    make(2, "__api_of_library", 0x2000, 32, STB_GLOBAL, STT_FUNC);
    make(3, "only_here", 0x2100, 32, STB_LOCAL, STT_FUNC);
    tables[TABLE_FULL] = make_table(4);
    tables[TABLE_DYNAMIC] = (struct symtab){.symbols = (const uint8_t *)&made[1],
                                            .n = 2,
                                            .strings = made_names,
                                            .strings_size = sizeof(made_names),
                                            .is64 = true};
    symbol_index_build(&ix, &fake, tables, true);
    assert_found(&ix, 0x2004, "__api_of_library");
    assert_true(symbol_index_find(&ix, 0x2004, &f));
    assert_true(f.exported);
    assert_true(symbol_index_find(&ix, 0x2104, &f));
    assert_false(f.exported);
    symbol_index_free(&ix);
}

static void test_empty(void **state UNUSED)
{
    struct symtab tables[TABLE_COUNT] = {0};
    struct module none = {0};
    struct symbol_index ix;

    symbol_index_build(&ix, &none, tables, true);
    assert_found(&ix, 0x1000, NULL);
    symbol_index_free(&ix);
}

/* Hostile ----------------------------------------------------------------------------------------
 */

static void read_all(const struct image *im, uint64_t bias)
{
    struct elf_view v;
    struct symtab tables[TABLE_COUNT] = {0};
    struct symbol_index ix;
    struct symbol_found f;
    struct debug_file embedded;
    struct segment all = {.vaddr = 0, .memsz = UINT64_MAX, .exec = true};
    struct module m = {.elf_class = 64, .segments = &all, .nsegments = 1};
    size_t len;
    struct source_line at;

    if (!elf_view_init(&v, im->bytes, im->size))
        return;
    symtab_of_section(&v, SHT_SYMTAB, &tables[TABLE_FULL]);
    symtab_of_section(&v, SHT_DYNSYM, &tables[TABLE_EMBEDDED]);
    symtab_of_dynamic(&v, bias, &tables[TABLE_DYNAMIC]);
    elf_build_id(&v, &len);
    symbol_index_build(&ix, &m, tables, true);
    for (uint64_t pc = 0; pc < 0x3000; pc += 64)
        symbol_index_find(&ix, pc, &f);
    symbol_index_free(&ix);
    if (debug_file_embedded(&v, &embedded))
        debug_file_close(&embedded);
    struct line_tables *t = line_tables_open(&v);
    struct inline_info *inlined = inline_info_open(&v);
    for (uint64_t pc = 0x1000; t && pc < 0x1400; pc += 16) {
        line_tables_find(t, pc, &at);
        inline_info_find(inlined, t, pc, &at);
    }
    inline_info_free(inlined);
    line_tables_free(t);
}

/* A repeatable sequence, the same on every machine. */
static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void damage(struct image *im, size_t from, size_t len, uint32_t *seed)
{
    static const uint8_t extremes[] = {0, 1, 0x7f, 0x80, 0xff};

    for (size_t n = 1 + next_random(seed) % 8; n-- > 0;) {
        size_t at = from + next_random(seed) % len, run = 1 + next_random(seed) % 4;
        uint8_t byte = extremes[next_random(seed) % ARRAY_SIZE(extremes)];
        memset(im->bytes + at, byte, MIN(run, im->size - at));
    }
}

static void try_damaged(const struct image *whole, size_t from, size_t len, unsigned times)
{
    uint32_t seed = 20;

    for (unsigned i = 0; i < times; i++) {
        struct image im = {xmalloc(whole->size), whole->size};
        memcpy(im.bytes, whole->bytes, whole->size);
        damage(&im, from, len, &seed);
        read_all(&im, i % 2 ? 0x5000 : 0);
        free(im.bytes);
    }
}

static void test_damaged(void **state UNUSED)
{
    struct elf_view v;
    struct elf_section s;
    static const char *const parts[] = {".symtab",   ".strtab", ".dynsym",           ".dynamic",
                                        ".gnu.hash", ".hash",   ".note.gnu.build-id"};

    build("whole.so", "-Wl,--hash-style=both -Wl,--build-id=sha1");
    struct image im = image_read("whole.so");
    read_all(&im, 0);
    assert_true(elf_view_init(&v, im.bytes, im.size));
    try_damaged(&im, 0, sizeof(Elf64_Ehdr), 500);
    try_damaged(&im, v.phoff, (size_t)v.phnum * v.phentsize, 300);
    try_damaged(&im, v.shoff, (size_t)v.shnum * v.shentsize, 1000);
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        assert_true(elf_section_named(&v, parts[i], &s));
        try_damaged(&im, s.offset, s.size, 150);
    }
    free(im.bytes);
}

/* Every length: a file that is being written, or was cut. */
static void test_cut(void **state UNUSED)
{
    build("cut.so", "");
    struct image im = image_read("cut.so");

    for (size_t size = 0; size < im.size; size += size < 512 ? 1 : 61) {
        struct image part = {xmalloc(size + 1), size};
        part.bytes = xreallocarray(part.bytes, MAX(size, 1), 1);
        memcpy(part.bytes, im.bytes, size);
        read_all(&part, 0);
        free(part.bytes);
    }
    free(im.bytes);
}

static void test_no_elf(void **state UNUSED)
{
    struct elf_view v;
    uint8_t other[EI_NIDENT + 48] = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2MSB};

    assert_false(elf_view_init(&v, NULL, 0));
    assert_false(elf_view_init(&v, "#!/bin/sh\nexit 0 # and so on\n", 28));
    if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
        assert_false(elf_view_init(&v, other, sizeof(other)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dynamic),        cmocka_unit_test(test_dynamic_moved),
        cmocka_unit_test(test_32_bits),        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_rows),           cmocka_unit_test(test_empty_rows),
        cmocka_unit_test(test_no_lines),       cmocka_unit_test(test_choice),
        cmocka_unit_test(test_exported_first), cmocka_unit_test(test_empty),
        cmocka_unit_test(test_damaged),        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_no_elf),
    };
    return cmocka_run_group_tests(tests, build_setup, build_teardown);
}

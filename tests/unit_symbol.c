#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "symbol_build.h"

/* The assembly has code behind the end of GAP, and a second name for it. */
static const char lib_source[] =
    "int shared_counter[16]; static int hidden_counter[4]; int touch(int n);\n" /* line 1 */
    "static __attribute__((noinline)) int hidden(int n)\n"
    "{\n"
    "    hidden_counter[n & 3] += n; return hidden_counter[0] + shared_counter[n & 15];\n" /* 4 */
    "}\n"
    "int touch(int n)\n"
    "{\n"
    "    int r = hidden(n);\n" /* line 8 */
    "    return r + shared_counter[1];\n"
    "}\n"
    "void *hidden_address(void), *hidden_data(void);\n"
    "void *hidden_address(void) { return (void *)hidden; }\n"
    "void *hidden_data(void) { return hidden_counter; }\n"
    "__asm__(\".text\\n.globl gap\\n.type gap,@function\\ngap: nop\\nnop\\n.size gap,.-gap\\n\"\n"
    "        \".globl __gap\\n.type __gap,@function\\n.set __gap,gap\\n.size __gap,2\\n\"\n"
    "        \".space 64,0x90\\n\");\n";

static const char cpp_source[] =
    "#include <utility>\n"
    "namespace shop {\n"
    "template <typename K, typename V> struct Table {\n"
    "    __attribute__((noinline)) V find(const K &k, std::pair<K, V> p) { return p.second + k; }\n"
    "};\n"
    "}\n"
    "template struct shop::Table<int, long>;\n";

#define CC_LIB "gcc -shared -fPIC -O1 -g -o "

static void symbols_named(struct space *s, uint64_t pc, const char *name)
{
    struct frame_name f;

    symbol_function(s, pc, true, &f);
    if (!name) {
        assert_null(f.name);
        return;
    }
    assert_non_null(f.name);
    assert_string_equal(f.name, name);
}

/* Functions -------------------------------------------------------------------------------- */

static void test_function(void **state UNUSED)
{
    build_write("plain.c", lib_source);
    BUILD(CC_LIB "libplain.so plain.c");
    void *lib = build_load("libplain.so");
    uint64_t touch = address_of(lib, "touch");
    struct own_view v = own_view();
    struct frame_name f;

    symbol_function(v.space, touch + 4, true, &f);
    assert_string_equal(f.name, "touch");
    assert_string_equal(f.module, "libplain.so");
    assert_int_equal(f.into, 4);
    assert_true(f.exported);
    assert_int_equal(f.kind, MODULE_OTHER);
    assert_non_null(strstr(f.file, "plain.c"));
    assert_true(f.line >= 7 && f.line <= 9);
    const struct mapped *mp = space_find(v.space, touch);
    assert_int_equal(f.offset, touch + 4 - mp->bias);

    uint64_t hidden = (uint64_t)(uintptr_t)((void *(*)(void))dlsym(lib, "hidden_address"))();
    symbol_function(v.space, hidden, true, &f);
    assert_string_equal(f.name, "hidden");
    assert_false(f.exported);
    assert_int_equal(f.into, 0);
    own_view_free(&v);
    dlclose(lib);
}

/* A caller's frame says where it goes on: the call may be the last instruction. */
static void test_sizes_hold(void **state UNUSED)
{
    build_write("sizes.c", lib_source);
    BUILD(CC_LIB "libsizes.so sizes.c");
    void *lib = build_load("libsizes.so");
    uint64_t gap = address_of(lib, "gap");
    struct own_view v = own_view();
    struct frame_name f;

    symbols_named(v.space, gap, "gap");
    symbols_named(v.space, gap + 1, "gap");
    symbols_named(v.space, gap + 2, NULL);
    symbols_named(v.space, gap + 40, NULL);
    symbol_function(v.space, gap + 2, false, &f);
    assert_string_equal(f.name, "gap");
    assert_int_equal(f.into, 2);
    symbol_function(v.space, gap + 3, false, &f);
    assert_null(f.name);
    assert_int_equal(f.into, 0);
    assert_string_equal(f.module, "libsizes.so");
    own_view_free(&v);
    dlclose(lib);
}

/* The API's name, not the library's own for the same code. */
static void test_aliases(void **state UNUSED)
{
    static const char *const names[] = {
        "poll",   "read",      "pthread_cond_wait", "pthread_mutex_lock",
        "malloc", "nanosleep", "sem_wait",          "pthread_rwlock_rdlock"};
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    if (!libc)
        skip();
    struct own_view v = own_view();

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct frame_name f;
        uint64_t addr = (uint64_t)(uintptr_t)dlsym(libc, names[i]);
        symbol_function(v.space, addr, true, &f);
        if (f.kind != MODULE_GLIBC) /* a sanitizer's own */
            continue;
        assert_string_equal(f.name, names[i]);
        assert_null(strchr(f.name, '@'));
        assert_true(f.exported);
    }
    own_view_free(&v);
    dlclose(libc);
}

static void test_vdso(void **state UNUSED)
{
    void *vdso = dlopen("linux-vdso.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *fn = vdso ? dlvsym(vdso, "__vdso_clock_gettime", "LINUX_2.6") : NULL;
    if (!fn)
        skip();
    struct own_view v = own_view();
    struct frame_name f;

    symbol_function(v.space, (uint64_t)(uintptr_t)fn + 1, true, &f);
    assert_string_equal(f.name, "__vdso_clock_gettime");
    assert_string_equal(f.module, "[vdso]");
    assert_int_equal(f.kind, MODULE_VDSO);
    assert_true(f.exported);
    own_view_free(&v);
}

static void test_cpp(void **state UNUSED)
{
    if (!have_program("g++"))
        skip();
    build_write("table.cc", cpp_source);
    BUILD("g++ -shared -fPIC -O1 -o libtable.so table.cc");
    void *lib = build_load("libtable.so");
    const char *raw = "_ZN4shop5TableIilE4findERKiSt4pairIilE";
    struct own_view v = own_view();
    struct frame_name f;

    symbol_function(v.space, address_of(lib, raw), true, &f);
    assert_string_equal(f.name, "shop::Table<int, long>::find(int const&, std::pair<int, long>)");
    assert_null(f.file);
    assert_int_equal(f.line, 0);
    own_view_free(&v);
    dlclose(lib);
}

static void test_nowhere(void **state UNUSED)
{
    struct own_view v = own_view();
    static const uint64_t pcs[] = {0, 1, 0x1000, UINT64_MAX};

    for (size_t i = 0; i < ARRAY_SIZE(pcs); i++) {
        for (int exact = 0; exact < 2; exact++) {
            struct frame_name f;
            symbol_function(v.space, pcs[i], exact, &f);
            assert_null(f.name);
            assert_null(f.module);
            assert_int_equal(f.offset, pcs[i]);
        }
    }
    own_view_free(&v);
}

/* Static tables have the version behind the name. */
static void test_version(void **state UNUSED)
{
    if (!have_program("objcopy"))
        skip();
    build_write("version.c", lib_source);
    BUILD(CC_LIB "libversion.so version.c && objcopy --redefine-sym hidden=hidden@@V_1.2 "
                 "libversion.so");
    void *lib = build_load("libversion.so");
    uint64_t hidden = (uint64_t)(uintptr_t)((void *(*)(void))dlsym(lib, "hidden_address"))();
    struct own_view v = own_view();
    struct frame_name f;

    symbol_function(v.space, hidden, true, &f);
    assert_string_equal(f.name, "hidden");
    own_view_free(&v);
    dlclose(lib);
}

/* The same answer again, with the same strings. */
static void test_cached(void **state UNUSED)
{
    build_write("cached.c", lib_source);
    BUILD(CC_LIB "libcached.so cached.c");
    void *lib = build_load("libcached.so");
    uint64_t touch = address_of(lib, "touch");
    struct own_view v = own_view();
    struct frame_name first, again;

    symbol_function(v.space, touch, true, &first);
    for (uint64_t pc = touch; pc < touch + 20000; pc++) /* more than are kept */
        symbol_function(v.space, pc, true, &again);
    symbol_function(v.space, touch, true, &again);
    assert_ptr_equal(first.name, again.name);
    assert_ptr_equal(first.file, again.file);
    assert_int_equal(first.line, again.line);
    own_view_free(&v);
    dlclose(lib);
}

static void test_line_formats(void **state UNUSED)
{
    static const char *const ways[] = {"gcc -gdwarf-4", "gcc -gdwarf-5",   "gcc -gsplit-dwarf",
                                       "gcc -gz",       "clang -gdwarf-4", "clang -gdwarf-5"};

    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        char name[64], compiler[16] = "";
        sscanf(ways[i], "%15s", compiler);
        if (!have_program(compiler))
            continue;
        snprintf(name, sizeof(name), "liblines%zu.so", i);
        build_write("lines.c", lib_source);
        BUILD("%s -O0 -g -shared -fPIC -o %s lines.c", ways[i], name);
        void *lib = build_load(name);
        struct own_view v = own_view();
        struct frame_name f;
        symbol_function(v.space, address_of(lib, "touch"), true, &f);
        if (strstr(ways[i], "split")) { /* what is inlined is told in a file of its own */
            assert_null(f.file);
        } else {
            assert_non_null(f.file);
            assert_non_null(strstr(f.file, "lines.c"));
            assert_true(f.line == 6 || f.line == 7);
        }
        symbol_function(v.space, address_of(lib, "gap"), true, &f);
        assert_string_equal(f.name, "gap");
        own_view_free(&v);
        dlclose(lib);
    }
}

/* The body of NAP is inlined in REST, and that in WORK. The nops are marks: 0xC1 of WORK's own,
 * 0xC2 of REST's, 0xC3 of NAP's. */
static const char inlined_source[] =
    "#include \"nap.h\"\n"
    "static inline __attribute__((always_inline)) int rest(int n)\n"
    "{\n"
    "    __asm__ volatile(\"nopl 0xC2(%rax)\"); return nap(n) + 1;\n" /* line 4 */
    "}\n"
    "int work(int n);\n"
    "int work(int n)\n"
    "{\n"
    "    __asm__ volatile(\"nopl 0xC1(%rax)\");\n" /* line 9 */
    "    { int a = 0; for (int i = 0; i < n; i++)\n"
    "        a += rest(n);\n" /* line 11 */
    "      return a; }\n"
    "}\n"
    "__asm__(\".globl mark\\n.type mark,@function\\nmark: nop\\nnop\\n.size mark,2\\n\");\n";
static const char nap_source[] = "static inline __attribute__((always_inline)) int nap(int n)\n"
                                 "{ __asm__ volatile(\"nopl 0xC3(%rax)\"); return n; }\n";

/* The line beside a function's name is one of its own: of inlined code, of its call. */
static void check_inlined(const char *way, const char *name)
{
    static const struct {
        uint8_t mark;
        int line;
    } expected[] = {{0xc1, 9}, {0xc2, 11}, {0xc3, 11}};

    build_write("inlined.c", inlined_source);
    build_write("nap.h", nap_source);
    BUILD("%s -O1 -shared -fPIC -o %s inlined.c", way, name);
    void *lib = build_load(name);
    const uint8_t *work = dlsym(lib, "work");
    struct own_view v = own_view();
    struct frame_name f;

    for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
        const uint8_t nop[] = {0x0f, 0x1f, 0x80, expected[i].mark, 0, 0, 0};
        const uint8_t *at = memmem(work, 256, nop, sizeof(nop));
        assert_non_null(at);
        symbol_function(v.space, (uint64_t)(uintptr_t)at, true, &f);
        assert_string_equal(f.name, "work");
        assert_int_equal(f.line, expected[i].line);
        assert_non_null(strstr(f.file, "inlined.c"));
    }
    symbol_function(v.space, address_of(lib, "mark"), true, &f);
    assert_string_equal(f.name, "mark");
    assert_null(f.file); /* no function of any source */
    own_view_free(&v);
    dlclose(lib);
}

static void test_inlined(void **state UNUSED)
{
    static const char *const ways[] = {"gcc -g",       "gcc -gdwarf-4",           "gcc -g -gz",
                                       "gcc -g1",      "clang -gdwarf-5",         "clang -gdwarf-4",
                                       "gcc -g -flto", "clang -gline-tables-only"};

    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        char name[64], compiler[16] = "";
        sscanf(ways[i], "%15s", compiler);
        snprintf(name, sizeof(name), "libinlined%zu.so", i);
        if (have_program(compiler))
            check_inlined(ways[i], name);
    }
}

/* Data --------------------------------------------------------------------------------------- */

static void assert_data(struct space *s, uint64_t addr, const char *expected)
{
    char *name = symbol_data(s, addr);

    assert_non_null(name);
    assert_string_equal(name, expected);
    free(name);
}

static void test_data(void **state UNUSED)
{
    build_write("data.c", lib_source);
    BUILD(CC_LIB "libdata.so data.c");
    void *lib = build_load("libdata.so");
    uint64_t shared = address_of(lib, "shared_counter");
    uint64_t hidden = (uint64_t)(uintptr_t)((void *(*)(void))dlsym(lib, "hidden_data"))();
    struct own_view v = own_view();
    const struct mapped *mp = space_find(v.space, shared);
    uint64_t touch = address_of(lib, "touch");
    char expected[64];

    assert_data(v.space, shared, "shared_counter");
    assert_data(v.space, shared + 0x3f, "shared_counter+0x3f");
    assert_data(v.space, hidden + 4, "hidden_counter+0x4");
    snprintf(expected, sizeof(expected), "libdata.so+0x%llx",
             (unsigned long long)(touch - mp->bias));
    assert_data(v.space, touch, expected); /* a function is no data */
    own_view_free(&v);
    dlclose(lib);
}

static void test_data_places(void **state UNUSED)
{
    char path[256], expected[300];

    build_write("table.bin", "0123456789");
    snprintf(path, sizeof(path), "%s/table.bin", build_dir);
    int fd = open(path, O_RDONLY);
    uint8_t *file = mmap(NULL, 10, PROT_READ, MAP_SHARED, fd, 0);
    uint8_t *anonymous =
        mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(file != MAP_FAILED && anonymous != MAP_FAILED);
    uint8_t *heap = sbrk(8192);
    unlink(path); /* the map then says that it is deleted */
    struct own_view v = own_view();

    snprintf(expected, sizeof(expected), "%s+0x7", path);
    assert_data(v.space, (uint64_t)(uintptr_t)file + 7, expected);
    assert_null(symbol_data(v.space, (uint64_t)(uintptr_t)anonymous));
    assert_null(symbol_data(v.space, 8));
    if (heap != (void *)-1) {
        char *name = symbol_data(v.space, (uint64_t)(uintptr_t)heap);
        assert_non_null(name);
        assert_memory_equal(name, "[heap]+0x", 9);
        free(name);
    }
    char *name = symbol_data(v.space, getauxval(AT_RANDOM));
    assert_non_null(name);
    assert_memory_equal(name, "[stack]+0x", 10);
    free(name);
    own_view_free(&v);
    munmap(file, 10);
    munmap(anonymous, 8192);
    close(fd);
}

/* Debug files ---------------------------------------------------------------------------------- */

/* Whether the function that the library does not export has a name. */
static void assert_hidden(struct space *s, void *lib, bool named)
{
    uint64_t hidden = (uint64_t)(uintptr_t)((void *(*)(void))dlsym(lib, "hidden_address"))();
    struct frame_name f;

    symbol_function(s, hidden, true, &f);
    if (!named) {
        assert_null(f.name);
        assert_null(f.file);
        return;
    }
    assert_non_null(f.name);
    assert_string_equal(f.name, "hidden");
    assert_false(f.exported);
    symbols_named(s, address_of(lib, "touch"), "touch");
}

static void check_loaded(const char *name, bool named)
{
    void *lib = build_load(name);
    struct own_view v = own_view();

    assert_hidden(v.space, lib, named);
    own_view_free(&v);
    dlclose(lib);
}

static void test_debuglink(void **state UNUSED)
{
    if (!have_program("objcopy"))
        skip();
    build_write("link.c", lib_source);
    BUILD(CC_LIB "liblink.so -Wl,--build-id=none link.c && objcopy --only-keep-debug liblink.so "
                 "liblink.debug && strip liblink.so && objcopy --add-gnu-debuglink=liblink.debug "
                 "liblink.so");
    check_loaded("liblink.so", true);
    BUILD("mkdir .debug && mv liblink.debug .debug/");
    check_loaded("liblink.so", true);
    BUILD("printf x >>.debug/liblink.debug"); /* the checksum is another one */
    check_loaded("liblink.so", false);
    BUILD("rm .debug/liblink.debug && mkfifo .debug/liblink.debug"); /* opening it would hang */
    check_loaded("liblink.so", false);
}

/* A directory as /proc/PID of this process, but with another root. */
static int other_root(const char *root)
{
    BUILD("mkdir proc && ln -s %s/%s proc/root && ln -s /proc/%d/task /proc/%d/map_files "
          "/proc/%d/exe proc/",
          build_dir, root, getpid(), getpid(), getpid());
    char path[256];

    snprintf(path, sizeof(path), "%s/proc", build_dir);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void test_build_id_below_root(void **state UNUSED)
{
    if (!have_program("objcopy"))
        skip();
    build_write("id.c", lib_source);
    BUILD(CC_LIB "libid.so -Wl,--build-id=0x1c0ffee00facade1 id.c && mkdir -p "
                 "root/usr/lib/debug/.build-id/1c root%s && objcopy --only-keep-debug libid.so "
                 "root/usr/lib/debug/.build-id/1c/0ffee00facade1.debug && strip libid.so && "
                 "ln libid.so root%s/libid.so",
          build_dir, build_dir);
    check_loaded("libid.so", false);
    void *lib = build_load("libid.so");
    struct own_view v = own_view_at(other_root("root"));
    assert_hidden(v.space, lib, true);
    own_view_free(&v);

    /* A file of that name, but of another library. */
    BUILD("rm -r proc; gcc -shared -fPIC -g -o root/usr/lib/debug/.build-id/1c/"
          "0ffee00facade1.debug -Wl,--build-id=0x1c0ffee00facade2 id.c");
    v = own_view_at(other_root("root"));
    assert_hidden(v.space, lib, false);
    own_view_free(&v);
    dlclose(lib);
}

/* A path that the target made up is not opened below our own root. */
static void test_own_files(void **state UNUSED)
{
    if (!have_program("objcopy"))
        skip();
    build_write("own.c", lib_source);
    BUILD(CC_LIB "libown.so own.c && objcopy --only-keep-debug libown.so libown.debug && "
                 "strip libown.so && objcopy --add-gnu-debuglink=libown.debug libown.so && "
                 "rm -rf proc && mkdir -p apart%s && ln libown.so apart%s/",
          build_dir, build_dir);
    check_loaded("libown.so", true);
    void *lib = build_load("libown.so");
    struct own_view v = own_view_at(other_root("apart"));
    assert_hidden(v.space, lib, false);
    assert_true(space_open_debug(v.space, "/dev/null") < 0);
    assert_true(space_open_debug(v.space, "/../../../dev/null") < 0);
    assert_true(space_open_debug(v.space, "/../../../etc/passwd") < 0);
    own_view_free(&v);
    dlclose(lib);
    BUILD("rm -r proc");
}

/* A file that cannot be opened is read from memory, where the dynamic symbols are. */
static void test_copied(void **state UNUSED)
{
    build_write("copied.c", lib_source);
    BUILD(CC_LIB "libcopied.so copied.c && rm -rf proc && mkdir void");
    void *lib = build_load("libcopied.so");
    int dirfd = other_root("void");
    BUILD("rm proc/map_files proc/exe");
    struct own_view v = own_view_at(dirfd);

    assert_true(space_find(v.space, address_of(lib, "touch"))->module->copied);
    assert_hidden(v.space, lib, false);
    symbols_named(v.space, address_of(lib, "touch") + 1, "touch");
    assert_data(v.space, address_of(lib, "shared_counter") + 8, "shared_counter+0x8");
    own_view_free(&v);
    dlclose(lib);
}

static void test_embedded(void **state UNUSED)
{
    if (!have_program("objcopy") || !have_program("xz"))
        skip();
    build_write("mini.c", lib_source);
    BUILD(CC_LIB
          "libmini.so mini.c && objcopy --only-keep-debug libmini.so mini && "
          "objcopy --strip-debug mini && xz mini && strip libmini.so && cp libmini.so libbad.so && "
          "objcopy --add-section .gnu_debugdata=mini.xz libmini.so");
    check_loaded("libmini.so", true);
    BUILD("head -c 200 mini.xz >cut.xz && objcopy --add-section .gnu_debugdata=cut.xz libbad.so");
    check_loaded("libbad.so", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_function),  cmocka_unit_test(test_sizes_hold),
        cmocka_unit_test(test_aliases),   cmocka_unit_test(test_vdso),
        cmocka_unit_test(test_cpp),       cmocka_unit_test(test_nowhere),
        cmocka_unit_test(test_cached),    cmocka_unit_test(test_line_formats),
        cmocka_unit_test(test_data),      cmocka_unit_test(test_data_places),
        cmocka_unit_test(test_debuglink), cmocka_unit_test(test_build_id_below_root),
        cmocka_unit_test(test_copied),    cmocka_unit_test(test_embedded),
        cmocka_unit_test(test_version),   cmocka_unit_test(test_own_files),
        cmocka_unit_test(test_inlined),
    };
    return cmocka_run_group_tests(tests, build_setup, build_teardown);
}

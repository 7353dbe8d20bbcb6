#include <elf.h>
#include <gnu/libc-version.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "module_tree.h"

static int some_data = 42;

static const struct mapped *find(const struct space *s, const void *at)
{
    const struct mapped *p = space_find(s, (uintptr_t)at);

    assert_non_null(p);
    assert_true((uintptr_t)at >= p->start && (uintptr_t)at < p->end);
    return p;
}

/* The test itself: what its files say of code is what stands in memory. */
static void test_own(void **state UNUSED)
{
    struct module_set *set = module_set_new();
    int dirfd;
    struct space *s = own_space(set, &dirfd);
    const struct mapped *program = find(s, (const void *)(uintptr_t)test_own);
    const struct mapped *libc = find(s, (const void *)(uintptr_t)gnu_get_libc_version);

    assert_string_equal(program->module->name, "unit_module");
    assert_int_equal(program->module->kind, MODULE_OTHER);
    assert_int_equal(program->module->elf_class, sizeof(void *) * 8);
    assert_true(program->module->eh_entries > 10);
    assert_true(program->module->entry != 0);
    assert_false(program->module->copied);
    assert_memory_equal(module_at(program->module, (uintptr_t)test_own - program->bias, 32),
                        (const void *)(uintptr_t)test_own, 32);
    assert_int_equal(libc->module->kind, MODULE_GLIBC);
    assert_ptr_not_equal(libc->module, program->module);
    assert_int_equal(space_elf_class(s), sizeof(void *) * 8);
    assert_int_equal(space_pid(s), getpid());
    space_free(s);
    module_set_free(set);
    close(dirfd);
}

static void test_reading(void **state UNUSED)
{
    static const char text[] = "only read";
    struct module_set *set = module_set_new();
    int dirfd, value = 0;
    struct space *s = own_space(set, &dirfd);
    int *heap = malloc(sizeof(*heap));
    char copy[sizeof(text)];

    *heap = 7;
    some_data = 43;
    assert_non_null(space_at(s, (uintptr_t)text, sizeof(text)));
    assert_null(space_at(s, (uintptr_t)&some_data, sizeof(some_data)));
    assert_null(space_at(s, (uintptr_t)heap, sizeof(*heap)));
    assert_true(space_read(s, (uintptr_t)text, copy, sizeof(copy)));
    assert_string_equal(copy, text);
    assert_true(space_read(s, (uintptr_t)&some_data, &value, sizeof(value)));
    assert_int_equal(value, 43); /* not the file's */
    assert_true(space_read(s, (uintptr_t)heap, &value, sizeof(value)));
    assert_int_equal(value, 7);
    assert_false(space_read(s, 16, &value, sizeof(value)));
    assert_true(space_is_code(s, (uintptr_t)test_reading));
    assert_false(space_is_code(s, (uintptr_t)heap));
    assert_false(space_is_code(s, 16));
    assert_null(space_find(s, (uintptr_t)heap));
    assert_non_null(space_entry(s, (uintptr_t)heap));
    assert_null(space_entry(s, 16));
    free(heap);
    space_free(s);
    module_set_free(set);
    close(dirfd);
}

static void test_vdso(void **state UNUSED)
{
    struct module_set *set = module_set_new();
    int dirfd, again_dirfd;
    struct space *s = own_space(set, &dirfd), *again = own_space(set, &again_dirfd);
    const struct mapped *vdso = NULL;
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned long start;

    while (fgets(line, sizeof(line), maps)) {
        if (strstr(line, "[vdso]") && sscanf(line, "%lx", &start) == 1)
            vdso = space_find(s, start);
    }
    fclose(maps);
    if (!vdso)
        skip();
    assert_int_equal(vdso->module->kind, MODULE_VDSO);
    assert_string_equal(vdso->module->name, "[vdso]");
    assert_true(vdso->module->copied);
    assert_true(vdso->module->eh_entries > 0);
    assert_ptr_equal(space_find(again, vdso->start)->module, vdso->module);
    assert_int_equal(vdso->module->users, 2);
    space_free(s);
    space_free(again);
    module_set_free(set);
    close(dirfd);
    close(again_dirfd);
}

static void test_shared(void **state UNUSED)
{
    struct module_set *set = module_set_new();
    int dirfd, other_dirfd;
    struct space *s = own_space(set, &dirfd), *other = own_space(set, &other_dirfd);
    const struct module *m = find(s, (const void *)(uintptr_t)test_shared)->module;

    assert_ptr_equal(find(other, (const void *)(uintptr_t)test_shared)->module, m);
    assert_int_equal(m->users, 2);
    assert_int_not_equal(space_generation(s), space_generation(other));
    space_free(other);
    assert_int_equal(m->users, 1);
    space_free(s);
    module_set_free(set);
    close(dirfd);
    close(other_dirfd);
}

static void test_refresh(void **state UNUSED)
{
    struct made m;

    made_new(&m, true);
    const char *exe = "/proc/self/exe";
    size_t len;
    uint8_t *image = slurp_file(exe, &len);
    char first[512], second[512];
    strcpy(first, maps_line(made_file(&m, "one", image, len), 0x10000, 0x90000));
    strcpy(second, maps_line(made_file(&m, "two", image, len), 0x100000, 0x190000));
    tree_put(&m.tree, "1/task/1/maps", "%s", first);
    struct space *s = made_space(&m);
    uint64_t generation = space_generation(s);
    const struct module *one = space_find(s, 0x10000)->module;

    assert_int_equal(space_refresh(s, 1), 0);
    assert_int_equal(space_generation(s), generation);
    tree_put(&m.tree, "1/task/1/maps", "%s%s", first, second);
    assert_int_equal(space_refresh(s, 1), 0);
    assert_int_equal(space_generation(s), generation); /* what was there still is */
    assert_ptr_equal(space_find(s, 0x10000)->module, one);
    assert_string_equal(space_find(s, 0x10ffff)->module->name, "two");
    assert_int_equal(one->users, 1);

    tree_put(&m.tree, "1/task/1/maps", "%s", second);
    assert_int_equal(space_refresh(s, 1), 0);
    assert_int_not_equal(space_generation(s), generation);
    assert_null(space_find(s, 0x10000));

    tree_put(&m.tree, "1/task/1/maps", "%s", "");
    assert_int_equal(space_refresh(s, 1), -ESRCH);
    assert_non_null(space_find(s, 0x100000)); /* the old content stays */
    space_free(s);
    free(image);
    made_free(&m);
}

static void test_no_process(void **state UNUSED)
{
    struct module_set *set = module_set_new();
    int err = 0, dirfd = open("/proc/self", O_DIRECTORY | O_CLOEXEC);

    assert_null(space_new(set, dirfd, getpid(), 999999999, remote_read, &err));
    assert_int_equal(err, ENOENT);
    space_free(NULL);
    module_set_free(set);
    module_set_free(NULL);
    close(dirfd);
}

/* The test's own maps in a process whose files cannot be opened at all: the segments come out of
 * memory. */
static void test_out_of_memory(void **state UNUSED)
{
    struct made m;
    struct module_set *set = module_set_new();
    int dirfd;
    struct space *own = own_space(set, &dirfd);
    char *text;

    made_new(&m, false);
    assert_true(procfs_slurp_alloc(dirfd, "maps", &text, 1 << 20) > 0);
    tree_put(&m.tree, "1/task/1/maps", "%s", text);
    struct space *s = made_space(&m);
    const struct mapped *real = find(own, (const void *)(uintptr_t)test_out_of_memory);
    const struct mapped *copy = find(s, (const void *)(uintptr_t)test_out_of_memory);

    assert_true(copy->module->copied);
    assert_int_equal(copy->bias, real->bias);
    assert_int_equal(copy->module->eh_entries, real->module->eh_entries);
    assert_int_equal(copy->module->build_id_len, real->module->build_id_len);
    assert_memory_equal(copy->module->build_id, real->module->build_id, BUILD_ID_MAX);
    assert_memory_equal(module_at(copy->module, (uintptr_t)test_out_of_memory - copy->bias, 32),
                        (const void *)(uintptr_t)test_out_of_memory, 32);
    free(text);
    space_free(s);
    space_free(own);
    module_set_free(set);
    close(dirfd);
    made_free(&m);
}

/* A library with CODE bytes of code at AT in memory. */
static void make_large(char *at, uint64_t code)
{
    struct {
        Elf64_Ehdr e;
        Elf64_Phdr ph[3];
    } head = {
        .e = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
              .e_phoff = sizeof(Elf64_Ehdr),
              .e_phentsize = sizeof(Elf64_Phdr),
              .e_phnum = 3},
        .ph = {{.p_type = PT_LOAD, .p_flags = PF_R, .p_filesz = 4096, .p_memsz = 4096},
               {.p_type = PT_LOAD,
                .p_flags = PF_R | PF_X,
                .p_offset = 4096,
                .p_vaddr = 4096,
                .p_filesz = code,
                .p_memsz = code},
               {.p_type = PT_LOAD,
                .p_flags = PF_R | PF_W,
                .p_offset = 4096 + code,
                .p_vaddr = 4096 + code,
                .p_filesz = 4096,
                .p_memsz = 4096}},
    };

    memcpy(at, &head, sizeof(head));
    memcpy(at + 4096, "code", 4);
}

/* Of a process whose files cannot be opened no more is kept than 64 MiB, and only what is needed;
 * code beyond that is read of the process. */
static void test_copied_amount(void **state UNUSED)
{
    static const uint64_t size[] = {40u << 20, 40u << 20, 1u << 20};
    static const char *const names[] = {"a.so", "b.so", "c.so"};
    const size_t all = 128u << 20;
    char *at[ARRAY_SIZE(size)], found[4], maps[1024] = "";
    char *next =
        mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct made m;
    size_t sum = 0;

    assert_ptr_not_equal(next, MAP_FAILED);
    made_new(&m, false);
    for (size_t i = 0; i < ARRAY_SIZE(size); i++, next += size[i - 1] + 3 * 4096) {
        at[i] = next;
        make_large(next, size[i]);
        strcat(maps, maps_line(made_file(&m, names[i], "", 0), (uintptr_t)next,
                               (uintptr_t)next + size[i] + 2 * 4096));
    }
    tree_put(&m.tree, "1/task/1/maps", "%s", maps);
    struct space *s = made_space(&m);
    for (int again = 0; again < 2; again++) {
        sum = 0;
        for (size_t i = 0; i < ARRAY_SIZE(size); i++) {
            const struct module *lib = space_find(s, (uintptr_t)at[i])->module;
            assert_true(lib->copied);
            assert_int_equal(lib->elf_class, 64);
            assert_true(space_read(s, (uintptr_t)at[i] + 4096, found, 4));
            assert_memory_equal(found, "code", 4);
            assert_null(module_at(lib, 4096 + size[i], 1)); /* written to */
            sum += lib->copied_bytes;
        }
        assert_int_equal(space_refresh(s, 1), 0);
    }
    assert_true(sum > size[0] + size[2] && sum <= 64u << 20);
    space_free(s);
    munmap(at[0], all);
    made_free(&m);
}

/* The path leads to another file by now. What is mapped is not that. */
static void test_replaced(void **state UNUSED)
{
    struct made m;
    size_t len;
    uint8_t *image = slurp_file("/proc/self/exe", &len);
    char line[512];

    made_new(&m, true);
    strcpy(line, maps_line(made_file(&m, "lib.so", image, len), 0x10000, 0x90000));
    char kept[160];
    const char *path = made_file(&m, "other", image, len);
    snprintf(kept, sizeof(kept), "%s/lib.so", m.tree.root);
    assert_int_equal(rename(path, kept), 0);
    tree_put(&m.tree, "1/task/1/maps", "%s", line);
    struct space *s = made_space(&m);

    assert_string_equal(space_find(s, 0x10000)->module->name, "lib.so");
    assert_int_equal(space_find(s, 0x10000)->module->elf_class, 0); /* nor in memory */
    assert_null(space_find(s, 0x10000)->module->image);
    space_free(s);
    free(image);
    made_free(&m);
}

/* Deleted: its mapping still leads to it. */
static void test_deleted(void **state UNUSED)
{
    struct module_set *set = module_set_new();
    struct made m;
    size_t len;
    uint8_t *image = slurp_file("/proc/self/exe", &len);

    made_new(&m, true);
    const char *path = made_file(&m, "gone.so", image, len);
    int dirfd, fd = open(path, O_RDONLY | O_CLOEXEC);
    void *p = mmap(NULL, len, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    assert_true(p != MAP_FAILED);
    close(fd);
    unlink(path);
    struct space *s = own_space(set, &dirfd);
    const struct module *gone = find(s, p)->module;
    const struct module *own = find(s, (const void *)(uintptr_t)test_deleted)->module;

    assert_string_equal(gone->name, "gone.so");
    assert_ptr_not_equal(gone, own);
    assert_int_equal(gone->elf_class, own->elf_class);
    assert_memory_equal(gone->build_id, own->build_id, BUILD_ID_MAX);
    munmap(p, len);
    space_free(s);
    module_set_free(set);
    close(dirfd);
    free(image);
    made_free(&m);
}

/* Some file systems show another device in maps than stat() tells. Then the content counts. */
static void test_other_device(void **state UNUSED)
{
    struct made m;
    size_t len;
    uint8_t *image = slurp_file("/proc/self/exe", &len);
    char line[512], *device;

    made_new(&m, true);
    const char *path = made_file(&m, "lib.so", image, len);
    strcpy(line, maps_line(path, (uintptr_t)image, (uintptr_t)image + len));
    device = strchr(strchr(line, ' ') + 1, ' ') + 10;
    memcpy(device, "ff:ff", 5); /* as long as any of two digits each */
    tree_put(&m.tree, "1/task/1/maps", "%s", line);
    struct space *s = made_space(&m);
    assert_int_equal(space_find(s, (uintptr_t)image)->module->elf_class, sizeof(void *) * 8);
    assert_false(space_find(s, (uintptr_t)image)->module->copied);
    space_free(s);

    image[600] ^= 0xff;
    s = made_space(&m);
    assert_true(space_find(s, (uintptr_t)image)->module->copied ||
                space_find(s, (uintptr_t)image)->module->elf_class == 0);
    space_free(s);
    free(image);
    made_free(&m);
}

/* Neither opened nor waited for. */
static void test_fifo(void **state UNUSED)
{
    struct made m;
    char path[128];

    made_new(&m, true);
    snprintf(path, sizeof(path), "%s/fifo", m.tree.root);
    assert_int_equal(mkfifo(path, 0600), 0);
    tree_put(&m.tree, "1/task/1/maps", "%s", maps_line(path, 0x10000, 0x20000));
    struct space *s = made_space(&m);

    assert_int_equal(space_find(s, 0x10000)->module->elf_class, 0);
    assert_int_equal(space_open(s, path), -EINVAL);
    assert_int_equal(space_open(s, "/dev/null"), -EINVAL);
    assert_int_equal(space_open(s, "/no/such/file"), -ENOENT);
    space_free(s);
    made_free(&m);
}

/* Symbolic links of a container mean its own files. */
static void test_open_in_root(void **state UNUSED)
{
    struct made m;
    char c = 0;

    made_new(&m, false);
    tree_put(&m.tree, "1/root/etc/name", "%s", "inside");
    assert_int_equal(symlinkat("/etc/name", m.dirfd, "root/link"), 0);
    assert_int_equal(symlinkat("../../../../../../../etc/name", m.dirfd, "root/up"), 0);
    tree_put(&m.tree, "1/task/1/maps", "%s", "10000-20000 rw-p 00000000 00:00 0\n");
    struct space *s = made_space(&m);

    for (int i = 0; i < 2; i++) {
        int fd = space_open(s, i ? "/up" : "/link");
        assert_true(fd >= 0);
        assert_int_equal(read(fd, &c, 1), 1);
        assert_int_equal(c, 'i');
        close(fd);
    }
    space_free(s);
    made_free(&m);
}

/* Text that was moved to anonymous memory (huge pages) in the middle of a library. */
static void test_moved_text(void **state UNUSED)
{
    struct made m;
    size_t len;
    uint8_t *image = slurp_file("/proc/self/exe", &len);
    struct stat st;

    made_new(&m, true);
    const char *path = made_file(&m, "lib.so", image, len);
    assert_int_equal(stat(path, &st), 0);
    const unsigned ma = major(st.st_dev), mi = minor(st.st_dev);
    const uintmax_t ino = st.st_ino;
    tree_put(
        &m.tree, "1/task/1/maps",
        "10000-20000 r--p 00000000 %02x:%02x %ju %s\n20000-30000 r-xp 00000000 00:00 0\n"
        "30000-40000 r--p 00020000 %02x:%02x %ju %s\n50000-60000 r--p 00000000 %02x:%02x %ju %s\n",
        ma, mi, ino, path, ma, mi, ino, path, ma, mi, ino, path);
    struct space *s = made_space(&m);

    assert_int_equal(space_find(s, 0x28000)->start, 0x10000);
    assert_int_equal(space_find(s, 0x28000)->end, 0x40000);
    assert_null(space_find(s, 0x58000)); /* the file again, without code */
    space_free(s);
    free(image);
    made_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own),           cmocka_unit_test(test_reading),
        cmocka_unit_test(test_vdso),          cmocka_unit_test(test_shared),
        cmocka_unit_test(test_refresh),       cmocka_unit_test(test_no_process),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_copied_amount), cmocka_unit_test(test_deleted),
        cmocka_unit_test(test_other_device),  cmocka_unit_test(test_fifo),
        cmocka_unit_test(test_open_in_root),  cmocka_unit_test(test_moved_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

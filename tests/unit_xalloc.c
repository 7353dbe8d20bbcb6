#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/err.h"
#include "../src/xalloc.h"

/* A hash table that gets no more memory after its first piece. */
static void *scarce(size_t size);
#define uthash_malloc(size) scarce(size)
#include "../src/hash.h"

/* Under AddressSanitizer: let an allocation fail as it does without. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void test_zero_sizes(void **state UNUSED)
{
    void *a = xmalloc(0), *b = xcalloc(0, 8), *c = xreallocarray(NULL, 0, 8);

    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    free(a);
    free(b);
    free(c);
}

static void test_calloc_clears(void **state UNUSED)
{
    unsigned char *p = xcalloc(100, 7);

    for (size_t i = 0; i < 700; i++)
        assert_int_equal(p[i], 0);
    free(p);
}

static void test_strings(void **state UNUSED)
{
    char *a = xstrdup(""), *b = xasprintf("%d-%s", 7, "x");

    assert_string_equal(a, "");
    assert_string_equal(b, "7-x");
    free(a);
    free(b);
}

static void test_grow(void **state UNUSED)
{
    size_t cap = 0, moves = 0, before = 0;
    int *p = NULL;

    for (size_t i = 0; i < 10000; i++) {
        p = xgrow(p, &cap, i + 1, sizeof(*p));
        moves += cap != before;
        before = cap;
        p[i] = (int)i;
    }
    assert_in_range(cap, 10000, 20000);
    assert_in_range(moves, 1, 12);
    for (size_t i = 0; i < 10000; i++)
        assert_int_equal(p[i], i);
    assert_ptr_equal(xgrow(p, &cap, 5, sizeof(*p)), p);
    free(p);
}

/* Runs ACT in a child; its exit status, and what it wrote to stderr in TEXT. */
static int run_child(void (*act)(void), char *text, size_t size)
{
    int fds[2], status;

    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDERR_FILENO);
        act();
        _exit(99);
    }
    close(fds[1]);
    size_t used = 0;
    for (ssize_t n; used < size - 1 && (n = read(fds[0], text + used, size - 1 - used)) > 0;)
        used += (size_t)n;
    text[used] = '\0';
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void overflow_array(void)
{
    volatile size_t n = SIZE_MAX / 2;

    free(xreallocarray(NULL, n, 4));
}

static void exhaust(void)
{
    volatile size_t n = SIZE_MAX / 4;

    free(xmalloc(n));
}

static void say_hook(void)
{
    static const char text[] = "[hook]";

    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
        _exit(98);
}

static void exhaust_with_hook(void)
{
    err_set_die_hook(say_hook);
    exhaust();
}

static void test_death(void **state UNUSED)
{
    char text[4096];

    assert_int_equal(run_child(overflow_array, text, sizeof(text)), EXIT_FAILED);
    assert_non_null(strstr(text, "lock-top: out of memory"));
    assert_int_equal(run_child(exhaust, text, sizeof(text)), EXIT_FAILED);
    assert_non_null(strstr(text, "lock-top: out of memory"));
    assert_int_equal(run_child(exhaust_with_hook, text, sizeof(text)), EXIT_FAILED);
    const char *hook = strstr(text, "[hook]"), *message = strstr(text, "lock-top:");
    assert_true(hook && message && hook < message);
}

static int pieces_left = 1;

static void *scarce(size_t size)
{
    return pieces_left-- > 0 ? malloc(size) : NULL;
}

struct item {
    int key;
    UT_hash_handle hh;
};

static void fill_table(void)
{
    struct item one = {.key = 1}, *table = NULL;

    err_set_die_hook(say_hook);
    HASH_ADD_INT(table, key, &one);
}

/* As everywhere: the terminal is restored, the reason said, exit 1. */
static void test_hash_death(void **state UNUSED)
{
    char text[4096];

    assert_int_equal(run_child(fill_table, text, sizeof(text)), EXIT_FAILED);
    assert_non_null(strstr(text, "[hook]lock-top: out of memory"));
}

static void test_arena_alignment(void **state UNUSED)
{
    struct arena a = {0};

    for (size_t size = 0; size < 300; size++) {
        unsigned char *p = arena_zalloc(&a, size);
        assert_int_equal((uintptr_t)p % alignof(max_align_t), 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, size);
    }
    arena_release(&a);
}

/* Pieces never overlap, neither over the edge of a block nor around one that is larger. */
static void test_arena_apart(void **state UNUSED)
{
    static const size_t sizes[] = {1, 8000, 300, 100000, 16, 8192, 5000, 5000, 31};
    unsigned char *p[ARRAY_SIZE(sizes)];
    struct arena a = {0};

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        p[i] = memset(arena_zalloc(&a, sizes[i]), (int)i + 1, sizes[i]);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(p[i][k], i + 1);
    }
    arena_release(&a);
}

static void test_arena_strings(void **state UNUSED)
{
    struct arena a = {0};
    char *long_text = arena_printf(&a, "%09000d", 1);

    assert_int_equal(strlen(long_text), 9000);
    assert_string_equal(arena_strdup(&a, ""), "");
    assert_string_equal(arena_strdup(&a, "name"), "name");
    assert_string_equal(arena_printf(&a, "%s:%d", "x", 3), "x:3");
    arena_release(&a);
}

static void test_arena_reuse(void **state UNUSED)
{
    struct arena a = {0};

    arena_release(&a);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(arena_strdup(&a, "again"), "again");
        arena_release(&a);
        assert_null(a.blocks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero_sizes),  cmocka_unit_test(test_calloc_clears),
        cmocka_unit_test(test_strings),     cmocka_unit_test(test_grow),
        cmocka_unit_test(test_death),       cmocka_unit_test(test_arena_alignment),
        cmocka_unit_test(test_arena_apart), cmocka_unit_test(test_arena_strings),
        cmocka_unit_test(test_arena_reuse), cmocka_unit_test(test_hash_death),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

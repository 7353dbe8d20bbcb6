/*
 * symbol_build.h - small shared objects, compiled while the test runs, and the map of this
 * process, for the tests of names. Include it behind cmocka.h.
 */
#ifndef LT_TESTS_SYMBOL_BUILD_H
#define LT_TESTS_SYMBOL_BUILD_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../src/module.h"
#include "../src/procfs.h"
#include "../src/symbol.h"
#include "../src/xalloc.h"

/* The directory of the built files, removed at the end. */
static char build_dir[] = "/tmp/lock-top-symbol.XXXXXX";

static inline int build_setup(void **state UNUSED)
{
    return mkdtemp(build_dir) ? 0 : -1;
}

/* Runs the shell command FMT in the directory; whether it succeeded. */
__attribute__((format(printf, 1, 2))) static inline bool build_try(const char *fmt, ...)
{
    char cmd[2048];
    int n = snprintf(cmd, sizeof(cmd), "exec 2>&1; cd %s && ", build_dir);
    va_list ap;

    va_start(ap, fmt);
    n += vsnprintf(cmd + n, sizeof(cmd) - (size_t)n, fmt, ap);
    va_end(ap);
    assert_true((size_t)n < sizeof(cmd));
    return system(cmd) == 0;
}

#define BUILD(...)                                                                                 \
    do {                                                                                           \
        if (!build_try(__VA_ARGS__))                                                               \
            fail_msg("cannot build: %s", #__VA_ARGS__);                                            \
    } while (0)

static inline int build_teardown(void **state UNUSED)
{
    return build_try("rm -rf %s", build_dir) ? 0 : -1;
}

static inline bool have_program(const char *name)
{
    return build_try("command -v %s >/dev/null", name);
}

static inline void build_write(const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", build_dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Loads the shared object NAME of the directory into this process. */
static inline void *build_load(const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", build_dir, name);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        fail_msg("%s", dlerror());
    return handle;
}

static inline uint64_t address_of(void *handle, const char *symbol)
{
    void *p = dlsym(handle, symbol);

    if (!p)
        fail_msg("%s", dlerror());
    return (uint64_t)(uintptr_t)p;
}

/* A view of this process, as lock-top has one of its target. */
struct own_view {
    struct module_set *set;
    struct space *space;
    int dirfd;
};

/* DIRFD is a directory as /proc/PID; the view closes it. */
static inline struct own_view own_view_at(int dirfd)
{
    struct own_view v = {.set = module_set_new(), .dirfd = dirfd};
    int err = 0;

    v.space = space_new(v.set, dirfd, getpid(), getpid(), remote_read, &err);
    assert_int_equal(err, 0);
    assert_non_null(v.space);
    return v;
}

static inline struct own_view own_view(void)
{
    int root = procfs_open_root("/proc");
    int dirfd = procfs_open_pid(root, getpid());

    close(root);
    assert_true(dirfd >= 0);
    return own_view_at(dirfd);
}

static inline void own_view_free(struct own_view *v)
{
    space_free(v->space);
    module_set_free(v->set);
    close(v->dirfd);
}

#endif

/*
 * module_tree.h - processes made up of a maps file, for the tests of modules. Include it behind
 * cmocka.h.
 */
#ifndef LT_TESTS_MODULE_TREE_H
#define LT_TESTS_MODULE_TREE_H

#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include "../src/module.h"
#include "../src/procfs.h"
#include "proc_tree.h"

/* A process: tree/1 is its directory, "root" in it is / where WITH_ROOT, its maps are the test's
 * to write (at task/1/maps). Its memory is the test's own. */
struct made {
    struct tree tree;
    int dirfd;
    struct module_set *set;
};

static inline void made_new(struct made *m, bool with_root)
{
    char path[128];

    tree_new(&m->tree);
    tree_put(&m->tree, "1/task/1/maps", "%s", "");
    snprintf(path, sizeof(path), "%s/1", m->tree.root);
    m->dirfd = open(path, O_DIRECTORY | O_CLOEXEC);
    assert_true(m->dirfd >= 0);
    if (with_root)
        assert_int_equal(symlinkat("/", m->dirfd, "root"), 0);
    m->set = module_set_new();
}

static inline void made_free(struct made *m)
{
    module_set_free(m->set);
    close(m->dirfd);
    tree_free(&m->tree);
}

/* The space of the process, whose memory is this one's. */
static inline struct space *made_space(struct made *m)
{
    int err = 0;
    struct space *s = space_new(m->set, m->dirfd, getpid(), 1, remote_read, &err);

    assert_int_equal(err, 0);
    assert_non_null(s);
    return s;
}

static inline struct space *own_space(struct module_set *set, int *dirfd)
{
    int err = 0;

    *dirfd = open("/proc/self", O_DIRECTORY | O_CLOEXEC);
    struct space *s = space_new(set, *dirfd, getpid(), getpid(), remote_read, &err);
    assert_non_null(s);
    return s;
}

/* A file of the tree, filled with LEN bytes. Returns its path, which lasts until the next call. */
static inline const char *made_file(struct made *m, const char *name, const void *bytes, size_t len)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%s", m->tree.root, name);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    close(fd);
    return path;
}

/* A line of maps that loads PATH at START, as its file stands now. */
static inline const char *maps_line(const char *path, uint64_t start, uint64_t end)
{
    static char line[512];
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    snprintf(line, sizeof(line), "%" PRIx64 "-%" PRIx64 " r-xp 00000000 %02x:%02x %ju %s\n", start,
             end, major(st.st_dev), minor(st.st_dev), (uintmax_t)st.st_ino, path);
    return line;
}

/* The bytes of a file, to be freed. */
static inline uint8_t *slurp_file(const char *path, size_t *len)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    uint8_t *p = malloc((size_t)st.st_size);
    *len = (size_t)st.st_size;
    assert_int_equal(read(fd, p, *len), st.st_size);
    close(fd);
    return p;
}

#endif

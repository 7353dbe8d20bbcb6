/*
 * proc_tree.h - /proc trees written by the test itself, which it can change between two looks.
 * Include it behind cmocka.h.
 */
#ifndef LT_TESTS_PROC_TREE_H
#define LT_TESTS_PROC_TREE_H

#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../src/compiler.h"

struct tree {
    char root[64];
};

static inline void tree_new(struct tree *t)
{
    strcpy(t->root, "/tmp/lock-top-tree.XXXXXX");
    assert_non_null(mkdtemp(t->root));
}

static inline int remove_entry(const char *path, const struct stat *st UNUSED, int type UNUSED,
                               struct FTW *ftw UNUSED)
{
    return remove(path);
}

static inline void tree_remove(const struct tree *t, const char *rel)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", t->root, rel);
    nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static inline void tree_free(const struct tree *t)
{
    nftw(t->root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* Writes the file REL, directories included, over what stands there: fds kept open see it. */
static inline void PRINTF_LIKE(3, 4) tree_put(const struct tree *t, const char *rel,
                                              const char *fmt, ...)
{
    char path[256];
    va_list ap;

    snprintf(path, sizeof(path), "%s/%s", t->root, rel);
    for (char *slash = path + strlen(t->root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    va_start(ap, fmt);
    vfprintf(f, fmt, ap);
    va_end(ap);
    assert_int_equal(fclose(f), 0);
}

static inline void tree_stat(const struct tree *t, const char *dir, int id, const char *comm,
                             char state, unsigned start, unsigned stack)
{
    char rel[96];

    snprintf(rel, sizeof(rel), "%s/stat", dir);
    tree_put(t, rel,
             "%d (%s) %c 1 1 1 0 -1 4194560 11 0 7 0 250 50 0 0 20 0 2 0 %u 2000000 100 "
             "18446744073709551615 1 1 %u 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n",
             id, comm, state, start, stack);
}

/* A thread of process PID with its run count and its syscall line. */
static inline void tree_thread(const struct tree *t, int pid, int tid, unsigned start,
                               unsigned runs, const char *syscall_line)
{
    char dir[64], rel[96];

    snprintf(dir, sizeof(dir), "%d/task/%d", pid, tid);
    tree_stat(t, dir, tid, "worker", 'S', start, 0);
    snprintf(rel, sizeof(rel), "%s/schedstat", dir);
    tree_put(t, rel, "%u 500 %u\n", runs * 1000, runs);
    snprintf(rel, sizeof(rel), "%s/syscall", dir);
    tree_put(t, rel, "%s\n", syscall_line);
    snprintf(rel, sizeof(rel), "%s/comm", dir);
    tree_put(t, rel, "worker\n");
}

/* A kernel's file that is kept open tells that its thread is gone; here a count that falls does. */
static inline void tree_end_thread(const struct tree *t, int pid, int tid)
{
    char rel[96];

    snprintf(rel, sizeof(rel), "%d/task/%d/schedstat", pid, tid);
    tree_put(t, rel, "0 0 0\n");
    snprintf(rel, sizeof(rel), "%d/task/%d", pid, tid);
    tree_remove(t, rel);
}

static inline void tree_process(const struct tree *t, int pid, char state)
{
    char dir[32], rel[48];

    snprintf(dir, sizeof(dir), "%d", pid);
    tree_stat(t, dir, pid, "shopd", state, 100, 7777);
    snprintf(rel, sizeof(rel), "%d/status", pid);
    tree_put(t, rel, "Name:\tshopd\nTgid:\t%d\nNSpid:\t%d\n", pid, pid);
}

#endif

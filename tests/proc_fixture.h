/*
 * proc_fixture.h - the captured /proc trees below tests/fixtures, for the unit tests. Include it
 * behind cmocka.h.
 */
#ifndef LT_TESTS_PROC_FIXTURE_H
#define LT_TESTS_PROC_FIXTURE_H

#include <stdio.h>
#include <unistd.h>

#include "../src/procfs.h"

#define FIXTURES "tests/fixtures/"

/* The directory of process PID in TREE ("proc-threads"), opened; the caller closes it. */
static inline int open_fixture(const char *tree, pid_t pid)
{
    char path[128];

    snprintf(path, sizeof(path), FIXTURES "%s", tree);
    int root = procfs_open_root(path);
    if (root < 0)
        fail_msg("no %s here: run the tests from the top of the source tree", path);
    int fd = procfs_open_pid(root, pid);
    close(root);
    assert_true(fd >= 0);
    return fd;
}

#endif

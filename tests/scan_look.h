/*
 * scan_look.h - one look for locks on files and what it found. Include it behind cmocka.h.
 */
#ifndef LT_TESTS_SCAN_LOOK_H
#define LT_TESTS_SCAN_LOOK_H

#include <unistd.h>

#include "../src/filescan.h"
#include "../src/procfs.h"

static inline void look(const char *root, const struct scan_wish *wish, struct scan_result *r)
{
    int fd = procfs_open_root(root);

    assert_true(fd >= 0);
    assert_int_equal(filescan_look(fd, wish, r), 0);
    close(fd);
}

static inline const struct file_fact *file_in(const struct scan_result *r, struct file_id id)
{
    for (size_t i = 0; i < r->nfiles; i++) {
        if (r->files[i].file.dev == id.dev && r->files[i].file.inode == id.inode)
            return &r->files[i];
    }
    return NULL;
}

static inline const struct scan_fd *fd_in(const struct scan_result *r, pid_t pid, int fd)
{
    for (size_t i = 0; i < r->nfds; i++) {
        if (r->fds[i].pid == pid && r->fds[i].fd == fd)
            return &r->fds[i];
    }
    return NULL;
}

#endif

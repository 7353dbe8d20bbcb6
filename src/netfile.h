/*
 * netfile.h - opening files whose server may not answer. Whoever touches such a file hangs in the
 * kernel, so a thread of its own does, and is left behind when it takes too long.
 */
#ifndef LT_NETFILE_H
#define LT_NETFILE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether device DEV is a file server's, or a file system's in user space, in the mounts of the
 * process whose directory below /proc is DIRFD. */
bool netfile_is_remote(int dirfd, uint64_t dev);

/* As OPEN(DIRFD, PATH), which returns an fd or -errno; -ETIMEDOUT when that takes more than
 * LIMIT_MS. */
int netfile_open(int dirfd, const char *path, int (*open)(int dirfd, const char *path),
                 unsigned limit_ms);

#endif

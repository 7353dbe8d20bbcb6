/*
 * mounts.h - which file system a mount is: /proc/PID/mountinfo. A parser that is a pure function of
 * a text.
 */
#ifndef LT_MOUNTS_H
#define LT_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "filefacts.h"

struct mount {
    int id;         /* mnt_id of fdinfo */
    uint64_t dev;   /* makedev(major, minor): of the superblock, as /proc/locks has it */
    enum fs_kind fs;
    char type[32];  /* "ext4", "nfs4", "fuse.sshfs" */
    char source[256], point[256]; /* where it comes from ("" possible), where it is mounted; cut to
                                     fit; blanks and the like as they are, not as \040 */
};

/* Parses the line at *TEXT and moves *TEXT behind it. False at the end of the text; lines that the
 * kernel would not have written are skipped. */
bool mounts_next(const char **text, struct mount *out);

/* Reads the mountinfo of the process below DIRFD and finds the mount ID; or, with ID below 0, the
 * first one on device DEV. False when it is not there: what lies in no mount namespace (a memfd)
 * has a mount that is not listed. Asks no file server. A mount belongs to one namespace, and its ID
 * is the only one of that number in the kernel until it is unmounted. */
bool mounts_find(int dirfd, int id, uint64_t dev, struct mount *out);

#endif

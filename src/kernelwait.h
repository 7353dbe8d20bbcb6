/*
 * kernelwait.h - in which lock inside the kernel a thread sleeps, by the kernel function that it
 * sleeps in (wchan). Names drift between kernels, so only prefixes count, and what is not known is
 * no lock.
 *
 * Part of the model; pure.
 */
#ifndef LT_KERNELWAIT_H
#define LT_KERNELWAIT_H

#include <stdbool.h>

#include "sample.h"

/* What those who wait have in common. */
enum kernel_scope {
    KERNEL_PROCESS, /* the process: its memory map */
    KERNEL_FILE,    /* the file, where its path is known; else the process */
    KERNEL_ALL,     /* a file system or server: by path of the file where that is known */
};

struct kernel_family {
    const char *name; /* "mmap_lock", "inode lock", "journal", "NFS server", "FUSE daemon" */
    enum kernel_scope scope;
    int number;
};

/* The family of thread F, or NULL. */
const struct kernel_family *kernelwait_of(const struct thread_fact *f);

#endif

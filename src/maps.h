/*
 * maps.h - the memory map of a process, read once and kept: which file or area an address
 * lies in.
 *
 * Reading /proc/PID/maps takes the target's mmap_lock for reading and may be long, so it is done
 * when an address is unknown, and not at every look. What is kept goes stale: an address that is
 * mapped anew elsewhere is still found where it was.
 */
#ifndef LT_MAPS_H
#define LT_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "xalloc.h"

struct map_entry {
    uint64_t start, end, offset, inode;
    uint64_t dev; /* makedev() of what the kernel prints */
    bool exec, write, shared;
    const char *path;   /* "" for anonymous memory; "[heap]"; may end in " (deleted)" */
    const char *module; /* PATH, or for the anonymous tail of a module (.bss) the module's; "" */
};

struct maps {
    struct map_entry *entries; /* ascending */
    size_t n, cap;
    struct arena strings;
};

/* (Re)loads from the file of thread TID ("task/TID/maps") below the process directory DIRFD: a
 * leader that has exited has no map of its own. Returns 0 or -errno; on an error the old content
 * stays. */
int maps_load(struct maps *m, int dirfd, pid_t tid);

/* The mapping that holds ADDR, or NULL. */
const struct map_entry *maps_find(const struct maps *m, uint64_t addr);

/* Whether the file PATH is a glibc or a musl C library (loader included), by its name. */
bool maps_path_is_glibc(const char *path);
bool maps_path_is_musl(const char *path);

void maps_release(struct maps *m);

#endif

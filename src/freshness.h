/*
 * freshness.h - whether the files that a process had mapped when its map was read still lie there.
 * A library that was unloaded may have made room for another at the same addresses, whose code
 * would be given the names of the first.
 */
#ifndef LT_FRESHNESS_H
#define LT_FRESHNESS_H

#include "module.h"

#define FRESH_FILES 64

/* Zeroed: nothing is known. Belongs to one space. */
struct freshness {
    uint64_t generation; /* of the space */
    struct fresh_file {
        const struct module *module; /* NULL: free */
        uint64_t start, addr;        /* of its mapping; of what tells it from others, 0: nothing */
        const uint8_t *bytes;        /* what stands there in the file: its build-id, or its ELF
                                        header */
        uint32_t len;
    } files[FRESH_FILES];
    size_t next; /* whose place is taken next */
};

/* Compares the files in which the N addresses ADDR lie with the memory of thread TID, in one read.
 * Files beyond the first 16 are believed. False: the map must be read again. READ is remote_read or
 * a stand-in. */
bool freshness_check(struct freshness *f, const struct space *s, pid_t tid,
                     int (*read)(pid_t, struct remote_item *, size_t), const uint64_t *addr,
                     size_t n);

#endif

/*
 * remote.h - reading memory of another process with process_vm_readv: no attach, no stop, many
 * small items in one call.
 */
#ifndef LT_REMOTE_H
#define LT_REMOTE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct remote_item {
    uint64_t addr; /* in the target */
    void *dst;     /* LEN bytes */
    uint32_t len;  /* at most 64 KiB, which is the caller's to keep: longer copies take the
                      target's mmap_lock for longer. Read up to the first page that is not mapped */
    uint32_t got;  /* out: bytes read, 0 when none */
};

/*
 * Fills N items. One bad address does not spoil the others: the kernel ends a transfer at the
 * first bad item, so the rest is asked for again. Returns how many items were read whole, or
 * -errno when nothing may be read at all (-EPERM, -ESRCH, -ENOSYS); then all GOT are 0.
 */
int remote_read(pid_t pid, struct remote_item *items, size_t n);

#endif

#include "lockkey.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct lockkey lockkey_make(const struct process_fact *p, const struct word_fact *word,
                            uint64_t object)
{
    struct lockkey k;

    memset(&k, 0, sizeof(k));
    if (word && word->region == REGION_SHARED) {
        k.space = LOCKKEY_SHARED;
        k.a = word->dev;
        k.b = word->inode;
        k.c = word->offset + (object - word->addr);
    } else {
        k.space = LOCKKEY_PRIVATE;
        k.execs = p->execs;
        k.a = (uint64_t)p->pid;
        k.b = object;
        k.c = p->start_ticks;
    }
    return k;
}

void lockkey_text(char *dst, size_t size, const struct lockkey *k)
{
    if (k->space == LOCKKEY_SHARED)
        snprintf(dst, size, "shm:%" PRIx64 ":%" PRIu64 "+0x%" PRIx64, k->a, k->b, k->c);
    else if (k->execs)
        snprintf(dst, size, "%" PRIu64 ".%" PRIu32 ":0x%" PRIx64, k->a, k->execs, k->b);
    else
        snprintf(dst, size, "%" PRIu64 ":0x%" PRIx64, k->a, k->b);
}

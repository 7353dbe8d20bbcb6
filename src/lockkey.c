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

/* Which kinds of file locks know each other. */
enum { APART_FLOCK, APART_RANGE, APART_LEASE };

struct lockkey lockkey_file(const struct file_lock *l)
{
    struct lockkey key;

    memset(&key, 0, sizeof(key));
    key.space = LOCKKEY_FILE;
    key.execs = l->kind == FILELOCK_FLOCK   ? APART_FLOCK
                : l->kind == FILELOCK_LEASE ? APART_LEASE
                                            : APART_RANGE;
    key.a = l->file.dev;
    key.b = l->file.inode;
    key.c = l->start;
    key.d = l->end;
    return key;
}

struct lockkey lockkey_sem(int id, uint16_t num)
{
    struct lockkey key;

    memset(&key, 0, sizeof(key));
    key.space = LOCKKEY_SEM;
    key.a = (uint64_t)id;
    key.b = num;
    return key;
}

static void file_text(char *dst, size_t size, const struct lockkey *k)
{
    static const char *const name[] = {"flock", "posix", "lease"};
    char end[24] = "";

    if (k->d != FILE_END)
        snprintf(end, sizeof(end), "%" PRIu64, k->d);
    int n = snprintf(dst, size, "%s:%" PRIx64 ":%" PRIu64, name[k->execs], k->a, k->b);
    if (n > 0 && (size_t)n < size && (k->c || k->d != FILE_END))
        snprintf(dst + n, size - (size_t)n, ":%" PRIu64 "-%s", k->c, end);
}

static void kernel_text(char *dst, size_t size, const struct lockkey *k)
{
    if (k->d)
        snprintf(dst, size, "kernel:%" PRIu64 ":%" PRIx64, k->a, k->d);
    else
        snprintf(dst, size, "kernel:%" PRIu64 ":%" PRIu64, k->a, k->b);
}

void lockkey_text(char *dst, size_t size, const struct lockkey *k)
{
    if (k->space == LOCKKEY_FILE)
        file_text(dst, size, k);
    else if (k->space == LOCKKEY_SEM)
        snprintf(dst, size, "sysv:%" PRIu64 "[%" PRIu64 "]", k->a, k->b);
    else if (k->space == LOCKKEY_KERNEL)
        kernel_text(dst, size, k);
    else if (k->space == LOCKKEY_SHARED)
        snprintf(dst, size, "shm:%" PRIx64 ":%" PRIu64 "+0x%" PRIx64, k->a, k->b, k->c);
    else if (k->execs)
        snprintf(dst, size, "%" PRIu64 ".%" PRIu32 ":0x%" PRIx64, k->a, k->execs, k->b);
    else
        snprintf(dst, size, "%" PRIu64 ":0x%" PRIx64, k->a, k->b);
}

#define LABEL_SHOWN 24

/* FNV-1a. */
static uint64_t hash_text(const char *s)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
    return h;
}

struct lockkey lockkey_site(const struct process_fact *p, bool shared, const char *label,
                            uint64_t caller)
{
    struct lockkey key;

    memset(&key, 0, sizeof(key));
    key.space = shared ? LOCKKEY_SITE_SHARED : LOCKKEY_SITE;
    key.b = hash_text(label) + caller;
    if (!shared) {
        key.execs = p->execs;
        key.a = (uint64_t)p->pid;
        key.c = p->start_ticks;
    }
    return key;
}

struct lockkey lockkey_kernel(int family, const struct process_fact *p, const char *place)
{
    struct lockkey key;

    memset(&key, 0, sizeof(key));
    key.space = LOCKKEY_KERNEL;
    key.a = (uint64_t)family;
    if (place) {
        key.d = hash_text(place) | 1;
    } else {
        key.b = (uint64_t)p->pid;
        key.c = p->start_ticks;
    }
    return key;
}

void lockkey_site_text(char *dst, size_t size, const struct lockkey *key, const char *label,
                       uint64_t caller)
{
    char who[32] = "", where[32] = "";

    if (key->space == LOCKKEY_SITE)
        snprintf(who, sizeof(who), "%" PRIu64, key->a);
    if (caller)
        snprintf(where, sizeof(where), "+0x%" PRIx64, caller);
    /* A label of the user's may be long; the rest of the key tells it from others then. */
    if (strlen(label) > LABEL_SHOWN)
        snprintf(dst, size, "%s@%.*s~%08" PRIx32 "%s", who, LABEL_SHOWN - 9, label,
                 (uint32_t)(key->b ^ key->b >> 32), where);
    else
        snprintf(dst, size, "%s@%s%s", who, label, where);
}

#include "sample.h"

#include <linux/futex.h>
#include <string.h>

static bool word_bytes(const struct word_view *w, int off, void *out, int len)
{
    int at = WORD_BEFORE + off;

    if (at < w->lo || at + len > w->hi)
        return false;
    memcpy(out, w->bytes + at, (size_t)len);
    return true;
}

bool word_u32(const struct word_view *w, int off, uint32_t *out)
{
    return word_bytes(w, off, out, sizeof(*out));
}

bool word_u64(const struct word_view *w, int off, uint64_t *out)
{
    return word_bytes(w, off, out, sizeof(*out));
}

/* A struct pthread is 64-byte aligned and lies in the upper part of the address space. Read as a
 * mutex, the pointer's upper half would be a count of users of more than 20,000. */
bool word_stdio_owner(const struct word_view *w, uint64_t *owner)
{
    return word_u64(w, 8, owner) && *owner >> 32 >= 0x5500 && *owner >> 47 == 0 && *owner % 64 == 0;
}

/* futex(uaddr, op, val, timeout, ...) */
static bool decode_futex(const uint64_t arg[6], struct futex_wait *out)
{
    uint32_t op = (uint32_t)arg[1];

    out->addr = arg[0];
    out->cmd = op & (uint32_t)FUTEX_CMD_MASK;
    out->val = (uint32_t)arg[2];
    out->is_private = op & FUTEX_PRIVATE_FLAG;
    out->realtime = op & FUTEX_CLOCK_REALTIME;
    out->timed = arg[3] != 0;
    switch (out->cmd) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
    case FUTEX_WAIT_REQUEUE_PI:
    case FUTEX_LOCK_PI:
    case FUTEX_LOCK_PI2:
        return out->addr != 0;
    default:
        return false;
    }
}

/* futex_wait(uaddr, val, mask, flags, timeout, clockid): no op; flags as in futex2. */
static bool decode_futex_wait(const uint64_t arg[6], struct futex_wait *out)
{
    out->addr = arg[0];
    out->cmd = FUTEX_WAIT_BITSET;
    out->val = (uint32_t)arg[1];
    out->is_private = arg[3] & FUTEX_PRIVATE_FLAG;
    out->timed = arg[4] != 0;
    return out->addr != 0;
}

static bool decode(enum call call, const uint64_t arg[6], struct futex_wait *out)
{
    *out = (struct futex_wait){.words = 1};
    switch (call) {
    case CALL_futex:
    case CALL_futex_time64:
        return decode_futex(arg, out);
    case CALL_futex_wait:
        return decode_futex_wait(arg, out);
    case CALL_futex_waitv: /* futex_waitv(waiters, nr, flags, timeout, clockid) */
        out->cmd = FUTEX_WAIT_BITSET;
        out->words = (uint32_t)arg[1];
        out->timed = arg[3] != 0;
        return out->words > 0;
    default:
        return false;
    }
}

bool futex_decode(enum call call, const uint64_t arg[6], struct futex_wait *out)
{
    bool waits = decode(call, arg, out);

    if (!waits)
        out->addr = 0;
    return waits;
}

#include "callcode.h"

#include <string.h>

#include "compiler.h"

bool callcode_is_sigreturn(const struct space *s, uint64_t pc)
{
#if defined(__x86_64__)
    static const uint8_t code[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}; /* mov, syscall */
#elif defined(__aarch64__)
    static const uint8_t code[] = {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4}; /* mov x8, svc */
#else
    static const uint8_t code[] = "";
#endif
    const void *p = space_at(s, pc, sizeof(code));

    return p && memcmp(p, code, sizeof(code)) == 0;
}

#if defined(__x86_64__)

static int32_t displacement(const uint8_t *p)
{
    int32_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

/* Length of the instruction "FF /2" (call to what a register or a word in memory says) at P, 0
 * when it is another one. */
static size_t indirect_length(const uint8_t *p)
{
    unsigned mod = p[1] >> 6, rm = p[1] & 7;

    if (p[0] != 0xff || ((p[1] >> 3) & 7) != 2)
        return 0;
    if (mod == 3)
        return 2;
    if (mod == 1)
        return rm == 4 ? 4 : 3;
    if (mod == 2)
        return rm == 4 ? 7 : 6;
    if (rm == 4)
        return (p[2] & 7) == 5 ? 7 : 3;
    return rm == 5 ? 6 : 2;
}

enum call_kind callcode_decode(const uint8_t *code, uint64_t ret, uint64_t *target)
{
    const uint8_t *end = code + CALLCODE_BYTES;

    if (end[-5] == 0xe8) {
        *target = ret + (uint64_t)(int64_t)displacement(end - 4);
        return CALL_DIRECT;
    }
    if (end[-6] == 0xff && end[-5] == 0x15) {
        *target = ret + (uint64_t)(int64_t)displacement(end - 4);
        return CALL_SLOT;
    }
    *target = 0;
    for (size_t n = 2; n <= 7; n++) {
        if (end[-(ptrdiff_t)n] == 0xff && indirect_length(end - n) == n)
            return CALL_INDIRECT;
    }
    return CALL_NONE;
}

/* Where the jump at AT goes: "jmp X" or "jmp *SLOT(%rip)", as PLT stubs have it behind endbr64 and
 * bnd. 0 when there is none. */
static uint64_t follow_jump(const struct space *s, uint64_t at)
{
    static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
    const uint8_t *p = space_at(s, at, 16);
    uint64_t slot, target;
    size_t i = 0;

    if (!p)
        return 0;
    if (memcmp(p, endbr64, sizeof(endbr64)) == 0)
        i += sizeof(endbr64);
    if (p[i] == 0xf2)
        i++;
    if (p[i] == 0xe9)
        return at + i + 5 + (uint64_t)(int64_t)displacement(p + i + 1);
    if (p[i] != 0xff || p[i + 1] != 0x25)
        return 0;
    slot = at + i + 6 + (uint64_t)(int64_t)displacement(p + i + 2);
    return space_read(s, slot, &target, sizeof(target)) ? target : 0;
}

bool callcode_reaches(const struct space *s, enum call_kind kind, uint64_t target,
                      uint64_t function)
{
    enum { HOPS = 3 };

    if (kind == CALL_INDIRECT)
        return true;
    if (kind == CALL_NONE || (kind == CALL_SLOT && !space_read(s, target, &target, sizeof(target))))
        return false;
    for (int i = 0; i < HOPS && target != function; i++)
        target = follow_jump(s, target);
    return target == function;
}

/* The bytes of a "push REG" of a register that functions save, 0 for anything else. */
static size_t push_length(const uint8_t *p)
{
    if (p[0] == 0x53)
        return 1;
    return p[0] == 0x41 && p[1] >= 0x54 && p[1] <= 0x57 ? 2 : 0;
}

bool callcode_frame_size(const struct space *s, uint64_t function, uint64_t *size)
{
    static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
    static const uint8_t frame[] = {0x55, 0x48, 0x89, 0xe5}, frame2[] = {0x55, 0x48, 0x8b, 0xec};
    const uint8_t *p = space_at(s, function, 32);

    if (!p)
        return false;
    if (memcmp(p, endbr64, sizeof(endbr64)) == 0)
        p += sizeof(endbr64);
    if (memcmp(p, frame, sizeof(frame)) != 0 && memcmp(p, frame2, sizeof(frame2)) != 0)
        return false;
    p += sizeof(frame);
    *size = 0;
    for (size_t n; (n = push_length(p)) != 0; p += n)
        *size += 8;
    if (p[0] == 0x48 && p[1] == 0x83 && p[2] == 0xec)
        *size += p[3];
    else if (p[0] == 0x48 && p[1] == 0x81 && p[2] == 0xec)
        *size += (uint32_t)displacement(p + 3);
    return true;
}

/* glibc's _start and musl's __clone, which have no unwind tables everywhere, go on to hlt. */
bool callcode_ends_thread(const struct space *s, uint64_t ret)
{
    static const uint8_t exit_hlt[] = {0x0f, 0x05, 0xf4}; /* syscall; hlt */
    const uint8_t *p = space_at(s, ret, 16);

    return p && (p[0] == 0xf4 || memmem(p, 16, exit_hlt, sizeof(exit_hlt)) != NULL);
}

#else

enum call_kind callcode_decode(const uint8_t *code UNUSED, uint64_t ret UNUSED, uint64_t *target)
{
    *target = 0;
    return CALL_NONE;
}

bool callcode_reaches(const struct space *s UNUSED, enum call_kind kind UNUSED,
                      uint64_t target UNUSED, uint64_t function UNUSED)
{
    return false;
}

bool callcode_frame_size(const struct space *s UNUSED, uint64_t function UNUSED,
                         uint64_t *size UNUSED)
{
    return false;
}

bool callcode_ends_thread(const struct space *s UNUSED, uint64_t ret UNUSED)
{
    return false;
}

#endif

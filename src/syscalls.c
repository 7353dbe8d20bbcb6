#include "syscalls.h"

#include <elf.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "compiler.h"
#include "syscalls_table.h"

#if defined(__x86_64__) && defined(__LP64__)
#define NATIVE_CLASS   ELFCLASS64
#define NATIVE_MACHINE EM_X86_64
#define HAVE_I386
#elif defined(__i386__)
#define NATIVE_CLASS   ELFCLASS32
#define NATIVE_MACHINE EM_386
#elif defined(__aarch64__) && defined(__LP64__)
#define NATIVE_CLASS   ELFCLASS64
#define NATIVE_MACHINE EM_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define NATIVE_CLASS   ELFCLASS64
#define NATIVE_MACHINE EM_RISCV
#else
#error "give the ELF class and machine of this architecture here"
#endif

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NATIVE_DATA ELFDATA2LSB
#else
#define NATIVE_DATA ELFDATA2MSB
#endif

_Static_assert(CALL_COUNT <= UINT8_MAX, "a call must fit one byte of the table");

static const uint8_t native_calls[] = {
#include "calls_nr.inc"
};

static const struct {
    const char *name;
    uint8_t wait;
    bool fd;
} calls[CALL_COUNT] = {
    [CALL_OTHER] = {"?", WAIT_OTHER, false},
#define CALL(name, wait, fd) [CALL_##name] = {#name, wait, fd},
#include "calls.def"
#undef CALL
};

enum call syscalls_lookup(enum abi abi, long nr)
{
    if (nr < 0)
        return CALL_OTHER;
    if (abi == ABI_NATIVE)
        return (size_t)nr < ARRAY_SIZE(native_calls) ? native_calls[nr] : CALL_OTHER;
    if (abi == ABI_COMPAT)
        return syscalls_compat_lookup((unsigned long)nr);
    return CALL_OTHER;
}

const char *syscalls_name(enum call call)
{
    return calls[call].name;
}

enum call_wait syscalls_wait(enum call call)
{
    return calls[call].wait;
}

bool syscalls_has_fd(enum call call)
{
    return calls[call].fd;
}

enum abi syscalls_abi_from_elf(const unsigned char *ident, size_t len)
{
    const size_t machine_at = offsetof(Elf64_Ehdr, e_machine); /* the same in both classes */

    if (len < machine_at + 2 || ident[EI_MAG0] != ELFMAG0 || ident[EI_MAG1] != ELFMAG1 ||
        ident[EI_MAG2] != ELFMAG2 || ident[EI_MAG3] != ELFMAG3 || ident[EI_DATA] != NATIVE_DATA)
        return ABI_UNKNOWN;

    unsigned first = ident[machine_at], second = ident[machine_at + 1];
    unsigned machine = NATIVE_DATA == ELFDATA2LSB ? first | second << 8 : first << 8 | second;

    if (ident[EI_CLASS] == NATIVE_CLASS && machine == NATIVE_MACHINE)
        return ABI_NATIVE;
#ifdef HAVE_I386
    if (ident[EI_CLASS] == ELFCLASS32 && machine == EM_386)
        return ABI_COMPAT;
#endif
    return ABI_UNKNOWN;
}

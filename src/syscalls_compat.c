/* Only the i386 numbers may be visible here: no header that pulls in <sys/syscall.h>. */
#if defined(__x86_64__) && defined(__LP64__)

#include <asm/unistd_32.h>
#include <stdint.h>

#include "compiler.h"
#include "syscalls_table.h"

static const uint8_t compat_calls[] = {
#include "calls_nr.inc"
};

enum call syscalls_compat_lookup(unsigned long nr)
{
    return nr < ARRAY_SIZE(compat_calls) ? compat_calls[nr] : CALL_OTHER;
}

#else

#include "compiler.h"
#include "syscalls_table.h"

enum call syscalls_compat_lookup(unsigned long nr UNUSED)
{
    return CALL_OTHER;
}

#endif

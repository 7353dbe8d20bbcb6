/*
 * syscalls_table.h - shared by syscalls.c and syscalls_compat.c only: two translation units,
 * because the headers of the two ABIs use the same macro names for different numbers. Include
 * it behind the header that defines __NR_*.
 */
#ifndef LT_SYSCALLS_TABLE_H
#define LT_SYSCALLS_TABLE_H

#include "syscalls.h"

/*
 * calls_nr.inc is made from calls.def by the Makefile: "[__NR_futex] = CALL_futex," for each
 * call, left out where the included header has no such number. An array so initialised says at
 * [number] which call that is, and CALL_OTHER (0) at all others.
 *
 * The kernel may be newer than the headers of the machine that builds. Calls added since 5.1
 * have one number on all architectures, but for those that add an offset to every number.
 */
#if !defined(__alpha__) && !defined(__mips__)
#ifndef __NR_io_uring_enter
#define __NR_io_uring_enter 426
#endif
#ifndef __NR_clone3
#define __NR_clone3 435
#endif
#ifndef __NR_openat2
#define __NR_openat2 437
#endif
#ifndef __NR_epoll_pwait2
#define __NR_epoll_pwait2 441
#endif
#ifndef __NR_futex_waitv
#define __NR_futex_waitv 449
#endif
#ifndef __NR_futex_wait
#define __NR_futex_wait 455
#endif
#endif

/* The call that number NR (not negative) means to a 32-bit process. */
enum call syscalls_compat_lookup(unsigned long nr);

#endif

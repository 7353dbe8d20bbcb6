/*
 * syscalls.h - which system call a number means, and what it means to be blocked in it.
 *
 * Numbers differ by architecture, and a 32-bit process on a 64-bit kernel shows those of its
 * own table (240 is futex on i386 and mq_open on x86-64), so a number is looked up only
 * together with the ABI of the process. All numbers come from the kernel's headers.
 */
#ifndef LT_SYSCALLS_H
#define LT_SYSCALLS_H

#include <stdbool.h>
#include <stddef.h>

enum abi {
    ABI_UNKNOWN,
    ABI_NATIVE,  /* what lock-top itself was built for */
    ABI_COMPAT,  /* its 32-bit companion: i386 on x86-64 (none elsewhere yet) */
};

/* What a thread that is blocked in the call waits for. */
enum call_wait {
    WAIT_FUTEX,    /* decided by op, val and memory */
    WAIT_RESTART,  /* restart_syscall: whatever the thread waited for before */
    WAIT_FILELOCK, /* flock; fcntl when its command is F_SETLKW or F_OFD_SETLKW */
    WAIT_FCNTL,
    WAIT_SEMOP,    /* System V semaphore */
    WAIT_FD,       /* depends on what the descriptor in argument 0 is */
    WAIT_NET,      /* socket, poll, select, epoll */
    WAIT_PIPE,
    WAIT_DISK,     /* file or directory I/O */
    WAIT_KERNEL,   /* memory management: mmap, munmap, mprotect, page faults */
    WAIT_SLEEP,    /* nanosleep, pause, sigwait */
    WAIT_OTHER,
};

/* enum call: CALL_OTHER and one CALL_name per row of calls.def. */
enum call {
    CALL_OTHER,
#define CALL(name, wait, fd) CALL_##name,
#include "calls.def"
#undef CALL
    CALL_COUNT
};

/* The call that number NR means in ABI; CALL_OTHER when unknown. */
enum call syscalls_lookup(enum abi abi, long nr);

/* "futex", "recvfrom"; "?" for CALL_OTHER. */
const char *syscalls_name(enum call call);

/* What being blocked in it means. */
enum call_wait syscalls_wait(enum call call);

/* Whether argument 0 is a file descriptor. */
bool syscalls_has_fd(enum call call);

/* The ABI of a program from the first LEN bytes of its ELF file (20 are enough). */
enum abi syscalls_abi_from_elf(const unsigned char *ident, size_t len);

#endif

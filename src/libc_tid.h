/*
 * libc_tid.h - where glibc keeps a thread's TID in its thread descriptor (struct pthread, to which
 * pthread_t and the owners of stdio locks point). The library itself tells, for debuggers.
 */
#ifndef LT_LIBC_TID_H
#define LT_LIBC_TID_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "remote.h"

/*
 * Looks in the library that is mapped at BASE (its ELF header) in the process of thread TID for
 * the dynamic symbol _thread_db_pthread_tid, by at most a few hundred reads of its memory through
 * READ. Returns false, and leaves *OFFSET alone, when it is not there (another library, a program
 * linked statically, another word size), or tells nothing that can be right.
 */
bool libc_tid_offset(pid_t tid, uint64_t base,
                     int (*read)(pid_t tid, struct remote_item *items, size_t n), uint32_t *offset);

#endif

/*
 * callcode.h - reading machine code around a call, to tell return addresses from other values on
 * a stack. x86-64; elsewhere nothing is ever a call.
 */
#ifndef LT_CALLCODE_H
#define LT_CALLCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "module.h"

#define CALLCODE_BYTES 8 /* the longest call instruction and one */

enum call_kind {
    CALL_NONE,     /* no call ends there */
    CALL_DIRECT,   /* to TARGET */
    CALL_SLOT,     /* to what the word at TARGET says (through the GOT) */
    CALL_INDIRECT, /* to wherever a register or a computed address says */
};

/* The call instruction that ends before RET, whose CALLCODE_BYTES bytes are CODE. */
enum call_kind callcode_decode(const uint8_t *code, uint64_t ret, uint64_t *target);

/* Whether a call of KIND to TARGET arrives at FUNCTION: directly, through PLT stubs and jumps, or
 * (not known otherwise) indirectly. */
bool callcode_reaches(const struct space *s, enum call_kind kind, uint64_t target,
                      uint64_t function);

/* How far above the stack pointer rbp is while FUNCTION, which keeps it as its frame pointer, has
 * something called, as its first instructions tell. False when they are of another make. */
bool callcode_frame_size(const struct space *s, uint64_t function, uint64_t *size);

/* Whether PC is the trampoline that a signal's handler returns to. On any architecture known here.
 */
bool callcode_is_sigreturn(const struct space *s, uint64_t pc);

/* Whether what stands behind a call, at RET, only ends the thread. */
bool callcode_ends_thread(const struct space *s, uint64_t ret);

#endif

/*
 * gotable.h - the frames of Go code. Go programs have no .eh_frame; their own function table
 * (.gopclntab, which is there in stripped ones too) tells for each instruction how far the stack
 * pointer is from the return address. Go 1.18 and later; tables of older ones are not known.
 */
#ifndef LT_GOTABLE_H
#define LT_GOTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct go_frame {
    uint64_t size;  /* from the stack pointer to the return address */
    bool outermost; /* its stack begins here: the thread's, a goroutine's, or it was changed to */
};

/* The frame of the code at virtual address PC, by the LEN bytes of TABLE; TEXT is the address of
 * the code's section. False when the table does not tell; it is not trusted. */
bool gotable_find(const uint8_t *table, size_t len, uint64_t text, uint64_t pc,
                  struct go_frame *out);

#endif

/*
 * fmt.h - numbers for people, and names made safe.
 *
 * Thread names, paths and symbols come from the target: they may hold escape
 * sequences, newlines or broken UTF-8. Nothing of the target reaches a terminal
 * but through fmt_safe().
 */
#ifndef LT_FMT_H
#define LT_FMT_H

#include <stdbool.h>
#include <stddef.h>

#include "clock.h"

/*
 * Copies SRC (at most SRC_LEN bytes, or up to its NUL) into DST of SIZE bytes, always
 * terminated: control bytes, DEL, backslashes and bytes that are not valid UTF-8 become
 * \n, \t, \\ or \xNN; with ASCII set, everything outside 0x20..0x7e does. C1 control
 * characters and bidirectional overrides (U+202A..202E, U+2066..2069) are escaped too.
 * An escape or a character that does not fit is left out whole. Returns the length.
 */
size_t fmt_safe(char *dst, size_t size, const char *src, size_t src_len, bool ascii);

/* "0.5us" "18.4ms" "3.2s" "5m12s" "3h05m"; at most 6 characters for 0 <= NS < 100 h.
 * A negative NS (unknown) gives "-". Returns DST. */
char *fmt_duration(char *dst, size_t size, double ns);

/* "0" "7.3" "980" "1.5k" "12M": three significant digits and a power of 1000. NaN gives "-". */
char *fmt_si(char *dst, size_t size, double value);

/* "310M": KB kibibytes in powers of 1024, at most 5 characters. NaN gives "-". */
char *fmt_kib(char *dst, size_t size, double kb);

/* VALUE with one decimal below 100 and none from there on ("30.2", "128"). NaN gives "-". */
char *fmt_count(char *dst, size_t size, double value);

/* VALUE with DECIMALS places (0 to 2) and UNIT behind it ("0.6%"), the same in every locale. NaN
 * gives "-". */
char *fmt_fixed(char *dst, size_t size, double value, int decimals, const char *unit);

/* As fmt_duration, for milliseconds; NaN is unknown too. */
char *fmt_msec(char *dst, size_t size, double ms);

/* Text on the terminal, which has been made safe before; the locale (LC_CTYPE) says what is a
 * character and how wide. */

/* Bytes of the character at S, which is not the end of the text, and the cells that it takes: 2 for
 * a double-width one, 0 for a combining one. What the locale does not know is a byte of -1 cells:
 * it stands for 1, but cannot be shown as it is; so with control characters. */
size_t text_next(const char *s, int *cells);
/* Cells that all of S takes. */
int text_cells(const char *s);
/* Cuts S (SIZE bytes of room) to at most WIDTH cells, the last of them the mark of cutting; what
 * fits stays as it is. */
void text_cut(char *s, size_t size, int width, bool ascii);

#endif

/*
 * funcname.h - function names cut to what fits. Those of C++ and Rust templates may be hundreds
 * of cells long, and what tells them apart mostly stands at the end.
 */
#ifndef LT_FUNCNAME_H
#define LT_FUNCNAME_H

#include <stdbool.h>
#include <stddef.h>

/*
 * NAME (demangled, raw bytes) made safe (fmt_safe) and brought to at most WIDTH cells, 0: any. When
 * it is too long, parameters, template arguments and the return type go first (plain_name()), then
 * namespaces from the front, then letters from its end; the mark of cutting (text_cut()) stands for
 * these. Returns DST.
 */
char *funcname_fit(char *dst, size_t size, const char *name, int width, bool ascii);

/* TEXT (raw bytes) made safe, with those of the N NAMES that stand in it (raw as well, none of them
 * empty) brought to at most WIDTH cells each, the longest that matches deciding. Returns DST. */
char *funcname_fit_all(char *dst, size_t size, const char *text, const char *const *names, size_t n,
                       int width, bool ascii);

#endif

/*
 * namematch.h - names of functions brought to the form in which tables list them, and shell
 * patterns for them.
 *
 * Part of the model: pure functions.
 */
#ifndef LT_NAMEMATCH_H
#define LT_NAMEMATCH_H

#include <stdbool.h>
#include <stddef.h>

/*
 * NAME (demangled) without what differs between builds of one function: return type, parameters,
 * template arguments, qualifiers behind them, the hash of Rust and suffixes of compilers
 * (".part.0", " [clone .cold]"). "void std::call_once<void (*)()>(std::once_flag&)" gives
 * "std::call_once", Rust's "<T as U>::f" gives "T::f", Go's "sync.(*Mutex).Lock" stays. Cut to what
 * DST (SIZE bytes, at least 1) holds. Returns its length.
 */
size_t plain_name(char *dst, size_t size, const char *name);

/*
 * The C library's function NAME without the marks of its aliases: leading underscores, "GI_",
 * "IO_", "libc_", "new_", "old_", "isoc99_", "isoc23_", "nptl_", "64", "_chk", a version.
 * "___pthread_cond_timedwait64" gives "pthread_cond_timedwait". Cut as above; returns its length.
 */
size_t c_name(char *dst, size_t size, const char *name);

/* A shell pattern (fnmatch), with what makes a quick answer possible. */
struct pattern {
    const char *text; /* borrowed */
    size_t prefix;    /* bytes before the first special character */
    bool plain;       /* there is none: only the very text matches */
};
struct pattern pattern_of(const char *text);
bool pattern_matches(const struct pattern *p, const char *s);

/*
 * One line of a user's file: a word and what follows, blanks around each removed. '#' at the
 * beginning of a line or behind a blank begins a comment.
 */
struct rule_line {
    const char *at; /* where the next one begins; NULL at the end. To begin with: the text */
    int number;     /* of this line, from 1. To begin with: 0 */
    const char *text;
    size_t len;
};
/* Steps to the next line that holds something; false at the end. */
bool rule_next(struct rule_line *line);
/* Takes the first word off LINE; *LEN 0 when there is none. */
const char *rule_word(struct rule_line *line, size_t *len);

#endif

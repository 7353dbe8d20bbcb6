/*
 * render_path.h - call paths in one line, and stacks that differ in nothing such a line shows.
 */
#ifndef LT_RENDER_PATH_H
#define LT_RENDER_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "snapshot.h"

/*
 * The functions of ST in one line, "write < fflush < flush_log < worker": the innermost one, then
 * the program's own. Of frames that stand together in the C or C++ library or the loader only the
 * outermost is named, which is what the program called; a function that calls itself is named
 * once, and how threads and programs start is left out. At most six; the mark of cutting stands
 * for those behind. Escaped; returns DST.
 */
char *render_path(char *dst, size_t size, const struct snap_stack *st, bool ascii);

/*
 * Fills OUT (room for N) with the N stacks at ST, which are of one role, put together where
 * functions (file and offset where one has no name) and NOTE are equal, however far into a
 * function they were; on a CPU and waiting for one counts as "running". With BRIEF only the
 * functions that render_path() names count. The most frequent come first; frames are those of the
 * first of each. Returns how many remain.
 */
size_t merge_stacks(struct snap_stack *out, const struct snap_stack *st, size_t n, bool brief);

/* Whether two frames are in the same function, or at the same place where that has no name. */
bool same_function(const struct snap_frame *a, const struct snap_frame *b);

/* The file name of PATH, or what there is of it. */
const char *last_part(const char *path);

/* A sentence about S, with long names of functions and locks of S that stand in it shortened. */
char *render_sentence(char *dst, size_t size, const struct snapshot *s, const char *text,
                      bool ascii);

#endif

/*
 * render.h - a snapshot as plain text and as JSON.
 */
#ifndef LT_RENDER_H
#define LT_RENDER_H

#include <stdbool.h>
#include <stdio.h>

#include "column.h"
#include "snapshot.h"

struct text_style {
    const struct column_set *columns;
    enum column sort;
    bool ascii;
};

/*
 * One refresh in the look of the screen: header, verdict, process lines, states, the lock
 * list (with the code that the first lock is about, where that is contended and no stacks follow),
 * chains of waiting, one quiet line that folds the sync objects ("sync: 200 threads on 3
 * objects (cond 198, join 1, sem 1)"), and what is degraded; where the snapshot has the stacks of
 * all threads, these and the locks'. Ends with an empty line. Errors of the stream are left to the
 * caller (ferror).
 */
void render_text(FILE *out, const struct snapshot *s, const struct text_style *style);

/* The lines above the lock list, for the screen too: "lock-top  mariadbd[16147]  44 threads
 * 10s  50/s  self 0.6%  stops 12  16:07:25" (stops when there were any), the process line and the
 * states line. Each returns DST, escaped, no newline. PROCESS_INDEX says which process; -1: all of them summed. */
char *render_header(char *dst, size_t size, const struct snapshot *s, bool ascii);
char *render_process(char *dst, size_t size, const struct snapshot *s, int process_index);
char *render_states(char *dst, size_t size, const struct snapshot *s, int process_index);
/* "CRITICAL 31 threads ...": the word says what the screen's colour says; "" without a verdict. */
char *render_verdict(char *dst, size_t size, const struct snapshot *s, bool ascii);
/* What stands in place of an empty list of locks, and of chains. */
const char *render_no_locks(void);
char *render_no_chains(char *dst, size_t size, const struct snapshot *s);
char *render_sync_fold(char *dst, size_t size, const struct snapshot *s);
/* "degraded: WHY" for the INDEX-th reason; -1: all of them in one line. */
char *render_degraded(char *dst, size_t size, const struct snapshot *s, int index, bool ascii);

/* What to say when nothing is left to watch, from the last snapshot S (NULL: there was none):
 * "process 123 (x) has exited", "all 3 processes have exited". ASCII, returns DST. */
char *render_ended(char *dst, size_t size, const struct snapshot *s);

/* One JSON object (schema lock-top/1) and a newline. Names that are not UTF-8 are escaped as
 * fmt_safe does. Returns 0, or -1 when it could not be built or written. */
int render_json(FILE *out, const struct snapshot *s);

#endif

/*
 * column.h - one table of columns and one getter per cell feed every table: batch text and
 * screen. No curses here.
 */
#ifndef LT_COLUMN_H
#define LT_COLUMN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "snapshot.h"

enum column {
#define COLUMN(id, name, header, width, type, help) COL_##id,
#include "columns.def"
#undef COLUMN
    COLUMNS_COUNT
};

struct column_info {
    const char *name, *header, *help;
    int width;  /* in cells, without the gap; 0: the rest of the line */
    bool right; /* numbers stand to the right */
};
const struct column_info *column_info(enum column c);

/* Writes the table of all columns, for "-o help". */
void column_list(FILE *out);

/* The column of that name or header (upper or lower case), or -1. */
int column_by_name(const char *name, size_t len);

/* A choice of columns, in order. */
struct column_set {
    enum column cols[COLUMNS_COUNT];
    size_t n;
    int screen; /* cells of the screen it was made for; 0: plain widths */
};
/* What fits a screen of WIDTH cells; with MANY processes their PIDs too. */
void column_set_default(struct column_set *set, int width, bool many);
/* From "wait,10s,lock", or "+share" (and "+a,+b") on top of the default for WIDTH. Returns false
 * and a sentence in ERR when a name is unknown. Columns named twice count once. */
bool column_set_parse(struct column_set *set, const char *list, int width, bool many, char *err,
                      size_t n);

/* The set to show S in (NULL: nothing has been seen yet) on WIDTH cells: by LIST, which
 * column_set_parse() has taken before, or the default with NULL. Several processes are MANY. */
void column_set_choose(struct column_set *set, const char *list, int width,
                       const struct snapshot *s);

/* Cells for the I-th column of SET, without the gap: that of column_info(), or more where its
 * screen has room. 0 only for the last column: it takes the rest of the line. */
int column_width(const struct column_set *set, size_t i);

/* The cell as text, escaped and not padded or cut; unknown is "-". Returns DST. */
char *column_text(char *dst, size_t size, enum column c, const struct snap_lock *l, bool ascii);

/* The same fitted to WIDTH cells: padded, or cut with "~" (ASCII) or an ellipsis. A holder loses
 * letters of its name first, so that its TID stays whole, and a kind keeps its mark of doubt. Of a
 * lock what tells more stands alone where both have no room: its name, but the function before an
 * address or a place. WIDTH 0: as column_text. With L NULL the header instead. S: what L is of, so
 * that an age can say that it is older (age_text()); or NULL. Returns DST. */
char *column_cell(char *dst, size_t size, enum column c, const struct snapshot *s,
                  const struct snap_lock *l, int width, bool ascii);

/* A lock as sentences call it, kind before name: "mutex "jobs" in queue_push", "mutex 0x7f32 in
 * queue_push", "InnoDB row lock in lock_wait" (its name says what it is). Escaped; returns DST. */
char *column_title(char *dst, size_t size, const struct snap_lock *l, bool ascii);

/* How long something has lasted (ms): "3.2s", or ">3.2s" when it is as old as the watching of S,
 * so that it may have begun long before. "-" unknown. Returns DST. */
char *age_text(char *dst, size_t size, const struct snapshot *s, double ms);

/* For qsort-like use: numbers fall, text rises, unknown comes last; ties go to the id, so the
 * order is stable. <0: A first. */
int column_compare(enum column c, const struct snap_lock *a, const struct snap_lock *b);

/* Fills OUT (room for s->nlocks) with the locks to list, sorted by C: class lock, filelock and
 * kernel; sync ones only with ALL. Returns how many. */
size_t column_sorted(const struct snapshot *s, enum column c, bool all,
                     const struct snap_lock **out);

#endif

/*
 * keys.h - which key does what on which page. A table; nothing is drawn here.
 */
#ifndef LT_KEYS_H
#define LT_KEYS_H

#include <stddef.h>

#include "state.h"

/* One row of keys.def. */
struct key {
    enum action action;
    unsigned pages;        /* bit 1 << enum page */
    const char *shown;     /* the keys, for the help page: "F6 s" */
    const char *bar_key;   /* in the bottom bar, NULL: not there */
    const char *bar_label; /* NULL like BAR_KEY */
    const char *help;
    int codes[6]; /* as getch() gives them; ends with 0 */
};

/* The table, in the order of the help page. */
const struct key *keys_table(size_t *n);

/* Where keys work: the sections of the help page, in its order. Each row of the table belongs to
 * one of them. */
struct key_place {
    unsigned pages;
    const char *title;
};
const struct key_place *keys_places(size_t *n);

/* What CODE means on PAGE; ACTION_NONE when nothing. */
enum action keys_action(enum page page, int code);

#endif

/*
 * ui.h - the live screen.
 */
#ifndef LT_UI_H
#define LT_UI_H

#include <stdbool.h>
#include <stddef.h>

#include "../src/column.h"
#include "../src/monitor.h"

struct ui_config {
    const char *columns; /* a LIST that column_set_parse() has taken; NULL: what fits the width */
    enum column sort;
    long iterations; /* refreshes before ending; 0: until the user quits or the target ends */
    bool no_color, ascii;
};

/*
 * Runs until the user quits, a signal asks to end, or every process has ended. Restores the
 * terminal on every way out. Returns an exit status; a message that should stand on the
 * terminal afterwards is left in MSG ("" for none). Returns -1 when the terminal cannot show a
 * screen (unknown TERM, no cursor addressing): the caller then falls back to text.
 */
int ui_run(struct monitor *m, const struct ui_config *cfg, char *msg, size_t msg_size);

#endif

/*
 * batch.h - snapshots to standard output as they come: plain text or JSON lines.
 */
#ifndef LT_BATCH_H
#define LT_BATCH_H

#include <stdbool.h>

#include "monitor.h"
#include "render.h"

struct batch_config {
    bool json;
    long iterations; /* refreshes before ending; 0: no end */
    const char *columns; /* a LIST that column_set_parse() has taken, or NULL */
    enum column sort;
    bool ascii;
};

/*
 * Writes snapshots until the iterations are done, the target has ended (a message on stderr
 * says so), or SIGINT, SIGTERM or SIGHUP comes, whether or not the reader takes any more then. A
 * reader that has gone away (EPIPE) is a normal end. Returns an exit status.
 */
int batch_run(struct monitor *m, const struct batch_config *cfg);

#endif

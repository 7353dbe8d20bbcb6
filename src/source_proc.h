/*
 * source_proc.h - thread facts from /proc and process_vm_readv: nothing is attached, nothing
 * is stopped.
 *
 * For each thread two small files are kept open. schedstat is read first: a thread that was
 * blocked at the last look and has not been put on a CPU since is still in the same call, so
 * its (dearer) syscall file is not read again.
 */
#ifndef LT_SOURCE_PROC_H
#define LT_SOURCE_PROC_H

#include "inspector.h"
#include "source.h"
#include "source_words.h"
#include "target.h"

struct source_proc_config {
    const char *root;      /* "/proc", or a captured tree */
    struct target *target; /* borrowed; or NULL and PIDS */
    const pid_t *pids;     /* borrowed, fixed list */
    size_t npids;
    memory_reader read_memory; /* remote_read */
    bool events;           /* tracepoints count attempts at locks on files */
    struct inspector *inspector; /* borrowed; takes stacks and names. NULL: there are none */
};

/* Returns NULL and *ERR (an errno) when ROOT cannot be opened. */
struct source *source_proc_new(const struct source_proc_config *cfg, int *err);

/*
 * Tells beforehand whether anything can be learnt of the processes: true when at least one may
 * be looked into. Otherwise false, with the sentence for the user in WHY.
 */
bool source_proc_permitted(struct source *s, char *why, size_t size);

#endif

/*
 * source_bystanders.h - threads that were asked for as holders and whose process does not map the
 * file: they bear the TID of a former owner. They are not asked again for a while. Part of
 * source_proc; nothing else includes it.
 */
#ifndef LT_SOURCE_BYSTANDERS_H
#define LT_SOURCE_BYSTANDERS_H

#include "sample.h"

#define BYSTANDERS_MAX 64

struct bystanders {
    int rootfd;
    struct bystander {
        pid_t tid;
        uint64_t start_ticks;
        struct file_id file;
        nsec_t until;
    } known[BYSTANDERS_MAX];
    size_t next; /* its place is taken next */
};

/* Thread TID, the one that now has this number, has nothing to do with FILE. */
void bystanders_add(struct bystanders *b, pid_t tid, struct file_id file, nsec_t now);

/* Whether that was found of it lately. */
bool bystanders_has(const struct bystanders *b, pid_t tid, struct file_id file, nsec_t now);

#endif

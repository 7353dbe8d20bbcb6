#include "source_bystanders.h"

#include <stdio.h>

#include "procfs.h"

#define BYSTANDER_FOR (10 * NSEC_PER_SEC)

/* 0 when it is gone. */
static uint64_t start_of_thread(int rootfd, pid_t tid)
{
    char path[32];
    struct procfs_stat st;

    snprintf(path, sizeof(path), "%d/stat", tid);
    return procfs_read_stat(rootfd, path, &st) == 0 ? st.start_ticks : 0;
}

void bystanders_add(struct bystanders *b, pid_t tid, struct file_id file, nsec_t now)
{
    b->known[b->next] = (struct bystander){
        .tid = tid,
        .start_ticks = start_of_thread(b->rootfd, tid),
        .file = file,
        .until = now + BYSTANDER_FOR,
    };
    b->next = (b->next + 1) % BYSTANDERS_MAX;
}

bool bystanders_has(const struct bystanders *b, pid_t tid, struct file_id file, nsec_t now)
{
    for (size_t i = 0; i < BYSTANDERS_MAX; i++) {
        const struct bystander *k = &b->known[i];
        if (k->tid == tid && k->file.inode == file.inode && k->file.dev == file.dev &&
            now < k->until)
            return start_of_thread(b->rootfd, tid) == k->start_ticks;
    }
    return false;
}

#include "source_links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "procfs.h"
#include "xalloc.h"

#define LINK_TRUSTED NSEC_PER_SEC /* a descriptor's link is believed for so long */

static bool has_prefix(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

static bool is_terminal(const char *path, dev_t device)
{
    /* 4 and 5: consoles and the process's own terminal; 136 to 143: the slaves of pts. */
    unsigned m = major(device);

    return m == 4 || m == 5 || (m >= 136 && m <= 143) || has_prefix(path, "/dev/tty") ||
           has_prefix(path, "/dev/pts/") || has_prefix(path, "/dev/console");
}

/* What stands at PATH, for which REL is the link: a FIFO or a device has a path like a file. */
static enum fd_kind kind_of_file(const struct look *l, const char *rel, const char *path)
{
    struct stat st;

    if (procfs_stat_link(l->dirfd, rel, &st) != 0)
        return is_terminal(path, 0) ? FD_TTY : FD_FILE;
    switch (st.st_mode & S_IFMT) {
    case S_IFIFO:
        return FD_PIPE;
    case S_IFSOCK:
        return FD_SOCKET;
    case S_IFCHR:
        return is_terminal(path, st.st_rdev) ? FD_TTY : FD_UNKNOWN;
    default:
        return FD_FILE;
    }
}

static enum fd_kind fd_kind_of(const struct look *l, const char *rel, const char *path)
{
    if (has_prefix(path, "socket:"))
        return FD_SOCKET;
    if (has_prefix(path, "pipe:"))
        return FD_PIPE;
    if (has_prefix(path, "anon_inode:"))
        return FD_EVENT;
    return path[0] == '/' ? kind_of_file(l, rel, path) : FD_UNKNOWN;
}

static void read_link(struct thread_fact *f, struct thread_files *k, const struct look *l)
{
    char rel[64], path[4096];

    if (*l->links_left <= 0)
        return;
    (*l->links_left)--;
    k->linked_at = l->now;
    snprintf(rel, sizeof(rel), "task/%d/fd/%d", f->tid, f->fd);
    if (procfs_readlink(l->dirfd, rel, path, sizeof(path)) < 0)
        return;
    f->fd_path = k->fd_path = xstrdup(path);
    f->fd_kind = fd_kind_of(l, rel, path);
}

void links_take(struct thread_fact *f, struct thread_files *k, const struct look *l)
{
    int fd = (int)f->arg[0];

    if (f->fd == fd && f->fd_path && l->now - k->linked_at < LINK_TRUSTED)
        return;
    f->fd = fd;
    f->fd_kind = FD_UNKNOWN;
    free(k->fd_path);
    f->fd_path = k->fd_path = NULL;
    k->linked_at = 0;
}

static bool lacks_link(const struct thread_fact *f, const struct thread_files *k,
                       const struct look *l)
{
    return f->fd >= 0 && !f->fd_path && l->now - k->linked_at >= LINK_TRUSTED;
}

void links_read_first(struct threads *t, size_t i, const struct look *l)
{
    struct thread_fact *f = &t->facts[i];

    if (!lacks_link(f, &t->files[i], l))
        return;
    if (syscalls_wait(f->call) == WAIT_FD || f->wants.kind != FILELOCK_NONE)
        read_link(f, &t->files[i], l);
    else
        t->unlinked = true;
}

void links_read_rest(struct threads *t, const struct look *l)
{
    for (size_t i = 0; t->unlinked && i < t->n && *l->links_left > 0; i++) {
        if (lacks_link(&t->facts[i], &t->files[i], l))
            read_link(&t->facts[i], &t->files[i], l);
    }
    t->unlinked = false;
}

void links_none(struct thread_fact *f)
{
    f->fd = -1;
    f->fd_kind = FD_UNKNOWN;
    f->fd_path = NULL;
}

#include "inspect_files.h"

#include <unistd.h>

#include "procfs.h"
#include "sockets.h"
#include "xalloc.h"

struct inspection *inspect_files(int rootfd, const struct inspect_job *job)
{
    struct inspection *i = xcalloc(1, sizeof(*i));

    i->kind = INSPECT_FILES;
    filescan_look(rootfd, job->wish, &i->files); /* what cannot be read gives an empty result */
    return i;
}

struct inspection *inspect_socket(int rootfd, const struct inspect_job *job)
{
    struct inspection *i = xcalloc(1, sizeof(*i));
    char text[256];
    int dirfd = procfs_open_pid(rootfd, job->pid);

    i->kind = INSPECT_SOCKET;
    i->socket = (struct socket_fact){.pid = job->pid, .inode = job->addr};
    if (dirfd < 0)
        return i;
    if (sockets_find(dirfd, job->addr, text, sizeof(text)) == 0)
        i->socket.text = arena_strdup(&i->arena, text);
    close(dirfd);
    return i;
}

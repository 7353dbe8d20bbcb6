/*
 * inode_lock - "threads 6" write to one file, "file PATH", synchronously and over the same bytes,
 * for ever: they sleep in the kernel on the inode's lock and in its journal.
 */
#include "workload.h"

static const char *path;

static void write_on(int i)
{
    static char block[1 << 20];
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (i % 2 ? O_DSYNC : 0), 0600);

    wl_check(fd >= 0, path);
    for (;;) {
        wl_check(pwrite(fd, block, sizeof block, 0) > 0, "pwrite");
        if (i % 2 == 0)
            fsync(fd);
    }
}

int main(int argc, char **argv)
{
    wl_start(argc, argv);
    int n = (int)wl_arg("threads", 6);
    path = wl_arg_text("file", NULL);
    wl_check(path, "which file? give: file PATH");
    struct wl_thread *t = wl_threads(n);
    for (int i = 0; i < n; i++)
        wl_spawn(&t[i], write_on, i, SYS_pwrite64);
    wl_say("{\"pid\":%d,\"path\":\"%s\",\"threads\":%d}\n", getpid(), path, n + 1);
    return wl_serve(NULL);
}

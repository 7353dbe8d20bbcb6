/*
 * flock - threads wait for a flock() that a thread of the same process holds; each has an open
 * file of its own. "file PATH" names the file.
 */
#include <sys/file.h>

#include "workload.h"

static const char *path;

static int open_file(void)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    wl_check(fd >= 0, path);
    return fd;
}

static void setup(struct wl_scene *s)
{
    s->path = path = wl_arg_text("file", NULL);
    wl_check(path, "which file? give: file PATH");
}

static void hold(void)
{
    int fd = open_file();
    flock(fd, LOCK_EX);
    wl_rest();
    close(fd);
}

static void waiter(int i)
{
    int fd = open_file();
    flock(fd, i % 2 ? LOCK_EX : LOCK_SH);
    close(fd);
}

static const char *mode(int i)
{
    return i % 2 ? "exclusive" : "shared";
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "flock",
                         .class = "filelock",
                         .call = SYS_flock,
                         .setup = setup,
                         .hold = hold,
                         .wait = waiter,
                         .mode = mode};
    return wl_run(argc, argv, &s);
}

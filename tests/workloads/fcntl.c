/*
 * fcntl - threads wait for a POSIX record lock that a child process holds: threads of one process
 * never exclude each other there. "file PATH" names the file.
 */
#include "workload.h"

static const char *path;
static int ready[2];

static int open_file(void)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    wl_check(fd >= 0, path);
    return fd;
}

static void take(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    wl_check(fcntl(fd, F_SETLKW, &whole) == 0, "F_SETLKW");
}

static void hold_in_child(void)
{
    take(open_file());
    wl_check(write(ready[1], "r", 1) == 1, "write");
    wl_rest();
}

static void setup(struct wl_scene *s)
{
    char byte;
    s->path = path = wl_arg_text("file", NULL);
    wl_check(path, "which file? give: file PATH");
    wl_check(pipe2(ready, O_CLOEXEC) == 0, "pipe2");
    wl_holder(wl_fork(hold_in_child));
    wl_check(read(ready[0], &byte, 1) == 1, "read");
}

static void waiter(int i)
{
    (void)i;
    take(open_file());
}

static const char *mode(int i)
{
    (void)i;
    return "exclusive";
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "posix",
                         .class = "filelock",
                         .call = SYS_fcntl,
                         .setup = setup,
                         .wait = waiter,
                         .mode = mode};
    return wl_run(argc, argv, &s);
}

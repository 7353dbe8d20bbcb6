/*
 * libc_stdio - the lock of a stdio stream: stdout, whose lock is the C library's own variable, or
 * with "file 1" a stream that was opened, whose lock lies on the heap. The stream names its holder
 * by the address of a thread descriptor, not by a TID.
 */
#include "workload.h"

static FILE *stream;

static void setup(struct wl_scene *s)
{
    stream = wl_arg("file", 0) ? fopen("/dev/null", "w") : stdout;
    wl_check(stream, "fopen");
    s->address = stream->_lock;
}

static void hold(void)
{
    flockfile(stream);
    wl_rest();
    funlockfile(stream);
}

static void waiter(int i)
{
    fputc('a' + i % 26, stream);
}

int main(int argc, char **argv)
{
    struct wl_scene s = {
        .kind = "libc", .class = "lock", .setup = setup, .hold = hold, .wait = waiter};
    return wl_run(argc, argv, &s);
}

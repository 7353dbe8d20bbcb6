/*
 * hostile_names - a contended mutex among threads whose names try to break whoever prints them:
 * escape sequences, newlines, broken UTF-8, a false stat line, nothing at all.
 */
#include "workload_mutex.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const char *const names[] = {"\033[31mred\033[2J", "two\nlines\n", "\xff\xfe\xc3(",
                                    ") R 1 1 (", ""};

static void hold(void)
{
    prctl(PR_SET_NAME, "h\033]0;x\a\r\n\t\"\\");
    wl_mutex_hold();
}

static void waiter(int i)
{
    prctl(PR_SET_NAME, names[i % 5]);
    wl_mutex_wait(i);
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "mutex",
                         .class = "lock",
                         .address = &mutex,
                         .records_owner = true,
                         .hold = hold,
                         .wait = waiter};
    prctl(PR_SET_NAME, "a\033[5m\nb\x80\x9b");
    wl_mutex = &mutex;
    return wl_run(argc, argv, &s);
}

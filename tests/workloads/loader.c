/*
 * loader - the dynamic loader's lock: one thread sleeps in its dl_iterate_phdr callback, the
 * others want to iterate too. It is a real recursive mutex with an owner.
 */
#include <link.h>

#include "workload.h"

static int sleep_here(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)info;
    (void)size;
    (void)arg;
    wl_rest();
    return 1;
}

static int nothing(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)info;
    (void)size;
    (void)arg;
    return 1;
}

static void hold(void)
{
    dl_iterate_phdr(sleep_here, NULL);
}

static void waiter(int i)
{
    (void)i;
    dl_iterate_phdr(nothing, NULL);
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "mutex-recursive",
                         .class = "lock",
                         .records_owner = true,
                         .hold = hold,
                         .wait = waiter};
    return wl_run(argc, argv, &s);
}

/*
 * loader_chain - the dynamic loader's two locks: "profiler" sleeps in its dl_iterate_phdr callback
 * and so holds the one, "opener" loads a library, holds the other and wants the first, and
 * "waiters 2" threads want to load libraries too. Both are real recursive mutexes.
 */
#include <dlfcn.h>
#include <link.h>

#include "workload.h"

/* Of the C library's own, and not loaded by programs like this one. */
static const char *const libraries[] = {"libresolv.so.2", "libBrokenLocale.so.1",
                                        "libnss_compat.so.2"};
static const char *library;
static atomic_bool go; /* no thread can be started once a library is being loaded */

static int sleep_in_callback(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)info;
    (void)size;
    (void)arg;
    wl_rest();
    return 1;
}

static void profiler(int i)
{
    (void)i;
    prctl(PR_SET_NAME, "profiler");
    dl_iterate_phdr(sleep_in_callback, NULL);
}

static void load(int i)
{
    (void)i;
    while (!go)
        wl_nap(1000000);
    dlopen(library, RTLD_NOW | RTLD_LOCAL);
}

static void opener(int i)
{
    (void)i;
    prctl(PR_SET_NAME, "opener");
    dlopen(library, RTLD_NOW | RTLD_LOCAL);
}

static void choose_library(void)
{
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && !library; i++) {
        void *there = dlopen(libraries[i], RTLD_NOW | RTLD_NOLOAD);
        void *can = there ? NULL : dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
        if (can && dlclose(can) == 0 && !dlopen(libraries[i], RTLD_NOW | RTLD_NOLOAD))
            library = libraries[i];
    }
    if (!library)
        wl_skip("no library to load", 0);
}

int main(int argc, char **argv)
{
    static struct wl_thread first, second;
    uint64_t inner = 0, outer = 0;

    wl_start(argc, argv);
    int n = (int)wl_arg("waiters", 2);
    struct wl_thread *t = wl_threads(n);
    choose_library();
    wl_prepare_rest(WL_NANOSLEEP);
    for (int i = 0; i < n; i++)
        wl_spawn(&t[i], load, i, SYS_futex);
    wl_spawn(&first, profiler, 0, SYS_nanosleep);
    wl_settle(getpid(), &first, 1);
    wl_spawn(&second, opener, 0, SYS_futex);
    wl_settle(getpid(), &second, 1);
    go = true;
    wl_settle(getpid(), t, n);
    wl_call_of(getpid(), second.tid, &inner, NULL);
    wl_call_of(getpid(), t[0].tid, &outer, NULL);
    if (inner == outer)
        wl_skip("this C library has one lock for both", 0);
    wl_say("{\"pid\":%d,\"kind\":\"mutex-recursive\",\"class\":\"lock\",\"inner\":\"0x%llx\","
           "\"outer\":\"0x%llx\",\"profiler_tid\":%d,\"opener_tid\":%d,\"waiter_tids\":%s,"
           "\"waiters\":%d,\"threads\":%d}\n",
           getpid(), (unsigned long long)inner, (unsigned long long)outer, first.tid, second.tid,
           wl_tids(t, n), n, n + 3);
    return wl_serve(NULL);
}

/*
 * lock_places - contended mutexes in all the places where a lock can lie, one waiter each; one
 * thread holds them all and sleeps. "library PATH" is a shared library whose library_lock_place()
 * gives the address of a lock in it, "file PATH" a file to map and put a lock into.
 */
#include <dlfcn.h>

#include "workload.h"

#define MAX_PLACES 16
#define IN_FILE    0x140 /* of the lock, in the file */

struct slot {
    char before[24];
    pthread_mutex_t lock;
};

static pthread_mutex_t lock_in_data = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t lock_in_bss;
static struct slot table_of_slots[8];
static struct place {
    const char *what, *expect; /* the name: NULL none, or what it begins with */
    pthread_mutex_t *lock;
    bool shared;
} places[MAX_PLACES];
static int nplaces;
static struct wl_thread holder;

static void add(const char *what, const char *expect, pthread_mutex_t *lock, bool shared)
{
    places[nplaces++] = (struct place){what, expect, lock, shared};
}

static void add_static_local(void)
{
    static pthread_mutex_t local_guard;
    add("static local", "local_guard", &local_guard, false);
}

static void add_array_element(void)
{
    static char expect[64];
    pthread_mutex_t *m = &table_of_slots[3].lock;
    snprintf(expect, sizeof expect, "table_of_slots+0x%zx",
             (size_t)((char *)m - (char *)table_of_slots));
    add("array", expect, m, false);
}

static void add_anonymous(void)
{
    char *p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    wl_check(p != MAP_FAILED, "mmap");
    add("anonymous", NULL, (pthread_mutex_t *)(p + 4096), false);
}

static void add_library(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        wl_end(WL_EXIT_BROKEN, dlerror(), 0);
    pthread_mutex_t *(*place)(void);
    *(void **)&place = dlsym(library, "library_lock_place");
    wl_check(place, "dlsym");
    add("library", "lock_of_library", place(), false);
}

static void add_file(const char *path)
{
    static char expect[512];
    const char *base = strrchr(path, '/');
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    wl_check(fd >= 0 && ftruncate(fd, 8192) == 0, path);
    char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    wl_check(p != MAP_FAILED, "mmap");
    snprintf(expect, sizeof expect, "%s+0x%x", base ? base + 1 : path, IN_FILE);
    add("file", expect, (pthread_mutex_t *)(p + IN_FILE), true);
}

static void init(const struct place *p)
{
    pthread_mutexattr_t attr;
    if (p->lock == &lock_in_data)
        return;
    pthread_mutexattr_init(&attr);
    if (p->shared)
        pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    wl_zero(pthread_mutex_init(p->lock, &attr), "pthread_mutex_init");
}

static void hold(int arg)
{
    pthread_mutex_t local;
    (void)arg;
    add("thread stack", "", &local, false);
    for (int i = 0; i < nplaces; i++) {
        init(&places[i]);
        pthread_mutex_lock(places[i].lock);
    }
    wl_rest();
}

static void waiter(int i)
{
    pthread_mutex_lock(places[i].lock);
}

static void item(FILE *out, int i, const void *arg)
{
    const struct place *p = &places[i];
    (void)arg;
    fprintf(out, "{\"place\":\"%s\",\"address\":\"0x%llx\",\"name\":%s%s%s}", p->what,
            (unsigned long long)(uintptr_t)p->lock, p->expect ? "\"" : "",
            p->expect ? p->expect : "null", p->expect ? "\"" : "");
}

int main(int argc, char **argv)
{
    pthread_mutex_t in_main;

    wl_start(argc, argv);
    add("data", "lock_in_data", &lock_in_data, false);
    add("bss", "lock_in_bss", &lock_in_bss, false);
    add_static_local();
    add_array_element();
    add("heap", "[heap]+0x", malloc(sizeof(pthread_mutex_t)), false);
    add("main stack", "[stack]+0x", &in_main, false);
    add_anonymous();
    if (wl_arg_text("library", NULL))
        add_library(wl_arg_text("library", NULL));
    if (wl_arg_text("file", NULL))
        add_file(wl_arg_text("file", NULL));
    wl_prepare_rest(WL_NANOSLEEP);
    wl_spawn(&holder, hold, 0, SYS_nanosleep);
    wl_settle(getpid(), &holder, 1);
    struct wl_thread *t = wl_threads(nplaces);
    for (int i = 0; i < nplaces; i++)
        wl_spawn(&t[i], waiter, i, SYS_futex);
    wl_settle(getpid(), t, nplaces);
    wl_say("{\"pid\":%d,\"class\":\"lock\",\"locks\":%s,\"waiters\":1,\"waiter_tids\":%s,"
           "\"holder_tid\":%d,\"threads\":%d}\n",
           getpid(), wl_list(nplaces, item, NULL), wl_tids(t, nplaces), holder.tid, nplaces + 2);
    return wl_serve(NULL);
}

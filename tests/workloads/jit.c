/*
 * jit - machine code made at run time, known by name only through /tmp/perf-PID.map: it calls back
 * into the program, which waits for a mutex. Whoever starts it removes the map.
 */
#include "workload_mutex.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char map_path[64];
static void (*jit_outer)(void (*call_back)(void));

__attribute__((noinline)) static void called_back(void)
{
    wl_mutex_wait(0);
    __asm__ volatile("" ::: "memory");
}

static void waiter(int i)
{
    (void)i;
    jit_outer(called_back);
}

/* A function that calls what its argument says, and one that calls that: both with a frame
 * pointer, as such compilers do. */
static void compile(void)
{
#ifdef __x86_64__
    static const unsigned char inner[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    unsigned char outer[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xb8, 0,    0,    0,
                             0,    0,    0,    0,    0,    0xff, 0xd0, 0x5d, 0xc3};
    char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    wl_check(code != MAP_FAILED, "mmap");
    char *first = code + 64, *second = code + 128;
    memcpy(first, inner, sizeof inner);
    memcpy(outer + 6, &first, sizeof first);
    memcpy(second, outer, sizeof outer);
    wl_check(mprotect(code, 4096, PROT_READ | PROT_EXEC) == 0, "mprotect");
    *(void **)&jit_outer = second;

    snprintf(map_path, sizeof map_path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(map_path, "w");
    wl_check(map, map_path);
    fprintf(map, "%llx %zx LazyCompile:*take shop.js:12\n", (unsigned long long)(uintptr_t)first,
            sizeof inner);
    fprintf(map, "%llx %zx LazyCompile:*serve shop.js:34\n", (unsigned long long)(uintptr_t)second,
            sizeof outer);
    fclose(map);
#else
    wl_skip("no machine code for this architecture", 0);
#endif
}

static void setup(struct wl_scene *s)
{
    (void)s;
    compile();
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "mutex",
                         .class = "lock",
                         .address = &mutex,
                         .records_owner = true,
                         .setup = setup,
                         .hold = wl_mutex_hold,
                         .wait = waiter};
    wl_mutex = &mutex;
    return wl_run(argc, argv, &s);
}

/*
 * stacks - threads that wait for one mutex, each through other code: calls of ordinary functions,
 * big frames, deep recursion, callbacks of the C library, signal handlers. The truth tells for
 * each which functions of this program are on its stack, innermost first.
 */
#include <alloca.h>

#include "workload.h"

/* Neither inlined nor cloned, and no tail calls: what the source says is on the stack. */
#if defined(__has_attribute) && __has_attribute(noipa)
#define FRAME __attribute__((noipa))
#else
#define FRAME __attribute__((noinline))
#endif
#define STAY() __asm__ volatile("" ::: "memory")

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local struct wl_thread *self;
static struct wl_thread *threads;

FRAME static void level1(void)
{
    pthread_mutex_lock(&mutex);
    STAY();
    pthread_mutex_unlock(&mutex);
}

FRAME static long level2(long a)
{
    level1();
    STAY();
    return a + 1;
}

FRAME static long level3(long a, long b)
{
    long x = level2(a * b);
    STAY();
    return x + b;
}

FRAME static double level4(double a)
{
    double x = (double)level3((long)a, 3);
    STAY();
    return x * a;
}

FRAME static void level5(void)
{
    volatile double x = level4(2.5);
    STAY();
    (void)x;
}

FRAME static void level6(void)
{
    level5();
    STAY();
}

FRAME static void plain(void)
{
    level6();
    STAY();
}

FRAME static void big_frame(void)
{
    volatile char room[20000];
    room[0] = room[19999] = 1;
    level1();
    STAY();
    room[1] = 2;
}

FRAME static void variable_frame(void)
{
    size_t n = 1000 + (size_t)self->arg * 16;
    volatile char *room = alloca(n);
    room[0] = 1;
    level2(1);
    STAY();
    room[n - 1] = 2;
}

FRAME static long recursion(long n)
{
    long x = n > 1 ? recursion(n - 1) : level2(n);
    STAY();
    return x + n;
}

FRAME static void deep(void)
{
    recursion(30);
    STAY();
}

FRAME static int compare(const void *a, const void *b)
{
    static _Thread_local bool once;
    if (!once)
        level1();
    once = true;
    STAY();
    return *(const int *)a - *(const int *)b;
}

FRAME static void sorting(void)
{
    int n[] = {3, 1, 2};
    qsort(n, 3, sizeof *n, compare);
    STAY();
}

FRAME static void on_signal(int sig)
{
    (void)sig;
    level1();
    STAY();
}

/* The handler interrupts either a system call or the program's own instructions. */
FRAME static void in_signal(void)
{
    pthread_kill(pthread_self(), SIGUSR2);
    STAY();
}

FRAME static void spinning(void)
{
    for (volatile bool on = true; on;)
        ;
}

static void on_alternate(int sig)
{
    on_signal(sig);
    STAY();
}

FRAME static void interrupted(void)
{
    spinning();
    STAY();
}

static void use_alternate_stack(void)
{
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    wl_check(stack.ss_sp && sigaltstack(&stack, NULL) == 0, "sigaltstack");
}

FRAME static void many_arguments(int a, int b, int c, int d, int e, int f, int g, int h)
{
    char text[64];
    snprintf(text, sizeof text, "%d%d%d%d%d%d%d%d", a, b, c, d, e, f, g, h);
    level2(a);
    STAY();
}

FRAME static void arguments(void)
{
    many_arguments(1, 2, 3, 4, 5, 6, 7, 8);
    STAY();
}

static const struct shape {
    void (*run)(void);
    bool signalled;
    const char *names; /* innermost first */
} shapes[] = {
    {plain, false, "level1 level2 level3 level4 level5 level6 plain"},
    {big_frame, false, "level1 big_frame"},
    {variable_frame, false, "level1 level2 variable_frame"},
    {deep, false, "level1 level2 recursion recursion recursion"},
    {sorting, false, "level1 compare"},
    {in_signal, false, "level1 on_signal"},
    {interrupted, true, "level1 on_signal on_alternate spinning interrupted"},
    {arguments, false, "level1 level2 many_arguments arguments"},
};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

FRAME static void start_shape(int i)
{
    self = &threads[i];
    if (shapes[i].signalled)
        use_alternate_stack();
    shapes[i].run();
    STAY();
}

static void item(FILE *out, int i, const void *arg)
{
    const struct wl_thread *t = arg;
    fprintf(out, "{\"tid\":%d,\"names\":\"%s\",\"outermost\":\"start_shape\"}", t[i].tid,
            shapes[i].names);
}

/* Both C libraries may still be on the way to the loop when the thread's number is known. */
static void interrupt(const struct wl_thread *t)
{
    while (wl_call_of(getpid(), t->tid, NULL, NULL) != SYS_futex) {
        wl_nap(20000000);
        pthread_kill(t->thread, SIGURG);
    }
}

int main(int argc, char **argv)
{
    struct sigaction act = {.sa_handler = on_signal};
    struct sigaction alternate = {.sa_handler = on_alternate, .sa_flags = SA_ONSTACK};

    wl_start(argc, argv);
    threads = wl_threads(SHAPES);
    sigemptyset(&alternate.sa_mask);
    sigaction(SIGUSR2, &act, NULL);
    sigaction(SIGURG, &alternate, NULL);
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < SHAPES; i++)
        wl_spawn(&threads[i], start_shape, i, SYS_futex);
    for (int i = 0; i < SHAPES; i++)
        if (shapes[i].signalled)
            interrupt(&threads[i]);
    wl_settle(getpid(), threads, SHAPES);
    wl_say("{\"pid\":%d,\"kind\":\"mutex\",\"class\":\"lock\",\"address\":\"0x%llx\","
           "\"name\":\"mutex\",\"waiters\":%d,\"waiter_tids\":%s,\"holder_tid\":%d,\"stacks\":%s,"
           "\"threads\":%d}\n",
           getpid(), (unsigned long long)(uintptr_t)&mutex, SHAPES, wl_tids(threads, SHAPES),
           getpid(), wl_list(SHAPES, item, threads), SHAPES + 1);
    return wl_serve(NULL);
}

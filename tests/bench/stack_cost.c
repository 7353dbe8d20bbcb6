/*
 * stack_cost - what one stack costs: "stack_cost CHILD" measures a child of its own whose threads
 * sleep below 10 and 40 frames, "stack_cost PID" only the first stack of a process. Prints JSON.
 * A stack is what the inspector does: copy, walk; names apart.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../src/clock.h"
#include "../../src/procfs.h"
#include "../../src/remote.h"
#include "../../src/stack.h"
#include "../../src/symbol.h"

#define ROUNDS 4001
#define COPY   16384

static uint8_t bytes[COPY];

/* The sleeping child ---------------------------------------------------------------- */

static void *descend(void *arg);

__attribute__((noinline, noclone)) static void sleep_below(int frames)
{
    if (frames > 0)
        sleep_below(frames - 1);
    else
        pause();
    __asm__ volatile("" ::: "memory");
}

static void *descend(void *arg)
{
    sleep_below((int)(intptr_t)arg);
    return NULL;
}

static pid_t start_child(void)
{
    int ready[2];
    char c;

    if (pipe(ready) != 0)
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t t;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        /* Around these: pause, sleep_below itself, descend, start_thread, clone3. */
        if (pthread_create(&t, NULL, descend, (void *)(intptr_t)5) != 0 ||
            pthread_create(&t, NULL, descend, (void *)(intptr_t)35) != 0 ||
            write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    if (pid < 0 || read(ready[0], &c, 1) != 1)
        exit(1);
    return pid;
}

/* Measuring --------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    nsec_t x = *(const nsec_t *)a, y = *(const nsec_t *)b;

    return (x > y) - (x < y);
}

static bool read_call(int dirfd, pid_t tid, struct stack_regs *regs)
{
    char path[64], text[256];
    struct procfs_syscall call;

    snprintf(path, sizeof(path), "task/%d/syscall", tid);
    if (procfs_slurp(dirfd, path, text, sizeof(text)) <= 0 ||
        !procfs_parse_syscall(text, &call) || call.kind != SYSCALL_BLOCKED)
        return false;
    *regs = (struct stack_regs){.pc = call.pc, .sp = call.sp};
    return true;
}

static void take(struct unwinder *u, const struct space *s, pid_t tid,
                 const struct stack_regs *regs, struct stack *out)
{
    struct remote_item item = {.addr = regs->sp - STACK_RED_ZONE, .dst = bytes, .len = COPY};

    remote_read(tid, &item, 1);
    struct stack_copy copy = {.base = item.addr, .bytes = bytes, .len = item.got};
    stack_unwind(u, s, regs, &copy, out);
}

static double warm_us(struct unwinder *u, const struct space *s, pid_t tid,
                      const struct stack_regs *regs)
{
    static nsec_t times[ROUNDS];
    struct stack st;

    for (int i = 0; i < ROUNDS; i++) {
        nsec_t t0 = clock_mono();
        take(u, s, tid, regs, &st);
        times[i] = clock_mono() - t0;
    }
    qsort(times, ROUNDS, sizeof(times[0]), compare);
    return (double)times[ROUNDS / 2] / 1e3;
}

static void name_all(struct space *s, const struct stack *st)
{
    struct frame_name name;

    for (size_t i = 0; i < st->n; i++)
        symbol_function(s, st->pc[i], st->exact[i], &name);
}

static void measure_thread(struct unwinder *u, struct space *s, pid_t tid,
                           const struct stack_regs *regs)
{
    struct stack st;

    take(u, s, tid, regs, &st);
    double warm = warm_us(u, s, tid, regs);
    nsec_t t0 = clock_mono();
    name_all(s, &st);
    nsec_t t1 = clock_mono();
    name_all(s, &st);
    nsec_t t2 = clock_mono();
    printf("%s{\"tid\":%d,\"frames\":%zu,\"complete\":%s,\"warm_us\":%.2f,\"first_names_us\":%.1f,"
           "\"warm_names_us\":%.2f}",
           "", tid, st.n, st.end == STACK_COMPLETE ? "true" : "false", warm,
           (double)(t1 - t0) / 1e3, (double)(t2 - t1) / 1e3);
}

static int measure(pid_t pid)
{
    char path[32];
    int err;
    pid_t *tids = NULL;
    size_t cap = 0;
    struct stack_regs regs;
    struct stack st;
    bool first = true;

    snprintf(path, sizeof(path), "/proc/%d", pid);
    int dirfd = open(path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    ssize_t n = dirfd < 0 ? -1 : procfs_list_ids(dirfd, "task", &tids, &cap);
    if (n <= 0) {
        fprintf(stderr, "stack_cost: process %d: %s\n", pid, strerror(errno));
        return 1;
    }
    struct module_set *set = module_set_new();
    struct unwinder *u = unwinder_new();
    nsec_t t0 = clock_mono();
    struct space *s = space_new(set, dirfd, pid, tids[0], remote_read, &err);
    nsec_t t1 = clock_mono();
    if (!s)
        return 1;
    for (ssize_t i = 0; i < n; i++) {
        if (!read_call(dirfd, tids[i], &regs))
            continue;
        if (first) {
            take(u, s, tids[i], &regs, &st);
            printf("{\"map_ms\":%.3f,\"first_stack_ms\":%.3f,\"threads\":[",
                   (double)(t1 - t0) / 1e6, (double)(clock_mono() - t0) / 1e6);
        }
        printf("%s", first ? "" : ",");
        first = false;
        measure_thread(u, s, tids[i], &regs);
    }
    printf("%s]}\n", first ? "{\"threads\":[" : "");
    space_free(s);
    unwinder_free(u);
    module_set_free(set);
    free(tids);
    close(dirfd);
    return 0;
}

/* Until all its threads sleep. */
static void wait_for_child(pid_t pid)
{
    char path[32];
    pid_t *tids = NULL;
    size_t cap = 0;
    struct stack_regs regs;
    ssize_t asleep = 0, n = 0;

    snprintf(path, sizeof(path), "/proc/%d", pid);
    int dirfd = open(path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    while (asleep < 3) {
        usleep(1000);
        n = procfs_list_ids(dirfd, "task", &tids, &cap);
        asleep = 0;
        for (ssize_t i = 0; i < n; i++)
            asleep += read_call(dirfd, tids[i], &regs);
    }
    free(tids);
    close(dirfd);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: stack_cost CHILD|PID\n");
        return 2;
    }
    if (strcmp(argv[1], "CHILD") != 0)
        return measure((pid_t)atoi(argv[1]));
    pid_t pid = start_child();
    wait_for_child(pid);
    int rc = measure(pid);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return rc;
}

/*
 * bare_futex - a lock word of the program's own: 0 free, 1 taken, 2 taken and waited for. With
 * "rust 1" it waits as Rust's standard library does. Where a pthread mutex keeps its owner stands
 * the TID of a living thread that has nothing to do with the lock.
 */
#include <linux/futex.h>

#include "workload.h"

static struct {
    _Atomic uint32_t word;
    uint32_t size;
    uint32_t writer;
    uint32_t flags, colour, depth;
} table = {.size = 0x1234, .colour = 99, .depth = 7};

static int op = FUTEX_WAIT | FUTEX_PRIVATE_FLAG;

static void lock(void)
{
    uint32_t seen = 0;
    if (atomic_compare_exchange_strong(&table.word, &seen, 1))
        return;
    while (atomic_exchange(&table.word, 2) != 0)
        syscall(SYS_futex, &table.word, op, 2, NULL, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void unlock(void)
{
    if (atomic_exchange(&table.word, 0) == 2)
        syscall(SYS_futex, &table.word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
}

static void setup(struct wl_scene *s)
{
    (void)s;
    table.writer = (uint32_t)getpid();
    if (wl_arg("rust", 0))
        op = FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG;
}

static void hold(void)
{
    lock();
    wl_rest();
    unlock();
}

static void waiter(int i)
{
    (void)i;
    lock();
    unlock();
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "futex-lock",
                         .class = "lock",
                         .address = &table.word,
                         .setup = setup,
                         .hold = hold,
                         .wait = waiter};
    return wl_run(argc, argv, &s);
}

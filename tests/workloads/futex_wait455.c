/*
 * futex_wait455 - threads wait with the newer system call futex_wait, which has no operation.
 */
#include "workload.h"

#ifndef SYS_futex_wait
#define SYS_futex_wait 455 /* the same on all architectures that lock-top knows */
#endif
#define SIZE_U32 0x02
#define PRIVATE  0x80

static uint32_t word = 7;

static void waiter(int i)
{
    (void)i;
    if (syscall(SYS_futex_wait, &word, 7UL, ~0U, SIZE_U32 | PRIVATE, NULL, 0) < 0 &&
        errno == ENOSYS)
        wl_skip("futex_wait", errno);
}

int main(int argc, char **argv)
{
    struct wl_scene s = {
        .kind = "futex", .class = "sync", .address = &word, .call = SYS_futex_wait, .wait = waiter};
    return wl_run(argc, argv, &s);
}

/*
 * waitv - threads wait on two words at once with futex_waitv.
 */
#include <linux/futex.h>

#include "workload.h"

#ifdef SYS_futex_waitv
static uint32_t words[2];

static void waiter(int i)
{
    struct futex_waitv both[2] = {
        {.val = 0, .uaddr = (uintptr_t)&words[0], .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG},
        {.val = 0, .uaddr = (uintptr_t)&words[1], .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG},
    };
    (void)i;
    if (syscall(SYS_futex_waitv, both, 2, 0, NULL, 0) < 0 && errno == ENOSYS)
        wl_skip("futex_waitv", errno);
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "futex",
                         .class = "sync",
                         .address = &words[0],
                         .call = SYS_futex_waitv,
                         .wait = waiter};
    return wl_run(argc, argv, &s);
}
#else
int main(void)
{
    wl_skip("futex_waitv is unknown to the headers", 0);
}
#endif

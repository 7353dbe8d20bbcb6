#include "clock.h"

#include <time.h>

static nsec_t read_clock(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

nsec_t clock_mono(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

nsec_t clock_wall(void)
{
    return read_clock(CLOCK_REALTIME);
}

nsec_t clock_process_cpu(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

nsec_t clock_thread_cpu(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

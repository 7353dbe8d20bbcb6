/*
 * clock.h - time. All of lock-top counts in nanoseconds (nsec_t). The model never
 * calls these functions: its time is the time that stands in the samples.
 */
#ifndef LT_CLOCK_H
#define LT_CLOCK_H

#include <stdint.h>

typedef int64_t nsec_t;

#define NSEC_PER_SEC  INT64_C(1000000000)
#define NSEC_PER_MSEC INT64_C(1000000)
#define NSEC_PER_USEC INT64_C(1000)

/* CLOCK_MONOTONIC: for intervals. */
nsec_t clock_mono(void);
/* CLOCK_REALTIME since the epoch: for showing. */
nsec_t clock_wall(void);
/* CPU time, user and system, used by this process or by the calling thread so far. */
nsec_t clock_process_cpu(void);
nsec_t clock_thread_cpu(void);

#endif

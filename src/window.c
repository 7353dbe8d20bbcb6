#include "window.h"

#include <string.h>

#include "compiler.h"

#define TENTH (NSEC_PER_SEC / 10)

/* Clears the slots of a ring that stand for (FROM, TO]. */
static void clear32(uint32_t *ring, int size, int64_t from, int64_t to)
{
    if (to - from >= size)
        from = to - size;
    for (int64_t i = from + 1; i <= to; i++)
        ring[i % size] = 0;
}

static void clear16(uint16_t *ring, int size, int64_t from, int64_t to)
{
    if (to - from >= size)
        from = to - size;
    for (int64_t i = from + 1; i <= to; i++)
        ring[i % size] = 0;
}

void window_advance(struct window *w, nsec_t t)
{
    int64_t tenth = t / TENTH;

    if (tenth <= w->tenth)
        return;
    clear32(w->tenths, WINDOW_TENTHS, w->tenth, tenth);
    clear32(w->seconds, WINDOW_SECONDS, w->tenth / 10, tenth / 10);
    clear16(w->peak, WINDOW_SECONDS, w->tenth / 10, tenth / 10);
    w->tenth = tenth;
}

void window_add(struct window *w, nsec_t t, uint32_t value)
{
    window_advance(w, t);
    int64_t second = w->tenth / 10;
    w->tenths[w->tenth % WINDOW_TENTHS] += value;
    w->seconds[second % WINDOW_SECONDS] += value;
    uint16_t *peak = &w->peak[second % WINDOW_SECONDS];
    *peak = (uint16_t)MIN(MAX((uint32_t)*peak, value), (uint32_t)UINT16_MAX);
}

uint64_t window_sum(struct window *w, nsec_t t, int seconds)
{
    uint64_t sum = 0;

    window_advance(w, t);
    if (seconds == 1) {
        for (int i = 0; i < WINDOW_TENTHS; i++)
            sum += w->tenths[i];
        return sum;
    }
    int64_t now = w->tenth / 10;
    for (int64_t s = MAX(now - seconds, INT64_C(0)); s <= now; s++)
        sum += w->seconds[s % WINDOW_SECONDS];
    return sum;
}

unsigned window_peak(struct window *w, nsec_t t)
{
    unsigned peak = 0;

    window_advance(w, t);
    for (int i = 0; i < WINDOW_SECONDS; i++)
        peak = MAX(peak, (unsigned)w->peak[i]);
    return peak;
}

uint32_t window_second(struct window *w, nsec_t t, int ago)
{
    window_advance(w, t);
    int64_t second = w->tenth / 10 - ago;
    return second < 0 ? 0 : w->seconds[second % WINDOW_SECONDS];
}

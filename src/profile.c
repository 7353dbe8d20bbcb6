#include "profile.h"

#include <stdlib.h>
#include <string.h>

bool profile_due(struct profile *p, nsec_t now)
{
    if (p->seen_at && now - p->seen_at < PROFILE_EVERY)
        return false;
    p->seen_at = now ? now : 1;
    return true;
}

bool profile_stop_due(struct profile *p, nsec_t now)
{
    if (p->stopped_at && now - p->stopped_at < PROFILE_STOP_EVERY) {
        p->owed++;
        return false;
    }
    p->stopped_at = now ? now : 1;
    return true;
}

static void halve(struct profile *p, nsec_t now)
{
    if (now - p->halved_at < PROFILE_HALVES)
        return;
    p->halved_at = now;
    p->total = 0;
    for (size_t i = 0; i < PROFILE_PATHS; i++) {
        p->paths[i].count /= 2;
        p->total += p->paths[i].count;
    }
}

static bool is_same_path(const struct kept_stack *a, const struct kept_stack *b)
{
    return a == b || (a && b && a->path == b->path && a->n == b->n);
}

static struct profile_path *place_of(struct profile *p, const struct kept_stack *stack,
                                     enum thread_state state)
{
    struct profile_path *least = &p->paths[0];

    for (size_t i = 0; i < PROFILE_PATHS; i++) {
        struct profile_path *q = &p->paths[i];
        if (q->count && is_same_path(q->stack, stack) && q->state == state)
            return q;
        if (q->count < least->count)
            least = q;
    }
    p->total -= least->count;
    *least = (struct profile_path){0};
    return least;
}

static void add(struct profile *p, struct kept_stack *stack, enum thread_state state, uint32_t n,
                nsec_t now)
{
    halve(p, now);
    if (state == THREAD_RUNQ)
        state = THREAD_RUNNING;
    struct profile_path *q = place_of(p, stack, state);
    if (!q->stack)
        q->stack = stack;
    q->state = state;
    q->count += n;
    p->total += n;
}

void profile_add(struct profile *p, struct kept_stack *stack, enum thread_state state, nsec_t now)
{
    add(p, stack, state, 1, now);
}

void profile_add_running(struct profile *p, struct kept_stack *stack, nsec_t now)
{
    add(p, stack, THREAD_RUNNING, p->owed + 1, now);
    p->owed = 0;
}

static int compare_paths(const void *a, const void *b)
{
    const struct profile_path *x = a, *y = b;

    return (x->count < y->count) - (x->count > y->count);
}

size_t profile_sort(const struct profile *p, struct profile_path out[PROFILE_PATHS])
{
    size_t n = 0;

    for (size_t i = 0; i < PROFILE_PATHS; i++) {
        if (p->paths[i].count)
            out[n++] = p->paths[i];
    }
    qsort(out, n, sizeof(*out), compare_paths);
    return n;
}

/* Waits of simulated threads, seen as a sampler sees them, against their true length. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/estimate.h"

#define MS          NSEC_PER_MSEC
#define US          NSEC_PER_USEC
#define THREADS_MAX 32
#define SEEDS       25
#define WAKE        (20 * US) /* from the end of one call until the same can begin again */

/* Threads ------------------------------------------------------------------------------- */

static uint64_t state;

static double uniform(void)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (double)(state * UINT64_C(2685821657736338717) >> 11) * 0x1p-53;
}

/* A length of time: fixed, or of exponential distribution. */
struct length {
    nsec_t mean;
    bool random;
};

static nsec_t draw(struct length l)
{
    return l.random ? (nsec_t)(-log(1 - uniform()) * (double)l.mean) : l.mean;
}

/* What a lock and those who want it are like. */
struct scene {
    int threads;
    struct length hold, think;
    struct length sleep; /* MEAN above 0: each just sleeps so long, and THINKs in between */
};

struct wait {
    nsec_t from, to;
};

struct thread {
    struct wait *waits;
    size_t n, cap, at; /* AT: the first that has not ended */
    nsec_t next;       /* when it wants the lock again */
};

struct world {
    struct scene scene;
    struct thread threads[THREADS_MAX];
};

static void add_wait(struct thread *t, nsec_t from, nsec_t to)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 64;
        t->waits = realloc(t->waits, t->cap * sizeof(*t->waits));
    }
    t->waits[t->n++] = (struct wait){from, to};
}

/* One server, who came first is served first. */
static void queue_up(struct world *w, nsec_t end)
{
    nsec_t free_at = 0;

    for (;;) {
        struct thread *first = &w->threads[0];
        for (int i = 1; i < w->scene.threads; i++) {
            if (w->threads[i].next < first->next)
                first = &w->threads[i];
        }
        nsec_t granted = MAX(first->next, free_at);
        if (first->next > end)
            return;
        if (granted > first->next)
            add_wait(first, first->next, granted);
        free_at = granted + draw(w->scene.hold);
        first->next = free_at + draw(w->scene.think) + WAKE;
    }
}

static void just_sleep(struct world *w, nsec_t end)
{
    for (int i = 0; i < w->scene.threads; i++) {
        struct thread *t = &w->threads[i];
        while (t->next < end) {
            nsec_t to = t->next + draw(w->scene.sleep) + 1;
            add_wait(t, t->next, to);
            t->next = to + draw(w->scene.think) + WAKE;
        }
    }
}

static struct world *world_new(const struct scene *scene, uint64_t seed, nsec_t end)
{
    struct world *w = calloc(1, sizeof(*w));

    state = seed * 7919 + 12345;
    for (int i = 0; i < 10; i++)
        uniform();
    w->scene = *scene;
    for (int i = 0; i < scene->threads; i++)
        w->threads[i].next = (nsec_t)(uniform() * 1e6);
    if (scene->sleep.mean)
        just_sleep(w, end);
    else
        queue_up(w, end);
    return w;
}

static void world_free(struct world *w)
{
    for (int i = 0; i < THREADS_MAX; i++)
        free(w->threads[i].waits);
    free(w);
}

static double true_wait_ms(const struct world *w)
{
    double sum = 0, n = 0;

    for (int i = 0; i < w->scene.threads; i++) {
        for (size_t k = 0; k < w->threads[i].n; k++)
            sum += (double)(w->threads[i].waits[k].to - w->threads[i].waits[k].from);
        n += (double)w->threads[i].n;
    }
    return sum / n / (double)MS;
}

/* In which of its waits it is at T, which never falls; -1: in none. */
static long wait_at(struct thread *t, nsec_t when)
{
    while (t->at < t->n && t->waits[t->at].to <= when)
        t->at++;
    return t->at < t->n && t->waits[t->at].from <= when ? (long)t->at : -1;
}

/* The sampler --------------------------------------------------------------------------- */

struct watcher {
    struct estimate estimate;
    long last[THREADS_MAX]; /* the wait in which the last sweep saw it; -1 */
    uint64_t sweeps, sightings;
    bool naive; /* takes who has come back for one that stayed, as it looks from outside */
};

static void sweep(struct watcher *o, struct world *w, nsec_t t)
{
    long now[THREADS_MAX];
    uint32_t n = 0;

    for (int i = 0; i < w->scene.threads; i++) {
        now[i] = wait_at(&w->threads[i], t);
        n += now[i] >= 0;
    }
    for (int i = 0; i < w->scene.threads; i++) {
        if (now[i] >= 0)
            estimate_sweep(&o->estimate, t, now[i] != o->last[i], n);
        o->last[i] = now[i];
    }
    o->sweeps++;
    o->sightings += n;
}

static void look_again(struct watcher *o, struct world *w, nsec_t t, nsec_t delay)
{
    for (int i = 0; i < w->scene.threads; i++) {
        if (o->last[i] < 0)
            continue;
        long now = wait_at(&w->threads[i], t);
        estimate_pair(&o->estimate, t, delay, o->naive ? now < 0 : now != o->last[i]);
    }
}

/* 50 sweeps a second for so long, and one second look after each that leaves time for it. */
static struct figures watch(struct world *w, nsec_t end, bool naive, double *waiters)
{
    struct watcher *o = calloc(1, sizeof(*o));
    nsec_t t = 5 * MS, next;

    o->naive = naive;
    memset(o->last, -1, sizeof(o->last));
    for (; t < end; t = next) {
        nsec_t delay = estimate_best_delay(&o->estimate, t);
        next = t + (nsec_t)((0.5 + uniform()) * 20e6);
        sweep(o, w, t);
        delay = MIN(delay, next - t - 1) + 10 * US;
        look_again(o, w, t + delay, delay);
    }
    *waiters = (double)o->sightings / (double)o->sweeps;
    struct figures f = estimate_figures(&o->estimate, end, 60, *waiters, o->sweeps,
                                        estimate_span(end, 60));
    free(o);
    return f;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median over some seeds lies within TOLERANCE of the truth, and nearly all do within thrice
 * that. */
static void check(const char *name, const struct scene *scene, nsec_t span, double tolerance,
                  bool naive)
{
    double ratio[SEEDS], rate[SEEDS], events = 0;

    for (int i = 0; i < SEEDS; i++) {
        struct world *w = world_new(scene, (uint64_t)i + 1, span);
        double waiters, truth = true_wait_ms(w);
        struct figures f = watch(w, span, naive, &waiters);
        if (isnan(f.wait_ms))
            fail_msg("%s: nothing is told", name);
        ratio[i] = f.wait_ms / truth;
        rate[i] = f.contended_per_s * f.wait_ms / 1e3 / waiters;
        events += (double)f.events / SEEDS;
        world_free(w);
    }
    qsort(ratio, SEEDS, sizeof(double), compare);
    print_message("%-32s median %.3f of the truth, %.3f to %.3f, %.0f ends\n", name,
                  ratio[SEEDS / 2], ratio[0], ratio[SEEDS - 1], events);
    assert_true(fabs(ratio[SEEDS / 2] - 1) < tolerance);
    assert_true(ratio[2] > 1 - 3 * tolerance && ratio[SEEDS - 3] < 1 + 3 * tolerance);
    for (int i = 0; i < SEEDS; i++)
        assert_true(fabs(rate[i] - 1) < 1e-9); /* Little's law */
}

#define FIXED(ms)  {(nsec_t)((ms) * 1e6), false}
#define RANDOM(ms) {(nsec_t)((ms) * 1e6), true}

/* Tests --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    struct scene scene;
    double tolerance;
} sleeps[] = {
    {"200 us, then 200 us", {.threads = 1, .sleep = FIXED(0.2), .think = FIXED(0.2)}, 0.15},
    {"200 us, 4 threads, far apart", {.threads = 4, .sleep = FIXED(0.2), .think = RANDOM(2)}, 0.15},
    {"200 us exponential", {.threads = 4, .sleep = RANDOM(0.2), .think = RANDOM(0.5)}, 0.15},
    {"5 ms, then 5 ms", {.threads = 1, .sleep = FIXED(5), .think = FIXED(5)}, 0.1},
    {"5 ms exponential", {.threads = 2, .sleep = RANDOM(5), .think = RANDOM(5)}, 0.1},
    {"35 ms, one at a time", {.threads = 1, .sleep = FIXED(35), .think = FIXED(5)}, 0.1},
    {"35 ms, 7 threads", {.threads = 7, .sleep = FIXED(35), .think = RANDOM(5)}, 0.1},
    {"50 ms, then 5 ms", {.threads = 1, .sleep = FIXED(50), .think = FIXED(5)}, 0.1},
    {"50 ms, again at once", {.threads = 1, .sleep = FIXED(50), .think = FIXED(0)}, 0.1},
    {"50 ms exponential", {.threads = 1, .sleep = RANDOM(50), .think = RANDOM(20)}, 0.1},
    {"100 ms exponential", {.threads = 1, .sleep = RANDOM(100), .think = RANDOM(20)}, 0.1},
    {"700 ms, now and then", {.threads = 1, .sleep = FIXED(700), .think = RANDOM(50)}, 0.1},
};

static void test_sleeps(void **unused UNUSED)
{
    for (size_t i = 0; i < ARRAY_SIZE(sleeps); i++)
        check(sleeps[i].name, &sleeps[i].scene, 30 * NSEC_PER_SEC, sleeps[i].tolerance, false);
}

static const struct {
    const char *name;
    struct scene scene;
} queues[] = {
    {"2 workers, 5 ms holds", {.threads = 2, .hold = FIXED(5), .think = FIXED(0)}},
    {"4 workers, 5 ms holds", {.threads = 4, .hold = FIXED(5), .think = FIXED(0)}},
    {"8 workers, 5 ms holds", {.threads = 8, .hold = FIXED(5), .think = FIXED(0)}},
    {"32 workers, 5 ms holds", {.threads = 32, .hold = FIXED(5), .think = FIXED(0)}},
    {"8 workers, 1 ms holds", {.threads = 8, .hold = FIXED(1), .think = FIXED(0)}},
    {"8 workers, 50 ms holds", {.threads = 8, .hold = FIXED(50), .think = FIXED(0)}},
    {"8 workers, random", {.threads = 8, .hold = RANDOM(5), .think = RANDOM(20)}},
    {"8 workers, half busy", {.threads = 8, .hold = RANDOM(5), .think = RANDOM(70)}},
};

/* Who comes back looks as if it had stayed: the delay keeps clear of that. */
static void test_queues(void **unused UNUSED)
{
    for (size_t i = 0; i < ARRAY_SIZE(queues); i++) {
        check(queues[i].name, &queues[i].scene, 30 * NSEC_PER_SEC, 0.1, false);
        check("  who comes back unseen", &queues[i].scene, 30 * NSEC_PER_SEC, 0.1, true);
    }
}

/* Whatever delay was tried before, and however wrong it was for this lock, the next ones come near
 * the best one within a few seconds. */
static void test_delay_converges_from_any_start(void **unused UNUSED)
{
    static const double wait_ms[] = {0.5, 5, 35};

    for (size_t i = 0; i < ARRAY_SIZE(wait_ms) * ESTIMATE_RUNGS; i++) {
        double wait = wait_ms[i / ESTIMATE_RUNGS] * (double)MS;
        nsec_t delay = estimate_delays[i % ESTIMATE_RUNGS];
        struct estimate *e = calloc(1, sizeof(*e));
        state = i + 1;
        for (nsec_t t = 0; t < 8 * NSEC_PER_SEC; t += 20 * MS) {
            if (t > 2 * NSEC_PER_SEC) /* so long it was the wrong one */
                delay = estimate_best_delay(e, t);
            estimate_sweep(e, t, true, 1);
            estimate_pair(e, t, delay, uniform() < 1 - exp(-(double)delay / wait));
        }
        if (delay < 0.05 * wait || delay > 0.4 * wait)
            fail_msg("from %.0f us: %.0f us for waits of %.0f us",
                     (double)estimate_delays[i % ESTIMATE_RUNGS] / 1e3, (double)delay / 1e3,
                     wait / 1e3);
        free(e);
    }
}

/* Arithmetic ---------------------------------------------------------------------------- */

static struct estimate *estimate_new(void)
{
    return calloc(1, sizeof(struct estimate));
}

/* N pairs after DELAY, of which one in EVERY had left; 0: none. */
static void pairs(struct estimate *e, nsec_t t, nsec_t delay, int n, int every)
{
    for (int i = 0; i < n; i++)
        estimate_pair(e, t, delay, every && i % every == 0);
}

static struct figures over_10s(struct estimate *e, nsec_t t, double waiters)
{
    return estimate_figures(e, t, 10, waiters, 500, estimate_span(t, 10));
}

static void test_too_few(void **unused UNUSED)
{
    struct estimate *e = estimate_new();
    struct figures f;

    f = over_10s(e, 10 * NSEC_PER_SEC, 1);
    assert_true(isnan(f.wait_ms) && isnan(f.contended_per_s));
    assert_int_equal(f.events, 0);
    pairs(e, 10 * NSEC_PER_SEC, MS, 10 * (ESTIMATE_MIN_EVENTS - 1), 10);
    f = over_10s(e, 10 * NSEC_PER_SEC, 1);
    assert_true(isnan(f.wait_ms) && isnan(f.contended_per_s));
    assert_int_equal(f.events, 0);
    pairs(e, 10 * NSEC_PER_SEC, MS, 10, 10);
    f = over_10s(e, 10 * NSEC_PER_SEC, 2);
    assert_int_equal(f.events, ESTIMATE_MIN_EVENTS);
    assert_true(fabs(f.wait_ms - 9.75) < 0.1); /* between 10 and 9.49 */
    assert_true(fabs(f.contended_per_s - 205) < 2);
    f = over_10s(e, 10 * NSEC_PER_SEC, 0); /* nobody waited: nothing to divide */
    assert_true(isnan(f.wait_ms) && isnan(f.contended_per_s));
    free(e);
}

static void test_all_had_left(void **unused UNUSED)
{
    struct estimate *e = estimate_new();

    pairs(e, NSEC_PER_SEC, 10 * MS, 1000, 1);
    assert_true(isnan(over_10s(e, NSEC_PER_SEC, 1).wait_ms));
    assert_true(estimate_best_delay(e, NSEC_PER_SEC) < 2 * MS);
    /* They do not spoil what shorter looks tell. */
    pairs(e, NSEC_PER_SEC, 400 * US, 1000, 10);
    assert_true(fabs(over_10s(e, NSEC_PER_SEC, 1).wait_ms - 3.9) < 0.1);
    free(e);
}

static void test_nobody_left(void **unused UNUSED)
{
    struct estimate *e = estimate_new();
    nsec_t last = 0;

    for (int i = 0; i < 20; i++) {
        nsec_t delay = estimate_best_delay(e, NSEC_PER_SEC);
        assert_true(delay >= last);
        last = delay;
        pairs(e, NSEC_PER_SEC, delay, 50, 0);
    }
    assert_int_equal(last, estimate_delays[ESTIMATE_RUNGS - 1]);
    assert_true(isnan(over_10s(e, NSEC_PER_SEC, 1).wait_ms));
    free(e);
}

static void test_old_is_forgotten(void **unused UNUSED)
{
    struct estimate *e = estimate_new();
    nsec_t first = estimate_best_delay(e, 0);

    pairs(e, NSEC_PER_SEC, 50 * US, 1000, 10);
    assert_int_equal(estimate_best_delay(e, 2 * NSEC_PER_SEC), 100 * US);
    assert_false(isnan(over_10s(e, 11 * NSEC_PER_SEC, 1).wait_ms));
    assert_true(isnan(over_10s(e, 13 * NSEC_PER_SEC, 1).wait_ms));
    assert_int_equal(estimate_best_delay(e, 13 * NSEC_PER_SEC), first);
    struct figures f = estimate_figures(e, 13 * NSEC_PER_SEC, 60, 1, 500,
                                        estimate_span(13 * NSEC_PER_SEC, 60));
    assert_true(fabs(f.wait_ms - 0.49) < 0.01);
    free(e);
}

/* The more wait, the sooner one that left may be back. */
static void test_crowd(void **unused UNUSED)
{
    struct estimate *e = estimate_new();

    pairs(e, NSEC_PER_SEC, 800 * US, 2000, 20); /* about 16 ms */
    assert_int_equal(estimate_best_delay(e, NSEC_PER_SEC), 3200 * US);
    for (int i = 0; i < 1000; i++)
        estimate_sweep(e, NSEC_PER_SEC, false, 10); /* held for 1.6 ms */
    assert_int_equal(estimate_best_delay(e, NSEC_PER_SEC), 800 * US);
    pairs(e, NSEC_PER_SEC, 6400 * US, 5000, 20); /* most were back */
    assert_true(fabs(over_10s(e, NSEC_PER_SEC, 10).wait_ms - 15.6) < 0.2);
    free(e);
}

/* Sleeps that are counted: N of them, each seen at SIGHTINGS sweeps beside others. */
static void count(struct estimate *e, int n, int sightings, uint32_t waiters)
{
    for (int i = 0; i < n * sightings; i++)
        estimate_sweep(e, 10 * NSEC_PER_SEC - 1, i % sightings == 0, waiters);
}

static void test_counting(void **unused UNUSED)
{
    struct estimate *e = estimate_new();
    nsec_t t = 10 * NSEC_PER_SEC - 1;

    count(e, ESTIMATE_MIN_EVENTS - 1, 10, 1); /* 200 ms each */
    assert_true(isnan(over_10s(e, t, 0.6).wait_ms));
    count(e, 1, 10, 1);
    assert_true(fabs(over_10s(e, t, 0.6).wait_ms - 200) < 0.1);
    assert_int_equal(over_10s(e, t, 0.6).events, ESTIMATE_MIN_EVENTS);
    /* What pairs say of much shorter waits is believed more. */
    pairs(e, t, MS, 1000, 10);
    assert_true(fabs(over_10s(e, t, 0.6).wait_ms - 9.75) < 0.1);
    free(e);

    e = estimate_new(); /* a herd that is woken falls asleep again */
    count(e, 2 * ESTIMATE_MIN_EVENTS, 10, 2);
    assert_true(isnan(over_10s(e, t, 0.6).wait_ms));
    free(e);

    e = estimate_new(); /* each was seen once: most will not have been seen at all */
    count(e, 200, 1, 1);
    assert_true(isnan(over_10s(e, t, 0.6).wait_ms));
    free(e);
}

static void test_span(void **unused UNUSED)
{
    assert_int_equal(estimate_span(0, 10), 0);
    assert_int_equal(estimate_span(3 * NSEC_PER_SEC / 2, 10), 3 * NSEC_PER_SEC / 2);
    assert_int_equal(estimate_span(10 * NSEC_PER_SEC, 10), 10 * NSEC_PER_SEC);
    assert_int_equal(estimate_span(21 * NSEC_PER_SEC / 2, 10), 21 * NSEC_PER_SEC / 2);
    assert_int_equal(estimate_span(25 * NSEC_PER_SEC / 2, 10), 21 * NSEC_PER_SEC / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_too_few),
        cmocka_unit_test(test_all_had_left),
        cmocka_unit_test(test_nobody_left),
        cmocka_unit_test(test_old_is_forgotten),
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_counting),
        cmocka_unit_test(test_span),
        cmocka_unit_test(test_delay_converges_from_any_start),
        cmocka_unit_test(test_sleeps),
        cmocka_unit_test(test_queues),
    };

    return cmocka_run_group_tests_name("estimate", tests, NULL, NULL);
}

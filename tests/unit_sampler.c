#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/sampler.h"

#define MS NSEC_PER_MSEC

/* The budget: arithmetic ---------------------------------------------------------------- */

static void assert_near(double a, double b)
{
    if (fabs(a - b) > 10)
        fail_msg("%.0f is not %.0f", a, b);
}

/* Fresh, and nothing owed. */
static struct budget new_budget(double pct)
{
    struct budget b;

    budget_init(&b, pct, 0, 0);
    assert_true(b.share > 0.8 * pct / 100 && b.share <= pct / 100);
    return b;
}

static void test_budget_start(void **state UNUSED)
{
    struct budget b;

    budget_init(&b, 5, 1000, 50 * MS); /* what the start has cost is owed */
    assert_near(b.credit, -50e6);
    assert_true(budget_wait(&b) > 0);
    budget_borrow(&b);
    assert_int_equal(budget_wait(&b), 0);
    assert_near(b.credit, 0);
    assert_near(b.loan, 50e6);
    budget_borrow(&b); /* nothing is owed: nothing is lent */
    assert_near(b.loan, 50e6);
    budget_settle(&b, 1000 + NSEC_PER_SEC, 50 * MS, 0); /* part goes back, part may be used */
    double paid = 50e6 - b.loan;
    assert_true(paid > 0 && paid < b.share * 1e9 && b.credit > 0);
    budget_settle(&b, 100 * NSEC_PER_SEC, 50 * MS, 0);
    assert_near(b.loan, 0);
}

/* What the other thread used is owed as a loan: the next look need not wait for it. */
static void test_budget_apart(void **state UNUSED)
{
    struct budget b;

    budget_init(&b, 5, 0, 0);
    budget_settle(&b, 0, 30 * MS, 30 * MS);
    assert_int_equal(budget_wait(&b), 0);
    assert_near(b.loan, 30e6);
    budget_settle(&b, 0, 50 * MS, 40 * MS); /* 10 of these 20 were our own */
    assert_near(b.loan, 40e6);
    assert_near(b.credit, -10e6);
    budget_settle(&b, 100 * NSEC_PER_SEC, 50 * MS, 40 * MS);
    assert_near(b.loan, 0);
}

static void test_budget_cap(void **state UNUSED)
{
    struct budget b = new_budget(5), c = b;

    budget_settle(&b, 3600 * NSEC_PER_SEC, 0, 0); /* an idle hour is not saved up */
    assert_true(b.credit > 0 && b.credit <= b.share * 2e9);
    budget_settle(&c, 10 * NSEC_PER_SEC, 0, 0);
    assert_near(b.credit, c.credit);
    budget_settle(&b, 3600 * NSEC_PER_SEC, 500 * MS, 0);
    assert_near(b.credit, c.credit - 500e6);
}

static void test_budget_debt(void **state UNUSED)
{
    struct budget b = new_budget(10);

    budget_settle(&b, 0, 50 * MS, 0);
    assert_near(b.credit, -50e6);
    nsec_t wait = budget_wait(&b);
    assert_near((double)wait, 50e6 / b.share);
    budget_settle(&b, wait / 2, 50 * MS, 0);
    assert_near((double)budget_wait(&b), (double)wait / 2);
    budget_settle(&b, wait - 100, 50 * MS, 0);
    assert_true(budget_wait(&b) > 0);
    budget_settle(&b, wait + 100, 50 * MS, 0);
    assert_int_equal(budget_wait(&b), 0);
    budget_settle(&b, wait + 100 * MS, 50 * MS, 0); /* and it fills again */
    assert_true(b.credit > 0);
}

/* While a loan is paid back, what is waited for is still enough. */
static void test_budget_debt_and_loan(void **state UNUSED)
{
    struct budget b;

    budget_init(&b, 10, 0, 300 * MS);
    budget_borrow(&b);
    budget_settle(&b, 0, 340 * MS, 0);
    nsec_t wait = budget_wait(&b);
    assert_true((double)wait > 40e6 / b.share);
    budget_settle(&b, wait - 100, 340 * MS, 0);
    assert_true(budget_wait(&b) > 0);
    budget_settle(&b, wait + 100, 340 * MS, 0);
    assert_int_equal(budget_wait(&b), 0);
}

static void test_budget_extremes(void **state UNUSED)
{
    struct budget b = new_budget(0.1);

    budget_settle(&b, 0, 100 * NSEC_PER_SEC, 0);
    assert_true(budget_wait(&b) > 99000 * NSEC_PER_SEC);
    b = new_budget(100);
    for (nsec_t t = 0; t < 100 * NSEC_PER_SEC; t += NSEC_PER_SEC)
        budget_settle(&b, t, t / 5 * 4, 0);
    assert_int_equal(budget_wait(&b), 0);
}

/* Work is done whenever the bucket lets it: the share holds over any long time, a dear start
 * included. */
static void test_budget_long_run(void **state UNUSED)
{
    static const double shares[] = {0.5, 5, 20};
    static const nsec_t costs[] = {MS / 10, 3 * MS, 400 * MS};

    for (size_t i = 0; i < ARRAY_SIZE(shares) * ARRAY_SIZE(costs); i++) {
        double pct = shares[i % 3];
        nsec_t cost = costs[i / 3], t = 0, cpu = 600 * MS, end = 2000 * NSEC_PER_SEC;
        struct budget b;

        budget_init(&b, pct, 0, cpu);
        budget_borrow(&b);
        while (t < end) {
            t += cost;
            cpu += cost;
            budget_settle(&b, t, cpu, 0);
            t += budget_wait(&b);
        }
        double income = (double)t * pct / 100;
        assert_true((double)cpu <= income + (double)cost);
        assert_true((double)cpu >= 0.8 * income - (double)cost);
    }
}

/* A source and a sink that keep a diary --------------------------------------------------- */

#define DIARY 20000

struct fake {
    struct source base;
    nsec_t cpu, sleep; /* what a sweep costs */
    nsec_t probe_cpu;
    nsec_t end;        /* at which no process is left */
    bool words;
    nsec_t delay;      /* of second looks */
    nsec_t relook_cpu, digest; /* CPU of that; of what is done with a sweep */
    size_t nsweeps, nprobes, nticks, nsamples, ended_ticks, nrelooks;
    nsec_t *sweep, *probe, *tick, *relook;
    enum sample_kind last; /* given out */
    size_t apart;          /* second looks that did not come right after their sweep */
    bool limited;
    uint64_t late;
    bool over; /* a sweep has said that nobody is left */
    int stop_after, stop_fd;
};

static void burn(nsec_t cpu)
{
    nsec_t end = clock_thread_cpu() + cpu;

    while (clock_thread_cpu() < end)
        continue;
}

static size_t fake_sweep(struct source *s, struct sample *out)
{
    struct fake *f = (struct fake *)s;

    *out = (struct sample){.kind = SAMPLE_SWEEP, .mono = clock_mono()};
    assert_true(f->nsweeps < DIARY);
    f->sweep[f->nsweeps++] = out->mono;
    burn(f->cpu);
    if (f->sleep)
        nanosleep(&(struct timespec){.tv_nsec = f->sleep}, NULL);
    f->over = out->mono >= f->end;
    return !f->over;
}

static void fake_probe(struct source *s, struct sample *out)
{
    struct fake *f = (struct fake *)s;

    *out = (struct sample){.kind = SAMPLE_PROBE, .mono = clock_mono()};
    assert_true(f->nprobes < DIARY);
    f->probe[f->nprobes++] = out->mono;
    burn(f->probe_cpu);
}

static nsec_t fake_relook_delay(const struct source *s)
{
    return ((const struct fake *)s)->delay;
}

static void fake_relook(struct source *s, struct sample *out)
{
    struct fake *f = (struct fake *)s;

    *out = (struct sample){.kind = SAMPLE_RELOOK, .mono = clock_mono()};
    assert_true(f->nrelooks < f->nsweeps); /* at most one after each */
    f->relook[f->nrelooks++] = out->mono - f->sweep[f->nsweeps - 1];
    burn(f->relook_cpu);
}

static bool fake_wants(const struct source *s)
{
    return ((const struct fake *)s)->words;
}

static void on_sample(void *arg, const struct sample *s)
{
    struct fake *f = arg;

    f->nsamples++;
    f->limited |= s->self.budget_limited;
    f->late = s->self.late;
    if (s->kind == SAMPLE_SWEEP)
        burn(f->digest);
    f->apart += s->kind == SAMPLE_RELOOK && f->last != SAMPLE_SWEEP;
    f->last = s->kind;
}

static void on_tick(void *arg)
{
    struct fake *f = arg;

    assert_true(f->nticks < DIARY);
    f->tick[f->nticks++] = clock_mono();
    f->ended_ticks += f->over;
}

static struct fake *fake_new(void)
{
    static const struct source_ops ops = {
        .sweep = fake_sweep, .probe = fake_probe, .wants_probe = fake_wants};
    struct fake *f = calloc(1, sizeof(*f));

    f->base.ops = &ops;
    f->sweep = calloc(DIARY, sizeof(nsec_t));
    f->probe = calloc(DIARY, sizeof(nsec_t));
    f->tick = calloc(DIARY, sizeof(nsec_t));
    f->relook = calloc(DIARY, sizeof(nsec_t));
    f->last = SAMPLE_PROBE;
    f->stop_fd = eventfd(0, EFD_CLOEXEC);
    return f;
}

static void fake_free(struct fake *f)
{
    close(f->stop_fd);
    free(f->sweep);
    free(f->probe);
    free(f->tick);
    free(f->relook);
    free(f);
}

/* One that can look again, DELAY after each sweep. */
static struct fake *fake_that_relooks(nsec_t delay)
{
    static const struct source_ops ops = {
        .sweep = fake_sweep, .probe = fake_probe, .wants_probe = fake_wants,
        .relook_delay = fake_relook_delay, .relook = fake_relook};
    struct fake *f = fake_new();

    f->base.ops = &ops;
    f->delay = delay;
    return f;
}

static const struct sampler_config fast = {
    .sweep_hz = 100,
    .probe_hz = 400,
    .budget_pct = 100,
    .delay = 100 * MS,
    .first = 50 * MS,
    .seed = 42,
};

/* Runs it for so long. */
static void run(struct fake *f, const struct sampler_config *cfg, nsec_t length)
{
    const struct sampler_sink sink = {.sample = on_sample, .tick = on_tick, .arg = f};

    f->end = clock_mono() + length;
    sampler_run(&f->base, cfg, &sink, f->stop_fd);
}

/* The loop ------------------------------------------------------------------------------------ */

static void test_ends_with_the_target(void **state UNUSED)
{
    struct fake *f = fake_new();

    run(f, &fast, 0);
    assert_int_equal(f->nsweeps, 1);
    assert_int_equal(f->nsamples, 1);
    assert_int_equal(f->nticks, 1); /* the last snapshot, with the end in it */
    assert_int_equal(f->ended_ticks, 1);
    fake_free(f);
}

/* Intervals between the times of T, in units of EVERY: their mean, spread, and how many are out
 * of 0.5 to 1.5 by more than a busy machine explains. */
static void intervals(const nsec_t *t, size_t n, nsec_t every, double *mean, double *spread,
                      size_t *out)
{
    double sum = 0, squares = 0;

    *out = 0;
    for (size_t i = 1; i < n; i++) {
        double d = (double)(t[i] - t[i - 1]) / (double)every;
        sum += d;
        squares += d * d;
        *out += d < 0.4 || d > 1.6;
    }
    *mean = sum / (double)(n - 1);
    *spread = sqrt(squares / (double)(n - 1) - *mean * *mean);
}

static void test_random_offsets(void **state UNUSED)
{
    struct fake *f = fake_new();
    double mean, spread;
    size_t out;

    f->words = true;
    run(f, &fast, 3 * NSEC_PER_SEC);
    intervals(f->sweep, f->nsweeps, 10 * MS, &mean, &spread, &out);
    print_message("sweeps: %zu, mean %.3f, spread %.3f, out %zu\n", f->nsweeps, mean, spread, out);
    assert_true(mean > 0.9 && mean < 1.3);
    assert_true(spread > 0.2); /* uniform: 0.289 */
    assert_true(out < f->nsweeps / 5);
    intervals(f->probe, f->nprobes, 10 * MS / 4, &mean, &spread, &out);
    print_message("probes: %zu, mean %.3f, spread %.3f, out %zu\n", f->nprobes, mean, spread, out);
    assert_true(mean > 0.9 && mean < 1.8);
    assert_true(spread > 0.2);
    assert_int_equal(f->nsamples, f->nsweeps + f->nprobes);
    fake_free(f);
}

static void test_no_probe_without_words(void **state UNUSED)
{
    struct fake *f = fake_new();

    run(f, &fast, 200 * MS);
    assert_int_equal(f->nprobes, 0);
    fake_free(f);
}

static int compare(const void *a, const void *b)
{
    return *(const nsec_t *)a < *(const nsec_t *)b ? -1 : 1;
}

/* The time from sweep to second look below which such a SHARE of them lie. */
static nsec_t quantile(struct fake *f, double share)
{
    qsort(f->relook, f->nrelooks, sizeof(nsec_t), compare);
    return f->relook[(size_t)(share * (double)(f->nrelooks - 1))];
}

static void check_relook(nsec_t delay, nsec_t least, nsec_t most)
{
    struct fake *f = fake_that_relooks(delay);
    double mean, spread;
    size_t out;

    f->words = true; /* probes come in between */
    run(f, &fast, NSEC_PER_SEC);
    intervals(f->sweep, f->nsweeps, 10 * MS, &mean, &spread, &out);
    assert_true(f->nrelooks > f->nsweeps * 3 / 4);
    print_message("second looks after %.2f ms or more, half within %.2f ms\n",
                  (double)quantile(f, 0) / 1e6, (double)quantile(f, 0.5) / 1e6);
    assert_true(f->nrelooks < f->nsweeps); /* none after the last */
    assert_int_equal(f->nsamples, f->nsweeps + f->nprobes + f->nrelooks);
    assert_true(quantile(f, 0) >= least);
    assert_true(quantile(f, 0.5) <= most);
    assert_true(mean > 0.9 && mean < 1.3); /* sweeps do not wait for them */
    fake_free(f);
}

static void test_relook(void **state UNUSED)
{
    check_relook(3 * MS, 3 * MS, 4 * MS);
    check_relook(MS / 5, MS / 5, MS);
    check_relook(MS, MS, 2 * MS);
    check_relook(NSEC_PER_SEC, 0, 12 * MS); /* before the next sweep all the same */
}

/* A short one does not wait until what the sweep found is digested; and yet comes out behind. */
static void test_relook_at_once(void **state UNUSED)
{
    struct fake *f = fake_that_relooks(MS / 5);

    f->digest = 2 * MS;
    run(f, &fast, 500 * MS);
    assert_true(f->nrelooks > 10 && f->apart == 0);
    assert_true(quantile(f, 0.5) < 3 * MS / 2);
    fake_free(f);
}

static void test_no_relook(void **state UNUSED)
{
    struct fake *f = fake_that_relooks(0); /* nobody waits, or nobody asks */

    run(f, &fast, 200 * MS);
    assert_int_equal(f->nsamples, f->nsweeps);
    fake_free(f);
}

static void test_seed(void **state UNUSED)
{
    static const uint64_t seeds[] = {0, 1, UINT64_MAX};

    for (size_t i = 0; i < ARRAY_SIZE(seeds); i++) {
        struct fake *f = fake_new();
        struct sampler_config cfg = fast;
        double mean, spread;
        size_t out;

        cfg.seed = seeds[i];
        run(f, &cfg, 500 * MS);
        intervals(f->sweep, f->nsweeps, 10 * MS, &mean, &spread, &out);
        assert_true(spread > 0.15);
        fake_free(f);
    }
}

/* Costly sweeps: the whole must keep to its share, though ticks go on. */
static void check_share(double pct, nsec_t cpu, nsec_t probe_cpu, nsec_t relook_cpu)
{
    struct fake *f = fake_that_relooks(relook_cpu > 0 ? 2 * MS : 0);
    struct sampler_config cfg = fast;

    cfg.budget_pct = pct;
    f->cpu = cpu;
    f->probe_cpu = probe_cpu;
    f->relook_cpu = relook_cpu;
    f->words = probe_cpu > 0;
    nsec_t wall = clock_mono(), used = clock_process_cpu();
    run(f, &cfg, 4 * NSEC_PER_SEC);
    wall = clock_mono() - wall;
    used = clock_process_cpu() - used;
    /* One action beyond what there is, the first one on loan, and half a second's worth. */
    double action = (double)(cpu + probe_cpu + relook_cpu);
    double most = ((double)wall + 0.5e9) * pct / 100 + 2 * action + 5e6;
    print_message("share %.1f %%: used %.2f %% in %zu sweeps, %zu probes\n", pct,
                  (double)used / (double)wall * 100, f->nsweeps, f->nprobes);
    assert_true((double)used < most);
    /* Nor idle for nothing: what the tests before have used is paid back meanwhile. */
    assert_true((double)used > 0.15 * (double)wall * pct / 100);
    assert_true(f->limited);
    assert_true(f->nsweeps >= 3);
    /* Ticks wait for the budget too, but not for long. */
    assert_true(f->nticks >= 3);
    for (size_t i = 1; i < f->nticks; i++)
        assert_true(f->tick[i] - f->tick[i - 1] < 2 * NSEC_PER_SEC);
    fake_free(f);
}

static void test_budget_is_kept(void **state UNUSED)
{
    check_share(5, 4 * MS, 0, 0);
    check_share(10, 30 * MS, 0, 0);
    check_share(5, 1 * MS, 2 * MS, 0);
    check_share(5, 1 * MS, 0, 2 * MS);
}

static void test_cheap_is_not_limited(void **state UNUSED)
{
    struct fake *f = fake_new();

    run(f, &fast, 500 * MS);
    assert_false(f->limited);
    fake_free(f);
}

static void test_late(void **state UNUSED)
{
    struct fake *f = fake_new();

    f->sleep = 60 * MS; /* six intervals */
    run(f, &fast, 600 * MS);
    assert_true(f->nsweeps >= 2 && f->nsweeps <= 11); /* what was missed is not made up for */
    assert_true(f->nticks >= 2);
    fake_free(f);
}

/* Whatever comes next, it is not waited for. */
static void *stop_when_started(void *arg)
{
    struct fake *f = arg;
    uint64_t one = 1;

    while (__atomic_load_n(&f->nsamples, __ATOMIC_RELAXED) == 0)
        sched_yield();
    if (write(f->stop_fd, &one, sizeof(one)) != sizeof(one))
        abort();
    return NULL;
}

static void test_stop(void **state UNUSED)
{
    struct fake *f = fake_new();
    const struct sampler_config slow = {.sweep_hz = 0.01, .probe_hz = 0.01, .budget_pct = 100,
                                        .delay = 100 * NSEC_PER_SEC, .first = 100 * NSEC_PER_SEC};
    pthread_t t;

    nsec_t start = clock_mono();
    pthread_create(&t, NULL, stop_when_started, f);
    run(f, &slow, 1000 * NSEC_PER_SEC);
    assert_true(clock_mono() - start < 10 * NSEC_PER_SEC);
    pthread_join(t, NULL);
    assert_int_equal(f->nsweeps, 1);
    assert_int_equal(f->nticks, 0); /* nobody wants to see any more */
    fake_free(f);
}

static void test_stop_in_debt(void **state UNUSED)
{
    struct fake *f = fake_new();
    struct sampler_config cfg = fast;
    pthread_t t;

    cfg.budget_pct = 0.1; /* one sweep is worth minutes */
    cfg.delay = cfg.first = 100 * NSEC_PER_SEC;
    f->cpu = 100 * MS;
    nsec_t start = clock_mono();
    pthread_create(&t, NULL, stop_when_started, f);
    run(f, &cfg, 1000 * NSEC_PER_SEC);
    assert_true(clock_mono() - start < 10 * NSEC_PER_SEC);
    pthread_join(t, NULL);
    assert_true(f->nsweeps >= 1 && f->nsweeps <= 2);
    assert_int_equal(f->nticks, 0);
    fake_free(f);
}

static void test_stopped_before(void **state UNUSED)
{
    struct fake *f = fake_new();
    uint64_t one = 1;

    assert_int_equal(write(f->stop_fd, &one, sizeof(one)), sizeof(one));
    run(f, &fast, 1000 * NSEC_PER_SEC);
    assert_int_equal(f->nsweeps, 0);
    assert_int_equal(f->nticks, 0);
    fake_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget_start),
        cmocka_unit_test(test_budget_apart),
        cmocka_unit_test(test_budget_cap),
        cmocka_unit_test(test_budget_debt),
        cmocka_unit_test(test_budget_debt_and_loan),
        cmocka_unit_test(test_budget_extremes),
        cmocka_unit_test(test_budget_long_run),
        cmocka_unit_test(test_ends_with_the_target),
        cmocka_unit_test(test_random_offsets),
        cmocka_unit_test(test_no_probe_without_words),
        cmocka_unit_test(test_relook),
        cmocka_unit_test(test_relook_at_once),
        cmocka_unit_test(test_no_relook),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_budget_is_kept),
        cmocka_unit_test(test_cheap_is_not_limited),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_stop_in_debt),
        cmocka_unit_test(test_stopped_before),
    };

    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}

#include "sampler.h"

#include <errno.h>
#include <poll.h>
#include <sys/prctl.h>
#include <time.h>

#include "compiler.h"

#define BUCKET_SECONDS 0.5
/* What one action costs is known only when it has been spent. */
#define GIVEN_OUT 0.92
#define REPAYMENT 0.5
#define TICK_PATIENCE NSEC_PER_SEC
#define SHORT_DELAY   NSEC_PER_MSEC         /* of a second look */
#define RELOOK_ROOM   (500 * NSEC_PER_USEC) /* before the next sweep */

/* Budget ------------------------------------------------------------------------ */

void budget_init(struct budget *b, double pct, nsec_t now, nsec_t cpu)
{
    *b = (struct budget){
        .share = pct / 100 * GIVEN_OUT,
        .credit = -(double)cpu,
        .at = now,
        .cpu = cpu,
    };
}

void budget_settle(struct budget *b, nsec_t now, nsec_t cpu, nsec_t apart)
{
    double full = b->share * BUCKET_SECONDS * (double)NSEC_PER_SEC;
    double income = (double)(now - b->at) * b->share;
    double back = MIN(b->loan, income * REPAYMENT);
    double lent = (double)(apart - b->apart);

    b->loan += lent - back;
    b->credit = MIN(b->credit + income - back - (double)(cpu - b->cpu) + lent, full);
    b->at = now;
    b->cpu = cpu;
    b->apart = apart;
}

void budget_borrow(struct budget *b)
{
    if (b->credit < 0) {
        b->loan -= b->credit;
        b->credit = 0;
    }
}

nsec_t budget_wait(const struct budget *b)
{
    double income = b->share * (b->loan > 0 ? 1 - REPAYMENT : 1);

    return b->credit >= 0 ? 0 : (nsec_t)(-b->credit / income);
}

/* Schedule ---------------------------------------------------------------------- */

struct schedule {
    nsec_t sweep, probe, tick; /* when each is due */
    nsec_t sweep_every, probe_every;
    uint64_t random; /* state of xorshift64*, never 0 */
    struct budget budget;
    const struct sampler_config *cfg;
    bool limited; /* the budget makes the next sweep wait, or made the last one */
    uint64_t late;
    bool borrowed; /* the first sweep has been paid for by a loan */
    bool words;    /* the last sweep found words to probe */
    nsec_t tick_cost; /* CPU of the last */
    nsec_t relook; /* when those who wait are looked at again; 0: not */
};

static void settle(struct schedule *s, nsec_t now)
{
    /* First, so that what the other thread does in between is not taken for ours. */
    nsec_t cpu = clock_process_cpu();
    nsec_t apart = s->cfg->apart ? s->cfg->apart(s->cfg->apart_arg) : 0;

    budget_settle(&s->budget, now, cpu, apart);
}

/* xorshift64* (Vigna 2016): offsets need no better. Uniform in 0.5..1.5. */
static double jitter(struct schedule *s)
{
    s->random ^= s->random >> 12;
    s->random ^= s->random << 25;
    s->random ^= s->random >> 27;
    return 0.5 + (double)(s->random * UINT64_C(2685821657736338717) >> 11) * 0x1p-53;
}

static nsec_t after(struct schedule *s, nsec_t due, nsec_t every, nsec_t now)
{
    nsec_t next = due + (nsec_t)((double)every * jitter(s));

    /* What was missed is not made up for: a burst would look at the same moment twice. */
    return next > now ? next : now + (nsec_t)((double)every * jitter(s));
}

/* A sweep that must wait for the budget waits a random time too, 1 in the mean. */
static nsec_t not_in_debt(struct schedule *s, nsec_t due)
{
    nsec_t wait = budget_wait(&s->budget);

    if (wait == 0)
        return due;
    nsec_t paid = s->budget.at + (nsec_t)((double)wait * jitter(s));
    return paid > due ? paid : due;
}

/* Sleeps until WHEN. Returns true when STOP_FD has become readable. */
static bool wait_until(nsec_t when, int stop_fd)
{
    struct pollfd p = {.fd = stop_fd, .events = POLLIN};

    for (;;) {
        nsec_t left = when - clock_mono();
        if (left < 0)
            left = 0;
        struct timespec ts = {.tv_sec = left / NSEC_PER_SEC, .tv_nsec = left % NSEC_PER_SEC};
        int n = ppoll(&p, 1, &ts, NULL);
        if (n > 0)
            return true;
        if (n == 0 || errno != EINTR)
            return false;
    }
}

/* What comes out in time is worth more than one more look, as long as that leaves some: a snapshot
 * and what is made of it (about as much again) may take half of what is given out. */
static nsec_t patience(const struct schedule *s)
{
    double half = s->budget.share * (double)s->cfg->delay / 2;

    return 2 * (double)s->tick_cost <= half ? MIN(s->cfg->delay / 10, TICK_PATIENCE)
                                            : TICK_PATIENCE;
}

/* A tick costs too (a snapshot of a thousand locks is not cheap): in debt it is put off, but not
 * for long, for somebody waits for it. */
static nsec_t tick_due(const struct schedule *s)
{
    nsec_t wait = budget_wait(&s->budget);

    return wait == 0 ? s->tick : MIN(MAX(s->tick, s->budget.at + wait), s->tick + patience(s));
}

static nsec_t next_event(const struct schedule *s)
{
    nsec_t t = MIN(tick_due(s), s->sweep);

    if (s->relook)
        t = MIN(t, s->relook);
    return s->words && s->probe < t ? s->probe : t;
}

static void put_rates(const struct schedule *s, struct sample *sample)
{
    sample->self.late = s->late;
    sample->self.budget_limited = s->limited;
}

/* How long after a sweep to look again; 0: not at all. In debt, first things first. */
static nsec_t relook_delay(struct source *source, const struct schedule *s)
{
    if (!source->ops->relook_delay || budget_wait(&s->budget) > 0)
        return 0;
    return source->ops->relook_delay(source);
}

static void deliver(const struct schedule *s, const struct sampler_sink *sink,
                    struct sample *sample)
{
    put_rates(s, sample);
    sink->sample(sink->arg, sample);
}

static void do_relook(struct source *source, struct schedule *s, const struct sampler_sink *sink)
{
    struct sample sample;

    s->relook = 0;
    source->ops->relook(source, &sample);
    deliver(s, sink, &sample);
    settle(s, clock_mono());
}

/* A sample takes as long to be digested as a short delay may last: then that comes first. */
static bool relook_at_once(struct source *source, nsec_t when, nsec_t delay, int stop_fd,
                           struct sample *out)
{
    if (delay <= 0 || delay > SHORT_DELAY || wait_until(when, stop_fd))
        return false;
    source->ops->relook(source, out);
    return true;
}

/* The next sweep must not come before the second look at this one: there is time for it up to
 * shortly before. */
static void plan_relook(struct schedule *s, nsec_t swept, nsec_t delay)
{
    s->relook = delay > 0 ? MIN(swept + delay, s->sweep - RELOOK_ROOM) : 0;
}

static size_t do_sweep(struct source *source, struct schedule *s, const struct sampler_sink *sink,
                       int stop_fd)
{
    struct sample sample, again;
    nsec_t now = clock_mono();

    s->late += now - s->sweep > s->sweep_every / 2;
    size_t alive = source->ops->sweep(source, &sample);
    nsec_t swept = clock_mono(), delay = alive > 0 ? relook_delay(source, s) : 0;
    bool done = relook_at_once(source, swept + delay, delay, stop_fd, &again);
    deliver(s, sink, &sample);
    if (done)
        deliver(s, sink, &again);
    s->words = source->ops->wants_probe(source);
    now = clock_mono();
    nsec_t due = after(s, s->sweep, s->sweep_every, now);
    settle(s, now);
    if (!s->borrowed)
        budget_borrow(&s->budget);
    s->borrowed = true;
    s->sweep = not_in_debt(s, due);
    s->limited = s->sweep > due;
    plan_relook(s, swept, done ? 0 : delay);
    return alive;
}

static void do_probe(struct source *source, struct schedule *s, const struct sampler_sink *sink)
{
    struct sample sample;

    source->ops->probe(source, &sample);
    deliver(s, sink, &sample);
    nsec_t now = clock_mono();
    settle(s, now);
    s->probe = not_in_debt(s, after(s, s->probe, s->probe_every, now));
}

static void init(struct schedule *s, const struct sampler_config *cfg, nsec_t now)
{
    *s = (struct schedule){
        .cfg = cfg,
        .sweep = now,
        .tick = now + cfg->first,
        .sweep_every = (nsec_t)((double)NSEC_PER_SEC / cfg->sweep_hz),
        .probe_every = (nsec_t)((double)NSEC_PER_SEC / cfg->probe_hz),
        .random = cfg->seed ? cfg->seed : 1,
    };
    s->probe = now + s->probe_every;
    budget_init(&s->budget, cfg->budget_pct, now, clock_process_cpu());
}

void sampler_run(struct source *source, const struct sampler_config *cfg,
                 const struct sampler_sink *sink, int stop_fd)
{
    struct schedule s;

    /* The default slack of 50 us would shift every wake-up the same way. */
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    init(&s, cfg, clock_mono());
    while (!wait_until(next_event(&s), stop_fd)) {
        nsec_t now = clock_mono();
        if (s.relook && now >= s.relook && now < s.sweep) {
            do_relook(source, &s, sink);
        } else if (now >= s.sweep) {
            if (do_sweep(source, &s, sink, stop_fd) == 0) {
                sink->tick(sink->arg);
                return;
            }
        } else if (s.words && now >= s.probe) {
            do_probe(source, &s, sink);
        }
        now = clock_mono();
        if (now >= tick_due(&s)) {
            nsec_t before = clock_thread_cpu();
            sink->tick(sink->arg);
            s.tick_cost = clock_thread_cpu() - before;
            settle(&s, clock_mono());
            s.tick += cfg->delay;
            if (s.tick < now)
                s.tick = now + cfg->delay;
        }
    }
}

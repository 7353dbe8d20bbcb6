/* unit_locktab - one row per lock: merging, keeping, expiring, means, busy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "../src/locktab.h"
#include "model_build.h"

#define START (1000 * NSEC_PER_SEC)

static const struct process_fact SHOP = {.pid = 16147, .start_ticks = 5000};

struct table {
    struct locktab t;
    nsec_t mono;
    struct sample sample;
};

static void begin(struct table *b, enum sample_kind kind, nsec_t after)
{
    b->mono = (b->mono ? b->mono : START) + after;
    b->sample = (struct sample){.kind = kind, .mono = b->mono, .processes = &SHOP, .nprocesses = 1};
    locktab_begin(&b->t, &b->sample, START);
}

static struct wait_class class_of(enum lock_kind kind, enum confidence c, uint64_t object)
{
    return (struct wait_class){
        .kind = kind, .confidence = c, .layout = LAYOUT_GLIBC64, .object = object};
}

/* N threads of P wait on the word at ADDR of OBJECT. */
static struct lock_row *wait_at(struct table *b, const struct process_fact *p,
                                const struct word_fact *word, uint64_t addr, enum lock_kind kind,
                                uint64_t object, int n)
{
    struct wait_class c = class_of(kind, CONF_CONFIRMED, object);
    struct lock_row *r = NULL;
    for (int i = 0; i < n; i++) {
        r = locktab_row(&b->t, p, word, addr, &c);
        locktab_wait(&b->t, r, p);
    }
    return r;
}

static struct lock_row *wait_mutex(struct table *b, int n)
{
    return wait_at(b, &SHOP, NULL, 0x1000, KIND_MUTEX, 0x1000, n);
}

static size_t rows(const struct table *b)
{
    return HASH_COUNT(b->t.rows);
}

static void test_two_words_of_one_object(void **state)
{
    (void)state;
    struct table b = {0};

    begin(&b, SAMPLE_SWEEP, 0);
    struct lock_row *readers = wait_at(&b, &SHOP, NULL, 0x1008, KIND_RWLOCK, 0x1000, 3);
    struct lock_row *writers = wait_at(&b, &SHOP, NULL, 0x100c, KIND_RWLOCK, 0x1000, 2);
    struct lock_row *first = wait_at(&b, &SHOP, NULL, 0x2028, KIND_COND, 0x2000, 4);
    struct lock_row *second = wait_at(&b, &SHOP, NULL, 0x202c, KIND_COND, 0x2000, 1);
    locktab_end_sweep(&b.t);
    assert_ptr_equal(readers, writers);
    assert_ptr_equal(first, second);
    assert_int_equal(locktab_waiters(&b.t, readers), 5);
    assert_int_equal(locktab_waiters(&b.t, first), 5);
    assert_int_equal(rows(&b), 2);
    assert_ptr_equal(locktab_linked(&b.t, &SHOP, NULL, 0x1008), readers);
    assert_ptr_equal(locktab_linked(&b.t, &SHOP, NULL, 0x100c), readers);
    assert_null(locktab_linked(&b.t, &SHOP, NULL, 0x1000));
    locktab_release(&b.t);
}

static void test_two_processes_keep_apart(void **state)
{
    (void)state;
    struct table b = {0};
    struct process_fact other = SHOP;

    other.pid++;
    begin(&b, SAMPLE_SWEEP, 0);
    struct lock_row *r = wait_mutex(&b, 1);
    struct lock_row *q = wait_at(&b, &other, NULL, 0x1000, KIND_MUTEX, 0x1000, 1);
    assert_ptr_not_equal(r, q);
    assert_string_not_equal(r->id, q->id);
    assert_int_equal(r->npids, 1);
    assert_int_equal(q->npids, 1);
    locktab_release(&b.t);
}

static void test_shared_from_two_processes(void **state)
{
    (void)state;
    struct table b = {0};
    struct process_fact other = SHOP;
    struct word_fact here = {.addr = 0x7000,
                             .region = REGION_SHARED,
                             .dev = 1,
                             .inode = 2,
                             .offset = 64,
                             .path = "/dev/shm/pool"};
    struct word_fact there = here;

    other.pid++;
    there.addr = 0x9040;
    begin(&b, SAMPLE_SWEEP, 0);
    struct lock_row *r = wait_at(&b, &SHOP, &here, 0x7000, KIND_MUTEX, 0x7000, 2);
    assert_int_equal(r->npids, 1);
    assert_ptr_equal(wait_at(&b, &other, &there, 0x9040, KIND_MUTEX, 0x9040, 3), r);
    assert_int_equal(r->npids, 2);
    assert_int_equal(locktab_waiters(&b.t, r), 5);
    assert_string_equal(r->path, "/dev/shm/pool");
    assert_int_equal(r->pid, SHOP.pid);
    locktab_release(&b.t);
}

/* What was known of a word is not believed of other memory at the same address. */
static void test_links_end_with_the_memory(void **state)
{
    (void)state;
    struct table b = {0};
    struct process_fact execed = SHOP, reused = SHOP;
    struct word_fact shared = {
        .addr = 0x1000, .region = REGION_SHARED, .dev = 1, .inode = 2, .offset = 4096};
    struct word_fact moved = shared, other = shared, anon = {.addr = 0x1000};

    execed.execs++;
    reused.start_ticks++;
    moved.offset += 4096;
    other.inode++;
    begin(&b, SAMPLE_SWEEP, 0);
    struct lock_row *r = wait_mutex(&b, 1);
    assert_ptr_equal(locktab_linked(&b.t, &SHOP, &anon, 0x1000), r);
    assert_null(locktab_linked(&b.t, &execed, NULL, 0x1000));
    assert_null(locktab_linked(&b.t, &reused, NULL, 0x1000));
    assert_null(locktab_linked(&b.t, &SHOP, &shared, 0x1000));
    struct lock_row *s = wait_at(&b, &SHOP, &shared, 0x1000, KIND_MUTEX, 0x1000, 1);
    assert_ptr_not_equal(s, r);
    assert_ptr_equal(locktab_linked(&b.t, &SHOP, &shared, 0x1000), s);
    assert_null(locktab_linked(&b.t, &SHOP, &moved, 0x1000));
    assert_null(locktab_linked(&b.t, &SHOP, &other, 0x1000));
    assert_null(locktab_linked(&b.t, &SHOP, &anon, 0x1000));
    struct lock_row *e = wait_at(&b, &execed, NULL, 0x1000, KIND_MUTEX, 0x1000, 1);
    assert_ptr_not_equal(e, r);
    assert_string_not_equal(e->id, r->id);
    locktab_release(&b.t);
}

static void test_kinds_improve_and_never_fall(void **state)
{
    (void)state;
    struct table b = {0};
    static const struct {
        enum lock_kind kind;
        enum confidence confidence;
        enum lock_kind then;
    } steps[] = {
        {KIND_FUTEX, CONF_UNKNOWN, KIND_FUTEX},
        {KIND_FUTEX_LOCK, CONF_LIKELY, KIND_FUTEX_LOCK},
        {KIND_FUTEX, CONF_UNKNOWN, KIND_FUTEX_LOCK},
        {KIND_LIBC, CONF_LIKELY, KIND_FUTEX_LOCK},
        {KIND_MUTEX, CONF_CONFIRMED, KIND_MUTEX},
        {KIND_FUTEX_LOCK, CONF_LIKELY, KIND_MUTEX},
        {KIND_SEM, CONF_CONFIRMED, KIND_SEM}, /* memory that was used again */
    };

    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        begin(&b, SAMPLE_SWEEP, TICK);
        struct wait_class c = class_of(steps[i].kind, steps[i].confidence, 0x1000);
        struct lock_row *r = locktab_row(&b.t, &SHOP, NULL, 0x1000, &c);
        locktab_wait(&b.t, r, &SHOP);
        locktab_end_sweep(&b.t);
        assert_int_equal(r->kind, steps[i].then);
    }
    assert_int_equal(rows(&b), 1);
    locktab_release(&b.t);
}

/* Windows -------------------------------------------------------------------------------------- */

static void test_means(void **state)
{
    (void)state;
    struct table b = {0};
    struct lock_row *r = NULL;

    /* 4 waiters for 5 s, nobody for 5 s: the time is counted in which nobody waits */
    for (int i = 0; i < 500; i++) {
        begin(&b, SAMPLE_SWEEP, i ? TICK : 0);
        if (i < 250)
            r = wait_mutex(&b, 4);
        locktab_end_sweep(&b.t);
        if (i == 249)
            assert_float_equal(locktab_mean(&b.t, r, 1), 4, 1e-9);
    }
    assert_int_equal(locktab_waiters(&b.t, r), 0);
    assert_float_equal(locktab_mean(&b.t, r, 1), 0, 1e-9);
    assert_float_equal(locktab_mean(&b.t, r, 10), 2, 1e-9);
    assert_float_equal(locktab_mean(&b.t, r, 60), 2, 1e-9);
    assert_float_equal(locktab_second(&b.t, r, 1), 0, 1e-9);
    assert_float_equal(locktab_second(&b.t, r, 5), 4, 1e-9);
    locktab_release(&b.t);
}

/* Half the sweeps in half the time: the mean is over looks, not over a fixed rate. */
static void test_means_at_uneven_rates(void **state)
{
    (void)state;
    struct table b = {0};
    struct lock_row *r = NULL;

    for (int i = 0; i < 300; i++) {
        begin(&b, SAMPLE_SWEEP, (i % 5 + 1) * TICK / 3);
        r = wait_mutex(&b, i % 2 ? 2 : 4);
        locktab_end_sweep(&b.t);
        begin(&b, SAMPLE_PROBE, TICK / 9); /* adds nothing */
    }
    assert_float_equal(locktab_mean(&b.t, r, 10), 3, 0.05);
    assert_float_equal(locktab_mean(&b.t, r, 60), 3, 0.01);
    locktab_release(&b.t);
}

static void test_mean_without_a_sweep(void **state)
{
    (void)state;
    struct table b = {0};

    begin(&b, SAMPLE_SWEEP, 0);
    struct lock_row *r = wait_mutex(&b, 4);
    locktab_end_sweep(&b.t);
    begin(&b, SAMPLE_PROBE, 5 * NSEC_PER_SEC);
    assert_true(isnan(locktab_mean(&b.t, r, 1)));
    assert_float_equal(locktab_mean(&b.t, r, 10), 4, 1e-9);
    assert_true(isnan(locktab_second(&b.t, r, 1)));
    locktab_release(&b.t);
}

/* Expiry --------------------------------------------------------------------------------------- */

static void idle_sweeps(struct table *b, int n, nsec_t every)
{
    for (int i = 0; i < n; i++) {
        begin(b, SAMPLE_SWEEP, every);
        locktab_end_sweep(&b->t);
    }
}

static void test_rows_go_after_a_minute(void **state)
{
    (void)state;
    struct table b = {0};

    begin(&b, SAMPLE_SWEEP, 0);
    wait_mutex(&b, 1);
    wait_at(&b, &SHOP, NULL, 0x1008, KIND_RWLOCK, 0x1100, 1);
    locktab_end_sweep(&b.t);
    idle_sweeps(&b, 59 * 50, TICK);
    assert_int_equal(rows(&b), 2);
    idle_sweeps(&b, 4 * 50, TICK);
    assert_int_equal(rows(&b), 0);
    assert_int_equal(HASH_COUNT(b.t.links), 0);
    locktab_release(&b.t);
}

static void test_rows_stay_while_waited_for(void **state)
{
    (void)state;
    struct table b = {0};
    struct lock_row *r = NULL;

    for (int i = 0; i < 200; i++) {
        begin(&b, SAMPLE_SWEEP, NSEC_PER_SEC);
        struct lock_row *now = wait_mutex(&b, 1);
        locktab_end_sweep(&b.t);
        assert_true(!r || now == r);
        r = now;
    }
    assert_int_equal(rows(&b), 1);
    locktab_release(&b.t);
}

/* lock-top was stopped for five minutes; the waiters slept on and their row is still theirs. It
 * must hold at whichever sweep the table happens to be cleaned. */
static void test_rows_survive_a_stop_of_lock_top(void **state)
{
    (void)state;
    for (int before = 1; before <= 130; before++) {
        struct table b = {0};
        struct lock_row *r = NULL;
        for (int i = 0; i < before; i++) {
            begin(&b, SAMPLE_SWEEP, TICK);
            r = wait_mutex(&b, 3);
            locktab_end_sweep(&b.t);
        }
        begin(&b, SAMPLE_SWEEP, 300 * NSEC_PER_SEC);
        locktab_wait(&b.t, r, &SHOP); /* threads keep the pointer while they sleep */
        locktab_end_sweep(&b.t);
        assert_int_equal(rows(&b), 1);
        assert_int_equal(locktab_waiters(&b.t, r), 1);
        assert_float_equal(locktab_mean(&b.t, r, 10), 1, 1e-9);
        locktab_release(&b.t);
    }
}

/* Busy ----------------------------------------------------------------------------------------- */

/* A sample with the words WORDS, all of SHOP. */
static void look(struct table *b, struct word_fact *words, size_t n)
{
    b->sample.words = words;
    b->sample.nwords = n;
    locktab_words(&b->t, &b->sample);
    if (b->sample.kind == SAMPLE_SWEEP)
        locktab_end_sweep(&b->t);
}

static struct word_fact mutex_word(uint32_t lock, uint32_t owner)
{
    struct word_fact w = {.addr = 0x1000, .region = REGION_ANON, .maybe_lock = true, .early = blank_view()};

    put_mutex(&w.early, lock, owner, 0);
    w.late = w.early;
    return w;
}

static void test_busy_from_sweeps_and_probes(void **state)
{
    (void)state;
    struct table b = {0};
    struct lock_row *r = NULL;

    for (int i = 0; i < 100; i++) {
        /* one sweep finds it held, three probes find it free */
        struct word_fact w = mutex_word(2, 42);
        begin(&b, SAMPLE_SWEEP, TICK / 4);
        r = wait_mutex(&b, 1);
        look(&b, &w, 1);
        for (int k = 0; k < 3; k++) {
            w = mutex_word(0, 0);
            begin(&b, SAMPLE_PROBE, TICK / 4);
            look(&b, &w, 1);
        }
        if (i < 2)
            assert_true(isnan(locktab_busy(&b.t, r)));
    }
    assert_float_equal(locktab_busy(&b.t, r), 0.25, 1e-9);
    locktab_release(&b.t);
}

/* A counter that stays at 2 is no lock; a word that is held and then free behaves like one. */
static void test_word_that_behaves_like_a_lock(void **state)
{
    (void)state;
    struct table b = {0};
    struct lock_row *r = NULL;

    for (int i = 0; i < 20; i++) {
        struct word_fact w = mutex_word(i < 10 ? 2 : 0, 0);
        struct wait_class c = class_of(KIND_FUTEX_LOCK, CONF_UNKNOWN, 0x1000);
        begin(&b, SAMPLE_SWEEP, TICK);
        r = locktab_row(&b.t, &SHOP, NULL, 0x1000, &c);
        locktab_wait(&b.t, r, &SHOP);
        if (i >= 15) /* until then one thread alone: that may be where it parks */
            locktab_wait(&b.t, r, &SHOP);
        look(&b, &w, 1);
        assert_int_equal(r->confidence, i < 15 ? CONF_UNKNOWN : CONF_LIKELY);
    }
    locktab_release(&b.t);
}

/* Two words of one object in one sample are one look. */
static void test_busy_once_per_sample(void **state)
{
    (void)state;
    struct table b = {0};
    struct lock_row *r = NULL;

    for (int i = 0; i < 40; i++) {
        struct word_fact w[2] = {{.addr = 0x1008, .region = REGION_ANON, .maybe_lock = true, .early = blank_view()},
                                 {.addr = 0x100c, .region = REGION_ANON, .maybe_lock = true, .early = blank_view()}};
        bool held = i % 2;
        put_rwlock(&w[0].early, -8, held ? 3 : 0, held ? 42 : 0);
        put_rwlock(&w[1].early, -12, 0, 0); /* as free: must not count beside the first */
        begin(&b, SAMPLE_SWEEP, TICK);
        r = wait_at(&b, &SHOP, NULL, 0x1008, KIND_RWLOCK, 0x1000, 1);
        wait_at(&b, &SHOP, NULL, 0x100c, KIND_RWLOCK, 0x1000, 1);
        look(&b, w, 2);
    }
    assert_int_equal(window_sum(&r->busy->looks, b.t.now, 10), 40);
    assert_float_equal(locktab_busy(&b.t, r), 0.5, 1e-9);
    locktab_release(&b.t);
}

static void test_no_busy_where_it_means_nothing(void **state)
{
    (void)state;
    static const enum lock_kind kinds[] = {KIND_COND,  KIND_SEM,  KIND_BARRIER, KIND_JOIN,
                                           KIND_FUTEX, KIND_ONCE, KIND_MUTEX};

    for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
        struct table b = {0};
        struct lock_row *r = NULL;
        for (int i = 0; i < 20; i++) {
            struct word_fact w = mutex_word(1, 42);
            if (kinds[k] == KIND_MUTEX) /* a lock, but what it says could not be read */
                w.early.lo = w.early.hi = 0;
            begin(&b, SAMPLE_SWEEP, TICK);
            r = wait_at(&b, &SHOP, NULL, 0x1000, kinds[k], 0x1000, 1);
            look(&b, &w, 1);
        }
        assert_true(isnan(locktab_busy(&b.t, r)));
        locktab_release(&b.t);
    }
}

/* Holders -------------------------------------------------------------------------------------- */

/* An object's words are read one after the other; one that is new or unreadable in this sweep
 * takes nothing from what the other proves. */
static void test_holder_from_the_better_word(void **state)
{
    (void)state;
    for (int order = 0; order < 4; order++) {
        struct table b = {0};
        struct word_fact w[2] = {{.addr = 0x1008, .maybe_lock = true, .early = blank_view(), .late = blank_view()},
                                 {.addr = 0x100c, .maybe_lock = true, .early = blank_view(), .late = blank_view()}};
        put_rwlock(&w[0].early, -8, 3, 42);
        put_rwlock(&w[1].early, -12, 3, 42);
        w[0].late = w[0].early;
        w[1].late = w[1].early;
        struct word_fact *worse = &w[order % 2];
        worse->early.lo = worse->early.hi = 0;
        if (order >= 2)
            worse->late.lo = worse->late.hi = 0;
        begin(&b, SAMPLE_SWEEP, TICK);
        struct lock_row *r = wait_at(&b, &SHOP, NULL, 0x1008, KIND_RWLOCK, 0x1000, 1);
        wait_at(&b, &SHOP, NULL, 0x100c, KIND_RWLOCK, 0x1000, 1);
        look(&b, w, 2);
        assert_true(r->holder.known && r->holder.agreed);
        assert_int_equal(r->holder.late.owner, 42);
        locktab_release(&b.t);
    }
}

static void test_holder_is_forgotten_when_unread(void **state)
{
    (void)state;
    struct table b = {0};
    struct word_fact w = mutex_word(2, 42);

    begin(&b, SAMPLE_SWEEP, TICK);
    struct lock_row *r = wait_mutex(&b, 1);
    look(&b, &w, 1);
    assert_true(r->holder.agreed);
    w.early.hi = w.early.lo = w.late.hi = w.late.lo = 0;
    begin(&b, SAMPLE_SWEEP, TICK);
    wait_mutex(&b, 1);
    look(&b, &w, 1);
    assert_false(r->holder.known || r->holder.agreed);
    begin(&b, SAMPLE_SWEEP, TICK);
    wait_mutex(&b, 1);
    look(&b, &w, 0); /* not in the sample at all */
    assert_false(r->holder.known);
    locktab_release(&b.t);
}

static void test_holder_since(void **state)
{
    (void)state;
    struct table b = {0};
    static const uint32_t owners[] = {42, 42, 42, 43, 43, 42};
    static const int since[] = {1, 1, 1, 4, 4, 6};

    for (size_t i = 0; i < ARRAY_SIZE(owners); i++) {
        struct word_fact w = mutex_word(2, owners[i]);
        begin(&b, SAMPLE_SWEEP, TICK);
        struct lock_row *r = wait_mutex(&b, 1);
        look(&b, &w, 1);
        assert_int_equal(r->holder.since, since[i] * TICK);
    }
    /* nobody waits and nobody looks for a while: whoever holds it then may be another */
    idle_sweeps(&b, 10, TICK);
    struct word_fact w = mutex_word(2, 42);
    begin(&b, SAMPLE_SWEEP, TICK);
    struct lock_row *r = wait_mutex(&b, 1);
    look(&b, &w, 1);
    assert_int_equal(r->holder.since, 17 * TICK);
    locktab_release(&b.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_words_of_one_object),
        cmocka_unit_test(test_two_processes_keep_apart),
        cmocka_unit_test(test_shared_from_two_processes),
        cmocka_unit_test(test_links_end_with_the_memory),
        cmocka_unit_test(test_kinds_improve_and_never_fall),
        cmocka_unit_test(test_means),
        cmocka_unit_test(test_means_at_uneven_rates),
        cmocka_unit_test(test_mean_without_a_sweep),
        cmocka_unit_test(test_rows_go_after_a_minute),
        cmocka_unit_test(test_rows_stay_while_waited_for),
        cmocka_unit_test(test_rows_survive_a_stop_of_lock_top),
        cmocka_unit_test(test_busy_from_sweeps_and_probes),
        cmocka_unit_test(test_word_that_behaves_like_a_lock),
        cmocka_unit_test(test_busy_once_per_sample),
        cmocka_unit_test(test_no_busy_where_it_means_nothing),
        cmocka_unit_test(test_holder_from_the_better_word),
        cmocka_unit_test(test_holder_is_forgotten_when_unread),
        cmocka_unit_test(test_holder_since),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

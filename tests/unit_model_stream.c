/* unit_model_stream - the same stream of samples gives the same snapshots, byte by byte; and a
 * large one is taken in fair time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model_build.h"

#define ADDR UINT64_C(0x7f0000001000)

static unsigned next(unsigned *random)
{
    *random = *random * 1103515245u + 12345u;
    return *random / 65536;
}

/* Something happens to thread TID of P: locks, conditions, shared words, running, ending. */
static void happens(struct world *w, struct built_process *p, pid_t tid, unsigned *random)
{
    uint64_t addr = ADDR + next(random) % 6 * 128;
    struct built_word *word;

    switch (next(random) % 8) {
    case 0:
        waits(p, tid, addr, 0x80, 2);
        put_mutex(&word_at(p, addr)->memory, 2, (uint32_t)p->threads[0].fact.tid, 0);
        break;
    case 1:
        waits(p, tid, addr + 64, 0x189, 3);
        put_rwlock(&word_at(p, addr + 64)->memory, -8, 11, (uint32_t)tid);
        break;
    case 2:
        waits(p, tid, addr + 40, 0x189, 0);
        put_cond(&word_at(p, addr + 40)->memory, -40, 3, 0);
        break;
    case 3:
        word = shared_word(p, addr + 0x10000 * (uint64_t)p->fact.pid, 77, addr & 0xfff);
        waits(p, tid, word->fact.addr, FUTEX_WAIT, 2);
        put_mutex(&word->memory, 2, 300, 128);
        word->changes = next(random) % 2;
        word->later = word->memory;
        put32(&word->later, 8, 301);
        break;
    case 4:
        if (p->n > 3)
            end_thread(p, tid);
        break;
    case 5:
        add_thread(w, p, 5000 + (pid_t)w->slots);
        break;
    case 6:
        calls(p, tid, (enum call)(next(random) % CALL_COUNT));
        break;
    default:
        wakes(p, tid)->fact.run_ns += 1000 * next(random);
    }
}

/* A stream with a snapshot now and then, as one text; LITTER is allocated in between, so that
 * nothing can depend on where memory comes to lie. */
static char *run(unsigned seed, bool litter)
{
    struct world *w = world_new();
    unsigned random = seed;
    char *all = NULL;
    size_t size;
    FILE *out = open_memstream(&all, &size);
    void *junk[64] = {NULL};

    add_busy_process(w, 100, 12);
    add_busy_process(w, 300, 12);
    for (int i = 0; i < 1500; i++) {
        struct built_process *p = &w->procs[next(&random) % 2];
        happens(w, p, p->threads[next(&random) % p->n].fact.tid, &random);
        if (litter) {
            free(junk[i % 64]);
            junk[i % 64] = xmalloc((size_t)(i * 37 % 900 + 1));
        }
        if (i % 5 == 0)
            probe(w, TICK / 4);
        w->procs[i % 2].fact.execs += i == 700;
        sweep(w, (nsec_t)(next(&random) % 40) * NSEC_PER_MSEC);
        if (i % 30 == 0) {
            struct snapshot *s = snapshot_now(w);
            assert_int_equal(render_json(out, s), 0);
            snapshot_free(s);
        }
    }
    fclose(out);
    for (size_t i = 0; i < ARRAY_SIZE(junk); i++)
        free(junk[i]);
    world_free(w);
    return all;
}

static void test_same_samples_same_snapshots(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 5; seed++) {
        char *first = run(seed, false), *second = run(seed, true);
        assert_true(strlen(first) > 50000);
        assert_non_null(strstr(first, "\"rwlock\""));
        assert_non_null(strstr(first, "shm:"));
        assert_string_equal(first, second);
        free(first);
        free(second);
    }
}

/* 10,000 threads: half idle on one condition variable, the rest on 1,000 locks. */
static void test_ten_thousand_threads(void **state)
{
    (void)state;
    enum { N = 10000, SWEEPS = 50 };
    struct world *w = world_new();
    struct built_process *p = add_busy_process(w, 100, N);
    struct sample s = {.kind = SAMPLE_SWEEP, .nprocesses = 1};
    nsec_t spent = 0;

    for (int i = 1; i < N; i++) {
        struct built_thread *t = &p->threads[i];
        t->fact.seen = SEEN_CALL;
        t->fact.call = CALL_futex;
        uint64_t addr = i < N / 2 ? ADDR + 40 : ADDR + 128 + (uint64_t)(i % 1000) * 128;
        const uint64_t arg[6] = {addr, i < N / 2 ? 0x189 : 0x80, i < N / 2 ? 0 : 2};
        assert_true(futex_decode(CALL_futex, arg, &t->fact.futex));
        t->word = addr;
    }
    put_cond(&word_at(p, ADDR + 40)->memory, -40, N / 2, 0);
    for (int k = 0; k < 1000; k++)
        put_mutex(&word_at(p, ADDR + 128 + (uint64_t)k * 128)->memory, 2, 100, 0);
    s.nwords = 0;
    for (int i = 0; i < SWEEPS; i++) {
        w->mono += TICK;
        s.mono = s.wall = w->mono;
        s.nprocesses = emit_processes(w, &w->sweep_procs);
        s.nwords = emit_words(w, &w->sweep_words, true);
        if (i == 0 || i == SWEEPS / 2)
            emit_threads(w, s.nwords);
        s.processes = w->sweep_procs;
        s.words = w->sweep_words;
        w->sweep_procs[0].threads = w->sweep_threads;
        w->sweep_procs[0].nthreads = N;
        nsec_t before = clock_thread_cpu();
        model_feed(w->model, &s);
        spent += clock_thread_cpu() - before;
    }
    nsec_t before = clock_thread_cpu();
    struct snapshot *snap = snapshot_now(w);
    nsec_t last = clock_thread_cpu() - before;
    print_message("10,000 threads, 1,001 objects: %.2f ms a sweep, %.2f ms a snapshot\n",
                  (double)spent / SWEEPS / 1e6, (double)last / 1e6);
    assert_int_equal(snap->nlocks, 512 + 1); /* of 1,000 locks the first; the idle pool */
    assert_int_equal(snap->sync_objects, 1);
    assert_int_equal(snap->self.ndegraded, 1);
    assert_string_equal(snap->self.degraded[0], "488 more locks are waited for and not listed");
    assert_int_equal(snap->locks[0].waiters, N / 2 - 1);
    assert_int_equal(snap->locks[0].nwaiter_threads, SNAP_MAX_WAITERS);
    snapshot_free(snap);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_samples_same_snapshots),
        cmocka_unit_test(test_ten_thousand_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

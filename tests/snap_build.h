/*
 * snap_build.h - snapshots built by hand for the tests of what renders them. Include it behind
 * cmocka.h.
 */
#ifndef LT_SNAP_BUILD_H
#define LT_SNAP_BUILD_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/compiler.h"
#include "../src/render.h"

#define WALL (INT64_C(1796054845) * NSEC_PER_SEC + 123 * NSEC_PER_MSEC)

static inline struct snap_lock blank_lock(const char *id, enum lock_kind kind)
{
    return (struct snap_lock){
        .id = id,
        .class = lock_kind_class(kind),
        .kind = kind,
        .confidence = CONF_CONFIRMED,
        .pid = 16147,
        .held = -1,
        .waiters_avg_1s = NAN,
        .waiters_avg_10s = NAN,
        .waiters_avg_60s = NAN,
        .wait_share = NAN,
        .busy = NAN,
        .wait_ms = NAN,
        .wait_ms_p99 = NAN,
        .wait_ms_max = NAN,
        .contended_per_s = NAN,
        .acquired_per_s = NAN,
        .hold_us = NAN,
        .ceiling_per_s = NAN,
        .model_wait_ms = NAN,
    };
}

static inline struct snap_lock waited_lock(const char *id, enum lock_kind kind, int waiters)
{
    struct snap_lock l = blank_lock(id, kind);

    l.waiters = l.waiters_max = waiters;
    l.waiters_avg_1s = l.waiters_avg_10s = l.waiters_avg_60s = waiters;
    return l;
}

static inline struct snap_process healthy_process(pid_t pid, const char *comm)
{
    struct snap_process p = {
        .pid = pid,
        .threads = 3,
        .cpu_cores = 0.1,
        .cpus_allowed = 2,
        .rss_kb = 5120,
        .voluntary_per_s = 20,
    };

    snprintf(p.comm, sizeof(p.comm), "%s", comm);
    p.states[THREAD_SLEEP] = 3;
    return p;
}

static inline struct snapshot snapshot_of(const struct snap_process *p, size_t np,
                                          const struct snap_lock *l, size_t nl)
{
    struct snapshot s = {
        .wall = WALL,
        .elapsed = 10 * NSEC_PER_SEC,
        .host = "db1",
        .kernel = "6.18.44",
        .cpus = 2,
        .self = {.cpu_pct = 0.6,
                 .rss_kb = 5120,
                 .sweep_hz = 49.8,
                 .probe_hz = 198.2,
                 .samples = 598,
                 .vanished = 2,
                 .stop_us_max = NAN},
        .processes = p,
        .nprocesses = np,
        .looks = 500,
        .locks = l,
        .nlocks = nl,
        .verdict = "no contention",
    };

    for (size_t i = 0; i < nl; i++) {
        if (l[i].class == CLASS_SYNC && l[i].waiters > 0) {
            s.sync_objects++;
            s.sync_threads[l[i].kind] += l[i].waiters;
        }
    }
    return s;
}

/* S as JSON, or as text for a screen of WIDTH cells; the caller frees it. */
static inline char *render(const struct snapshot *s, bool json, bool ascii, int width)
{
    struct column_set set;
    struct text_style style = {&set, COL_AVG10, ascii};
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    column_set_default(&set, width, s->nprocesses > 1);
    if (json)
        assert_int_equal(render_json(out, s), 0);
    else
        render_text(out, s, &style);
    fclose(out);
    char *copy = xstrdup(text);
    free(text);
    return copy;
}

/* A database whose buffer pool lock is held across an fsync. ------------------------------- */

struct mariadb {
    struct snap_process process;
    struct snap_holder holders[4];
    struct snap_waiter waiters[2];
    struct snap_lock locks[7];
    const char *degraded[1];
    struct snapshot snapshot;
};

static inline void fill_mariadb_process(struct snap_process *p)
{
    *p = (struct snap_process){
        .pid = 16147,
        .comm = "mariadbd",
        .threads = 44,
        .cpu_cores = 1.3,
        .cpus_allowed = 2,
        .rss_kb = 317440,
        .voluntary_per_s = 8188,
        .involuntary_per_s = 12,
    };
    p->states[THREAD_RUNNING] = 1.3;
    p->states[THREAD_RUNQ] = 0.2;
    p->states[THREAD_LOCK] = 31;
    p->states[THREAD_SYNC] = 9;
    p->states[THREAD_NET] = 2;
    p->states[THREAD_DISK] = 0.1;
    p->states[THREAD_SLEEP] = 0.4;
}

static inline void fill_mariadb_holders(struct mariadb *m)
{
    m->holders[0] = (struct snap_holder){.pid = 16147,
                                         .tid = 16149,
                                         .comm = "io_write",
                                         .mode = MODE_EXCLUSIVE,
                                         .state = THREAD_DISK,
                                         .state_known = true,
                                         .detail = "fsync fd 12 /data/ibdata1",
                                         .confidence = CONF_CONFIRMED,
                                         .age_ms = 18.04};
    m->holders[1] = (struct snap_holder){.pid = 16147,
                                         .tid = 16160,
                                         .comm = "conn-3",
                                         .mode = MODE_EXCLUSIVE,
                                         .state = THREAD_LOCK,
                                         .state_known = true,
                                         .confidence = CONF_LIKELY,
                                         .age_ms = 12,
                                         .waits_for = "p16147:7f3200000040"};
    m->holders[2] = (struct snap_holder){
        .pid = 16147, .tid = 16151, .comm = "purge", .gone = true, .age_ms = NAN};
    m->holders[2].confidence = CONF_CONFIRMED;
    m->holders[3] = (struct snap_holder){
        .pid = -1, .tid = -1, .unrecorded = true, .detail = "not recorded by this lock",
        .age_ms = NAN};
    m->waiters[0] = (struct snap_waiter){16147, 16160, "conn-3", MODE_EXCLUSIVE, 12.1, "hard"};
    m->waiters[1] = (struct snap_waiter){16147, 16161, "conn-4", MODE_NONE, NAN, NULL};
}

static inline void fill_mariadb_buffer_pool(struct mariadb *m)
{
    struct snap_lock *l = &m->locks[0];

    *l = waited_lock("p16147:7f3200000040", KIND_MUTEX, 31);
    l->name = "buf_pool+0x40";
    l->address = 0x7f3200000040;
    l->waiters_avg_1s = 30.2;
    l->waiters_avg_10s = 28.4;
    l->waiters_avg_60s = 12.04999;
    l->wait_share = 0.64;
    l->busy = 0.98;
    l->holders = &m->holders[0];
    l->nholders = 1;
    l->waiter_threads = m->waiters;
    l->nwaiter_threads = 2;
    l->history[SNAP_HISTORY - 2] = 3;
    l->history[SNAP_HISTORY - 1] = 31;
    l->nhistory = 4;
}

static inline void fill_mariadb_locks(struct mariadb *m)
{
    fill_mariadb_buffer_pool(m);
    m->locks[1] = waited_lock("p16147:7f3200000100", KIND_RWLOCK, 4);
    m->locks[1].address = 0x7f3200000100;
    m->locks[1].holders = &m->holders[1];
    m->locks[1].nholders = 3;
    m->locks[2] = waited_lock("p16147:7f3200000200", KIND_MUTEX_ROBUST, 1);
    m->locks[2].address = 0x7f3200000200;
    m->locks[2].holders = &m->holders[2];
    m->locks[2].nholders = 1;
    m->locks[3] = waited_lock("f254:0:10952922", KIND_FLOCK, 2);
    m->locks[3].path = "/data/shop/session.lck";
    m->locks[3].confidence = CONF_LIKELY;
    m->locks[4] = waited_lock("s254:0:77:4096", KIND_FUTEX_LOCK, 1);
    m->locks[4].path = "/dev/shm/pool";
    m->locks[4].address = 0x7f3300001000;
    m->locks[4].pid = -1;
    m->locks[4].confidence = CONF_UNKNOWN;
    m->locks[4].holders = &m->holders[3];
    m->locks[4].nholders = 1;
    m->locks[5] = waited_lock("p16147:7f3200000300", KIND_COND, 8);
    m->locks[6] = waited_lock("p16147:7f3200000400", KIND_JOIN, 1);
}

static inline void fill_mariadb(struct mariadb *m)
{
    *m = (struct mariadb){.degraded = {"kinds are a guess for 2 threads: memory not readable"}};
    fill_mariadb_process(&m->process);
    fill_mariadb_holders(m);
    fill_mariadb_locks(m);
    m->snapshot = snapshot_of(&m->process, 1, m->locks, ARRAY_SIZE(m->locks));
    m->snapshot.severity = SEVERITY_CRITICAL;
    m->snapshot.verdict =
        "holder-blocked-io: io_write[16149] holds buf_pool+0x40 in fsync; 31 wait";
    m->snapshot.self.degraded = m->degraded;
    m->snapshot.self.ndegraded = 1;
}

#endif

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
        .attempts_per_s = NAN,
        .refused_share = NAN,
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
    m->holders[3] = (struct snap_holder){.pid = -1,
                                         .tid = -1,
                                         .unrecorded = true,
                                         .detail = "not recorded by this lock",
                                         .age_ms = NAN};
    m->waiters[0] = (struct snap_waiter){.pid = 16147, .tid = 16160, .comm = "conn-3",
                                         .mode = MODE_EXCLUSIVE, .age_ms = 12.1, .blocked_by = "hard"};
    m->waiters[1] = (struct snap_waiter){.pid = 16147, .tid = 16161, .comm = "conn-4",
                                         .mode = MODE_NONE, .age_ms = NAN, .blocked_by = NULL};
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

/* A shop with a convoy, a deadlock, a lock whose owner is gone, and all their stacks. ------ */

static const struct snap_frame shop_wait_frames[] = {
    {"__futex_abstimed_wait_common", 0xd2, "libc.so.6", 0x86962, NULL, 0},
    {"pthread_mutex_lock", 0x112, "libc.so.6", 0x8b482, NULL, 0},
    {"shop::Cart<std::map<std::string, std::vector<shop::Item> > >::add(shop::Item const&)", 0x1c,
     "shop", 0x125c, "/build/shop/src/cart.cc", 45},
    {NULL, 0, "libshop-plugin.so", 0x8b482, NULL, 0},
    {NULL, 0, NULL, 0x7f1200003f10, NULL, 0},
    {"start_thread", 0x304, "libc.so.6", 0x891f4, NULL, 0},
    {"clone3", 0x2c, "libc.so.6", 0x1098dc, NULL, 0},
};
static const struct snap_frame shop_sync_frames[] = {
    {"fsync", 0x24, "libc.so.6", 0xfe8c4, NULL, 0},
    {"journal_flush", 0x40, "shop", 0x2140, "journal.c", 112},
    {"worker", 0x1f0, "shop", 0x1920, NULL, 0},
    {"start_thread", 0x304, "libc.so.6", 0x891f4, NULL, 0},
};

struct shop {
    struct snap_process process;
    struct snap_holder holders[3];
    struct snap_waiter waiters[2];
    struct snap_stack stacks[9];
    struct snap_lock locks[4];
    struct snap_link convoy[2], cycle[2], lost[1];
    struct snap_chain chains[4];
    struct snap_thread threads[4];
    struct snapshot snapshot;
};

static inline struct snap_stack shop_stack(enum stack_role role, int count, const char *note)
{
    return (struct snap_stack){.role = role,
                               .count = count,
                               .share = 0.5,
                               .pid = 900,
                               .tid = 910 + count,
                               .complete = true,
                               .note = note,
                               .frames = note ? NULL : shop_wait_frames,
                               .nframes = note ? 0 : ARRAY_SIZE(shop_wait_frames)};
}

static inline void fill_shop_stacks(struct shop *m)
{
    m->stacks[0] = shop_stack(ROLE_WAITER, 12, NULL);
    m->stacks[1] = shop_stack(ROLE_WAITER, 3, NULL);
    m->stacks[1].presumed = true;
    m->stacks[1].complete = false;
    m->stacks[1].nframes = 2;
    m->stacks[2] = shop_stack(ROLE_WAITER, 2, "runs too often to be copied");
    m->stacks[3] = shop_stack(ROLE_WAITER, 1, NULL);
    m->stacks[3].complete = false;
    m->stacks[3].nframes = 1;
    m->stacks[4] = m->stacks[5] = m->stacks[3];
    m->stacks[6] = shop_stack(ROLE_HOLDER, 1, NULL);
    m->stacks[6].tid = 902;
    m->stacks[6].frames = shop_sync_frames;
    m->stacks[6].nframes = ARRAY_SIZE(shop_sync_frames);
    m->stacks[7] = m->stacks[6];
    m->stacks[7].role = ROLE_PROFILE;
    m->stacks[7].count = 62;
    m->stacks[7].share = 0.62;
    m->stacks[7].note = "disk";
    m->stacks[8] = shop_stack(ROLE_PROFILE, 38, NULL);
    m->stacks[8].share = 0.38;
    m->stacks[8].note = "running";
}

static inline struct snap_holder shop_holder(pid_t tid, const char *comm, enum thread_state state)
{
    struct snap_holder h = {.pid = 900,
                            .tid = tid,
                            .state = state,
                            .state_known = true,
                            .confidence = CONF_CONFIRMED,
                            .age_ms = 12};

    snprintf(h.comm, sizeof(h.comm), "%s", comm);
    return h;
}

static inline void fill_shop_locks(struct shop *m)
{
    m->holders[0] = shop_holder(902, "journal", THREAD_DISK);
    m->holders[1] = shop_holder(904, "b", THREAD_LOCK);
    m->holders[2] = shop_holder(899, "dead", THREAD_OTHER);
    m->holders[1].waits_for = "p900:2000";
    m->holders[2].gone = true;
    m->waiters[0] = (struct snap_waiter){.pid = 900, .tid = 922, .comm = "cart-1",
                                         .mode = MODE_NONE, .age_ms = 21.1, .blocked_by = "hard"};
    m->waiters[1] = (struct snap_waiter){.pid = 900, .tid = 913, .comm = "cart-2",
                                         .mode = MODE_NONE, .age_ms = 2, .blocked_by = "soft"};
    m->locks[0] = waited_lock("p900:1000", KIND_MUTEX, 20);
    m->locks[0].name = "journal_lock";
    m->locks[0].site = shop_wait_frames[2].name;
    m->locks[0].stacks = m->stacks;
    m->locks[0].nstacks = ARRAY_SIZE(m->stacks);
    m->locks[0].waiter_threads = m->waiters;
    m->locks[0].nwaiter_threads = 2;
    m->locks[1] = waited_lock("p900:2000", KIND_MUTEX, 1);
    m->locks[1].site = "queue_push";
    m->locks[2] = waited_lock("p900:3000", KIND_MUTEX, 1);
    m->locks[3] = waited_lock("c900:lock_wait", KIND_MONITOR, 1);
    m->locks[3].site = "lock_wait";
    m->locks[3].name = "InnoDB row lock";
    for (size_t i = 0; i < ARRAY_SIZE(m->locks); i++) {
        m->locks[i].pid = 900;
        m->locks[i].address = i < 3 ? 0x55d0c0e00000 + 0x1000 * i : 0;
        m->locks[i].holders = &m->holders[i];
        m->locks[i].nholders = i < 3;
    }
}

static inline struct snap_link shop_link(pid_t tid, const char *comm, enum thread_state state,
                                         const char *lock)
{
    struct snap_link l = {.pid = 900, .tid = tid, .state = state, .lock = lock};

    l.confidence = lock ? CONF_CONFIRMED : CONF_UNKNOWN;
    snprintf(l.comm, sizeof(l.comm), "%s", comm);
    return l;
}

static inline void fill_shop_chains(struct shop *m)
{
    m->cycle[0] = shop_link(903, "a", THREAD_LOCK, "p900:2000");
    m->cycle[1] = shop_link(904, "b", THREAD_LOCK, "p900:1000");
    m->chains[0] = (struct snap_chain){.end = CHAIN_CYCLE, .root = m->cycle[0], .depth = 2};
    m->chains[0].blocked = 2;
    m->chains[0].cycle = true;
    m->chains[0].confidence = CONF_CONFIRMED;
    m->chains[0].path = m->cycle;
    m->chains[0].npath = 2;
    m->chains[0].text = "DEADLOCK 2 threads: a[903] holds journal_lock, wants 0x55d0c0e01000 <- "
                        "b[904] holds 0x55d0c0e01000, wants journal_lock";
    m->convoy[0] = shop_link(922, "cart-1", THREAD_LOCK, "p900:1000");
    m->convoy[1] = shop_link(902, "journal", THREAD_DISK, NULL);
    m->chains[1] = (struct snap_chain){.end = CHAIN_OUTSIDE, .root = m->convoy[1], .depth = 1};
    m->chains[1].confidence = CONF_CONFIRMED;
    m->chains[1].detail = "fsync fd 7 /var/shop/journal";
    m->chains[1].blocked = 20;
    m->chains[1].path = m->convoy;
    m->chains[1].npath = 2;
    m->chains[1].text = "20 threads wait for journal[902], which is in fsync";
    m->chains[2] = m->chains[1];
    m->chains[2].depth = 3;
    m->chains[2].text = "3 threads wait, through 3 locks, for journal[902]";
    m->lost[0] = shop_link(905, "c", THREAD_LOCK, "p900:3000");
    m->lost[0].confidence = CONF_UNKNOWN; /* nobody is behind it */
    m->chains[3] = (struct snap_chain){.end = CHAIN_GONE, .root = m->lost[0], .depth = 1};
    m->chains[3].confidence = CONF_LIKELY;
    m->chains[3].blocked = 1;
    m->chains[3].path = m->lost;
    m->chains[3].npath = 1;
    m->chains[3].text = "c[905] waits for 0x55d0c0e02000, whose owner is gone";
}

static inline void fill_shop_threads(struct shop *m)
{
    static const char *const comms[] = {"main", "journal", "a", "cart-1"};
    static const pid_t tids[] = {900, 902, 903, 922};
    static const enum thread_state states[] = {THREAD_RUNNING, THREAD_DISK, THREAD_LOCK,
                                               THREAD_LOCK};

    for (size_t i = 0; i < ARRAY_SIZE(m->threads); i++) {
        struct snap_thread *t = &m->threads[i];
        *t = (struct snap_thread){.pid = 900, .tid = tids[i], .state = states[i], .age_ms = NAN};
        snprintf(t->comm, sizeof(t->comm), "%s", comms[i]);
        t->stack = i == 1 ? m->stacks[6] : m->stacks[0];
        t->stack.role = ROLE_WAITER;
    }
    m->threads[0].stack = (struct snap_stack){.pid = 900, .tid = 900};
    m->threads[0].stack.note = "it runs, and the stops of this second are used up";
    m->threads[1].age_ms = 4;
    m->threads[2].age_ms = 65000;
    m->threads[2].lock = "p900:2000";
    m->threads[3].age_ms = 21.1;
    m->threads[3].lock = "p900:1000";
    m->threads[3].stack = m->stacks[1];
}

static inline void fill_shop(struct shop *m)
{
    *m = (struct shop){.process = healthy_process(900, "shop")};
    fill_shop_stacks(m);
    fill_shop_locks(m);
    fill_shop_chains(m);
    fill_shop_threads(m);
    m->snapshot = snapshot_of(&m->process, 1, m->locks, ARRAY_SIZE(m->locks));
    m->snapshot.severity = SEVERITY_CRITICAL;
    m->snapshot.verdict = "deadlock of a[903] and b[904]";
    m->snapshot.has_stacks = true;
    m->snapshot.chains = m->chains;
    m->snapshot.nchains = ARRAY_SIZE(m->chains);
    m->snapshot.threads = m->threads;
    m->snapshot.nthreads = ARRAY_SIZE(m->threads);
    m->snapshot.self.stops = 12;
    m->snapshot.self.stop_us_max = 71.4;
}

#endif

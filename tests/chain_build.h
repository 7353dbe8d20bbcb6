/*
 * chain_build.h - threads that wait for one another, and what is told of them. Include it behind
 * cmocka.h.
 */
#ifndef LT_CHAIN_BUILD_H
#define LT_CHAIN_BUILD_H

#include "model_build.h"

#define PID          100
#define A            UINT64_C(0x7f0000001000)
#define B            (A + 0x100)
#define C            (A + 0x200)
#define PRIVATE_WAIT (FUTEX_WAIT | FUTEX_PRIVATE_FLAG)

/* Thread TID waits for the mutex at ADDR, which OWNER holds. */
static inline void wants(struct built_process *p, pid_t tid, uint64_t addr, pid_t owner)
{
    mutex_convoy(p, addr, owner, tid, 1);
}

/* 101 holds A and wants B, 102 holds B and wants A. */
static inline void abba(struct built_process *p)
{
    wants(p, 101, B, 102);
    wants(p, 102, A, 101);
}

static inline const struct snap_chain *only_chain(const struct snapshot *s)
{
    if (s->nchains != 1)
        fail_msg("%zu chains, first: %s", s->nchains, s->nchains ? s->chains[0].text : "none");
    return s->chains;
}

static inline size_t cycles(const struct snapshot *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->nchains; i++)
        n += s->chains[i].cycle;
    return n;
}

static inline void expect_cycles(struct world *w, size_t n)
{
    struct snapshot *s = snapshot_now(w);

    assert_int_equal(cycles(s), n);
    if (n == 0 && strstr(s->verdict, "DEADLOCK"))
        fail_msg("%s", s->verdict);
    if (n > 0)
        assert_int_equal(s->severity, SEVERITY_CRITICAL);
    snapshot_free(s);
}

static inline void expect_text(struct world *w, enum chain_end end, int blocked, int depth,
                               const char *text)
{
    struct snapshot *s = snapshot_now(w);
    const struct snap_chain *c = only_chain(s);

    assert_string_equal(c->text, text);
    assert_int_equal(c->end, end);
    assert_int_equal(c->blocked, blocked);
    assert_int_equal(c->depth, depth);
    assert_int_equal(c->cycle, end == CHAIN_CYCLE);
    if (c->cycle)
        assert_int_equal(c->confidence, CONF_CONFIRMED);
    snapshot_free(s);
}

static inline void expect_part(struct world *w, enum chain_end end, const char *part)
{
    struct snapshot *s = snapshot_now(w);
    const struct snap_chain *c = only_chain(s);

    if (!strstr(c->text, part))
        fail_msg("\"%s\" instead of \"...%s...\"", c->text, part);
    assert_int_equal(c->end, end);
    snapshot_free(s);
}

#endif

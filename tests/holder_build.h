/*
 * holder_build.h - who is named as the holder of the only lock, and what the model asks for to find
 * out. Include it behind cmocka.h.
 */
#ifndef LT_HOLDER_BUILD_H
#define LT_HOLDER_BUILD_H

#include <string.h>

#include "model_build.h"

#define PID  100
#define ADDR UINT64_C(0x7f0000001000)

/* The only lock's holder, or NULL when nobody holds it. */
static inline const struct snap_holder *holder_of(const struct snapshot *s)
{
    const struct snap_lock *l = only_lock(s);

    assert_in_range(l->nholders, 0, 1);
    return l->nholders ? l->holders : NULL;
}

static inline void expect_holder(struct world *w, pid_t tid, enum confidence confidence)
{
    struct snapshot *s = snapshot_now(w);
    const struct snap_holder *h = holder_of(s);

    assert_non_null(h);
    assert_int_equal(h->tid, tid);
    assert_int_equal(h->confidence, confidence);
    assert_false(h->gone);
    snapshot_free(s);
}

/* Nobody is named, and DETAIL says why. */
static inline void expect_nobody(struct world *w, const char *detail)
{
    struct snapshot *s = snapshot_now(w);
    const struct snap_holder *h = holder_of(s);

    assert_non_null(h);
    assert_int_equal(h->tid, -1);
    assert_false(h->gone);
    assert_int_equal(h->confidence, CONF_UNKNOWN);
    assert_non_null(strstr(h->detail, detail));
    snapshot_free(s);
}

/* What the model asks for of KIND. */
static inline size_t ask(struct world *w, enum request_kind kind, struct request *out)
{
    struct request all[16];
    size_t n = 0, of_all = model_requests(w->model, all, ARRAY_SIZE(all));

    for (size_t i = 0; i < of_all; i++) {
        if (all[i].kind == kind)
            out[n++] = all[i];
    }
    return n;
}

/* N sweeps; the source answers what it is asked of owners. */
static inline void sweeps_and_answers(struct world *w, int n, const struct owner_fact *fact)
{
    struct request r[16];

    for (int i = 0; i < n; i++) {
        sweep(w, TICK);
        for (size_t k = ask(w, REQUEST_OWNER, r); k > 0; k--)
            w->owners[w->nowners++] = *fact;
    }
}

#endif

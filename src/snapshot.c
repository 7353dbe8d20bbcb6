#include "snapshot.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "err.h"

/* Every vocabulary is an enum with one word per value; a value outside is a mistake of ours. */
#define LOOKUP(table, i) ((size_t)(i) < ARRAY_SIZE(table) ? (table)[i] : bad_value((int)(i)))

static const char *bad_value(int value)
{
    BUG("no name for value %d", value);
}

const char *thread_state_name(enum thread_state s)
{
    static const char *const names[] = {
#define STATE(id, name, label, help) name,
#include "states.def"
#undef STATE
    };
    return LOOKUP(names, s);
}

const char *thread_state_label(enum thread_state s)
{
    static const char *const labels[] = {
#define STATE(id, name, label, help) label,
#include "states.def"
#undef STATE
    };
    return LOOKUP(labels, s);
}

const char *lock_class_name(enum lock_class c)
{
    static const char *const names[] = {
        [CLASS_LOCK] = "lock",
        [CLASS_FILELOCK] = "filelock",
        [CLASS_KERNEL] = "kernel",
        [CLASS_SYNC] = "sync",
    };
    return LOOKUP(names, c);
}

static const struct {
    const char *name;
    enum lock_class class;
} kinds[] = {
#define KIND(id, name, class) {name, CLASS_##class},
#include "kinds.def"
#undef KIND
};
static_assert(ARRAY_SIZE(kinds) == LOCK_KINDS, "one row per kind");

const char *lock_kind_name(enum lock_kind k)
{
    return (size_t)k < ARRAY_SIZE(kinds) ? kinds[k].name : bad_value((int)k);
}

enum lock_class lock_kind_class(enum lock_kind k)
{
    if ((size_t)k >= ARRAY_SIZE(kinds))
        bad_value((int)k);
    return kinds[k].class;
}

bool lock_kind_has_holder(enum lock_kind k)
{
    enum lock_class c = lock_kind_class(k);

    return c == CLASS_LOCK || c == CLASS_FILELOCK;
}

const char *confidence_name(enum confidence c)
{
    static const char *const names[] = {
        [CONF_UNKNOWN] = "unknown",
        [CONF_LIKELY] = "likely",
        [CONF_CONFIRMED] = "confirmed",
    };
    return LOOKUP(names, c);
}

const char *lock_mode_name(enum lock_mode m)
{
    static const char *const names[] = {
        [MODE_NONE] = NULL,
        [MODE_EXCLUSIVE] = "exclusive",
        [MODE_SHARED] = "shared",
    };
    return LOOKUP(names, m);
}

const char *stack_role_name(enum stack_role r)
{
    static const char *const names[] = {
        [ROLE_WAITER] = "waiter",
        [ROLE_HOLDER] = "holder",
        [ROLE_PROFILE] = "profile",
    };
    return LOOKUP(names, r);
}

const char *chain_end_name(enum chain_end e)
{
    static const char *const names[] = {
        [CHAIN_RUNS] = "runs",
        [CHAIN_OUTSIDE] = "outside",
        [CHAIN_HAND_OFF] = "hand-off",
        [CHAIN_UNNAMED] = "unnamed",
        [CHAIN_GONE] = "gone",
        [CHAIN_CYCLE] = "cycle",
        [CHAIN_CYCLE_TIMED] = "cycle-timed",
    };
    return LOOKUP(names, e);
}

const char *severity_name(enum severity s)
{
    static const char *const names[] = {
        [SEVERITY_INFO] = "info",
        [SEVERITY_WARNING] = "warning",
        [SEVERITY_CRITICAL] = "critical",
    };
    return LOOKUP(names, s);
}

void snapshot_free(struct snapshot *s)
{
    if (!s)
        return;
    arena_release(&s->arena);
    free(s);
}

const struct snap_lock *snapshot_lock(const struct snapshot *s, const char *id)
{
    for (size_t i = 0; i < s->nlocks; i++)
        if (strcmp(s->locks[i].id, id) == 0)
            return &s->locks[i];
    return NULL;
}

#include "model_stacks.h"

#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "holder.h"
#include "profile.h"
#include "wait.h"
#include "xalloc.h"

/* Stacks a second, and at once after a quiet time: in the mean, and for looking at a process for
 * the first time. A stack costs some tens of microseconds. */
#define STACKS_PER_S     100
#define STACKS_AT_ONCE   128
#define ALL_STACKS_PER_S 500
#define ALL_AT_ONCE      1024
#define NOT_WANTED       3
#define POSTPONED_MAX    64
/* A word that a function declared is not farther from the stack pointer of the wait in it. */
#define OWN_FRAME 4096
/* What was asked for and not answered was dropped somewhere. */
#define ASK_AGAIN  (300 * NSEC_PER_MSEC)
#define NAME_AGAIN (2 * NSEC_PER_SEC)
#define EXPIRE_EVERY 64 /* sweeps */

/* Answers --------------------------------------------------------------------------- */

static struct thread *thread_of(const struct model *m, const struct stack_fact *f)
{
    struct thread *th = f->slot < m->procs.nslots ? m->procs.by_slot[f->slot] : NULL;

    bool same = th && th->tid == f->tid && th->pid == f->pid && th->start_ticks == f->start_ticks;
    return same ? th : NULL;
}

static void count_in_profile(struct model *m, struct thread *th, const struct stack_fact *f,
                             struct kept_stack *kept)
{
    struct lock_row *r = locktab_find(&m->locks, &th->stack.profiled);

    th->stack.for_profile = false;
    /* Who no longer held it was somewhere else by then. */
    if (!r || !r->profile || f->taken == STACK_MOVED || f->not_holder)
        return;
    if (f->taken == STACK_ASLEEP)
        profile_add(r->profile, kept, th->state, m->now);
    else
        profile_add_running(r->profile, kept, m->now);
}

static void take_stack(struct model *m, const struct stack_fact *f)
{
    struct thread *th = thread_of(m, f);

    if (!th || th->proc->execs != f->execs)
        return;
    struct kept_stack *kept = stacktab_answer(&m->stacks, th, f);
    if (th->stack.for_profile)
        count_in_profile(m, th, f, kept);
}

/* What the user calls it. */
static void find_given(const struct model *m, struct lock_row *r)
{
    char address[24];

    if (!m->rules)
        return;
    r->given_sought = true;
    snprintf(address, sizeof(address), "0x%" PRIx64, r->object);
    const char *given = name_rules_find(m->rules,
                                        r->name     ? r->name
                                        : r->inside ? r->inside
                                                    : r->path,
                                        r->site, address);
    free(r->given);
    r->given = given ? xstrdup(given) : NULL;
}

static void set_name(const struct model *m, struct lock_row *r, const char *name)
{
    if (r->name && strcmp(r->name, name) == 0)
        return;
    free(r->name);
    r->name = xstrdup(name);
    find_given(m, r);
}

void model_name_row(const struct model *m, struct lock_row *r)
{
    if (!r->given_sought)
        find_given(m, r);
}

void model_set_site(const struct model *m, struct lock_row *r, const char *site)
{
    if (!site || (r->site && strcmp(r->site, site) == 0))
        return;
    free(r->site);
    r->site = xstrdup(site);
    find_given(m, r);
}

static void take_name(struct model *m, const struct name_fact *f)
{
    const struct process_fact p = {
        .pid = f->pid, .start_ticks = f->start_ticks, .execs = f->execs};
    const struct lockkey key = lockkey_make(&p, NULL, f->addr);
    struct lock_row *r = locktab_find(&m->locks, &key);

    if (!r)
        return;
    r->name_known = true;
    if (f->name)
        set_name(m, r, f->name);
    else
        find_given(m, r);
}

void model_take_answers(struct model *m, const struct sample *s)
{
    m->stacks.now = m->now;
    for (size_t i = 0; i < s->nstacks; i++)
        take_stack(m, &s->stacks[i]);
    for (size_t i = 0; i < s->nnames; i++)
        take_name(m, &s->names[i]);
}

/* What a stack says of the wait -------------------------------------------------------- */

static bool is_mutex(enum lock_kind k)
{
    return k >= KIND_MUTEX && k <= KIND_MUTEX_PI;
}

static bool same_family(enum lock_kind a, enum lock_kind b)
{
    return a == b || (is_mutex(a) && is_mutex(b));
}

/* Whether the object that R stands for can be of KIND: a mutex's word is its first, and of the
 * rwlock only memory tells which of its words this is. */
static bool can_be(const struct lock_row *r, const struct thread *th, enum lock_kind kind)
{
    if (!wait_suits(&th->fact->futex, kind) || (kind == KIND_RWLOCK && r->kind != KIND_RWLOCK))
        return false;
    return lock_kind_class(kind) != CLASS_LOCK || same_family(r->kind, kind) ||
           r->object == th->fact->futex.addr;
}

/* The kind of the wait, from the library's function on the stack, checked against call and memory:
 * what these prove stands, and where they only make it likely, the stack proves it. */
static void refine_kind(struct lock_row *r, const struct thread *th, const struct api_match *api)
{
    enum lock_kind kind = api->kind;

    /* A thread that wakes from a condition variable waits for the mutex in the same function. */
    if (kind == KIND_COND && th->fact->futex.cmd == FUTEX_WAIT &&
        (is_mutex(r->kind) || r->kind == KIND_FUTEX_LOCK))
        kind = KIND_MUTEX;
    if (kind == KIND_NONE || r->confidence == CONF_CONFIRMED || !can_be(r, th, kind))
        return;
    if (same_family(r->kind, kind) && r->confidence == CONF_LIKELY) {
        /* The same stack proves no more at a second look. */
        r->confidence = r->by_stack ? CONF_LIKELY : CONF_CONFIRMED;
        return;
    }
    if (!same_family(r->kind, kind))
        r->kind = kind;
    r->confidence = CONF_LIKELY;
    r->by_stack = true;
}

/* Where the kernel refuses a PI mutex because that would be a deadlock, glibc parks the thread for
 * ever, on a word on its own stack that looks like a condition variable's. */
static bool is_refused_pi(const struct thread *th, const struct api_match *api)
{
    const struct futex_wait *f = &th->fact->futex;

    return api->kind == KIND_MUTEX && f->cmd == FUTEX_WAIT_BITSET && f->val == 0 && !f->timed &&
           f->addr - th->fact->sp < OWN_FRAME;
}

static void refine(const struct model *m, struct lock_row *r, struct thread *th,
                   const struct kept_stack *s, bool presumed)
{
    if (is_refused_pi(th, &s->api)) {
        r->kind = KIND_FUTEX;
        r->confidence = CONF_LIKELY;
        set_name(m, r, "nothing: a PI mutex was refused, as waiting for it would be a deadlock");
        return;
    }
    if (!presumed && !s->guessed)
        refine_kind(r, th, &s->api);
    if (s->api.inside && lock_kind_class(r->kind) == CLASS_LOCK)
        r->inside = s->api.inside;
    if (r->kind == KIND_RWLOCK && th->mode == MODE_NONE)
        th->mode = s->api.mode;
    if (!r->site)
        model_set_site(m, r, s->site);
}

/* Waits that memory does not prove to be for a lock: there a signature decides. */
static bool is_open(const struct lock_row *r)
{
    return r->kind == KIND_COND || r->kind == KIND_SEM || r->kind == KIND_FUTEX ||
           (lock_kind_class(r->kind) == CLASS_LOCK && r->confidence == CONF_UNKNOWN);
}

/* The function that called the lock's own, as far as that tells one lock from another; 0 else. */
static uint64_t caller_of(const struct kept_stack *s)
{
    if (!s->sig.by_caller || s->sig.caller >= s->n)
        return 0;
    const struct frame_fact *f = &s->frames[s->sig.caller];
    return f->pc - f->n.into;
}

/* The row of all waits of this sort, in place of TH's own. */
static void join_site_row(struct model *m, const struct process_fact *p, struct thread *th,
                          const struct kept_stack *s, enum lock_kind kind)
{
    bool shared = th->row && th->row->key.space == LOCKKEY_SHARED;
    uint64_t caller = caller_of(s);
    struct lockkey key = lockkey_site(p, shared, s->sig.label, caller);
    char id[sizeof(th->row->id)];

    lockkey_site_text(id, sizeof(id), &key, s->sig.label, caller);
    th->row = locktab_site_row(&m->locks, p, &key, id, kind, s->sig.label);
    th->mode = kind == KIND_MONITOR ? MODE_EXCLUSIVE : MODE_NONE;
    if (!th->row->site)
        model_set_site(m, th->row, s->site);
}

/* What was counted of the lock before its waiters' stacks were known was not contention. */
static void leave_parking(struct model *m, const struct process_fact *p, struct thread *th,
                          const struct kept_stack *s)
{
    if (!th->row->parking)
        memset(&th->row->waiters, 0, sizeof(th->row->waiters));
    th->row->parking = true;
    join_site_row(m, p, th, s, KIND_FUTEX);
}

static bool is_site(const struct lock_row *r)
{
    return r && (r->key.space == LOCKKEY_SITE || r->key.space == LOCKKEY_SITE_SHARED);
}

void model_apply_stack(struct model *m, const struct process_fact *p, struct thread *th)
{
    bool presumed;
    struct kept_stack *s = stack_of(th, m->now, &presumed);

    if (!s || is_site(th->row))
        return;
    if (th->row)
        refine(m, th->row, th, s, presumed);
    if (s->sig.role == SIG_LOCK && (!th->row || is_open(th->row)))
        join_site_row(m, p, th, s, KIND_MONITOR);
    else if (s->sig.role == SIG_NONE && s->sig.label && th->row && is_open(th->row))
        join_site_row(m, p, th, s, KIND_FUTEX);
    /* A server may park its workers on a lock that it holds itself. */
    else if (s->sig.role == SIG_PARKED && th->row)
        leave_parking(m, p, th, s);
    else if (s->sig.role == SIG_IDLE && th->row && is_open(th->row) &&
             lock_kind_class(th->row->kind) == CLASS_LOCK)
        join_site_row(m, p, th, s, KIND_FUTEX);
}

static void use_profiles(struct model *m)
{
    for (struct lock_row *r = m->locks.rows; r; r = r->hh.next) {
        for (size_t i = 0; r->profile && i < PROFILE_PATHS; i++)
            stacktab_use(&m->stacks, r->profile->paths[i].stack);
    }
}

/* All who keep a pointer are asked right before: what nobody has then is in nobody's hands. */
void model_expire_stacks(struct model *m)
{
    if (m->sweeps % EXPIRE_EVERY != 0)
        return;
    for (size_t i = 0; i < m->procs.nslots; i++) {
        if (m->procs.by_slot[i])
            stacktab_use_all(&m->stacks, m->procs.by_slot[i]);
    }
    use_profiles(m);
    stacktab_expire(&m->stacks);
}

/* Requests ---------------------------------------------------------------------------- */

/* What is still to be asked for in this sweep. */
struct asking {
    struct model *m;
    struct request *out;
    size_t n, max;
};

static void fill_tokens(struct model *m)
{
    bool all = m->stacks_mode == STACKS_ALL;
    double passed = (double)(m->now - m->tokens_at) / (double)NSEC_PER_SEC;

    if (m->tokens_at == 0)
        m->tokens = all ? ALL_AT_ONCE : STACKS_AT_ONCE;
    m->tokens += passed * (all ? ALL_STACKS_PER_S : STACKS_PER_S);
    m->tokens = MIN(m->tokens, all ? ALL_AT_ONCE : STACKS_AT_ONCE);
    m->tokens_at = MAX(m->now, 1);
}

static bool ask_stack(struct asking *a, struct thread *th, bool may_stop,
                      const struct owner_check *check)
{
    nsec_t now = a->m->now;

    if (a->n == a->max || a->m->tokens < 1 ||
        (th->stack.asked_at && now - th->stack.asked_at < ASK_AGAIN))
        return false;
    a->m->tokens -= 1;
    th->stack.asked_at = MAX(now, 1);
    th->stack.for_profile = false; /* of an earlier request, whose answer was lost */
    a->out[a->n++] = (struct request){
        .kind = REQUEST_STACK,
        .pid = th->pid,
        .tid = th->tid,
        .may_stop = may_stop,
        .check = check ? *check : (struct owner_check){0},
    };
    return true;
}

static bool has_stack(const struct model *m, const struct thread *th)
{
    bool presumed;

    return stack_of(th, m->now, &presumed) != NULL;
}

/* What tells at the moment of the look whether TH holds R, where memory tells it at all. */
static struct owner_check check_of(const struct lock_row *r, const struct thread *th)
{
    struct owner_check c = {0};

    if (r->key.space != LOCKKEY_PRIVATE ||
        !layout_owner_word(r->kind, r->layout, r->object, th->fact->ns_tid, &c.addr, &c.mask,
                           &c.value))
        c.addr = 0;
    return c;
}

/* One more sighting of the holder of R. */
static void look_at_holder(struct asking *a, struct lock_row *r, struct thread *th)
{
    struct model *m = a->m;
    bool blocked = thread_is_asleep(th->fact), presumed;
    struct kept_stack *s = stack_of(th, m->now, &presumed);
    struct owner_check check = check_of(r, th);

    if (!r->profile)
        r->profile = xcalloc(1, sizeof(*r->profile));
    if (!profile_due(r->profile, m->now))
        return;
    if (blocked && s) {
        profile_add(r->profile, s, th->state, m->now);
    } else if (!blocked && m->may_stop && !profile_stop_due(r->profile, m->now)) {
        return;
    } else if ((!blocked && !m->may_stop) || !ask_stack(a, th, m->may_stop, &check)) {
        profile_add(r->profile, NULL, th->state, m->now);
    } else {
        th->stack.for_profile = true;
        th->stack.profiled = r->key;
    }
}

static void ask_for_holders(struct asking *a)
{
    struct lock_row *r, *tmp;

    HASH_ITER(hh, a->m->locks.rows, r, tmp)
    {
        if (lock_kind_class(r->kind) != CLASS_LOCK || locktab_waiters(&a->m->locks, r) == 0)
            continue;
        bool agreed;
        struct thread *th = holder_of(&a->m->procs, r, &agreed);
        if (th && agreed && th->fact->seen != SEEN_UNREADABLE)
            look_at_holder(a, r, th);
    }
}

/* How much a thread's stack is wanted: the lower the sooner. */
static int wanted(const struct model *m, const struct thread *th)
{
    const struct thread_fact *f = th->fact;

    if (!thread_is_asleep(f) || has_stack(m, th))
        return NOT_WANTED;
    if (th->row && (lock_kind_has_holder(th->row->kind) || th->row->kind == KIND_JOIN))
        return 0;
    /* What has only just gone to sleep is likely up again before it can be looked at. */
    bool sleeps_on = !f->fresh || !f->runs;
    if (th->row && sleeps_on)
        return 1;
    /* Some servers wait for their locks in epoll and the like. */
    if (sleeps_on && th->state == THREAD_NET)
        return 2;
    return m->stacks_mode == STACKS_ALL ? 2 : NOT_WANTED;
}

/* Threads whose stacks are wanted less than others', in the order of their turns. */
struct postponed {
    struct thread *threads[POSTPONED_MAX];
    size_t n;
};

static void ask_for_postponed(struct asking *a, const struct postponed *p)
{
    for (size_t i = 0; i < p->n; i++) {
        if (ask_stack(a, p->threads[i], false, NULL))
            a->m->asked_slot = p->threads[i]->slot + 1;
    }
}

/* In turn: what does not fit in this sweep comes first in the next. */
/* Where there are many processes, those in which nobody waits for a lock have no say. */
static bool rests(const struct thread *th, enum stacks_mode mode)
{
    return th->proc->fact && th->proc->fact->resting && mode != STACKS_ALL;
}

static void ask_for_threads(struct asking *a)
{
    struct model *m = a->m;
    struct postponed later[2] = {{.n = 0}, {.n = 0}};
    size_t n = m->procs.nslots, from = m->asked_slot;

    for (size_t i = 0; i < n && a->n < a->max && m->tokens >= 1; i++) {
        struct thread *th = m->procs.by_slot[(from + i) % n];
        int how = th && th->sweep == m->procs.sweep && !rests(th, m->stacks_mode)
                      ? wanted(m, th)
                      : NOT_WANTED;
        if (how == 0 && ask_stack(a, th, false, NULL))
            m->asked_slot = th->slot + 1;
        else if (how > 0 && how < NOT_WANTED && later[how - 1].n < POSTPONED_MAX)
            later[how - 1].threads[later[how - 1].n++] = th;
    }
    ask_for_postponed(a, &later[0]);
    ask_for_postponed(a, &later[1]);
}

static bool wants_name(const struct model *m, const struct lock_row *r)
{
    return r->key.space == LOCKKEY_PRIVATE && !r->name_known &&
           lock_kind_class(r->kind) == CLASS_LOCK && locktab_waiters(&m->locks, r) > 0 &&
           (!r->name_asked_at || m->now - r->name_asked_at > NAME_AGAIN);
}

static void ask_for_names(struct asking *a)
{
    struct lock_row *r, *tmp;

    HASH_ITER(hh, a->m->locks.rows, r, tmp)
    {
        if (a->n == a->max)
            return;
        if (!wants_name(a->m, r))
            continue;
        r->name_asked_at = MAX(a->m->now, 1);
        a->out[a->n++] = (struct request){.kind = REQUEST_NAME, .pid = r->pid, .addr = r->object};
    }
}

size_t model_request_stacks(struct model *m, struct request *out, size_t n, size_t max)
{
    struct asking a = {.m = m, .out = out, .n = n, .max = max};

    if (m->stacks_mode == STACKS_OFF)
        return n;
    fill_tokens(m);
    ask_for_names(&a);
    ask_for_holders(&a);
    ask_for_threads(&a);
    return a.n;
}

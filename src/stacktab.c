#include "stacktab.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "xalloc.h"

#define KEPT_UNUSED   (10 * NSEC_PER_SEC)

/* FNV-1a over whole words: the number of frames and the process stand in the key as well. */
static uint64_t hash_frames(const struct frame_fact *f, size_t n)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < n; i++) {
        h = (h ^ f[i].pc) * UINT64_C(1099511628211);
        h ^= h >> 29;
    }
    return h;
}

static char *copy_string(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

static struct frame_fact *copy_frames(const struct frame_fact *f, size_t n)
{
    struct frame_fact *out = xcalloc(n, sizeof(*out));

    for (size_t i = 0; i < n; i++) {
        out[i] = f[i];
        out[i].n.name = copy_string(f[i].n.name);
        out[i].n.module = copy_string(f[i].n.module);
        out[i].n.file = copy_string(f[i].n.file);
    }
    return out;
}

static void free_frames(struct kept_stack *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free((char *)s->frames[i].n.name);
        free((char *)s->frames[i].n.module);
        free((char *)s->frames[i].n.file);
    }
    free(s->frames);
    free(s->site);
    s->frames = NULL;
    s->site = NULL;
}

static void free_stack(struct stacktab *t, struct kept_stack *s)
{
    HASH_DEL(t->stacks, s);
    free_frames(s);
    free(s);
}

/* The function of frame I, "main", or "libfoo.so+0x1234" as far as known; the caller frees it. */
static char *frame_text(const struct kept_stack *s, size_t i)
{
    const struct frame_name *f = &s->frames[i].n;

    if (f->name)
        return xstrdup(f->name);
    if (f->module)
        return xasprintf("%s+0x%" PRIx64, f->module, f->offset);
    return xasprintf("0x%" PRIx64, s->frames[i].pc);
}

static bool same_frames(const struct kept_stack *s, const struct stack_fact *f)
{
    for (size_t i = 0; i < f->nframes; i++) {
        if (s->frames[i].pc != f->frames[i].pc)
            return false;
    }
    return true;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_names(const struct kept_stack *s, const struct stack_fact *f)
{
    for (size_t i = 0; i < f->nframes; i++) {
        if (!same_text(s->frames[i].n.name, f->frames[i].n.name))
            return false;
    }
    return true;
}

/* FNV-1a over the functions' starts, or where that is not known the very addresses. */
static uint64_t hash_functions(const struct frame_fact *f, size_t n)
{
    uint64_t h = UINT64_C(14695981039346656037) + n;

    for (size_t i = 0; i < n; i++) {
        h = (h ^ (f[i].pc - f[i].n.into)) * UINT64_C(1099511628211);
        h ^= h >> 29;
    }
    return h;
}

static void fill(const struct stacktab *t, struct kept_stack *s, const struct stack_fact *f)
{
    s->n = f->nframes;
    s->frames = copy_frames(f->frames, f->nframes);
    s->end = f->end;
    s->guessed = f->guessed;
    s->path = hash_functions(s->frames, s->n);
    s->api = api_classify(s->frames, s->n);
    s->sig = signatures_match(t->signatures, s->frames, s->n, &s->api);
    if (s->api.caller < s->n)
        s->site = frame_text(s, s->api.caller);
}

/* The stack of this answer, made if new. */
static struct kept_stack *keep(struct stacktab *t, uint64_t start_ticks, const struct stack_fact *f)
{
    struct stack_key key = {
        .pid = (uint64_t)f->pid,
        .start_ticks = start_ticks,
        .execs = f->execs,
        .n = f->nframes,
        .hash = hash_frames(f->frames, f->nframes),
    };
    struct kept_stack *s;

    HASH_FIND(hh, t->stacks, &key, sizeof(key), s);
    /* Two stacks of one hash: one in 2^64, and the wrong names would be shown. */
    while (s && !same_frames(s, f)) {
        key.hash++;
        HASH_FIND(hh, t->stacks, &key, sizeof(key), s);
    }
    if (!s) {
        s = xcalloc(1, sizeof(*s));
        s->key = key;
        fill(t, s, f);
        HASH_ADD(hh, t->stacks, key, sizeof(s->key), s);
    } else if (!same_names(s, f)) {
        /* Generated code that has been named since, another library at the same place. */
        free_frames(s);
        fill(t, s, f);
    }
    s->used_at = t->now;
    return s;
}

void stacktab_use(const struct stacktab *t, struct kept_stack *s)
{
    if (s)
        s->used_at = t->now;
}

void stacktab_expire(struct stacktab *t)
{
    struct kept_stack *s, *tmp;

    HASH_ITER(hh, t->stacks, s, tmp)
    {
        if (t->now - s->used_at > KEPT_UNUSED)
            free_stack(t, s);
    }
}

void stacktab_release(struct stacktab *t)
{
    struct kept_stack *s, *tmp;

    HASH_ITER(hh, t->stacks, s, tmp)
    {
        free_stack(t, s);
    }
}

/* The place for a stack of this sleep: that of an equal one, else the oldest. */
static struct taken_stack *place_for(struct thread_stacks *st, const struct stack_fact *f)
{
    struct taken_stack *oldest = &st->taken[0];

    for (size_t i = 0; i < STACKS_PER_THREAD; i++) {
        struct taken_stack *k = &st->taken[i];
        if (k->kept && k->sp == f->sp && k->pc == f->pc && k->word == f->word &&
            k->stopped == (f->taken == STACK_STOPPED))
            return k;
        if (!k->kept || (oldest->kept && k->taken_at < oldest->taken_at))
            oldest = k;
    }
    return oldest;
}

struct kept_stack *stacktab_answer(struct stacktab *t, struct thread *th,
                                   const struct stack_fact *f)
{
    struct thread_stacks *st = &th->stack;

    st->asked_at = 0;
    st->why = f->taken == STACK_MOVED ? NULL : f->why;
    st->failed_runs = f->runs;
    if (f->nframes == 0)
        return NULL;
    struct taken_stack *k = place_for(st, f);
    *k = (struct taken_stack){
        .kept = keep(t, th->proc->start_ticks, f),
        .runs = f->runs,
        .sp = f->sp,
        .pc = f->pc,
        .word = f->word,
        .nr = f->nr,
        .stopped = f->taken == STACK_STOPPED,
        .taken_at = t->now,
    };
    return k->kept;
}

/* Where the kernel does not count, the counts are equal always. */
static bool is_this_sleep(const struct taken_stack *k, const struct thread_fact *f)
{
    return k->runs == f->runs && (f->runs || !f->fresh);
}

static bool is_like_this_sleep(const struct taken_stack *k, const struct thread_fact *f)
{
    return k->sp && k->sp == f->sp && k->pc == f->pc && k->nr == f->nr &&
           k->word == f->futex.addr && f->seen == SEEN_CALL;
}

struct kept_stack *stack_of(const struct thread *th, nsec_t now, bool *presumed)
{
    const struct thread_fact *f = th->fact;
    const struct taken_stack *like = NULL;

    *presumed = false;
    if (f->seen == SEEN_ACTIVE)
        return NULL;
    for (size_t i = 0; i < STACKS_PER_THREAD; i++) {
        const struct taken_stack *k = &th->stack.taken[i];
        if (!k->kept || k->stopped)
            continue;
        if (is_this_sleep(k, f))
            return k->kept;
        if (is_like_this_sleep(k, f) && now - k->taken_at < PRESUMED_FOR)
            like = k;
    }
    *presumed = like != NULL;
    return like ? like->kept : NULL;
}

void stacktab_use_all(const struct stacktab *t, struct thread *th)
{
    for (size_t i = 0; i < STACKS_PER_THREAD; i++) {
        struct taken_stack *k = &th->stack.taken[i];
        if (k->kept && !is_this_sleep(k, th->fact) && t->now - k->taken_at > PRESUMED_FOR)
            *k = (struct taken_stack){0};
        stacktab_use(t, k->kept);
    }
}

struct kept_stack *stack_when_stopped(const struct thread *th, nsec_t now, nsec_t ago)
{
    const struct taken_stack *last = NULL;

    for (size_t i = 0; i < STACKS_PER_THREAD; i++) {
        const struct taken_stack *k = &th->stack.taken[i];
        if (k->kept && k->stopped && now - k->taken_at < ago &&
            (!last || k->taken_at > last->taken_at))
            last = k;
    }
    return last ? last->kept : NULL;
}

#include "locktab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xalloc.h"

#define ROW_KEPT (61 * NSEC_PER_SEC)

void locktab_begin(struct locktab *t, const struct sample *s, nsec_t start)
{
    t->start = start;
    t->now = s->mono - start;
    t->sample++;
    if (s->kind == SAMPLE_SWEEP) {
        t->sweep++;
        window_add(&t->sweeps, t->now, 1);
    }
}

static struct word_link *find_link(const struct locktab *t, pid_t pid, uint64_t addr)
{
    struct word_link_key key = {.pid = (uint64_t)pid, .addr = addr};
    struct word_link *l;

    HASH_FIND(hh, t->links, &key, sizeof(key), l);
    return l;
}

static bool is_same_memory(const struct lock_row *r, const struct process_fact *p,
                           const struct word_fact *word)
{
    bool shared = word && word->region == REGION_SHARED;

    if (r->key.space == LOCKKEY_PRIVATE)
        return !shared && r->key.execs == p->execs && r->key.c == p->start_ticks;
    return shared && r->key.a == word->dev && r->key.b == word->inode &&
           word->offset - r->key.c <= WORD_BEFORE;
}

struct lock_row *locktab_linked(const struct locktab *t, const struct process_fact *p,
                                const struct word_fact *word, uint64_t addr)
{
    struct word_link *l = find_link(t, p->pid, addr);

    return l && is_same_memory(l->row, p, word) ? l->row : NULL;
}

static void link_word(struct locktab *t, pid_t pid, uint64_t addr, struct lock_row *row)
{
    struct word_link *l = find_link(t, pid, addr);

    if (!l) {
        l = xcalloc(1, sizeof(*l));
        l->key = (struct word_link_key){.pid = (uint64_t)pid, .addr = addr};
        HASH_ADD(hh, t->links, key, sizeof(l->key), l);
    }
    l->row = row;
}

static struct lock_row *new_row(struct locktab *t, const struct lockkey *key,
                                const struct process_fact *p, const struct word_fact *word,
                                const struct wait_class *c)
{
    struct lock_row *r = xcalloc(1, sizeof(*r));

    r->key = *key;
    lockkey_text(r->id, sizeof(r->id), key);
    r->kind = c->kind;
    r->confidence = c->confidence;
    r->layout = c->layout;
    r->pid = p->pid;
    r->object = c->object;
    r->last_waited = t->now;
    if (word && word->region == REGION_SHARED) {
        r->path = word->path ? xstrdup(word->path) : NULL;
        r->dev = word->dev;
        r->inode = word->inode;
    }
    HASH_ADD(hh, t->rows, key, sizeof(r->key), r);
    return r;
}

struct lock_row *locktab_row(struct locktab *t, const struct process_fact *p,
                             const struct word_fact *word, uint64_t addr,
                             const struct wait_class *c)
{
    struct lockkey key = lockkey_make(p, word, c->object);
    struct lock_row *r;

    HASH_FIND(hh, t->rows, &key, sizeof(key), r);
    if (!r)
        r = new_row(t, &key, p, word, c);
    /* One that is proved to be of another kind lies where the former one lay. */
    if (c->confidence > r->confidence ||
        (c->confidence == CONF_CONFIRMED && c->kind != r->kind)) {
        r->kind = c->kind;
        r->confidence = c->confidence;
        r->layout = c->layout;
    }
    if (c->kind == r->kind && c->confidence >= r->confidence)
        r->by_stack = false;
    link_word(t, p->pid, addr, r);
    return r;
}

struct lock_row *locktab_find(const struct locktab *t, const struct lockkey *key)
{
    struct lock_row *r;

    HASH_FIND(hh, t->rows, key, sizeof(*key), r);
    return r;
}

struct lock_row *locktab_site_row(struct locktab *t, const struct process_fact *p,
                                  const struct lockkey *key, const char *id, enum lock_kind kind,
                                  const char *name)
{
    const struct wait_class c = {.kind = kind, .confidence = CONF_LIKELY};
    struct lock_row *r = locktab_find(t, key);

    if (!r) {
        r = new_row(t, key, p, NULL, &c);
        snprintf(r->id, sizeof(r->id), "%s", id);
        r->name = xstrdup(name);
        r->name_known = true;
    }
    return r;
}

struct lock_row *locktab_keyed_row(struct locktab *t, const struct process_fact *p,
                                   const struct lockkey *key, enum lock_kind kind,
                                   enum confidence confidence)
{
    const struct wait_class c = {.kind = kind, .confidence = confidence};
    struct lock_row *r = locktab_find(t, key);

    if (!r)
        r = new_row(t, key, p, NULL, &c);
    if (key->space == LOCKKEY_SEM && r->kind != kind) { /* used in another way */
        r->kind = kind;
        r->confidence = confidence;
    }
    r->name_known = true;
    if (r->pid == 0)
        r->pid = p->pid;
    return r;
}

/* What was found out about the object that lies there. */
static void free_findings(struct lock_row *r)
{
    free(r->busy);
    free(r->name);
    free(r->given);
    free(r->site);
    free(r->profile);
    r->busy = NULL;
    r->name = r->given = r->site = NULL;
    r->inside = NULL;
    r->by_stack = r->given_sought = false;
    r->profile = NULL;
    r->name_known = r->parking = false;
}

void locktab_renew(struct lock_row *r, const struct wait_class *c)
{
    r->kind = c->kind;
    r->confidence = c->confidence;
    r->layout = c->layout;
    r->holder = (struct holder_view){0};
    r->seen_held = r->seen_free = r->crowded = r->held = false;
    memset(&r->waiters, 0, sizeof(r->waiters));
    free_findings(r);
}

static void note_pid(struct lock_row *r, pid_t pid)
{
    for (int i = 0; i < r->npids; i++) {
        if (r->pids[i] == pid)
            return;
    }
    if (r->npids < LOCK_PIDS)
        r->pids[r->npids++] = pid;
}

void locktab_wait(struct locktab *t, struct lock_row *r, const struct process_fact *p)
{
    if (r->counted != t->sweep) {
        r->counted = t->sweep;
        r->now = 0;
    }
    r->now++;
    r->crowded |= r->now > 1;
    r->last_waited = t->now;
    note_pid(r, p->pid);
}

int locktab_held(const struct locktab *t, const struct lock_row *r)
{
    if (r->viewed == t->sweep && r->holder.known)
        return r->holder.held;
    return r->seen_held || r->seen_free ? r->held : -1;
}

uint32_t locktab_waiters(const struct locktab *t, const struct lock_row *r)
{
    return r->counted == t->sweep ? r->now : 0;
}

void locktab_count_busy(struct locktab *t, struct lock_row *r, bool held)
{
    if (r->looked == t->sample)
        return;
    r->looked = t->sample;
    if (!r->busy)
        r->busy = xcalloc(1, sizeof(*r->busy));
    window_add(&r->busy->looks, t->now, 1);
    window_add(&r->busy->held, t->now, held);
    r->held = held;
    r->seen_held |= held;
    r->seen_free |= !held;
}

static void count_busy(struct locktab *t, struct lock_row *r, const struct lock_state *early)
{
    if (!early->known)
        return;
    locktab_count_busy(t, r, early->held);
    /* A word on which always the same single thread sleeps is where that thread parks. */
    if (r->kind == KIND_FUTEX_LOCK && r->confidence == CONF_UNKNOWN && r->crowded &&
        r->seen_held && r->seen_free)
        r->confidence = CONF_LIKELY;
}

static bool same_owner(const struct lock_state *a, const struct lock_state *b)
{
    return a->held == b->held && a->owner == b->owner && a->owner_died == b->owner_died &&
           (a->readers > 0) == (b->readers > 0);
}

static void see_holder(struct locktab *t, struct lock_row *r, const struct lock_state *early,
                       const struct lock_state *late)
{
    struct holder_view *h = &r->holder;
    bool stays = h->known && late->known && same_owner(&h->late, late);

    r->viewed = t->sweep;
    h->known = late->known;
    h->held = late->held;
    h->late = *late;
    h->agreed = early->known && late->known && same_owner(early, late);
    if (!stays)
        h->since = t->now;
}

uint64_t locktab_object(const struct lock_row *r, const struct word_fact *w)
{
    /* The object's distance from the word is the same in every process that maps it. */
    return r->key.space == LOCKKEY_SHARED ? w->addr + (r->key.c - w->offset) : r->object;
}

/* A stdio lock does not hold its owner's TID itself. */
static struct lock_state state_of(const struct lock_row *r, const struct word_fact *w, bool late)
{
    int off = (int)(int64_t)(locktab_object(r, w) - w->addr);
    struct lock_state s = layout_state(r->kind, r->layout, off, late ? &w->late : &w->early);

    if (r->kind == KIND_LIBC && s.held)
        s.owner = late ? w->late_owner : w->early_owner;
    return s;
}

static void look_at_word(struct locktab *t, const struct sample *s, const struct word_fact *w)
{
    struct lock_row *r =
        w->maybe_lock ? locktab_linked(t, &s->processes[w->process], w, w->addr) : NULL;

    if (!r || lock_kind_class(r->kind) != CLASS_LOCK)
        return;
    struct lock_state early = state_of(r, w, false);
    count_busy(t, r, &early);
    if (s->kind == SAMPLE_SWEEP && locktab_waiters(t, r) > 0) {
        struct lock_state late = state_of(r, w, true);
        /* An object has several words, and each may be new or unreadable. */
        if (r->viewed != t->sweep || (late.known && !r->holder.agreed))
            see_holder(t, r, &early, &late);
    }
}

void locktab_words(struct locktab *t, const struct sample *s)
{
    for (size_t i = 0; i < s->nwords; i++)
        look_at_word(t, s, &s->words[i]);
}

static void free_row(struct locktab *t, struct lock_row *r)
{
    HASH_DEL(t->rows, r);
    free_findings(r);
    free(r->path);
    free(r->estimate);
    free(r->attempts);
    free(r);
}

static void expire(struct locktab *t)
{
    struct lock_row *r, *tmp;
    struct word_link *l, *ltmp;

    HASH_ITER(hh, t->links, l, ltmp)
    {
        if (t->now - l->row->last_waited > ROW_KEPT && l->row->counted != t->sweep) {
            HASH_DEL(t->links, l);
            free(l);
        }
    }
    HASH_ITER(hh, t->rows, r, tmp)
    {
        if (t->now - r->last_waited > ROW_KEPT && r->counted != t->sweep)
            free_row(t, r);
    }
}

void locktab_end_sweep(struct locktab *t)
{
    struct lock_row *r, *tmp;

    HASH_ITER(hh, t->rows, r, tmp)
    {
        if (r->counted == t->sweep)
            window_add(&r->waiters, t->now, r->now);
        if (r->viewed != t->sweep)
            r->holder = (struct holder_view){0};
    }
    if (t->sweep % 64 == 0)
        expire(t);
}

static double per(uint64_t sum, uint64_t n)
{
    return n ? (double)sum / (double)n : NAN;
}

double locktab_mean(struct locktab *t, struct lock_row *r, int seconds)
{
    return per(window_sum(&r->waiters, t->now, seconds), window_sum(&t->sweeps, t->now, seconds));
}

double locktab_second(struct locktab *t, struct lock_row *r, int ago)
{
    return per(window_second(&r->waiters, t->now, ago), window_second(&t->sweeps, t->now, ago));
}

double locktab_busy(struct locktab *t, struct lock_row *r)
{
    /* What is done once and for all has no utilisation. */
    if (!r->busy || !lock_kind_has_holder(r->kind) || r->kind == KIND_ONCE)
        return NAN;
    uint64_t looks = window_sum(&r->busy->looks, t->now, 10);
    return looks < BUSY_MIN_LOOKS ? NAN : per(window_sum(&r->busy->held, t->now, 10), looks);
}

void locktab_release(struct locktab *t)
{
    struct lock_row *r, *tmp;
    struct word_link *l, *ltmp;

    HASH_ITER(hh, t->links, l, ltmp)
    {
        HASH_DEL(t->links, l);
        free(l);
    }
    HASH_ITER(hh, t->rows, r, tmp)
    {
        free_row(t, r);
    }
    *t = (struct locktab){0};
}

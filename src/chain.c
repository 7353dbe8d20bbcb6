#include "chain.h"

#include <stdlib.h>
#include <string.h>

#include "chain_text.h"
#include "owner.h"
#include "stacktab.h"
#include "wording.h"

/* Edges --------------------------------------------------------------------------------- */

/* Many threads wait for the same few locks: who holds one is looked up once. */
#define CACHED 64

struct cached {
    const struct lock_row *row;
    struct thread *holder;
    bool agreed;
};

static const struct cached *look_up(const struct proctab *procs, const struct lock_row *r,
                                    struct cached *cache)
{
    struct cached *c = &cache[((uintptr_t)r >> 6) % CACHED];

    if (c->row != r) {
        c->row = r;
        c->holder = holder_of(procs, r, &c->agreed);
    }
    return c;
}

/* Whether the edge that was noted at the last sweep still stands: the same sleep on the same lock,
 * behind the same thread. Where the kernel does not count runs, only the looks can tell. */
static bool stands_on(const struct edge *e, const struct thread *th, const struct cached *c)
{
    const struct thread_fact *f = th->fact;

    if (!e->to || e->row != th->row || e->to_tid != c->holder->tid ||
        e->to_start != c->holder->start_ticks || e->runs != f->runs || e->sp != f->sp)
        return false;
    return f->runs ? e->asleep == f->since : e->firm && c->agreed;
}

static void note_edge(const struct proctab *procs, struct thread *th, struct cached *cache)
{
    struct edge *e = &th->edge;
    const struct thread_fact *f = th->fact;
    const struct cached *c = NULL;

    if (th->row && (lock_kind_has_holder(th->row->kind) || th->row->kind == KIND_JOIN))
        c = look_up(procs, th->row, cache);
    /* Who is named as the holder of what it was just seen to come for has got it since. */
    if (!c || !c->holder || (c->holder == th && (f->fresh || !c->agreed))) {
        e->to = NULL;
        return;
    }
    if (!stands_on(e, th, c)) {
        e->since = procs->now;
        e->looks = 0;
    }
    e->to = c->holder;
    e->firm = c->agreed;
    e->looks++;
    e->row = th->row;
    e->to_tid = c->holder->tid;
    e->to_start = c->holder->start_ticks;
    e->runs = f->runs;
    e->sp = f->sp;
    e->asleep = f->since;
}

void chain_note(struct proctab *procs)
{
    struct cached cache[CACHED] = {0};

    for (size_t i = 0; i < procs->nslots; i++) {
        if (procs->by_slot[i])
            note_edge(procs, procs->by_slot[i], cache);
    }
}

/* Without run counts a thread that came back to the same place looks like one that stayed: only
 * many looks, all of them the same, are believed. */
#define UNCOUNTED_STANDS NSEC_PER_SEC
#define UNCOUNTED_LOOKS  20

/* Who was woken by its timeout looks asleep until it is put on a CPU, which on a busy machine takes
 * longer than DEADLOCK_STANDS (seen at a load of 15, with a timeout of 2 ms). */
#define TIMED_STANDS (2 * NSEC_PER_SEC)

/*
 * Whether TH has waited behind the same thread all this time. Who has not run since has neither
 * taken nor let go of anything: where that holds for each thread of a cycle, one pair of reads in
 * which the locks name their holders is true of all that time.
 */
static bool is_proved(const struct proctab *procs, const struct thread *th)
{
    const struct edge *e = &th->edge;
    nsec_t stood = procs->now - e->since;

    if (!e->firm || (th->row->confidence != CONF_CONFIRMED && th->row->kind != KIND_LIBC))
        return false;
    if (th->fact->runs == 0)
        return stood >= UNCOUNTED_STANDS && e->looks >= UNCOUNTED_LOOKS;
    return stood >= (th->fact->futex.timed ? TIMED_STANDS : DEADLOCK_STANDS) && !th->fact->fresh;
}

/* Kinds for which a thread that wants what it holds does wait; the others are granted again or
 * refused, so that such a sight is a misreading. */
static bool can_lock_itself_out(const struct thread *th)
{
    switch (th->row->kind) {
    case KIND_MUTEX:
    case KIND_MUTEX_ADAPTIVE:
    case KIND_MUTEX_ROBUST:
    case KIND_FLOCK: /* through another opening of the same file */
    case KIND_OFD:
        return true;
    default:
        return false;
    }
}

const char *chain_blocked_by(const struct thread *th)
{
    const struct lock_row *r = th->row;

    if (!r || (!lock_kind_has_holder(r->kind) && r->kind != KIND_JOIN))
        return NULL;
    return r->kind == KIND_RWLOCK && th->mode == MODE_SHARED && r->holder.late.readers > 0 ? "soft"
                                                                                           : "hard";
}

/* The graph as a whole ------------------------------------------------------------------ */

enum mark { UNSEEN, ON_WALK, IN_CYCLE, DONE };

/* A thread on its way to the root: another thread, or a lock whose holder cannot be named. */
struct node {
    const struct thread *thread;
    const void *root;
    const struct lock_row *lock; /* the root, when that is a lock */
    int depth;                   /* locks on the way to the root; 0 within a cycle */
    enum mark mark;
};

struct graph {
    struct proctab *procs;
    struct node *by_slot;
    const struct thread **walk;
};

static struct node *node_of(const struct graph *g, const struct thread *th)
{
    return &g->by_slot[th->slot];
}

/* A thread that waits for nobody: the chain ends at it, or at the lock that it waits for. */
static void settle_root(struct graph *g, const struct thread *th)
{
    struct node *n = node_of(g, th);
    bool agreed;

    n->mark = DONE;
    n->root = n->thread = th;
    if (!th->row || !lock_kind_has_holder(th->row->kind) ||
        holder_of(g->procs, th->row, &agreed))
        return;
    n->root = n->lock = th->row;
    n->depth = 1;
}

/* The last N threads of the walk wait for one another in a circle. */
static void settle_cycle(struct graph *g, const struct thread *const *cycle, size_t n)
{
    const struct thread *root = cycle[0];

    for (size_t i = 1; i < n; i++)
        root = cycle[i]->tid < root->tid ? cycle[i] : root;
    for (size_t i = 0; i < n; i++)
        *node_of(g, cycle[i]) = (struct node){.thread = cycle[i], .root = root, .mark = IN_CYCLE};
}

static void resolve(struct graph *g, const struct thread *th)
{
    size_t n = 0;

    for (; node_of(g, th)->mark == UNSEEN && th->edge.to; th = th->edge.to) {
        node_of(g, th)->mark = ON_WALK;
        g->walk[n++] = th;
    }
    if (node_of(g, th)->mark == UNSEEN) {
        settle_root(g, th);
    } else if (node_of(g, th)->mark == ON_WALK) {
        size_t first = n;
        while (g->walk[--first] != th)
            ;
        settle_cycle(g, g->walk + first, n - first);
        n = first;
    }
    while (n-- > 0) {
        const struct thread *behind = g->walk[n];
        const struct node *next = node_of(g, behind->edge.to);
        *node_of(g, behind) = (struct node){
            .thread = behind,
            .root = next->root,
            .lock = next->lock,
            .depth = next->depth + 1,
            .mark = DONE,
        };
    }
}

static bool waits(const struct node *n)
{
    return n->mark == IN_CYCLE || n->depth > 0;
}

/* Those of one root stand together, the farthest first; of these, those at the lock for which most
 * wait. */
static int compare_nodes(const void *a, const void *b)
{
    const struct node *x = a, *y = b;

    if (x->root != y->root)
        return (uintptr_t)x->root < (uintptr_t)y->root ? -1 : 1;
    if (x->depth != y->depth)
        return x->depth > y->depth ? -1 : 1;
    if (x->thread->row->now != y->thread->row->now)
        return x->thread->row->now > y->thread->row->now ? -1 : 1;
    return (x->thread->tid > y->thread->tid) - (x->thread->tid < y->thread->tid);
}

/* Resolves all threads; returns those that wait, *N of them, sorted. */
static struct node *resolve_all(struct graph *g, size_t *n)
{
    struct proctab *procs = g->procs;

    *n = 0;
    for (size_t i = 0; i < procs->nslots; i++) {
        if (procs->by_slot[i])
            resolve(g, procs->by_slot[i]);
    }
    struct node *out = xcalloc(procs->nslots, sizeof(*out));
    for (size_t i = 0; i < procs->nslots; i++) {
        if (procs->by_slot[i] && waits(&g->by_slot[i]))
            out[(*n)++] = g->by_slot[i];
    }
    qsort(out, *n, sizeof(*out), compare_nodes);
    return out;
}

/* Chains -------------------------------------------------------------------------------- */

/* One chain in the making: the N threads that wait for one root. */
struct group {
    const struct node *nodes;
    size_t n;
};

/* How surely TH waits for whom its edge leads to: as of a holder. */
static enum confidence edge_confidence(const struct thread *th)
{
    const struct thread *to = th->edge.to;

    if (!to)
        return CONF_UNKNOWN;
    /* Who is seen to come for what it holds has got it since. */
    return th->edge.firm && !(to->row == th->row && to->fact->fresh) ? CONF_CONFIRMED : CONF_LIKELY;
}

static void put_link(struct arena *a, struct snap_link *out, const struct thread *th)
{
    out->pid = th->pid;
    out->tid = th->tid;
    memcpy(out->comm, th->fact->comm, sizeof(out->comm));
    out->state = th->state;
    out->lock = th->row ? arena_strdup(a, th->row->id) : NULL;
    out->confidence = edge_confidence(th);
}

/* The way from TH on, over DEPTH locks and to the thread ROOT behind the last, if there is one. */
static void put_path(struct arena *a, struct snap_chain *c, const struct thread *th, int depth,
                     const struct thread *root)
{
    struct snap_link *path = arena_zalloc(a, ((size_t)depth + 1) * sizeof(*path));

    c->confidence = CONF_CONFIRMED;
    for (; (int)c->npath < depth; th = th->edge.to) {
        put_link(a, &path[c->npath++], th);
        if (edge_confidence(th) == CONF_LIKELY)
            c->confidence = CONF_LIKELY;
    }
    if (root) {
        put_link(a, &c->root, root);
        c->root.lock = NULL;
        c->root.confidence = CONF_UNKNOWN;
        path[c->npath++] = c->root;
    }
    c->path = path;
    c->depth = depth;
}

/* A chain that ends at a thread. */
static void describe_thread_end(struct arena *a, const struct proctab *procs, struct snap_chain *c,
                                const struct thread *far, const struct thread *root)
{
    /* It has just got what it waited for. */
    bool lock = root->row && lock_kind_has_holder(root->row->kind);
    bool hand_off = root->row && lock_kind_class(root->row->kind) == CLASS_SYNC;

    c->end = root->state == THREAD_RUNNING || root->state == THREAD_RUNQ || lock ? CHAIN_RUNS
             : hand_off                                                          ? CHAIN_HAND_OFF
                                                                                 : CHAIN_OUTSIDE;
    c->detail = lock || hand_off ? NULL : wording_call(a, root);
    c->text = chain_text_onwards(a, procs, far, c->blocked);
}

/* A chain that ends at a lock whose holder is not named. False: it is no chain, for nothing is
 * wrong with a lock that is free for the moment, or with a word that may be no lock. */
static bool describe_lock_end(struct arena *a, const struct proctab *procs, struct snap_chain *c,
                              const struct thread *far, const struct thread *last)
{
    struct lock_row *r = last->row;
    struct owner o = owner_of(procs, r);
    const char *why = wording_owner(a, procs, r, &o);

    if (!why || (far == last && r->confidence == CONF_UNKNOWN))
        return false;
    /* Who comes next is told so: it goes on soon, unless nobody comes. */
    if (o.is == OWNER_DIED && procs->now - r->holder.since <= GONE_AFTER)
        return false;
    bool gone = o.is == OWNER_ENDED || o.is == OWNER_ELSEWHERE || o.is == OWNER_DIED;
    bool unnamed = o.is == OWNER_UNNAMED;
    if (r->confidence != CONF_CONFIRMED || (gone && !o.sure))
        c->confidence = CONF_LIKELY;
    c->end = gone ? CHAIN_GONE : CHAIN_UNNAMED;
    c->root = c->path[c->npath - 1];
    c->detail = why;
    c->text = far == last ? chain_text_at_lock(a, far, unnamed ? "its holder is " : "", why)
                          : chain_text_onwards(a, procs, far, c->blocked);
    return true;
}

/* Deadlocks ----------------------------------------------------------------------------- */

/* Whether the circle stands; *TIMED: somebody in it waits with a timeout. */
static bool is_standing(const struct proctab *procs, const struct thread *root, bool *timed)
{
    const struct thread *th = root;

    *timed = false;
    if (root->edge.to == root && !can_lock_itself_out(root))
        return false;
    do {
        if (!is_proved(procs, th))
            return false;
        *timed |= th->fact->futex.timed;
        th = th->edge.to;
    } while (th != root);
    return true;
}

static bool describe_cycle(struct arena *a, const struct proctab *procs, struct snap_chain *c,
                           const struct thread *root)
{
    int n = 1;
    bool timed;

    if (!is_standing(procs, root, &timed))
        return false;
    for (const struct thread *th = root->edge.to; th != root; th = th->edge.to)
        n++;
    put_path(a, c, root, n, NULL);
    c->root = c->path[0];
    c->end = timed ? CHAIN_CYCLE_TIMED : CHAIN_CYCLE;
    c->cycle = !timed;
    c->text = chain_text_cycle(a, root, n, c->blocked, timed);
    return true;
}

/* A lock inside the C library that records no holder, wanted by a signal handler which interrupted
 * its own thread in just those functions: so long without it, that thread is most likely the
 * holder. */
#define INTERRUPTED_LONG NSEC_PER_SEC

static bool is_own_handler(const struct proctab *procs, const struct thread *th)
{
    bool presumed;
    const struct kept_stack *s = stack_of(th, procs->now, &presumed);

    return s && s->api.in_handler && th->fact->runs != 0 && !th->fact->futex.timed &&
           procs->now + procs->start - th->fact->since >= INTERRUPTED_LONG;
}

static const struct thread *find_interrupted(const struct proctab *procs, const struct group *grp)
{
    const struct lock_row *r = grp->nodes->lock;

    if (!r->holder.agreed || !r->holder.held || procs->now - r->holder.since < INTERRUPTED_LONG)
        return NULL;
    for (size_t i = 0; i < grp->n; i++) {
        const struct thread *th = grp->nodes[i].thread;
        if (th->row == r && is_own_handler(procs, th))
            return th;
    }
    return NULL;
}

static void describe_interrupted(struct arena *a, struct snap_chain *c, const struct thread *th)
{
    put_path(a, c, th, 1, NULL);
    c->root = c->path[0];
    c->end = CHAIN_CYCLE;
    c->confidence = CONF_LIKELY;
    c->text = chain_text_interrupted(a, th, c->blocked);
}

/* The list ------------------------------------------------------------------------------ */

static bool describe(struct arena *a, const struct proctab *procs, struct snap_chain *c,
                     const struct group *grp)
{
    const struct node *far = grp->nodes, *near = &grp->nodes[grp->n - 1];

    c->blocked = (int)grp->n;
    if (near->mark == IN_CYCLE)
        return describe_cycle(a, procs, c, near->root);
    const struct thread *interrupted = far->lock ? find_interrupted(procs, grp) : NULL;
    if (interrupted) {
        describe_interrupted(a, c, interrupted);
        return true;
    }
    put_path(a, c, far->thread, far->depth, far->lock ? NULL : far->root);
    if (!far->lock) {
        describe_thread_end(a, procs, c, far->thread, far->root);
        return true;
    }
    const struct thread *last = far->thread;
    while (last->edge.to)
        last = last->edge.to;
    return describe_lock_end(a, procs, c, far->thread, last);
}

static size_t next_group(const struct node *nodes, size_t n, size_t from, struct group *out)
{
    size_t end = from + 1;

    while (end < n && nodes[end].root == nodes[from].root)
        end++;
    *out = (struct group){.nodes = &nodes[from], .n = end - from};
    return end;
}

static bool has_lock(const struct group *g)
{
    for (size_t i = 0; i < g->n; i++) {
        if (g->nodes[i].thread->row->kind != KIND_JOIN)
            return true;
    }
    return false;
}

/* Cycles first; joins alone last, for these are mostly a program's normal way to wait; then those
 * that block most. */
static int compare_groups(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    bool cx = x->nodes[x->n - 1].mark == IN_CYCLE, cy = y->nodes[y->n - 1].mark == IN_CYCLE;
    bool lx = has_lock(x), ly = has_lock(y);

    if (cx != cy)
        return cx ? -1 : 1;
    if (lx != ly)
        return lx ? -1 : 1;
    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    if (x->nodes->depth != y->nodes->depth)
        return x->nodes->depth > y->nodes->depth ? -1 : 1;
    return (x->nodes->thread->tid > y->nodes->thread->tid) -
           (x->nodes->thread->tid < y->nodes->thread->tid);
}

static struct group *collect_groups(const struct node *nodes, size_t n, size_t *ngroups)
{
    struct group *groups = xcalloc(n, sizeof(*groups));

    *ngroups = 0;
    for (size_t from = 0; from < n;)
        from = next_group(nodes, n, from, &groups[(*ngroups)++]);
    qsort(groups, *ngroups, sizeof(*groups), compare_groups);
    return groups;
}

static bool is_proved_cycle(const struct snap_chain *c)
{
    return c->cycle;
}

static bool is_cycle(const struct snap_chain *c)
{
    return c->end == CHAIN_CYCLE || c->end == CHAIN_CYCLE_TIMED;
}

/* Those that are SUCH go to the front; both these and the others keep their order. */
static void move_to_front(struct snap_chain *chains, size_t n,
                          bool (*such)(const struct snap_chain *))
{
    size_t front = 0;

    for (size_t i = 0; i < n; i++) {
        if (!such(&chains[i]))
            continue;
        struct snap_chain c = chains[i];
        memmove(&chains[front + 1], &chains[front], (i - front) * sizeof(c));
        chains[front++] = c;
    }
}

const struct snap_chain *chain_list(struct arena *a, struct proctab *procs, size_t *n)
{
    struct graph g = {
        .procs = procs,
        .by_slot = xcalloc(procs->nslots, sizeof(*g.by_slot)),
        .walk = xcalloc(procs->nslots, sizeof(*g.walk)),
    };
    struct snap_chain *out = arena_zalloc(a, CHAIN_MAX * sizeof(*out));
    size_t nnodes, ngroups;
    struct node *nodes = resolve_all(&g, &nnodes);
    struct group *groups = collect_groups(nodes, nnodes, &ngroups);

    *n = 0;
    for (size_t i = 0; i < ngroups && *n < CHAIN_MAX; i++) {
        out[*n] = (struct snap_chain){0};
        *n += describe(a, procs, &out[*n], &groups[i]);
    }
    move_to_front(out, *n, is_cycle);
    move_to_front(out, *n, is_proved_cycle);
    free(groups);
    free(nodes);
    free(g.walk);
    free(g.by_slot);
    return out;
}

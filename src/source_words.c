#include "source_words.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "source_stdio.h"
#include "xalloc.h"

#define MAPS_MIN_AGE  NSEC_PER_SEC /* at most one reading a second */
#define MAPS_SHARE    100 /* a reading may take one part in this many of the time between two */
#define CHOOSE_EVERY  NSEC_PER_SEC
#define STILL_WANTED  (10 * NSEC_PER_SEC) /* the time over which utilisation is told */
#define NEWS_SWEEPS   2

/* The largest value that a glibc rwlock or timed mutex is waited for with (case "reader lets a
 * queued writer go first", one reader). Larger ones in that call are TIDs: pthread_join. */
#define MAX_LOCK_VAL 14

/* A wait for value 0 is a condition variable or a semaphore in every layout known, and a join
 * names the thread it waits for: neither is ever "held". All else might be a lock. */
static bool may_be_lock(const struct futex_wait *f, enum region region)
{
    if (f->cmd == FUTEX_LOCK_PI || f->cmd == FUTEX_LOCK_PI2)
        return true;
    if (f->cmd == FUTEX_WAIT_REQUEUE_PI || f->words > 1)
        return false;
    if (f->cmd == FUTEX_WAIT_BITSET && f->realtime && !f->is_private)
        return f->val != 0 && (region == REGION_SHARED || f->val <= MAX_LOCK_VAL);
    return f->val != 0;
}

/* What mutexes (2; the top bit beside an owner or a count) and glibc's rwlocks (2, 3) write when
 * others wait. Sequence numbers seldom look like that, and parked threads wait for 0 or -1. */
static bool is_contended(const struct futex_wait *f)
{
    return f->cmd == FUTEX_LOCK_PI || f->cmd == FUTEX_LOCK_PI2 || f->val == 2 ||
           (f->val == 3 && f->cmd == FUTEX_WAIT_BITSET) ||
           (f->val & FUTEX_WAITERS && f->val != UINT32_MAX);
}

static enum libc_kind find_libc(const struct maps *m)
{
    const char *last = NULL;

    for (size_t i = 0; i < m->n; i++) {
        const char *path = m->entries[i].path;
        if (path == last || path[0] != '/')
            continue;
        last = path;
        if (maps_path_is_musl(path))
            return LIBC_MUSL;
        if (maps_path_is_glibc(path))
            return LIBC_GLIBC;
    }
    return LIBC_UNKNOWN;
}

static void reload_maps(struct words *w, nsec_t now)
{
    if (now < w->maps_next)
        return;
    nsec_t begin = clock_thread_cpu();
    w->maps_at = now;
    if (maps_load(&w->maps, w->dirfd, w->tid) == 0)
        w->libc = find_libc(&w->maps);
    w->maps_next = now + MAX(MAPS_MIN_AGE, MAPS_SHARE * (clock_thread_cpu() - begin));
}

static enum region region_of(const struct map_entry *e)
{
    if (e->shared)
        return REGION_SHARED;
    if (e->module[0] != '/')
        return REGION_ANON;
    if (maps_path_is_glibc(e->module) || maps_path_is_musl(e->module))
        return REGION_LIBC;
    return REGION_FILE;
}

static bool is_known_shared(const struct words *w, struct file_id file)
{
    for (size_t i = 0; i < w->nshared; i++) {
        if (w->shared[i].dev == file.dev && w->shared[i].inode == file.inode)
            return true;
    }
    return false;
}

static void know_shared(struct words *w, struct file_id file)
{
    if (is_known_shared(w, file))
        return;
    w->shared = xgrow(w->shared, &w->shared_cap, w->nshared + 1, sizeof(*w->shared));
    w->shared[w->nshared++] = file;
}

bool words_maps_file(struct words *w, struct file_id file, nsec_t now)
{
    if (is_known_shared(w, file))
        return true;
    reload_maps(w, now);
    for (size_t i = 0; i < w->maps.n; i++) {
        const struct map_entry *e = &w->maps.entries[i];
        if (e->shared && e->dev == file.dev && e->inode == file.inode) {
            know_shared(w, file);
            return true;
        }
    }
    return false;
}

static void probe_word(struct words *w, struct word *word)
{
    word->probed = true;
    w->probed = xgrow(w->probed, &w->probed_cap, w->nprobed + 1, sizeof(*w->probed));
    w->probed[w->nprobed++] = word;
}

static void take_for_lock(struct words *w, struct word *word)
{
    word->maybe_lock = true;
    if (word->probed)
        return;
    if (w->nprobed < MAX_PROBED)
        probe_word(w, word);
    else
        w->crowded = true;
}

static void locate(struct words *w, struct word *word, nsec_t now)
{
    const struct map_entry *e = maps_find(&w->maps, word->addr);

    if (!e) {
        reload_maps(w, now);
        e = maps_find(&w->maps, word->addr);
    }
    if (!e)
        return;
    word->region = region_of(e);
    word->dev = e->dev;
    word->inode = e->inode;
    word->offset = e->offset + (word->addr - e->start);
    word->path = e->module[0] == '/' ? xstrdup(e->module) : NULL;
    word->news = NEWS_SWEEPS;
    if (word->region != REGION_SHARED)
        return;
    know_shared(w, (struct file_id){.dev = e->dev, .inode = e->inode});
    if (word->lock_if_shared)
        take_for_lock(w, word);
}

struct word *words_note(struct words *w, const struct futex_wait *f, nsec_t now)
{
    struct word *word;

    HASH_FIND(hh, w->by_addr, &f->addr, sizeof(f->addr), word);
    if (!word) {
        word = xcalloc(1, sizeof(*word));
        word->addr = f->addr;
        HASH_ADD(hh, w->by_addr, addr, sizeof(word->addr), word);
    }
    word->has_late = false; /* somebody came: what was read before is no longer true */
    word->news = NEWS_SWEEPS;
    word->came_at = now;
    words_wait(w, word, now);
    /* Only now is it known where it lies. */
    if (may_be_lock(f, word->region)) {
        word->contended |= is_contended(f);
        take_for_lock(w, word);
    } else {
        word->lock_if_shared |= may_be_lock(f, REGION_SHARED);
    }
    return word;
}

void words_wait(struct words *w, struct word *word, nsec_t now)
{
    if (word->waiters++ == 0) {
        w->waited = xgrow(w->waited, &w->waited_cap, w->nwaited + 1, sizeof(*w->waited));
        w->waited[w->nwaited++] = word;
        /* The map may have been read too lately to be read again when this word was new. */
        if (word->region == REGION_UNKNOWN)
            locate(w, word, now);
    }
    word->last_waited = now;
}

/* The window, cut at the page of the word: its neighbours may not be mapped. Both neighbours
 * are asked for as items of their own. */
struct window_items {
    struct remote_item part[3]; /* before, the word's page, behind */
};

static void window_plan(uint64_t page, const struct word *word, struct word_view *view,
                        struct window_items *out)
{
    uint64_t lo = word->addr - WORD_BEFORE, hi = word->addr + WORD_AFTER;
    uint64_t plo = word->addr & ~(page - 1), phi = plo + page;
    /* At either end of the address space there is no word: nothing is asked for. */
    if (lo > hi || phi < plo)
        lo = hi = plo = phi = 0;
    uint64_t cut[4] = {lo, MAX(lo, plo), MIN(hi, phi), hi};

    for (int i = 0; i < 3; i++) {
        out->part[i] = (struct remote_item){
            .addr = cut[i],
            .dst = view->bytes + (cut[i] - lo),
            .len = (uint32_t)(cut[i + 1] - cut[i]),
        };
    }
}

static void window_take(const struct window_items *w, struct word_view *view)
{
    view->lo = view->hi = WORD_BEFORE;
    if (w->part[1].got == 0)
        return;
    view->lo = w->part[0].got == w->part[0].len ? 0 : (uint8_t)w->part[0].len;
    view->hi = (uint8_t)(w->part[0].len + w->part[1].got);
    if (w->part[1].got == w->part[1].len)
        view->hi = (uint8_t)(view->hi + w->part[2].got);
}

static void note_refusal(struct words *w, int rc)
{
    if (rc == -EPERM || rc == -EACCES || rc == -ENOSYS)
        w->memory_errno = -rc;
    else if (rc >= 0)
        w->memory_errno = 0;
}

static struct word_view *view_of(struct word *word, bool late)
{
    return late ? &word->late : &word->early;
}

/* Puts the parts of the N windows that are not empty in a row. Returns how many. */
static size_t plan_batch(struct word_batch *b, struct word **list, size_t n, bool late)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    size_t k = 0;

    b->plan = xgrow(b->plan, &b->plan_cap, n, sizeof(*b->plan));
    b->items = xgrow(b->items, &b->items_cap, n * 3, sizeof(*b->items));
    for (size_t i = 0; i < n; i++) {
        window_plan(page, list[i], view_of(list[i], late), &b->plan[i]);
        for (int p = 0; p < 3; p++) {
            if (b->plan[i].part[p].len)
                b->items[k++] = b->plan[i].part[p];
        }
    }
    return k;
}

/* Reads the windows of the N words in LIST, LATE or early ones, in one batch. */
static int read_words(struct words *w, struct word **list, size_t n, memory_reader read, bool late)
{
    struct word_batch *b = &w->batch;
    size_t k = plan_batch(b, list, n, late);

    int rc = k ? read(w->tid, b->items, k) : 0;
    if (k)
        note_refusal(w, rc);
    k = 0;
    for (size_t i = 0; i < n; i++) {
        for (int p = 0; p < 3; p++) {
            if (b->plan[i].part[p].len)
                b->plan[i].part[p].got = b->items[k++].got;
        }
        window_take(&b->plan[i], view_of(list[i], late));
    }
    stdio_read_owners(w, list, n, read, late);
    return rc < 0 ? rc : 0;
}

int words_read_early(struct words *w, memory_reader read)
{
    int rc = read_words(w, w->probed, w->nprobed, read, false);

    for (size_t i = 0; i < w->nprobed; i++)
        w->probed[i]->has_early = true;
    return rc;
}

/* Which words are probed -------------------------------------------------------------- */

/* For qsort: the word that is to be probed first comes first. Among locks that others wait for,
 * those that are probed stay, for a utilisation needs many looks, and looks that end with the
 * waiters would show it too high. */
static int compare_claims(const void *a, const void *b)
{
    const struct word *x = *(struct word *const *)a, *y = *(struct word *const *)b;

    if (x->contended != y->contended)
        return x->contended ? -1 : 1;
    if (x->contended && x->probed != y->probed)
        return x->probed ? -1 : 1;
    return (x->came_at < y->came_at) - (x->came_at > y->came_at);
}

static void choose(struct words *w)
{
    struct word_batch *b = &w->batch;
    size_t n = 0;

    b->list = xgrow(b->list, &b->list_cap, w->nprobed + w->nwaited, sizeof(*b->list));
    for (size_t i = 0; i < w->nprobed; i++) {
        /* One that is not wanted any more makes room. */
        w->probed[i]->contended &= w->now - w->probed[i]->last_waited < STILL_WANTED;
        b->list[n++] = w->probed[i];
    }
    for (size_t i = 0; i < w->nwaited; i++) {
        if (w->waited[i]->maybe_lock && !w->waited[i]->probed)
            b->list[n++] = w->waited[i];
    }
    qsort(b->list, n, sizeof(*b->list), compare_claims);
    w->nprobed = 0;
    for (size_t i = 0; i < n; i++) {
        if (i < MAX_PROBED)
            probe_word(w, b->list[i]);
        else
            b->list[i]->probed = b->list[i]->has_early = false;
    }
}

static uint32_t count_unprobed(const struct words *w)
{
    uint32_t n = 0;

    for (size_t i = 0; i < w->nwaited; i++)
        n += w->waited[i]->maybe_lock && !w->waited[i]->probed;
    return n;
}

static void settle_probed(struct words *w)
{
    w->unprobed = count_unprobed(w);
    if (!w->unprobed || (!w->crowded && w->now - w->chosen_at < CHOOSE_EVERY))
        return;
    w->crowded = false;
    w->chosen_at = w->now;
    choose(w);
    w->unprobed = count_unprobed(w);
}

int words_read_late(struct words *w, memory_reader read)
{
    struct word_batch *b = &w->batch;
    size_t n = 0;

    settle_probed(w);
    b->list = xgrow(b->list, &b->list_cap, w->nwaited, sizeof(*b->list));
    /* A waiter that has slept on since the last sweep keeps its word's neighbourhood as it was,
     * unless the word may be a lock, whose owner changes without that waiter. */
    for (size_t i = 0; i < w->nwaited; i++) {
        if (w->waited[i]->maybe_lock || !w->waited[i]->has_late)
            b->list[n++] = w->waited[i];
    }
    int rc = read_words(w, b->list, n, read, true);
    for (size_t i = 0; i < n; i++)
        b->list[i]->has_late = true;
    return rc;
}

/* Life --------------------------------------------------------------------------------- */

static void drop(struct words *w, struct word *word)
{
    for (size_t i = 0; word->probed && i < w->nprobed; i++) {
        if (w->probed[i] == word)
            w->probed[i--] = w->probed[--w->nprobed];
    }
    HASH_DEL(w->by_addr, word);
    free((char *)word->path);
    free(word);
}

static void prune(struct words *w, nsec_t now, nsec_t keep)
{
    struct word *word, *tmp;

    if (now - w->pruned_at < NSEC_PER_SEC)
        return;
    w->pruned_at = now;
    HASH_ITER(hh, w->by_addr, word, tmp)
    {
        /* Threads that were waiting in the last sweep still point to their word. */
        if (word->waiters == 0 && now - word->last_waited > keep)
            drop(w, word);
    }
}

void words_begin(struct words *w, nsec_t now, nsec_t keep)
{
    w->now = now;
    prune(w, now, keep);
    for (size_t i = 0; i < w->nwaited; i++) {
        w->waited[i]->waiters = 0;
        w->waited[i]->news -= w->waited[i]->news > 0;
    }
    w->nwaited = 0;
    for (size_t i = 0; i < w->nprobed; i++)
        w->probed[i]->has_early = false;
}

void words_release(struct words *w)
{
    struct word *word, *tmp;

    HASH_ITER(hh, w->by_addr, word, tmp)
    {
        drop(w, word);
    }
    free(w->waited);
    free(w->probed);
    free(w->shared);
    free(w->batch.list);
    free(w->batch.plan);
    free(w->batch.items);
    maps_release(&w->maps);
    *w = (struct words){.dirfd = w->dirfd, .tid = w->tid};
}

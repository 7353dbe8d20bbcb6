#include "source_words.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "xalloc.h"

#define MAPS_MIN_AGE  NSEC_PER_SEC /* at most one reading a second */
#define MAX_PROBED    512          /* words of one process that probes read */

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
        return region == REGION_SHARED || (f->val > 0 && f->val <= MAX_LOCK_VAL);
    return f->val != 0;
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
    if (w->maps_at && now - w->maps_at < MAPS_MIN_AGE)
        return;
    w->maps_at = now;
    if (maps_load(&w->maps, w->dirfd, w->tid) == 0)
        w->libc = find_libc(&w->maps);
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
    if (word->region == REGION_SHARED)
        know_shared(w, (struct file_id){.dev = e->dev, .inode = e->inode});
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
    if (!word->maybe_lock && may_be_lock(f, word->region) && w->nprobed < MAX_PROBED) {
        word->maybe_lock = true;
        w->probed = xgrow(w->probed, &w->probed_cap, w->nprobed + 1, sizeof(*w->probed));
        w->probed[w->nprobed++] = word;
    }
    word->has_late = false; /* somebody came: what was read before is no longer true */
    words_wait(w, word, now);
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

static void window_plan(const struct word *word, struct word_view *view, struct window_items *out)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
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

/* Reads the windows of the N words in LIST, LATE or early ones, in one batch. */
static int read_words(struct word **list, size_t n, pid_t tid, memory_reader read, bool late)
{
    if (n == 0)
        return 0;
    struct window_items *plan = xcalloc(n, sizeof(*plan));
    struct remote_item *items = xcalloc(n * 3, sizeof(*items));
    size_t k = 0;

    for (size_t i = 0; i < n; i++) {
        window_plan(list[i], late ? &list[i]->late : &list[i]->early, &plan[i]);
        for (int p = 0; p < 3; p++) {
            if (plan[i].part[p].len)
                items[k++] = plan[i].part[p];
        }
    }
    int rc = read(tid, items, k);
    k = 0;
    for (size_t i = 0; i < n; i++) {
        for (int p = 0; p < 3; p++) {
            if (plan[i].part[p].len)
                plan[i].part[p].got = items[k++].got;
        }
        window_take(&plan[i], late ? &list[i]->late : &list[i]->early);
    }
    free(plan);
    free(items);
    return rc < 0 ? rc : 0;
}

int words_read_early(struct words *w, memory_reader read)
{
    int rc = read_words(w->probed, w->nprobed, w->tid, read, false);

    for (size_t i = 0; i < w->nprobed; i++)
        w->probed[i]->has_early = true;
    return rc;
}

int words_read_late(struct words *w, memory_reader read)
{
    struct word **list = xcalloc(w->nwaited, sizeof(struct word *));
    size_t n = 0;

    /* A waiter that has slept on since the last sweep keeps its word's neighbourhood as it was,
     * unless the word may be a lock, whose owner changes without that waiter. */
    for (size_t i = 0; i < w->nwaited; i++) {
        if (w->waited[i]->maybe_lock || !w->waited[i]->has_late)
            list[n++] = w->waited[i];
    }
    int rc = read_words(list, n, w->tid, read, true);
    for (size_t i = 0; i < n; i++)
        list[i]->has_late = true;
    free(list);
    return rc;
}

static void drop(struct words *w, struct word *word)
{
    for (size_t i = 0; word->maybe_lock && i < w->nprobed; i++) {
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
    prune(w, now, keep);
    for (size_t i = 0; i < w->nwaited; i++)
        w->waited[i]->waiters = 0;
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
    maps_release(&w->maps);
    *w = (struct words){.dirfd = w->dirfd, .tid = w->tid};
}

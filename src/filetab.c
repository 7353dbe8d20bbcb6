#include "filetab.h"

#include <string.h>

#include "xalloc.h"

void filetab_take(struct filetab *t, const struct sample *s)
{
    *t = (struct filetab){
        .files = s->files,
        .holders = s->file_holders,
        .waiters = s->file_waiters,
        .sems = s->sems,
        .nfiles = s->nfiles,
        .nholders = s->nfile_holders,
        .nwaiters = s->nfile_waiters,
        .nsems = s->nsems,
    };
}

const struct file_fact *filetab_file(const struct filetab *t, struct file_id file)
{
    for (size_t i = 0; i < t->nfiles; i++) {
        if (file_id_equal(t->files[i].file, file))
            return &t->files[i];
    }
    return NULL;
}

const struct file_holder *filetab_next_holder(const struct filetab *t, const struct file_lock *want,
                                              size_t *i)
{
    while (*i < t->nholders) {
        const struct file_holder *h = &t->holders[(*i)++];
        if (filelock_conflict(&h->lock, want))
            return h;
    }
    return NULL;
}

bool filetab_is_own(const struct lock_row *r, const struct file_holder *h)
{
    return h->lock.kind == FILELOCK_POSIX && r->npids == 1 && r->pids[0] == h->pid;
}

static bool same_lock(const struct file_lock *a, const struct file_lock *b)
{
    return a->kind == b->kind && file_id_equal(a->file, b->file) && a->start == b->start &&
           a->end == b->end;
}

const struct file_waiter *filetab_place(const struct filetab *t, pid_t pid,
                                        const struct file_lock *want)
{
    for (size_t i = 0; i < t->nwaiters; i++) {
        const struct file_waiter *w = &t->waiters[i];
        /* Of an OFD lock the kernel does not tell who waits. */
        if ((w->pid == pid || w->pid < 0) && same_lock(&w->lock, want) &&
            w->lock.exclusive == want->exclusive)
            return w;
    }
    return NULL;
}

int filetab_depth(const struct filetab *t, const struct lock_row *r)
{
    int depth = -1;

    for (size_t i = 0; i < t->nwaiters; i++) {
        struct lockkey key = lockkey_file(&t->waiters[i].lock);
        if (memcmp(&key, &r->key, sizeof(key)) == 0)
            depth = MAX(depth, t->waiters[i].level);
    }
    return depth;
}

const struct sem_fact *filetab_sem(const struct filetab *t, int id, uint16_t num)
{
    for (size_t i = 0; i < t->nsems; i++) {
        if (t->sems[i].id == id && t->sems[i].num == num)
            return t->sems[i].known ? &t->sems[i] : NULL;
    }
    return NULL;
}

/* Rows ---------------------------------------------------------------------------------- */

static enum lock_kind kind_of(enum filelock_kind k)
{
    switch (k) {
    case FILELOCK_FLOCK:
        return KIND_FLOCK;
    case FILELOCK_POSIX:
        return KIND_POSIX;
    case FILELOCK_OFD:
        return KIND_OFD;
    case FILELOCK_LEASE:
        return KIND_LEASE;
    case FILELOCK_NONE:
        break;
    }
    return KIND_NONE;
}

static void learn_path(struct lock_row *r, const struct file_fact *f)
{
    if (!f)
        return;
    r->deleted = f->deleted;
    if (!r->path && f->path)
        r->path = xstrdup(f->path);
}

struct lock_row *filetab_row(struct filetab *t, struct locktab *locks, const struct process_fact *p,
                             const struct file_lock *want)
{
    if (want->kind == FILELOCK_NONE || want->file.inode == 0)
        return NULL;
    struct lockkey key = lockkey_file(want);
    struct lock_row *r = locktab_keyed_row(locks, p, &key, kind_of(want->kind), CONF_CONFIRMED);
    /* Among waiters who would share it, one who would not sees more holders in the way. */
    bool exclusive = want->exclusive || (r->counted == locks->sweep && r->file.exclusive);
    r->file = *want;
    r->file.exclusive = exclusive;
    r->dev = want->file.dev;
    r->inode = want->file.inode;
    learn_path(r, filetab_file(t, want->file));
    return r;
}

struct lock_row *filetab_sem_row(struct locktab *locks, const struct process_fact *p,
                                 const struct sem_wait *w)
{
    if (w->id < 0 || w->nops == 0)
        return NULL;
    struct lockkey key = lockkey_sem(w->id, w->num);
    bool lock = w->op < 0 && w->undo;
    struct lock_row *r = locktab_keyed_row(locks, p, &key, lock ? KIND_SYSV_SEM : KIND_SEM,
                                           lock ? CONF_LIKELY : CONF_CONFIRMED);
    r->sem = *w;
    return r;
}

/* At the end of a sweep ------------------------------------------------------------------ */

/* Somebody who waits proves that it is held; when nobody does, the descriptors of those who held or
 * wanted it tell. */
static void count_held(const struct filetab *t, struct locktab *locks, struct lock_row *r)
{
    size_t i = 0;
    bool waited = locktab_waiters(locks, r) > 0;

    if (!waited && !filetab_file(t, r->file.file))
        return;
    struct file_lock any = r->file;
    any.exclusive = true;
    locktab_count_busy(locks, r, waited || filetab_next_holder(t, &any, &i));
}

static const struct process_fact *no_process(void)
{
    static const struct process_fact none;

    return &none;
}

static void note_held(const struct filetab *t, struct locktab *locks, const struct file_fact *f)
{
    for (size_t i = 0; i < t->nholders; i++) {
        const struct file_lock *l = &t->holders[i].lock;
        if (!file_id_equal(l->file, f->file))
            continue;
        struct lockkey key = lockkey_file(l);
        struct lock_row *r =
            locktab_keyed_row(locks, no_process(), &key, kind_of(l->kind), CONF_CONFIRMED);
        if (r->npids == 0)
            r->file = *l;
        r->dev = f->file.dev;
        r->inode = f->file.inode;
        learn_path(r, f);
        r->only_held = locks->sweep;
        r->last_waited = locks->now;
    }
}

void filetab_end_sweep(const struct filetab *t, struct locktab *locks)
{
    for (size_t i = 0; i < t->nfiles; i++) {
        if (t->files[i].open_elsewhere)
            note_held(t, locks, &t->files[i]);
    }
    for (struct lock_row *r = locks->rows; r; r = r->hh.next) {
        if (r->key.space == LOCKKEY_FILE)
            count_held(t, locks, r);
    }
}

/* SQLite: PENDING_BYTE and what follows it in src/os.h; in the -shm file of a write-ahead log
 * (src/wal.c, WALINDEX_LOCK_OFFSET) one byte for each lock. */
#define SQLITE_PENDING    UINT64_C(0x40000000)
#define SQLITE_RESERVED   (SQLITE_PENDING + 1)
#define SQLITE_SHARED     (SQLITE_PENDING + 2)
#define SQLITE_SHARED_END (SQLITE_SHARED + 509)
#define WAL_FIRST         120

static bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

const char *filetab_sqlite_name(const char *path, const struct file_lock *l)
{
    static const char *const wal[] = {
        "WAL write",  "WAL checkpoint", "WAL recover", "WAL read 0", "WAL read 1",
        "WAL read 2", "WAL read 3",     "WAL read 4",  "WAL DMS",
    };

    if (l->kind != FILELOCK_POSIX && l->kind != FILELOCK_OFD)
        return NULL;
    if (path && ends_in(path, "-shm"))
        return l->start == l->end && l->start >= WAL_FIRST && l->start - WAL_FIRST < ARRAY_SIZE(wal)
                   ? wal[l->start - WAL_FIRST]
                   : NULL;
    if (l->start == SQLITE_PENDING && l->end == SQLITE_PENDING)
        return "PENDING";
    if (l->start == SQLITE_RESERVED && l->end == SQLITE_RESERVED)
        return "RESERVED";
    return l->start >= SQLITE_SHARED && l->end <= SQLITE_SHARED_END ? "SHARED" : NULL;
}

#include "source_files.h"

#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "procfs.h"
#include "xalloc.h"

#define KNOWN_FOR       (60 * NSEC_PER_SEC) /* after its last waiter */
#define WATCHED_FOR     (2 * NSEC_PER_SEC)  /* its descriptors are read for so long after that */
#define SCAN_EVERY      (500 * NSEC_PER_MSEC)
#define SCAN_SOONEST    (200 * NSEC_PER_MSEC)
#define SEARCH_EVERY    (5 * NSEC_PER_SEC) /* through all processes */
#define ELSEWHERE_FIRST NSEC_PER_SEC
#define ELSEWHERE_EVERY (10 * NSEC_PER_SEC)
#define POLLED_FOR      (25 * NSEC_PER_SEC) /* a search may find it free at that moment */
#define PIDS_MAX        4096 /* watched processes whose descriptors a search looks through */

void files_init(struct files *f, int rootfd, struct inspector *in, long *fds_left)
{
    f->inspector = in;
    f->holders.rootfd = rootfd;
    f->holders.fds_left = fds_left;
}

/* Files ---------------------------------------------------------------------------------- */

static struct known_file *find_known(const struct files *f, struct file_id id)
{
    for (size_t i = 0; i < f->nknown; i++) {
        if (file_id_equal(f->known[i].fact.file, id))
            return (struct known_file *)&f->known[i];
    }
    return NULL;
}

static void forget(struct known_file *k)
{
    free((char *)k->fact.path);
    free((char *)k->fact.server);
}

/* The one that nobody has waited for for longest; NULL when all of them were lately. */
static struct known_file *least_known(struct files *f, nsec_t now)
{
    struct known_file *least = NULL;

    for (size_t i = 0; i < f->nknown; i++) {
        if (!least || f->known[i].last_waited < least->last_waited)
            least = &f->known[i];
    }
    return least && (!least->last_waited || now - least->last_waited > WATCHED_FOR) ? least : NULL;
}

/* A file that somebody waits for; NULL when there is no room. */
static struct known_file *know_waited(struct files *f, struct file_id id, nsec_t now)
{
    struct known_file *k = find_known(f, id);

    if (k)
        return k;
    if (f->nknown < FILES_MAX)
        k = &f->known[f->nknown++];
    else if ((k = least_known(f, now)) != NULL)
        forget(k);
    if (k)
        *k = (struct known_file){.fact.file = id};
    return k;
}

/* A file that somebody may poll. */
static struct known_file *know_polled(struct files *f, struct file_id id)
{
    struct known_file *k = find_known(f, id);
    size_t polled = 0;

    for (size_t i = 0; i < f->nknown; i++)
        polled += f->known[i].fact.open_elsewhere;
    if (k || polled >= FILES_MAX_POLLED || f->nknown == FILES_MAX)
        return k;
    k = &f->known[f->nknown++];
    *k = (struct known_file){.fact.file = id};
    return k;
}

static void forget_old(struct files *f, nsec_t now)
{
    size_t kept = 0;

    for (size_t i = 0; i < f->nknown; i++) {
        struct known_file *k = &f->known[i];
        if (k->fact.open_elsewhere || (k->last_waited && now - k->last_waited < KNOWN_FOR))
            f->known[kept++] = *k;
        else
            forget(k);
    }
    f->nknown = kept;
}

static bool is_waited(const struct known_file *k, nsec_t now)
{
    return k->last_waited && now - k->last_waited <= WATCHED_FOR;
}

static enum file_interest interest_in(const void *arg, struct file_id id)
{
    const struct files *f = arg;
    const struct known_file *k = find_known(f, id);

    if (!k)
        return FILE_FORGOTTEN;
    if (is_waited(k, f->now))
        return FILE_WAITED;
    return k->fact.open_elsewhere ? FILE_POLLED : FILE_KEPT;
}

/* A file may be removed, or renamed, while it is locked. */
static void take_path(struct known_file *k, const char *link)
{
    char *path = link[0] == '/' ? xstrdup(link) : NULL;

    if (!path)
        return;
    k->fact.deleted = procfs_strip_deleted(path);
    free((char *)k->fact.path);
    k->fact.path = path;
}

/* Who waits ------------------------------------------------------------------------------ */

/* Those who held it while nobody waited are not those of before. */
static void begin_waiting(struct known_file *k)
{
    k->asked = k->asked_all = false;
    k->fact.searched = k->fact.open_elsewhere = false;
}

static void note_waiter(struct files *f, const struct process *p, const struct thread_fact *t,
                        nsec_t now)
{
    struct known_file *k = know_waited(f, t->wants.file, now);

    if (!k)
        return;
    if (!is_waited(k, now))
        begin_waiting(k);
    k->last_waited = now;
    f->waited = true;
    if (t->fd_path && (t->fresh || !k->fact.path))
        take_path(k, t->fd_path);
    if (t->fd >= 0)
        holders_note_waiter(&f->holders, p->fact.pid, t->fd, t->wants.file, t->fresh, now);
}

static void note_waiters(struct files *f, struct process *const *procs, size_t n, nsec_t now)
{
    f->waited = false;
    for (size_t i = 0; i < n; i++) {
        const struct process *p = procs[i];
        for (size_t k = 0; !p->fact.ended && k < p->threads.n; k++) {
            const struct thread_fact *t = &p->threads.facts[k];
            if (t->seen == SEEN_CALL && t->wants.kind != FILELOCK_NONE && t->wants.file.inode)
                note_waiter(f, p, t, now);
        }
    }
}

/* Searches ------------------------------------------------------------------------------- */

static void ask(struct files *f, struct scan_wish *wish, struct process *const *procs, size_t n,
                nsec_t now)
{
    f->pids = xgrow(f->pids, &f->pids_cap, MIN(n, PIDS_MAX), sizeof(*f->pids));
    for (size_t i = 0; i < n && wish->npids < PIDS_MAX; i++) {
        if (!procs[i]->outsider && !procs[i]->fact.ended)
            f->pids[wish->npids++] = procs[i]->fact.pid;
    }
    wish->pids = f->pids;
    struct inspect_job job = {.kind = INSPECT_FILES, .wish = inspect_wish(wish)};
    f->pending = inspector_ask(f->inspector, &job);
    if (!f->pending)
        free(job.wish); /* asked again soon */
    f->pending_waited = wish->nfiles > 0;
    f->pending_elsewhere = wish->held_elsewhere;
    f->asked_at = now;
}

static void note_asked(struct files *f, bool everybody, nsec_t now)
{
    for (size_t i = 0; i < f->nknown; i++) {
        struct known_file *k = &f->known[i];
        if (!is_waited(k, now))
            continue;
        k->asked = true;
        k->asked_all |= everybody;
        if (everybody)
            k->searched_at = now;
    }
}

static bool elsewhere_is_due(const struct files *f, nsec_t now)
{
    return now >= f->elsewhere_at;
}

/* Whether something is to be searched for now: then what, with room for FILES_MAX in IDS. */
static bool wish_now(const struct files *f, struct scan_wish *wish, struct file_id *ids, nsec_t now)
{
    bool is_new = false;

    *wish = (struct scan_wish){.files = ids};
    for (size_t i = 0; i < f->nknown; i++) {
        const struct known_file *k = &f->known[i];
        if (!is_waited(k, now))
            continue;
        ids[wish->nfiles++] = k->fact.file;
        is_new |= !k->asked;
        wish->everybody |= !k->searched_at || now - k->searched_at >= SEARCH_EVERY;
    }
    wish->held_elsewhere = elsewhere_is_due(f, now);
    return wish->held_elsewhere || is_new || (f->waited && now - f->asked_at >= SCAN_EVERY);
}

static void ask_when_due(struct files *f, struct process *const *procs, size_t n, nsec_t now)
{
    struct file_id ids[FILES_MAX];
    struct scan_wish wish;

    if (!f->elsewhere_at)
        f->elsewhere_at = now + ELSEWHERE_FIRST;
    if (!f->inspector || f->pending || (f->asked_at && now - f->asked_at < SCAN_SOONEST) ||
        !wish_now(f, &wish, ids, now))
        return;
    ask(f, &wish, procs, n, now);
    if (!f->pending)
        return;
    note_asked(f, wish.everybody, now);
    if (wish.held_elsewhere)
        f->elsewhere_at = now + ELSEWHERE_EVERY;
}

void files_look(struct files *f, struct process *const *procs, size_t n, nsec_t now)
{
    f->now = now;
    note_waiters(f, procs, n, now);
    forget_old(f, now);
    holders_look(&f->holders, interest_in, f, now);
    ask_when_due(f, procs, n, now);
}

/* Answers -------------------------------------------------------------------------------- */

static void take_file(struct files *f, const struct file_fact *from, bool searched)
{
    struct known_file *k =
        from->open_elsewhere ? know_polled(f, from->file) : find_known(f, from->file);

    if (!k)
        return;
    if (from->open_elsewhere && !is_waited(k, f->now)) {
        k->fact.open_elsewhere = true;
        k->polled_at = f->now;
    }
    k->fact.searched |= searched && k->asked_all;
    if (from->path) { /* else no descriptor was found that could tell */
        k->fact.fs = from->fs;
        k->fact.fuse_daemon = from->fuse_daemon;
    }
    if (from->path && (!k->fact.path || k->fact.open_elsewhere)) {
        free((char *)k->fact.path);
        k->fact.path = xstrdup(from->path);
        k->fact.deleted = from->deleted;
    }
    if (from->server && !k->fact.server)
        k->fact.server = xstrdup(from->server);
}

static void take_waiters(struct files *f, const struct scan_result *r)
{
    f->waiters = xgrow(f->waiters, &f->waiters_cap, MAX(r->nwaiters, 1), sizeof(*f->waiters));
    if (r->nwaiters)
        memcpy(f->waiters, r->waiters, r->nwaiters * sizeof(*f->waiters));
    f->nwaiters = r->nwaiters;
    f->waiters_at = r->at;
}

void files_take(struct files *f, const struct scan_result *r, nsec_t now)
{
    f->now = now;
    f->pending = false;
    f->malformed = r->malformed;
    for (size_t i = 0; f->pending_elsewhere && i < f->nknown; i++)
        f->known[i].fact.open_elsewhere &= now - f->known[i].polled_at < POLLED_FOR;
    for (size_t i = 0; i < r->nfiles; i++)
        take_file(f, &r->files[i], r->searched);
    holders_take(&f->holders, r, interest_in, f, now);
    if (f->pending_waited)
        take_waiters(f, r);
}

void files_put(struct files *f, struct sample *s)
{
    for (size_t i = 0; i < f->nknown; i++)
        f->out[i] = f->known[i].fact;
    s->files = f->out;
    s->nfiles = f->nknown;
    s->file_holders = f->holders.now;
    s->nfile_holders = f->holders.nnow;
    s->file_waiters = f->waiters;
    s->nfile_waiters = f->nwaiters;
    s->file_waiters_at = f->waiters_at;
    s->self.malformed = f->malformed;
}

pid_t files_next_holder(const struct files *f, size_t *i)
{
    while (*i < f->holders.nnow) {
        const struct file_holder *h = &f->holders.now[(*i)++];
        if (h->pid > 0)
            return h->pid;
    }
    return 0;
}

void files_release(struct files *f)
{
    holders_release(&f->holders);
    for (size_t i = 0; i < f->nknown; i++)
        forget(&f->known[i]);
    free(f->waiters);
    free(f->pids);
}

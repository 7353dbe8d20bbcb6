#include "source_holders.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "compiler.h"
#include "procfs.h"

#define CANDIDATE_KEPT (60 * NSEC_PER_SEC) /* after it last mattered */
#define ASLEEP_EVERY   (200 * NSEC_PER_MSEC)
#define POLLED_EVERY   NSEC_PER_SEC
#define LINES_TRUSTED  (2 * NSEC_PER_SEC)
#define TAKER_EVERY    NSEC_PER_SEC
#define FDINFO_SIZE    8192

static bool same_lock(const struct file_lock *a, const struct file_lock *b)
{
    return a->kind == b->kind && a->exclusive == b->exclusive && a->start == b->start &&
           a->end == b->end && file_id_equal(a->file, b->file);
}

/* Candidates ----------------------------------------------------------------------------- */

static struct candidate *find_candidate(struct holders *h, pid_t pid, int fd, struct file_id file)
{
    for (size_t i = 0; i < h->ncandidates; i++) {
        struct candidate *c = &h->candidates[i];
        if (c->pid == pid && c->fd == fd && file_id_equal(c->file, file))
            return c;
    }
    return NULL;
}

static void close_info(struct holders *h, struct candidate *c)
{
    if (c->info < 0)
        return;
    close(c->info);
    c->info = -1;
    (*h->fds_left)++;
}

static void drop_candidate(struct holders *h, size_t i)
{
    close_info(h, &h->candidates[i]);
    h->candidates[i] = h->candidates[--h->ncandidates];
}

static bool is_less_use(const struct candidate *a, const struct candidate *b)
{
    return a->why != b->why ? a->why < b->why : a->used_at < b->used_at;
}

/* Room for one more of FILE that is there for WHY. NULL when all the others matter as much. */
static struct candidate *make_room(struct holders *h, struct file_id file, enum candidate_why why)
{
    struct candidate *least = NULL, *least_of_file = NULL;
    size_t of_file = 0;

    for (size_t i = 0; i < h->ncandidates; i++) {
        struct candidate *c = &h->candidates[i];
        bool same = file_id_equal(c->file, file);
        of_file += same;
        if (same && (!least_of_file || is_less_use(c, least_of_file)))
            least_of_file = c;
        if (!least || is_less_use(c, least))
            least = c;
    }
    if (of_file < CANDIDATES_PER_FILE && h->ncandidates < CANDIDATES_MAX)
        return &h->candidates[h->ncandidates++];
    if (of_file >= CANDIDATES_PER_FILE)
        least = least_of_file;
    if (!least || least->why >= why)
        return NULL;
    close_info(h, least);
    return least;
}

static struct candidate *add_candidate(struct holders *h, pid_t pid, int fd, struct file_id file,
                                       enum candidate_why why, nsec_t now)
{
    struct candidate *c = find_candidate(h, pid, fd, file);

    if (!c) {
        c = make_room(h, file, why);
        if (!c)
            return NULL;
        *c = (struct candidate){.pid = pid, .fd = fd, .info = -1, .file = file, .why = why};
    }
    c->why = MAX(c->why, why);
    c->used_at = now;
    return c;
}

void holders_note_waiter(struct holders *h, pid_t pid, int fd, struct file_id file, bool fresh,
                         nsec_t now)
{
    struct candidate *c = add_candidate(h, pid, fd, file, CANDIDATE_WAITS, now);

    if (!c)
        return;
    c->stirred = fresh || (c->waited_at == now && c->stirred);
    c->waited_at = now;
}

/* While all who wait through it sleep on, what is held through it hardly changes. */
static bool is_due(const struct candidate *c, enum file_interest interest, nsec_t now)
{
    if (!c->looked_at)
        return true;
    nsec_t age = now - c->looked_at;
    if (interest == FILE_POLLED)
        return age >= POLLED_EVERY;
    bool asleep = c->waited_at == now && !c->stirred;
    return c->why == CANDIDATE_HOLDS || !asleep || age >= ASLEEP_EVERY;
}

/* The file at the other end is another one when the number was given anew: what is read says so. */
static ssize_t read_info(struct holders *h, struct candidate *c, char *buf, size_t size)
{
    char rel[48];

    snprintf(rel, sizeof(rel), "%d/fdinfo/%d", c->pid, c->fd);
    if (c->info < 0 && *h->fds_left > 0) {
        c->info = openat(h->rootfd, rel, O_RDONLY | O_CLOEXEC);
        if (c->info < 0)
            return -errno;
        (*h->fds_left)--;
    }
    return c->info >= 0 ? procfs_reread(c->info, buf, size)
                        : procfs_slurp(h->rootfd, rel, buf, size);
}

/* Who took it ---------------------------------------------------------------------------- */

/* A leader that has exited while other threads go on is listed as a zombie, too. */
static bool has_ended(int rc, const struct procfs_stat *st)
{
    return rc == -ENOENT || rc == -ESRCH ||
           (rc == 0 && (st->state == 'Z' || st->state == 'X') && st->num_threads <= 1);
}

static void ask_for_taker(const struct holders *h, struct taker *t, nsec_t now)
{
    char rel[24];
    struct procfs_stat st = {0};

    snprintf(rel, sizeof(rel), "%d/stat", t->pid);
    int rc = procfs_read_stat(h->rootfd, rel, &st);
    t->asked_at = now;
    /* Another one has got its number by now. */
    bool other = rc == 0 && t->start_ticks && st.start_ticks != t->start_ticks;
    if (!t->gone)
        t->gone = other || has_ended(rc, &st);
    if (rc == 0 && !t->start_ticks)
        t->start_ticks = st.start_ticks;
}

static struct taker *find_taker(struct holders *h, pid_t pid)
{
    struct taker *oldest = &h->takers[0];

    for (size_t i = 0; i < h->ntakers; i++) {
        if (h->takers[i].pid == pid)
            return &h->takers[i];
        if (h->takers[i].asked_at < oldest->asked_at)
            oldest = &h->takers[i];
    }
    if (h->ntakers < TAKERS_MAX)
        oldest = &h->takers[h->ntakers++];
    *oldest = (struct taker){.pid = pid};
    return oldest;
}

static bool is_gone(struct holders *h, pid_t pid, nsec_t now)
{
    if (pid <= 0)
        return false;
    struct taker *t = find_taker(h, pid);
    if (t->asked_at && now - t->asked_at > CANDIDATE_KEPT)
        *t = (struct taker){.pid = pid};
    if (!t->asked_at || now - t->asked_at >= TAKER_EVERY)
        ask_for_taker(h, t, now);
    return t->gone;
}

/* Holders -------------------------------------------------------------------------------- */

/* A POSIX lock is the process's, and shows in each of its descriptors to that file. One that nobody
 * shares and that shows in two of them is one whose descriptor was duplicated. */
static struct file_holder *find_told(struct holders *h, const struct file_holder *of)
{
    for (size_t i = 0; i < h->nnow; i++) {
        struct file_holder *o = &h->now[i];
        if (o->pid == of->pid && same_lock(&o->lock, &of->lock) &&
            (of->lock.kind == FILELOCK_POSIX || of->lock.exclusive || o->fd == of->fd))
            return o;
    }
    return NULL;
}

static nsec_t held_since(const struct holders *h, const struct file_holder *of, nsec_t otherwise)
{
    for (size_t i = 0; i < h->nbefore; i++) {
        const struct file_holder *b = &h->before[i];
        if (b->pid == of->pid && b->taker == of->taker && same_lock(&b->lock, &of->lock) &&
            (b->fd == of->fd || b->fd < 0 || of->lock.kind == FILELOCK_POSIX))
            return b->since;
    }
    return otherwise;
}

static void tell(struct holders *h, struct file_holder of, nsec_t since)
{
    struct file_holder *told = find_told(h, &of);

    if (told)
        told->now |= of.now;
    if (told || h->nnow == HOLDERS_MAX)
        return;
    of.since = held_since(h, &of, since);
    h->now[h->nnow++] = of;
}

/* What it held when it was last looked at. */
static void tell_as_before(struct holders *h, const struct candidate *c)
{
    for (size_t i = 0; i < h->nbefore; i++) {
        struct file_holder of = h->before[i];
        if (of.pid != c->pid || of.fd != c->fd || !file_id_equal(of.lock.file, c->file))
            continue;
        of.now = false;
        tell(h, of, of.since);
    }
}

static void tell_locks(struct holders *h, struct candidate *c, const char *text, nsec_t now)
{
    struct lock_line line;
    enum line_result got;

    if (c->why == CANDIDATE_HOLDS)
        c->why = CANDIDATE_WAITS;
    while ((got = filelocks_next_of_fd(&text, &line)) != LINE_END) {
        if (got == LINE_MALFORMED || !file_id_equal(line.lock.file, c->file))
            continue;
        c->why = CANDIDATE_HOLDS;
        c->used_at = now;
        tell(h, (struct file_holder){
                    .lock = line.lock,
                    .pid = c->pid,
                    .fd = c->fd,
                    .taker = line.pid,
                    .taker_gone = line.pid != c->pid && is_gone(h, line.pid, now),
                    .now = true,
                }, now);
    }
}

/* False when the descriptor is gone. */
static bool look_at_candidate(struct holders *h, struct candidate *c, nsec_t now)
{
    char text[FDINFO_SIZE];
    ssize_t n = read_info(h, c, text, sizeof(text));

    c->looked_at = now;
    if (n >= 0)
        tell_locks(h, c, text, now);
    return n != -ENOENT && n != -ESRCH;
}

static void look_at_candidates(struct holders *h, file_interest_fn interest, const void *arg,
                               nsec_t now)
{
    for (size_t i = 0; i < h->ncandidates;) {
        struct candidate *c = &h->candidates[i];
        enum file_interest as = interest(arg, c->file);
        bool keep = as != FILE_FORGOTTEN && now - c->used_at <= CANDIDATE_KEPT;
        if (keep && as >= FILE_POLLED && is_due(c, as, now))
            keep = look_at_candidate(h, c, now);
        else if (keep && as >= FILE_POLLED)
            tell_as_before(h, c);
        if (keep)
            i++;
        else
            drop_candidate(h, i);
    }
}

/* Lines ---------------------------------------------------------------------------------- */

/* The lock shows in somebody's descriptor, or the taker's are known and told apart from now on. */
static bool is_explained(const struct scan_result *r, const struct lock_line *l)
{
    for (size_t i = 0; i < r->nfds; i++) {
        const struct scan_fd *d = &r->fds[i];
        if (!file_id_equal(d->file, l->lock.file))
            continue;
        if (d->pid == l->pid || (d->holds && d->taker == l->pid && same_lock(&d->lock, &l->lock)))
            return true;
    }
    return false;
}

static const struct unexplained *find_line(const struct unexplained *lines, size_t n,
                                           const struct lock_line *l)
{
    for (size_t i = 0; i < n; i++) {
        if (lines[i].line.pid == l->pid && same_lock(&lines[i].line.lock, &l->lock))
            return &lines[i];
    }
    return NULL;
}

static bool is_unreadable(const struct holders *h, pid_t pid)
{
    char rel[24];

    snprintf(rel, sizeof(rel), "%d/fdinfo", pid);
    int fd = pid > 0 ? openat(h->rootfd, rel, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool refused = fd < 0 && pid > 0 && (errno == EACCES || errno == EPERM);
    if (fd >= 0)
        close(fd);
    return refused;
}

/* A lock that was let go of between the reading of /proc/locks and that of the descriptors looks
 * unexplained, too, but hardly twice. */
static void take_line(struct holders *h, const struct lock_line *l,
                      const struct unexplained *before, nsec_t at, nsec_t now)
{
    struct unexplained *u = &h->lines[h->nlines++];
    bool gone = is_gone(h, l->pid, now);

    *u = (struct unexplained){
        .line = *l,
        .gone = gone,
        .believed = (before && before->gone == gone) || (!gone && is_unreadable(h, l->pid)),
        .since = before ? before->since : at,
        .seen_at = at,
    };
}

static bool was_looked_for(const struct scan_result *r, struct file_id file)
{
    for (size_t i = 0; i < r->nfiles; i++) {
        if (file_id_equal(r->files[i].file, file))
            return true;
    }
    return false;
}

static void take_lines(struct holders *h, const struct scan_result *r, file_interest_fn interest,
                       const void *arg, nsec_t now)
{
    const struct unexplained *before = h->lines_before;
    size_t nbefore = h->nlines;

    memcpy(h->lines_before, h->lines, nbefore * sizeof(*h->lines));
    h->nlines = 0;
    for (size_t i = 0; i < nbefore; i++) {
        if (!was_looked_for(r, before[i].line.lock.file))
            h->lines[h->nlines++] = before[i];
    }
    for (size_t i = 0; i < r->nheld && h->nlines < LINES_MAX; i++) {
        const struct lock_line *l = &r->held[i];
        if (interest(arg, l->lock.file) != FILE_FORGOTTEN && !is_explained(r, l) &&
            !find_line(h->lines, h->nlines, l))
            take_line(h, l, find_line(before, nbefore, l), r->at, now);
    }
}

static bool has_descriptor(const struct holders *h, const struct lock_line *l)
{
    for (size_t i = 0; i < h->nnow; i++) {
        const struct file_holder *o = &h->now[i];
        if (o->fd >= 0 && o->taker == l->pid && same_lock(&o->lock, &l->lock))
            return true;
    }
    return false;
}

static bool is_believed(const struct unexplained *u, enum file_interest interest, nsec_t now)
{
    if (interest == FILE_WAITED && now - u->seen_at > LINES_TRUSTED)
        return false;
    return u->believed && interest >= FILE_POLLED;
}

static void tell_lines(struct holders *h, file_interest_fn interest, const void *arg, nsec_t now)
{
    for (size_t i = 0; i < h->nlines; i++) {
        const struct unexplained *u = &h->lines[i];
        pid_t pid = u->line.pid;
        if (!is_believed(u, interest(arg, u->line.lock.file), now) || has_descriptor(h, &u->line))
            continue;
        /* It ends by this, or others turn out to have got it. */
        if (!u->gone && is_gone(h, pid, now))
            continue;
        tell(h, (struct file_holder){
                    .lock = u->line.lock,
                    .pid = u->gone || pid < 0 ? 0 : pid,
                    .fd = -1,
                    .taker = pid,
                    .taker_gone = u->gone,
                }, u->since);
    }
}

/* Users ---------------------------------------------------------------------------------- */

void holders_take(struct holders *h, const struct scan_result *r, file_interest_fn interest,
                  const void *arg, nsec_t now)
{
    for (size_t i = 0; i < r->nfds; i++) {
        const struct scan_fd *d = &r->fds[i];
        enum candidate_why why = d->holds ? CANDIDATE_HOLDS : CANDIDATE_OPEN;
        if (interest(arg, d->file) != FILE_FORGOTTEN)
            add_candidate(h, d->pid, d->fd, d->file, why, now);
    }
    take_lines(h, r, interest, arg, now);
}

void holders_look(struct holders *h, file_interest_fn interest, const void *arg, nsec_t now)
{
    memcpy(h->before, h->now, h->nnow * sizeof(*h->now));
    h->nbefore = h->nnow;
    h->nnow = 0;
    look_at_candidates(h, interest, arg, now);
    tell_lines(h, interest, arg, now);
}

void holders_release(struct holders *h)
{
    while (h->ncandidates)
        drop_candidate(h, h->ncandidates - 1);
}

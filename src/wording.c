#include "wording.h"

#include <inttypes.h>
#include <string.h>

#include "signature.h"
#include "stacktab.h"
#include "wording_files.h"

const char *wording_name(struct arena *a, const struct lock_row *r)
{
    if (r->given)
        return arena_strdup(a, r->given);
    if (r->key.space >= LOCKKEY_FILE)
        return wording_file_name(a, r);
    /* A library may have several of one sort: where it lies tells them apart. */
    if (r->inside)
        return !r->name || strstr(r->inside, r->name) /* which some say already */
                   ? arena_strdup(a, r->inside)
                   : arena_printf(a, "%s (%s)", r->inside, r->name);
    if (r->name)
        return arena_strdup(a, r->name);
    return r->key.space == LOCKKEY_SHARED && r->path
               ? arena_printf(a, "%s+0x%" PRIx64, r->path, r->key.c)
               : NULL;
}

const char *wording_lock(struct arena *a, const struct lock_row *r)
{
    const char *name = wording_name(a, r);

    if (!r->given && r->key.space >= LOCKKEY_FILE)
        return wording_file_lock(a, r);
    if (name && (r->given || r->kind == KIND_MONITOR)) /* the latter's name says what it is */
        return name;
    return name ? arena_printf(a, "%s %s", lock_kind_name(r->kind), name)
                : arena_printf(a, "%s 0x%" PRIx64, lock_kind_name(r->kind), r->object);
}

const char *wording_thread(struct arena *a, const struct thread *th)
{
    return arena_printf(a, "%.*s[%d]", COMM_LEN - 1, th->fact->comm, th->tid);
}

/* What a thread does -------------------------------------------------------------------- */

/* Who blocks in one of these waits for somebody who takes what it gives. */
static bool is_giving(enum call call)
{
    switch (call) {
    case CALL_write:
    case CALL_writev:
    case CALL_pwritev2:
    case CALL_sendto:
    case CALL_sendmsg:
    case CALL_sendmmsg:
        return true;
    default:
        return false;
    }
}

static const char *who_is_slow(const struct thread_fact *f)
{
    if (!is_giving(f->call))
        return "";
    switch (f->fd_kind) {
    case FD_PIPE:
        return " (reader is not draining)";
    case FD_SOCKET:
        return " (peer is not reading)";
    case FD_TTY:
        return " (terminal is not draining)";
    default:
        return "";
    }
}

const char *wording_call(struct arena *a, const struct thread *th)
{
    const struct thread_fact *f = th->fact;

    if (f->seen == SEEN_FAULT)
        return "blocked outside a system call (page fault)";
    if (f->seen != SEEN_CALL)
        return NULL;
    if (f->call == CALL_OTHER)
        return arena_printf(a, "syscall %ld", f->nr);
    if (f->fd < 0)
        return arena_strdup(a, syscalls_name(f->call));
    const char *what = th->peer.text ? th->peer.text : f->fd_path;
    return arena_printf(a, "%s fd %d%s%s%s", syscalls_name(f->call), f->fd, what ? " " : "",
                        what ? what : "", who_is_slow(f));
}

/* What a thread does, and what joins that to its name. */
struct clause {
    const char *join, *text;
};

static struct clause which(const char *text)
{
    return (struct clause){", which ", text};
}

/* PLACE: where in the program. */
static const char *hand_off_text(struct arena *a, enum lock_kind kind, const char *place)
{
    switch (kind) {
    case KIND_COND:
        return arena_printf(a, "sleeps in a condition variable%s (nobody holds it)", place);
    case KIND_SEM:
        return arena_printf(a, "waits for a semaphore%s (nobody holds it)", place);
    case KIND_BARRIER:
        return arena_printf(a, "waits at a barrier%s (nobody holds it)", place);
    case KIND_JOIN:
        return arena_printf(a, "waits for a thread to end that cannot be seen%s (join)", place);
    default:
        return arena_printf(a, "sleeps on a futex word%s (a hand-off: nobody holds it)", place);
    }
}

/* " in flush_log": the innermost function that is not a library's. */
static const char *place_text(struct arena *a, const struct proctab *procs, const struct thread *th)
{
    bool presumed;
    const struct kept_stack *s = stack_of(th, procs->now, &presumed);

    return s && s->site ? arena_printf(a, " in %s", s->site) : "";
}

static struct clause blocked_clause(struct arena *a, const struct thread *th, const char *place)
{
    const char *how = th->state == THREAD_SLEEP ? "sleeping" : "blocked";

    if (*place)
        place = arena_printf(a, " (%s)", place + 1);
    if (th->fact->seen == SEEN_FAULT)
        return (struct clause){", ", arena_printf(a, "blocked in a page fault%s", place)};
    if (th->state == THREAD_FILELOCK)
        return which(arena_printf(a, "waits for a file lock: %s%s", wording_call(a, th), place));
    return (struct clause){", ", arena_printf(a, "%s in %s%s", how, wording_call(a, th), place)};
}

/* What the root of a chain does. */
static struct clause root_clause(struct arena *a, const struct proctab *procs,
                                 const struct thread *th)
{
    if (th->fact->seen == SEEN_UNREADABLE)
        return which("may not be looked at");
    if (th->proc->fact && th->proc->fact->frozen)
        return which("is frozen (its cgroup is)");
    if (th->state == THREAD_STOPPED)
        return which("is stopped (by a signal)");
    if (th->state == THREAD_RUNQ)
        return which("waits for a CPU");
    if (th->state == THREAD_RUNNING)
        return which("runs");
    if (th->row && lock_kind_has_holder(th->row->kind))
        return which("has just got it");
    const char *place = place_text(a, procs, th);
    return th->row && lock_kind_class(th->row->kind) == CLASS_SYNC
               ? which(hand_off_text(a, th->row->kind, place))
               : blocked_clause(a, th, place);
}

const char *wording_held_by(struct arena *a, const struct thread *th)
{
    return arena_printf(a, " held by %s%s", wording_thread(a, th->edge.to),
                        th->edge.firm ? "" : " (at this moment)");
}

/* "waits for mutex 0x7f.. (as do 5 more) held by b[2]" */
static const char *link_text(struct arena *a, const struct thread *th)
{
    const struct lock_row *r = th->row;
    const char *beside = "";

    if (r->kind == KIND_JOIN)
        return arena_printf(a, "waits for %s to end (join)", wording_thread(a, th->edge.to));
    if (r->now > 1)
        beside = arena_printf(a, " (as do%s %u more)", r->now == 2 ? "es" : "", r->now - 1);
    return arena_printf(a, "waits for %s%s%s", wording_lock(a, r), beside, wording_held_by(a, th));
}

/* The end of the chain: TH itself, or the lock that it waits for, when nobody can be named as the
 * holder of that. */
static struct clause end_clause(struct arena *a, const struct proctab *procs,
                                const struct thread *th)
{
    if (!th->row || !lock_kind_has_holder(th->row->kind))
        return root_clause(a, procs, th);
    struct owner o = owner_of(procs, th->row);
    if (o.is == OWNER_THREAD)
        return root_clause(a, procs, th);
    const char *why = wording_owner(a, procs, th->row, &o);
    return which(arena_printf(a, "waits for %s%s%s", wording_lock(a, th->row), why ? "; " : "",
                              why ? why : ""));
}

#define LINKS_TOLD 6

/* The clauses of all of the way, in one. */
static struct clause onwards(struct arena *a, const struct proctab *procs, const struct thread *th)
{
    const struct thread *told[LINKS_TOLD];
    struct clause all = {0};
    int n = 0;

    for (; th->edge.to; th = th->edge.to) {
        bool again = false; /* a circle, but whether it is a deadlock is for others to prove */
        for (int i = 0; i < n; i++)
            again |= told[i] == th;
        if (again || n == LINKS_TOLD)
            return which(arena_printf(a, "%s, and so on", all.text));
        told[n++] = th;
        struct clause link = which(link_text(a, th));
        all = all.text ? which(arena_printf(a, "%s%s%s", all.text, link.join, link.text)) : link;
    }
    struct clause end = end_clause(a, procs, th);
    return all.text ? which(arena_printf(a, "%s%s%s", all.text, end.join, end.text)) : end;
}

const char *wording_onwards(struct arena *a, const struct proctab *procs, const struct thread *th)
{
    struct clause c = onwards(a, procs, th);

    return arena_printf(a, "%s%s", c.join, c.text);
}

const char *wording_waits(struct arena *a, const struct proctab *procs, const struct thread *th)
{
    return onwards(a, procs, th).text;
}

/* Locks whose holder is no thread that can be named ----------------------------------------- */

static const char *ended_text(struct arena *a, const struct owner *o)
{
    if (!o->fact)
        return arena_printf(a,
                            "its owner TID %d is no thread of this process: it ended holding the "
                            "lock, or a fork copied the lock: never released",
                            o->tid);
    if (!o->sure)
        return arena_printf(a,
                            "its owner TID %d is not found: it ended holding the lock, which is "
                            "then never released, or lives in another PID namespace",
                            o->tid);
    if (o->fact->tgid == 0)
        return arena_printf(
            a, "its owner TID %d no longer exists (ended holding it): never released", o->tid);
    return arena_printf(a,
                        "its owner TID %d no longer exists (ended holding it; %s has that number "
                        "now): never released",
                        o->tid, o->fact->comm);
}

static const char *elsewhere_text(struct arena *a, const struct owner *o)
{
    return arena_printf(a,
                        "owner TID %d is a thread of another process (%s%d %s): the lock was held "
                        "across fork()",
                        o->tid, o->fact->parent ? "parent " : "", o->fact->tgid, o->fact->comm);
}

static nsec_t slept(const struct proctab *procs, const struct thread *th)
{
    return procs->now + procs->start - th->fact->since;
}

/* A reader that waits so long behind a queued writer may be one that reads already. */
#define READER_WAITS_LONG (500 * NSEC_PER_MSEC)

static const char *readers_text(struct arena *a, const struct proctab *procs,
                                const struct lock_row *r)
{
    uint32_t readers = r->holder.late.readers;
    int writers, again;
    const char *text = arena_printf(a, "%u reader%s it (not recorded)", readers,
                                    readers == 1 ? " holds" : "s hold");

    owner_first_waiter(procs, r, MODE_EXCLUSIVE, &writers);
    const struct thread *th = owner_first_waiter(procs, r, MODE_SHARED, &again);
    if (!th || writers == 0 || slept(procs, th) < READER_WAITS_LONG)
        return text;
    return arena_printf(a,
                        "%s, a writer is queued, and %s asks to read again: if that is %s, it "
                        "waits for itself",
                        text, wording_thread(a, th),
                        readers == 1 ? "the reader" : "one of the readers");
}

/* A free lock with sleepers is normal for a moment only. */
static const char *free_text(struct arena *a, const struct proctab *procs, struct lock_row *r)
{
    nsec_t since = owner_free_since(procs, r);
    int n;

    if (since < 0)
        return NULL;
    const struct thread *th = owner_first_waiter(procs, r, MODE_NONE, &n);
    if (!th || th->fact->since - procs->start > since || th->fact->runs == 0)
        return NULL;
    return arena_printf(a,
                        "word says free but TID %d has slept on it for %.0f s: missed wake-up? "
                        "(to stop it, with a debugger or a signal, could hide the evidence)",
                        th->tid, (double)slept(procs, th) / (double)NSEC_PER_SEC);
}

const char *wording_owner(struct arena *a, const struct proctab *procs, struct lock_row *r,
                          const struct owner *o)
{
    if (r->key.space == LOCKKEY_FILE || r->key.space == LOCKKEY_SEM)
        return wording_file_owner(a, procs, r, o);
    switch (o->is) {
    case OWNER_NONE:
        return free_text(a, procs, r);
    case OWNER_DIED:
        return r->holder.late.unrecoverable
                   ? "not recoverable: its owner died and nobody repaired it"
                   : "its owner died while holding it";
    case OWNER_ENDED:
        return ended_text(a, o);
    case OWNER_ELSEWHERE:
        return elsewhere_text(a, o);
    case OWNER_UNPROVED:
        return arena_printf(a,
                            "where a %s names its owner stands %d, which is no thread: it ended "
                            "holding the lock, or this is another kind of lock",
                            lock_kind_name(r->kind), o->tid);
    case OWNER_MISSING:
        return arena_printf(a, "owner TID %d is not among the threads that can be seen", o->tid);
    case OWNER_FOREIGN:
        return arena_printf(a,
                            "TID %d of some PID namespace: whose, a lock in shared memory does "
                            "not tell",
                            o->tid);
    case OWNER_READERS:
        return readers_text(a, procs, r);
    case OWNER_UNREADABLE:
        return "the lock's memory could not be read";
    default:
        break;
    }
    if (r->kind != KIND_MONITOR)
        return layout_records_owner(r->kind, r->layout) ? "not recorded at this moment"
                                                        : "not recorded by this lock";
    const char *hint = r->name ? signature_who_tells(r->name) : NULL;
    return hint ? arena_printf(a, "not recorded by this lock; %s", hint)
                : "not recorded by this lock";
}

#include "chain_text.h"

#include "wording.h"

/* "4 wait for mutex A", "main[12] waits for mutex A" */
static const char *waiting_text(struct arena *a, const struct thread *th)
{
    const struct lock_row *r = th->row;

    if (r->kind == KIND_JOIN)
        return arena_printf(a, "%s waits for %s to end (join)", wording_thread(a, th),
                            wording_thread(a, th->edge.to));
    if (r->now == 1)
        return arena_printf(a, "%s waits for %s", wording_thread(a, th), wording_lock(a, r));
    return arena_printf(a, "%u wait for %s", r->now, wording_lock(a, r));
}

/* How many wait elsewhere than on the longest way. */
static const char *rest_text(struct arena *a, const struct thread *th, int blocked)
{
    int told = 0;

    for (; th; th = th->edge.to) {
        if (th->edge.to && th->row->kind == KIND_JOIN)
            told++;
        else if (th->row && lock_kind_has_holder(th->row->kind))
            told += (int)th->row->now;
    }
    return told < blocked ? arena_printf(a, "; %d blocked in all", blocked) : "";
}

const char *chain_text_onwards(struct arena *a, const struct proctab *procs,
                               const struct thread *far, int blocked)
{
    const char *held_by = far->row->kind == KIND_JOIN ? "" : wording_held_by(a, far);

    return arena_printf(a, "%s%s%s%s", waiting_text(a, far), held_by,
                        wording_onwards(a, procs, far->edge.to), rest_text(a, far, blocked));
}

const char *chain_text_at_lock(struct arena *a, const struct thread *far, const char *about,
                               const char *why)
{
    return arena_printf(a, "%s; %s%s", waiting_text(a, far), about, why);
}

/* Deadlocks ---------------------------------------------------------------------------------- */

static const char *behind_text(struct arena *a, int n)
{
    return n > 0 ? arena_printf(a, "; %d more queued behind", n) : "";
}

/* "ab[9029] holds B, wants A" of a thread behind BEFORE in the cycle. */
static const char *deadlocked_text(struct arena *a, const struct thread *before,
                                   const struct thread *th)
{
    bool awaited = before->row->kind == KIND_JOIN;
    const char *holds = awaited ? "" : arena_printf(a, " holds %s,", wording_lock(a, before->row));
    const char *wants =
        th->row->kind == KIND_JOIN
            ? arena_printf(a, " waits for %s to end (join)", wording_thread(a, th->edge.to))
            : arena_printf(a, " wants %s", wording_lock(a, th->row));

    return arena_printf(a, "%s%s%s%s", wording_thread(a, th), holds, wants,
                        th->fact->futex.timed ? " until its timeout" : "");
}

#define CYCLE_TOLD 8

static const char *circle_text(struct arena *a, const struct thread *root, int depth, int blocked,
                               bool timed)
{
    const char *text =
        timed ? arena_printf(a, "%d threads wait in a circle, until a timeout: ", depth)
              : arena_printf(a, "DEADLOCK %d threads: ", depth);
    const struct thread *before = root, *th = root;

    while (before->edge.to != root)
        before = before->edge.to;
    for (int i = 0; i < depth && i < CYCLE_TOLD; i++) {
        text = arena_printf(a, "%s%s%s", text, i ? " <- " : "", deadlocked_text(a, before, th));
        before = th;
        th = th->edge.to;
    }
    if (depth > CYCLE_TOLD)
        text = arena_printf(a, "%s <- ... (%d more)", text, depth - CYCLE_TOLD);
    return arena_printf(a, "%s%s", text, behind_text(a, blocked - depth));
}

static const char *self_text(struct arena *a, const struct thread *th, int blocked, bool timed)
{
    const char *what = lock_kind_class(th->row->kind) == CLASS_FILELOCK
                           ? "file lock that it holds through another descriptor"
                           : "mutex it already owns";

    return arena_printf(a, "%stid %d (%.*s) waits%s for a %s: %s%s",
                        timed ? "" : "SELF-DEADLOCK ", th->tid, COMM_LEN - 1, th->fact->comm,
                        timed ? " until its timeout" : "", what, wording_lock(a, th->row),
                        behind_text(a, blocked - 1));
}

const char *chain_text_cycle(struct arena *a, const struct thread *root, int depth, int blocked,
                             bool timed)
{
    return depth == 1 ? self_text(a, root, blocked, timed)
                      : circle_text(a, root, depth, blocked, timed);
}

const char *chain_text_interrupted(struct arena *a, const struct thread *th, int blocked)
{
    return arena_printf(a,
                        "SELF-DEADLOCK (likely) tid %d (%.*s): its signal handler wants %s, and "
                        "interrupted it where that is held (inferred from its stack)%s",
                        th->tid, COMM_LEN - 1, th->fact->comm, wording_lock(a, th->row),
                        behind_text(a, blocked - 1));
}

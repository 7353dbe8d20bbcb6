#include "source_relook.h"

#include <errno.h>
#include <string.h>

#include "compiler.h"
#include "procfs.h"

#define WANTED_FOR NSEC_PER_SEC

void relook_want(struct relook *r, nsec_t delay, nsec_t now)
{
    r->delay = delay;
    r->asked_at = now;
}

/* Asleep for a lock on a file or a semaphore, and where its run count can be read at once. */
static bool is_worth_it(const struct threads *t, size_t i)
{
    const struct thread_fact *f = &t->facts[i];

    return f->seen == SEEN_CALL && f->runs > 0 && t->files[i].schedstat >= 0 &&
           t->files[i].syscall >= 0 && (f->wants.kind != FILELOCK_NONE || f->sem.id >= 0);
}

void relook_sweep(struct relook *r, struct process *const *procs, size_t n, nsec_t now)
{
    r->swept = now;
    r->nwaiting = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; !procs[i]->fact.ended && k < procs[i]->threads.n; k++)
            r->nwaiting += is_worth_it(&procs[i]->threads, k);
    }
}

nsec_t relook_delay(const struct relook *r)
{
    bool wanted = r->asked_at && r->swept - r->asked_at < WANTED_FOR;

    return wanted && r->nwaiting > 0 ? r->delay : 0;
}

static bool is_in_that_call(const struct thread_fact *f, int syscall)
{
    char buf[256];
    struct procfs_syscall sc;

    return procfs_reread(syscall, buf, sizeof(buf)) >= 0 && procfs_parse_syscall(buf, &sc) &&
           sc.kind == SYSCALL_BLOCKED && sc.nr == f->nr && sc.sp == f->sp &&
           memcmp(sc.arg, f->arg, sizeof(sc.arg)) == 0;
}

/* False when it cannot be told. Who ran and stands in the same call was woken, found the lock taken
 * by another and sleeps on. One that went through all of it and came back looks like that, too: the
 * delay is to be shorter than locks are held. */
static bool look_again(const struct thread_fact *f, const struct thread_files *k, bool *left)
{
    char buf[128];
    struct procfs_schedstat ss;
    ssize_t n = procfs_reread(k->schedstat, buf, sizeof(buf));

    if (n == -ESRCH) { /* it got the lock, and has ended since */
        *left = true;
        return true;
    }
    if (n < 0 || !procfs_parse_schedstat(buf, &ss) || ss.runs < f->runs)
        return false;
    *left = ss.runs > f->runs && !is_in_that_call(f, k->syscall);
    return true;
}

void relook_take(struct relook *r, struct process *const *procs, size_t n, struct sample *s)
{
    size_t seen = 0, taken = 0;
    /* Where they are too many, others are looked at each time. */
    size_t turns = (r->nwaiting + RELOOK_MAX - 1) / RELOOK_MAX;
    size_t skip = turns > 1 ? r->turn++ % turns * RELOOK_MAX : 0;

    for (size_t i = 0; i < n; i++) {
        const struct threads *t = &procs[i]->threads;
        for (size_t k = 0; !procs[i]->fact.ended && k < t->n && taken < RELOOK_MAX; k++) {
            const struct thread_fact *f = &t->facts[k];
            bool left;
            if (!is_worth_it(t, k) || seen++ < skip || !look_again(f, &t->files[k], &left))
                continue;
            r->ran[taken++] = (struct ran_fact){
                .slot = f->slot,
                .start_ticks = f->start_ticks,
                .delay = clock_mono() - t->files[k].looked_at,
                .left = left,
            };
        }
    }
    s->ran = r->ran;
    s->nran = taken;
}

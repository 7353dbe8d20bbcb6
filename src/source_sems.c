#include "source_sems.h"

#include <string.h>
#include <sys/ipc.h>
#include <sys/sem.h>

#include "procfs.h"

#define ASK_EVERY         (50 * NSEC_PER_MSEC)
#define NAMESPACE_TRUSTED (10 * NSEC_PER_SEC) /* a process can move to another one */

/* The caller defines it: semctl(2). */
union semun {
    int val;
    struct semid_ds *buf;
    unsigned short *array;
};

static struct sem_fact *find(struct sem_fact *facts, size_t n, int id, uint16_t num)
{
    for (size_t i = 0; i < n; i++) {
        if (facts[i].id == id && facts[i].num == num)
            return &facts[i];
    }
    return NULL;
}

static bool is_of_our_namespace(struct sems *s, struct process *p, int rootfd, nsec_t now)
{
    char its[32];

    if (p->ipc_at && now - p->ipc_at < NAMESPACE_TRUSTED)
        return p->ipc_ours;
    p->ipc_at = now;
    if (!s->ours[0] && procfs_readlink(rootfd, "self/ns/ipc", s->ours, sizeof(s->ours)) <= 0)
        s->ours[0] = '\0';
    p->ipc_ours = s->ours[0] && procfs_readlink(p->dirfd, "ns/ipc", its, sizeof(its)) > 0 &&
                  strcmp(s->ours, its) == 0;
    return p->ipc_ours;
}

/* All of it or nothing: a set can be removed in between. */
static void ask(struct sem_fact *f)
{
    struct semid_ds set;
    struct sem_fact got = {.id = f->id, .num = f->num};

    if (semctl(f->id, 0, IPC_STAT, (union semun){.buf = &set}) != 0)
        return;
    got.nsems = (int)set.sem_nsems;
    got.key = (uint32_t)set.sem_perm.__key;
    got.value = semctl(f->id, f->num, GETVAL);
    got.last_pid = semctl(f->id, f->num, GETPID);
    got.nwait = semctl(f->id, f->num, GETNCNT);
    got.zwait = semctl(f->id, f->num, GETZCNT);
    got.known = got.value >= 0 && got.last_pid >= 0 && got.nwait >= 0 && got.zwait >= 0;
    if (got.known)
        *f = got;
}

/* One and the same number may be waited for in our namespace and in others: ours counts. */
static void note(struct sems *s, const struct sem_wait *w, bool ours, bool anew)
{
    struct sem_fact *f = find(s->facts, s->n, w->id, w->num);

    if (!f && s->n < SEMS_MAX) {
        f = &s->facts[s->n++];
        *f = (struct sem_fact){.id = w->id, .num = w->num};
    }
    if (!f || f->known || !ours)
        return;
    const struct sem_fact *before = find(s->known, s->nknown, w->id, w->num);
    if (before && before->known && !anew)
        *f = *before;
    else
        ask(f);
}

static void note_all(struct sems *s, struct process *p, int rootfd, bool anew, nsec_t now)
{
    const struct threads *t = &p->threads;

    if (p->fact.ended || t->nwaits == 0)
        return;
    for (size_t i = 0; i < t->n; i++) {
        const struct thread_fact *f = &t->facts[i];
        if (f->sem.id >= 0 && f->sem.nops > 0)
            note(s, &f->sem, is_of_our_namespace(s, p, rootfd, now), anew);
    }
}

void sems_look(struct sems *s, struct process *const *procs, size_t n, int rootfd, nsec_t now)
{
    bool anew = now - s->asked_at >= ASK_EVERY;

    memcpy(s->known, s->facts, s->n * sizeof(*s->facts));
    s->nknown = s->n;
    s->n = 0;
    for (size_t i = 0; i < n; i++)
        note_all(s, procs[i], rootfd, anew, now);
    if (anew)
        s->asked_at = now;
}

void sems_put(const struct sems *s, struct sample *sample)
{
    sample->sems = s->facts;
    sample->nsems = s->n;
}

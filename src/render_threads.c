#include "render_threads.h"

#include <stdlib.h>
#include <string.h>

#include "column.h"
#include "fmt.h"
#include "render_stacks.h"

#define LINE_SIZE  4096
#define TIDS_TOLD  8
#define NOTE_WIDTH 120

struct group {
    const struct snap_thread *first; /* with a stack of this very sleep, where one has it */
    const struct snap_lock *lock;
    size_t n;
    double age_ms; /* the longest */
    bool names_differ, locks_differ;
    pid_t tids[TIDS_TOLD];
};

/* Forming them -------------------------------------------------------------------------------- */

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool same_place(const struct snap_frame *a, const struct snap_frame *b)
{
    return a->into == b->into && a->offset == b->offset && a->line == b->line &&
           same_text(a->name, b->name) && same_text(a->module, b->module) &&
           same_text(a->file, b->file);
}

static bool same_stack(const struct snap_stack *a, const struct snap_stack *b)
{
    if (a->nframes != b->nframes || a->complete != b->complete || a->guessed != b->guessed ||
        (a->nframes == 0 && !same_text(a->note, b->note)))
        return false;
    for (size_t i = 0; i < a->nframes; i++)
        if (!same_place(&a->frames[i], &b->frames[i]))
            return false;
    return true;
}

static bool is_lock(const struct snap_lock *l)
{
    return l && l->class != CLASS_SYNC;
}

/* Which lock it is matters; not so which of the objects that idle threads sleep on. */
static bool belongs(const struct group *g, const struct snap_thread *t, const struct snap_lock *l)
{
    return g->first->state == t->state && (g->lock == l || (!is_lock(g->lock) && !is_lock(l))) &&
           same_stack(&g->first->stack, &t->stack);
}

static void add_thread(struct group *g, const struct snap_thread *t, const struct snap_lock *l)
{
    if (g->n == 0)
        *g = (struct group){.first = t, .lock = l, .age_ms = t->age_ms};
    if (g->n < TIDS_TOLD)
        g->tids[g->n] = t->tid;
    g->n++;
    g->names_differ |= strncmp(g->first->comm, t->comm, COMM_LEN) != 0;
    g->locks_differ |= g->lock != l;
    if (!(g->age_ms >= t->age_ms) && t->age_ms >= 0)
        g->age_ms = t->age_ms;
    if (g->first->stack.presumed && !t->stack.presumed)
        g->first = t;
}

/* Into GROUPS (room for N) the N threads at T, which are of one process. */
static size_t form_groups(struct group *groups, const struct snapshot *s,
                          const struct snap_thread *t, size_t n)
{
    size_t ngroups = 0;

    for (size_t i = 0; i < n; i++) {
        const struct snap_lock *l = t[i].lock ? snapshot_lock(s, t[i].lock) : NULL;
        size_t k = 0;
        while (k < ngroups && !belongs(&groups[k], &t[i], l))
            k++;
        ngroups += k == ngroups;
        add_thread(&groups[k], &t[i], l);
    }
    return ngroups;
}

/* Printing them ------------------------------------------------------------------------------- */

static void print_tids(FILE *out, const struct group *g)
{
    if (g->n > 1)
        fprintf(out, "%zu threads: ", g->n);
    for (size_t i = 0; i < g->n && i < TIDS_TOLD; i++)
        fprintf(out, "%d ", g->tids[i]);
    if (g->n > TIDS_TOLD)
        fprintf(out, "+%zu more ", g->n - TIDS_TOLD);
}

static void print_wait(FILE *out, const struct group *g, bool ascii)
{
    char name[LINE_SIZE];

    if (g->locks_differ)
        fprintf(out, " for different objects");
    else if (g->lock)
        fprintf(out, " for %s", column_title(name, sizeof(name), g->lock, ascii));
}

/* "4711 worker lock 21.1ms for mutex 0x7f...": TIDs, name, state, age, and what they wait for. */
static void print_head(FILE *out, const struct snapshot *s, const struct group *g, bool ascii)
{
    const struct snap_thread *t = g->first;
    char comm[4 * COMM_LEN + 1], age[24], doubts[128];

    print_tids(out, g);
    fmt_safe(comm, sizeof(comm), t->comm, strnlen(t->comm, COMM_LEN), ascii);
    fprintf(out, "%s%s %s", comm[0] ? comm : "?", g->names_differ ? " and others" : "",
            thread_state_name(t->state));
    if (g->age_ms > 0)
        fprintf(out, " %s%s", g->n > 1 ? "up to " : "", age_text(age, sizeof(age), s, g->age_ms));
    print_wait(out, g, ascii);
    fprintf(out, "%s\n", render_doubt(doubts, sizeof(doubts), &t->stack));
}

static void print_group(FILE *out, const struct snapshot *s, const struct group *g, bool ascii)
{
    const struct snap_stack *st = &g->first->stack;
    const char *why = st->note ? st->note : "no stack";
    char line[LINE_SIZE];

    print_head(out, s, g, ascii);
    for (size_t i = 0; i < st->nframes; i++)
        fprintf(out, "  %s\n", render_frame(line, sizeof(line), &st->frames[i], i, 0, ascii));
    if (st->nframes > 0)
        return;
    fmt_safe(line, sizeof(line), why, strlen(why), ascii);
    text_cut(line, sizeof(line), NOTE_WIDTH, ascii);
    fprintf(out, "  %s\n", line);
}

static void print_process(FILE *out, const struct snapshot *s, pid_t pid, bool ascii)
{
    char comm[4 * COMM_LEN + 1] = "";

    for (size_t i = 0; i < s->nprocesses; i++)
        if (s->processes[i].pid == pid)
            fmt_safe(comm, sizeof(comm), s->processes[i].comm,
                     strnlen(s->processes[i].comm, COMM_LEN), ascii);
    fprintf(out, "\nthreads of %s[%d]\n", comm[0] ? comm : "?", pid);
}

void render_threads(FILE *out, const struct snapshot *s, bool ascii)
{
    struct group *groups = xcalloc(s->nthreads ? s->nthreads : 1, sizeof(*groups));

    for (size_t from = 0, end; s->threads && from < s->nthreads; from = end) {
        for (end = from; end < s->nthreads && s->threads[end].pid == s->threads[from].pid; end++)
            groups[end - from].n = 0;
        size_t n = form_groups(groups, s, &s->threads[from], end - from);
        print_process(out, s, s->threads[from].pid, ascii);
        for (size_t i = 0; i < n; i++)
            print_group(out, s, &groups[i], ascii);
    }
    free(groups);
}

#include "view_lock.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../src/fmt.h"
#include "../src/funcname.h"
#include "../src/render_stacks.h"
#include "view_stacks.h"

#define PLOT_ROWS   4
#define SITE_WIDTH  200
#define PLOT_MARGIN 7 /* cells of the scale at its left */

/* Numbers and names as text; each returns DST. ----------------------------------------------- */

static char *comm_text(char *dst, size_t size, const char *comm, bool ascii)
{
    if (comm[0])
        fmt_safe(dst, size, comm, strnlen(comm, COMM_LEN), ascii);
    else
        snprintf(dst, size, "?");
    return dst;
}

static char *safe_text(char *dst, size_t size, const char *text, bool ascii)
{
    fmt_safe(dst, size, text ? text : "-", text ? strlen(text) : 1, ascii);
    return dst;
}

static char *tid_text(char *dst, size_t size, pid_t tid)
{
    if (tid > 0)
        snprintf(dst, size, "%d", tid);
    else
        snprintf(dst, size, "?");
    return dst;
}

/* Parts of the page -------------------------------------------------------------------------- */

static void add_process(struct text_page *p, const struct snapshot *s, const struct snap_lock *l,
                        bool ascii)
{
    char comm[4 * COMM_LEN + 1] = "";

    for (size_t i = 0; i < s->nprocesses; i++)
        if (s->processes[i].pid == l->pid)
            comm_text(comm, sizeof(comm), s->processes[i].comm, ascii);
    if (l->pid > 0)
        text_page_add(p, STYLE_PLAIN, "  process     %d %s", l->pid, comm);
    else
        text_page_add(p, STYLE_PLAIN, "  process     shared by several");
}

static void add_identity(struct text_page *p, const struct snapshot *s, const struct snap_lock *l,
                         bool ascii)
{
    char text[4096];

    text_page_add(p, STYLE_BOLD, "%s", column_title(text, sizeof(text), l, ascii));
    text_page_add(p, STYLE_PLAIN, "  kind        %s (%s), class %s", lock_kind_name(l->kind),
                  confidence_name(l->confidence), lock_class_name(l->class));
    add_process(p, s, l, ascii);
    if (l->address)
        text_page_add(p, STYLE_PLAIN, "  address     0x%" PRIx64, l->address);
    if (l->site)
        text_page_add(p, STYLE_PLAIN, "  waited for in %s",
                      funcname_fit(text, sizeof(text), l->site, SITE_WIDTH, ascii));
    if (l->path)
        text_page_add(p, STYLE_PLAIN, "  file        %s%s",
                      safe_text(text, sizeof(text), l->path, ascii),
                      l->deleted ? " (deleted)" : "");
    if (l->ranged && l->range_end == UINT64_MAX)
        text_page_add(p, STYLE_PLAIN, "  bytes       from %" PRIu64 " on", l->range_start);
    else if (l->ranged)
        text_page_add(p, STYLE_PLAIN, "  bytes       %" PRIu64 " to %" PRIu64, l->range_start,
                      l->range_end);
    if (l->only_held)
        text_page_add(p, STYLE_PLAIN,
                      "  Nobody is blocked in it. A watched process has the file open: if it tries");
    if (l->only_held)
        text_page_add(p, STYLE_PLAIN,
                      "  again and again without waiting, only --events (root) can show that.");
}

static void add_waiting(struct text_page *p, const struct snap_lock *l)
{
    char a[24], b[24], c[24];

    text_page_add(p, STYLE_PLAIN,
                  "  waiters     %d now   mean %s in 1 s, %s in 10 s, %s in 60 s   most %d",
                  l->waiters, fmt_count(a, sizeof(a), l->waiters_avg_1s),
                  fmt_count(b, sizeof(b), l->waiters_avg_10s),
                  fmt_count(c, sizeof(c), l->waiters_avg_60s), l->waiters_max);
    text_page_add(p, STYLE_PLAIN, "  held        %s of the looks at it, last 10 s",
                  fmt_fixed(a, sizeof(a), l->busy * 100, 0, "%"));
    text_page_add(p, STYLE_PLAIN, "  share       %s of all thread time is spent waiting here",
                  fmt_fixed(a, sizeof(a), l->wait_share * 100, 0, "%"));
    if (!isnan(l->wait_ms))
        text_page_add(p, STYLE_PLAIN, "  one wait    mean %s   p99 %s   longest %s",
                      fmt_msec(a, sizeof(a), l->wait_ms), fmt_msec(b, sizeof(b), l->wait_ms_p99),
                      fmt_msec(c, sizeof(c), l->wait_ms_max));
    if (!isnan(l->contended_per_s) || !isnan(l->acquired_per_s))
        text_page_add(p, STYLE_PLAIN, "  rate        taken %s/s, of these after a sleep %s/s",
                      fmt_si(a, sizeof(a), l->acquired_per_s),
                      fmt_si(b, sizeof(b), l->contended_per_s));
    if (!isnan(l->hold_us))
        text_page_add(p, STYLE_PLAIN, "  hold        %s each time, so at most %s/s",
                      fmt_msec(a, sizeof(a), l->hold_us / 1000),
                      fmt_si(b, sizeof(b), l->ceiling_per_s));
}

/* Attempts that the kernel counted. */
static void add_attempts(struct text_page *p, const struct snap_lock *l)
{
    char a[24], b[24];

    if (!isnan(l->attempts_per_s))
        text_page_add(p, STYLE_PLAIN, "  attempts    %s/s, %s of them refused as it was held",
                      fmt_count(a, sizeof(a), l->attempts_per_s),
                      fmt_fixed(b, sizeof(b), l->refused_share * 100, 0, "%"));
}

static void add_history(struct text_page *p, const struct snap_lock *l, bool ascii)
{
    size_t n = MIN(l->nhistory, (size_t)SNAP_HISTORY);
    unsigned peak = 0;

    if (n == 0)
        return; /* not a whole second has passed */
    if (p->width > 0)
        n = MIN(n, (size_t)MAX(p->width - PLOT_MARGIN, 1));
    const uint16_t *last = l->history + SNAP_HISTORY - n;
    for (size_t i = 0; i < n; i++)
        peak = MAX(peak, last[i] == SNAP_NO_DATA ? 0u : last[i]);
    text_page_add(p, STYLE_PLAIN, "%s", "");
    text_page_add(p, STYLE_BOLD, "Waiters, second by second, last %zu s", n);
    text_page_plot(p, last, n, PLOT_ROWS, peak, ascii);
}

static void holder_doing(char *dst, size_t size, const struct snapshot *s,
                         const struct snap_holder *h)
{
    char age[24];

    if (h->gone)
        snprintf(dst, size, "does not exist any more");
    else if (!h->state_known)
        snprintf(dst, size, "state unknown");
    else if (!(h->age_ms > 0)) /* unknown, or seen only just now */
        snprintf(dst, size, "%s", thread_state_name(h->state));
    else
        snprintf(dst, size, "%s for %s", thread_state_name(h->state),
                 age_text(age, sizeof(age), s, h->age_ms));
}

static void add_holders_wait(struct text_page *p, const struct snapshot *s, const char *id,
                             bool ascii)
{
    const struct snap_lock *l = snapshot_lock(s, id);
    char text[4096];

    if (l && l->kind == KIND_JOIN)
        return; /* the holder's detail names the thread */
    text_page_add(p, STYLE_PLAIN, "    waits itself for %s",
                  l ? column_title(text, sizeof(text), l, ascii)
                    : "a lock that is not listed at this moment");
}

static void add_holder(struct text_page *p, const struct snapshot *s, const struct snap_holder *h,
                       bool ascii)
{
    char comm[4 * COMM_LEN + 1], tid[16], doing[64], text[2048];
    const char *mode = lock_mode_name(h->mode);

    if (h->tid <= 0 && h->pid <= 0) {
        text_page_add(p, STYLE_PLAIN, "  unknown%s%s", h->detail ? ": " : "",
                      h->detail ? safe_text(text, sizeof(text), h->detail, ascii) : "");
        return;
    }
    holder_doing(doing, sizeof(doing), s, h);
    text_page_add(
        p, STYLE_PLAIN, "  %s %s%s%s   %s   %s (%s)", comm_text(comm, sizeof(comm), h->comm, ascii),
        tid_text(tid, sizeof(tid), h->tid > 0 ? h->tid : h->pid), mode ? "   " : "",
        mode ? mode : "", doing, h->detail ? safe_text(text, sizeof(text), h->detail, ascii) : "",
        confidence_name(h->confidence));
    if (h->fd >= 0 && h->held_ms > 0)
        text_page_add(p, STYLE_PLAIN, "    through its descriptor %d, for at least %s", h->fd,
                      age_text(text, sizeof(text), s, h->held_ms));
    if (h->waits_for)
        add_holders_wait(p, s, h->waits_for, ascii);
}

static void add_holders(struct text_page *p, const struct snapshot *s, const struct snap_lock *l,
                        bool ascii)
{
    text_page_add(p, STYLE_PLAIN, "%s", "");
    text_page_add(p, STYLE_BOLD, "%s", l->nholders > 1 ? "Holders" : "Holder");
    if (l->nholders == 0)
        text_page_add(p, STYLE_PLAIN, "  %s",
                      l->held == 0 ? "none: free at this moment" : "unknown");
    for (size_t i = 0; i < l->nholders; i++)
        add_holder(p, s, &l->holders[i], ascii);
}

static bool leads_through(const struct snap_chain *c, const char *id)
{
    for (size_t i = 0; i < c->npath; i++)
        if (c->path[i].lock && strcmp(c->path[i].lock, id) == 0)
            return true;
    return false;
}

/* What the waiters finally wait for, where that is more than the holder above. */
static void add_chains(struct text_page *p, const struct snapshot *s, const struct snap_lock *l,
                       bool ascii)
{
    char text[4096];

    for (size_t i = 0; i < s->nchains; i++) {
        const struct snap_chain *c = &s->chains[i];
        if (render_chain_counts(c) && leads_through(c, l->id))
            text_page_add(p, c->cycle ? STYLE_CRITICAL : STYLE_PLAIN, "  %s",
                          render_chain(text, sizeof(text), s, c, ascii));
    }
}

static bool any_behind(const struct snap_lock *l)
{
    for (size_t i = 0; i < l->nwaiter_threads; i++)
        if (l->waiter_threads[i].blocked_by)
            return true;
    return false;
}

/* "  21.1ms   24341 exclusive holder   worker"; BEHIND only where it is known of somebody. */
static void add_waiter(struct text_page *p, const struct snapshot *s, const struct snap_waiter *w,
                       bool behind, bool ascii)
{
    char comm[4 * COMM_LEN + 1], tid[16], age[24];
    const char *mode = lock_mode_name(w->mode), *by = w->blocked_by;
    const char *who = !by ? "-" : strcmp(by, "hard") == 0 ? "holder" : "queue";
    char before[16];

    if (w->behind > 0) { /* whom exactly */
        snprintf(before, sizeof(before), "%d", w->behind);
        who = before;
    }
    text_page_add(p, STYLE_PLAIN, "  %6s %7s %-9s %-*s%s",
                  age_text(age, sizeof(age), s, w->age_ms > 0 ? w->age_ms : NAN),
                  tid_text(tid, sizeof(tid), w->tid), mode ? mode : "-", behind ? 9 : 0,
                  behind ? who : "", comm_text(comm, sizeof(comm), w->comm, ascii));
}

static void add_waiters(struct text_page *p, const struct snapshot *s, const struct snap_lock *l,
                        bool ascii)
{
    bool behind = any_behind(l);

    text_page_add(p, STYLE_PLAIN, "%s", "");
    text_page_add(p, STYLE_BOLD, "Waiters, the longest sleep first");
    if (l->nwaiter_threads == 0)
        text_page_add(p, STYLE_PLAIN, "  none now");
    else
        text_page_add(p, STYLE_DIM, "     AGE     TID MODE      %sNAME", behind ? "BEHIND   " : "");
    for (size_t i = 0; i < l->nwaiter_threads; i++)
        add_waiter(p, s, &l->waiter_threads[i], behind, ascii);
    if (l->waiters > 0 && (size_t)l->waiters > l->nwaiter_threads)
        text_page_add(p, STYLE_DIM, "  and %zu more", (size_t)l->waiters - l->nwaiter_threads);
}

/* The page ----------------------------------------------------------------------------------- */

void view_lock_build(struct text_page *p, const struct snapshot *s, const char *id, bool ascii)
{
    const struct snap_lock *l = s && id ? snapshot_lock(s, id) : NULL;
    char text[512];

    if (!l) {
        text_page_add(p, STYLE_PLAIN, "No thread waits for this lock any more.");
        text_page_add(p, STYLE_DIM, "  id          %s", safe_text(text, sizeof(text), id, ascii));
        return;
    }
    add_identity(p, s, l, ascii);
    add_waiting(p, l);
    add_attempts(p, l);
    add_holders(p, s, l, ascii);
    add_chains(p, s, l, ascii);
    view_stacks_add(p, s, l, ascii);
    add_waiters(p, s, l, ascii);
    add_history(p, l, ascii);
}

void view_lock_draw(const struct area *a, struct ui_state *st, const struct snapshot *s)
{
    struct text_page p = {.width = a->w};

    view_lock_build(&p, s, st->opened, a->ascii);
    ui_state_place_lines(st, PAGE_LOCK, p.n, (size_t)MAX(a->h, 0));
    text_page_draw(&p, a, st->cursor[PAGE_LOCK].top);
    text_page_release(&p);
}

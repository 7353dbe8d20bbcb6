#include "render_stacks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "column.h"
#include "diagnose.h"
#include "fmt.h"
#include "funcname.h"
#include "render.h"
#include "render_path.h"

#define LINE_SIZE    4096
#define NAME_WIDTH   80 /* cells of a function where the width says nothing */
#define NAME_LEAST   16 /* what a function keeps of a narrow line */
#define PLACE_WIDTH  32 /* cells of a module, and of a source file */
#define NOTE_WIDTH   120
#define GROUPS_MAX   5  /* stacks of one role */
#define BRIEF_FRAMES 16 /* of one stack */
#define CHAINS_MAX   10
#define CODE_PATHS   2 /* of holders, where there is no more than a list */

/* One line ------------------------------------------------------------------------------------ */

static char *safe_cut(char *dst, size_t size, const char *text, int width, bool ascii)
{
    fmt_safe(dst, size, text, strlen(text), ascii);
    text_cut(dst, size, width, ascii);
    return dst;
}

/* What stands behind the name: "  shop queue.c:45". */
static char *frame_place(char *dst, size_t size, const struct snap_frame *f, bool ascii)
{
    char module[4 * PLACE_WIDTH + 1], file[4 * PLACE_WIDTH + 1];
    int len = 0;

    dst[0] = '\0';
    if (f->name && f->module)
        len = snprintf(dst, size, "  %s",
                       safe_cut(module, sizeof(module), last_part(f->module), PLACE_WIDTH, ascii));
    if (f->file)
        len += snprintf(dst + len, size - (size_t)len, "%s%s", len ? " " : "  ",
                        safe_cut(file, sizeof(file), last_part(f->file), PLACE_WIDTH, ascii));
    if (f->file && f->line > 0)
        snprintf(dst + len, size - (size_t)len, ":%d", f->line);
    return dst;
}

/* The function and how far into it; without one the module and the offset, or the address. */
static char *frame_function(char *dst, size_t size, const struct snap_frame *f, int width,
                            bool ascii)
{
    char name[4 * NAME_WIDTH + 1], into[24];
    uint64_t distance = f->name ? f->into : f->offset;

    snprintf(into, sizeof(into), "%s0x%" PRIx64, f->name || f->module ? "+" : "", distance);
    width = MAX(width - (int)strlen(into), 1);
    if (f->name)
        funcname_fit(name, sizeof(name), f->name, width, ascii);
    else
        safe_cut(name, sizeof(name), f->module ? last_part(f->module) : "", MIN(width, NAME_WIDTH),
                 ascii);
    snprintf(dst, size, "%s%s", name, into);
    return dst;
}

char *render_frame(char *dst, size_t size, const struct snap_frame *f, size_t index, int width,
                   bool ascii)
{
    char number[24], function[4 * NAME_WIDTH + 32], place[8 * PLACE_WIDTH + 64];
    int taken = snprintf(number, sizeof(number), "#%-2zu ", index) +
                text_cells(frame_place(place, sizeof(place), f, ascii));
    int room = width > 0 ? MIN(MAX(width - taken, NAME_LEAST), NAME_WIDTH) : NAME_WIDTH;

    snprintf(dst, size, "%s%s%s", number,
             frame_function(function, sizeof(function), f, room, ascii), place);
    text_cut(dst, size, width, ascii);
    return dst;
}

char *render_chain(char *dst, size_t size, const struct snapshot *s, const struct snap_chain *c,
                   bool ascii)
{
    return render_sentence(dst, size, s, c->text ? c->text : "", ascii);
}

bool render_chain_counts(const struct snap_chain *c)
{
    return c->end == CHAIN_CYCLE || c->end == CHAIN_CYCLE_TIMED || c->end == CHAIN_GONE ||
           c->depth >= 2;
}

/* The stacks of one lock ---------------------------------------------------------------------- */

static void say(const struct stack_sink *sink, enum stack_line kind, const char *text)
{
    sink->line(sink->arg, kind, text);
}

static void say_frames(const struct stack_sink *sink, const struct snap_stack *st)
{
    size_t n = sink->brief ? MIN(st->nframes, (size_t)BRIEF_FRAMES) : st->nframes;
    char line[LINE_SIZE];

    for (size_t i = 0; i < n; i++)
        say(sink, STACK_FRAME,
            render_frame(line, sizeof(line), &st->frames[i], i, sink->width, sink->ascii));
    if (n == st->nframes)
        return;
    snprintf(line, sizeof(line), "+%zu more frame%s", st->nframes - n,
             st->nframes - n == 1 ? "" : "s");
    say(sink, STACK_FRAME, line);
}

char *render_doubt(char *text, size_t size, const struct snap_stack *st)
{
    const char *parts[3];
    size_t n = 0;

    text[0] = '\0';
    if (st->nframes == 0)
        return text;
    if (st->presumed)
        parts[n++] = "taken in an earlier, equal sleep";
    if (st->guessed)
        parts[n++] = "partly guessed";
    if (!st->complete)
        parts[n++] = "not walked to the thread's start";
    for (size_t i = 0, len = 0; i < n; i++)
        len += (size_t)snprintf(text + len, size - len, "%s%s%s", i == 0 ? " (" : "; ", parts[i],
                                i + 1 == n ? ")" : "");
    return text;
}

/* " 62 % disk", and with BRIEF its path. */
static void say_profile(const struct stack_sink *sink, const struct snap_stack *st)
{
    char share[16], note[512] = "", path[LINE_SIZE] = "", line[2 * LINE_SIZE];

    fmt_fixed(share, sizeof(share), st->share * 100, 0, " %");
    if (st->note)
        safe_cut(note, sizeof(note), st->note, NOTE_WIDTH, sink->ascii);
    if (st->nframes == 0)
        snprintf(path, sizeof(path), "no stack");
    else if (sink->brief)
        render_path(path, sizeof(path), st, sink->ascii);
    snprintf(line, sizeof(line), "%5s %s%s%s", share, note, *note && *path ? "  " : "", path);
    say(sink, STACK_GROUP, line);
    if (!sink->brief)
        say_frames(sink, st);
}

static void say_threads(const struct stack_sink *sink, const struct snap_stack *st)
{
    char who[64], note[512] = "", doubts[128], line[LINE_SIZE];

    if (st->count > 1)
        snprintf(who, sizeof(who), "%d threads, such as %d", st->count, st->tid);
    else
        snprintf(who, sizeof(who), "thread %d", st->tid);
    if (st->note)
        safe_cut(note, sizeof(note), st->note, NOTE_WIDTH, sink->ascii);
    snprintf(line, sizeof(line), "%s%s%s%s", who, *note ? ": " : "", note,
             render_doubt(doubts, sizeof(doubts), st));
    say(sink, STACK_GROUP, line);
    say_frames(sink, st);
}

static void say_rest(const struct stack_sink *sink, const struct snap_stack *st, size_t n)
{
    char line[128];
    long count = 0;

    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++)
        count += st[i].count;
    if (st->role == ROLE_PROFILE)
        snprintf(line, sizeof(line), "+%zu more path%s", n, n == 1 ? "" : "s");
    else
        snprintf(line, sizeof(line), "+%zu more stack%s (%ld thread%s)", n, n == 1 ? "" : "s",
                 count, count == 1 ? "" : "s");
    say(sink, STACK_NOTE, line);
}

/* How often holders were seen, behind the title of their profile. */
static void say_title(const struct stack_sink *sink, const struct snap_stack *st, size_t n)
{
    static const char *const titles[] = {
        [ROLE_WAITER] = "Waiters by stack",
        [ROLE_HOLDER] = "Stack of the holder",
        [ROLE_PROFILE] = "Where holders were seen while others waited",
    };
    char line[128];
    long count = 0;

    for (size_t i = 0; i < n; i++)
        count += st[i].count;
    if (st->role == ROLE_PROFILE)
        snprintf(line, sizeof(line), "%s, %ld look%s", titles[st->role], count,
                 count == 1 ? "" : "s");
    else
        snprintf(line, sizeof(line), "%s%s", titles[st->role],
                 st->role == ROLE_HOLDER && n > 1 ? "s" : "");
    say(sink, STACK_TITLE, line);
}

/* The stacks of L of one ROLE: where they begin, and how many they are. */
static const struct snap_stack *find_role(const struct snap_lock *l, enum stack_role role,
                                          size_t *n)
{
    size_t first = 0;

    while (first < l->nstacks && l->stacks[first].role != role)
        first++;
    for (*n = 0; first + *n < l->nstacks && l->stacks[first + *n].role == role; ++*n)
        ;
    return l->stacks + first;
}

static void say_stacks(const struct stack_sink *sink, const struct snap_stack *st, size_t n)
{
    size_t shown = MIN(n, (size_t)GROUPS_MAX);

    if (n == 0)
        return;
    say_title(sink, st, n);
    for (size_t i = 0; i < shown; i++)
        (st->role == ROLE_PROFILE ? say_profile : say_threads)(sink, &st[i]);
    say_rest(sink, st + shown, n - shown);
}

static void say_role(const struct stack_sink *sink, const struct snap_lock *l, enum stack_role role)
{
    size_t n;
    const struct snap_stack *st = find_role(l, role, &n);
    struct snap_stack *merged = NULL;

    if (role == ROLE_PROFILE && n > 0) {
        merged = xcalloc(n, sizeof(*merged));
        n = merge_stacks(merged, st, n, sink->brief);
        st = merged;
    }
    say_stacks(sink, st, n);
    free(merged);
}

void render_lock_stacks(const struct stack_sink *sink, const struct snap_lock *l)
{
    say_role(sink, l, ROLE_HOLDER);
    say_role(sink, l, ROLE_PROFILE);
    say_role(sink, l, ROLE_WAITER);
}

/* Text ---------------------------------------------------------------------------------------- */

static bool in_verdict(const struct snapshot *s, const struct snap_chain *c)
{
    return s->verdict && c->text && strstr(s->verdict, c->text) != NULL;
}

void render_chains(FILE *out, const struct snapshot *s, bool ascii)
{
    char line[LINE_SIZE];
    size_t shown = 0, more = 0;

    for (size_t i = 0; i < s->nchains; i++) {
        if (!render_chain_counts(&s->chains[i]) || in_verdict(s, &s->chains[i]))
            continue;
        if (shown == CHAINS_MAX) {
            more++;
            continue;
        }
        fprintf(out, "  %s\n", render_chain(line, sizeof(line), s, &s->chains[i], ascii));
        shown++;
    }
    if (more > 0)
        fprintf(out, "  +%zu more chain%s\n", more, more == 1 ? "" : "s");
}

static void print_line(void *arg, enum stack_line kind, const char *text)
{
    static const int indent[] = {
        [STACK_TITLE] = 2, [STACK_GROUP] = 4, [STACK_FRAME] = 6, [STACK_NOTE] = 4};

    fprintf(arg, "%*s%s\n", indent[kind], "", text);
}

static void print_lock_stacks(FILE *out, const struct snap_lock *l, bool ascii)
{
    const struct stack_sink sink = {.line = print_line, .arg = out, .ascii = ascii};
    char name[LINE_SIZE];

    if (l->nstacks == 0)
        return;
    fprintf(out, "\n%s\n", column_title(name, sizeof(name), l, ascii));
    render_lock_stacks(&sink, l);
}

void render_stacks_of_locks(FILE *out, const struct snapshot *s, bool ascii)
{
    for (size_t i = 0; i < s->nlocks; i++)
        if (s->locks[i].class != CLASS_SYNC)
            print_lock_stacks(out, &s->locks[i], ascii);
}

/* The code to fix, in few lines --------------------------------------------------------------- */

const struct snap_lock *render_code_lock(const struct snapshot *s)
{
    for (size_t i = 0; i < s->nlocks; i++)
        if (s->locks[i].class == CLASS_LOCK)
            return s->locks[i].waiters_avg_10s >= CONTENTION_MIN_WAITERS ? &s->locks[i] : NULL;
    return NULL;
}

static void print_waiters_path(FILE *out, const struct snap_lock *l, const struct snap_stack *st,
                               size_t n, bool ascii)
{
    char path[LINE_SIZE];
    long total = 0;

    for (size_t i = 0; i < n; i++)
        total += st[i].count;
    while (n > 0 && st->nframes == 0)
        st++, n--;
    if (n > 0)
        fprintf(out, "    waiters come through: %s (%d of %ld)\n",
                render_path(path, sizeof(path), st, ascii), st->count,
                MAX(total, (long)l->waiters));
}

static void print_holder_paths(FILE *out, const struct snap_stack *st, size_t n, bool ascii)
{
    static const char title[] = "holders were seen in: ";
    char path[LINE_SIZE], share[16], note[512];

    for (size_t i = 0; i < n && i < CODE_PATHS; i++) {
        render_path(path, sizeof(path), &st[i], ascii);
        safe_cut(note, sizeof(note), st[i].note ? st[i].note : "", NOTE_WIDTH, ascii);
        fprintf(out, "    %*s%s %s%s%s\n", (int)sizeof(title) - 1, i ? "" : title,
                fmt_fixed(share, sizeof(share), st[i].share * 100, 0, " %"), note, *note ? " " : "",
                *path ? path : "(no stack)");
    }
}

void render_code(FILE *out, const struct snap_lock *l, bool ascii)
{
    struct snap_stack *merged = xcalloc(l->nstacks ? l->nstacks : 1, sizeof(*merged));
    size_t n;
    const struct snap_stack *st = find_role(l, ROLE_WAITER, &n);

    print_waiters_path(out, l, merged, merge_stacks(merged, st, n, true), ascii);
    st = find_role(l, ROLE_PROFILE, &n);
    print_holder_paths(out, merged, merge_stacks(merged, st, n, true), ascii);
    free(merged);
}

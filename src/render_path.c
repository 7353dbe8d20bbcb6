#include "render_path.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fmt.h"
#include "funcname.h"

#define PATH_NAMES 6  /* functions in one line */
#define PATH_WIDTH 40 /* cells of each */

const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

static bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool same_function(const struct snap_frame *a, const struct snap_frame *b)
{
    if (a->name || b->name)
        return same_text(a->name, b->name);
    return a->offset == b->offset && same_text(a->module, b->module);
}

/* Choosing what to name ----------------------------------------------------------------------- */

/* Of whom nobody wants to know through which functions of its own it goes. */
static bool is_library(const struct snap_frame *f)
{
    static const char *const files[] = {
        "libc.so",  "libc-2.", "libc.musl", "libpthread", "librt.so",   "libstdc++", "libc++",
        "libgcc_s", "ld-",     "ld.so",     "ld64.so",    "linux-vdso", "[vdso]"};
    const char *file = f->module ? last_part(f->module) : "";

    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        if (begins(file, files[i]))
            return true;
    return false;
}

static bool is_start(const struct snap_frame *f)
{
    static const char *const names[] = {"start_thread", "clone",  "clone3",      "__clone",
                                        "__clone3",     "_start", "thread_start"};

    if (!f->name)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcmp(f->name, names[i]) == 0)
            return true;
    return begins(f->name, "__libc_start_");
}

static bool all_library(const struct snap_stack *st, size_t end)
{
    for (size_t i = 0; i < end; i++)
        if (!is_library(&st->frames[i]))
            return false;
    return true;
}

/* Frames of ST but for the outermost ones, in which every thread begins. */
static size_t without_start(const struct snap_stack *st)
{
    size_t end = st->nframes;

    while (end > 1 && is_start(&st->frames[end - 1]))
        end--;
    if (end == st->nframes || all_library(st, end))
        return end;
    while (end > 1 && is_library(&st->frames[end - 1]))
        end--;
    return end;
}

struct path {
    const struct snap_frame *frames[PATH_NAMES];
    size_t n;
    bool cut; /* there are more */
};

static struct path path_of(const struct snap_stack *st)
{
    struct path p = {.n = 0};
    size_t end = without_start(st);

    for (size_t i = 0; i < end && !p.cut; i++) {
        const struct snap_frame *f = &st->frames[i];
        bool inside = i > 0 && i + 1 < end && is_library(f) && is_library(f + 1);
        if (inside || (p.n > 0 && same_function(p.frames[p.n - 1], f)))
            continue;
        p.cut = p.n == PATH_NAMES;
        if (!p.cut)
            p.frames[p.n++] = f;
    }
    return p;
}

/* In words ------------------------------------------------------------------------------------ */

static char *path_name(char *dst, size_t size, const struct snap_frame *f, bool ascii)
{
    char module[4 * PATH_WIDTH + 1] = "";
    const char *file = f->module ? last_part(f->module) : "";

    if (f->name)
        return funcname_fit(dst, size, f->name, PATH_WIDTH, ascii);
    fmt_safe(module, sizeof(module), file, strlen(file), ascii);
    text_cut(module, sizeof(module), PATH_WIDTH, ascii);
    snprintf(dst, size, "%s%s0x%" PRIx64, module, f->module ? "+" : "", f->offset);
    return dst;
}

char *render_path(char *dst, size_t size, const struct snap_stack *st, bool ascii)
{
    char name[4 * PATH_WIDTH + 32];
    struct path p = path_of(st);
    size_t len = 0;

    dst[0] = '\0';
    for (size_t i = 0; i < p.n && len < size; i++)
        len += (size_t)snprintf(dst + len, size - len, "%s%s", i ? " < " : "",
                                path_name(name, sizeof(name), p.frames[i], ascii));
    if (p.cut && len < size)
        snprintf(dst + len, size - len, " < %s", ascii ? "..." : "\u2026");
    return dst;
}

/* Together ------------------------------------------------------------------------------------ */

static bool same_path(const struct snap_stack *a, const struct snap_stack *b)
{
    struct path p = path_of(a), q = path_of(b);

    if (p.n != q.n || p.cut != q.cut)
        return false;
    for (size_t i = 0; i < p.n; i++)
        if (!same_function(p.frames[i], q.frames[i]))
            return false;
    return true;
}

static bool same_functions(const struct snap_stack *a, const struct snap_stack *b)
{
    if (a->nframes != b->nframes)
        return false;
    for (size_t i = 0; i < a->nframes; i++)
        if (!same_function(&a->frames[i], &b->frames[i]))
            return false;
    return true;
}

/* Whether the holder had a CPU is for the list of locks; here it is where it runs that counts. */
static const char *merged_note(const struct snap_stack *st)
{
    const char *note = st->note;

    return st->role == ROLE_PROFILE && same_text(note, thread_state_name(THREAD_RUNQ))
               ? thread_state_name(THREAD_RUNNING)
               : note;
}

/* qsort() keeps no order of what is equal, and with that lines would change places. */
static void sort_by_count(struct snap_stack *st, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        struct snap_stack one = st[i];
        size_t at = i;
        for (; at > 0 && st[at - 1].count < one.count; at--)
            st[at] = st[at - 1];
        st[at] = one;
    }
}

size_t merge_stacks(struct snap_stack *out, const struct snap_stack *st, size_t n, bool brief)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        const char *note = merged_note(&st[i]);
        while (k < kept && !(same_text(out[k].note, note) &&
                             (brief ? same_path : same_functions)(&out[k], &st[i])))
            k++;
        if (k == kept) {
            out[kept] = st[i];
            out[kept++].note = note;
        } else {
            out[k].count += st[i].count;
            out[k].share += st[i].share;
        }
    }
    sort_by_count(out, kept);
    return kept;
}

/* Sentences --------------------------------------------------------------------------- */

#define NAME_WIDTH 48
#define NAMES_MAX  64

struct long_names {
    const char *names[NAMES_MAX];
    size_t n;
};

static void add_long_name(struct long_names *all, const char *name)
{
    if (name && all->n < NAMES_MAX && strlen(name) > NAME_WIDTH)
        all->names[all->n++] = name;
}

/* What sentences name of a lock: it, where it is waited for, and where its holder is. */
static void add_long_names(struct long_names *all, const struct snap_lock *l)
{
    add_long_name(all, l->name);
    add_long_name(all, l->site);
    for (size_t i = 0; i < l->nstacks; i++)
        for (size_t k = 0; k < l->stacks[i].nframes && l->stacks[i].role == ROLE_HOLDER; k++)
            add_long_name(all, l->stacks[i].frames[k].name);
}

char *render_sentence(char *dst, size_t size, const struct snapshot *s, const char *text,
                      bool ascii)
{
    struct long_names all = {.n = 0};

    for (size_t i = 0; i < s->nlocks; i++)
        add_long_names(&all, &s->locks[i]);
    return funcname_fit_all(dst, size, text, all.names, all.n, NAME_WIDTH, ascii);
}

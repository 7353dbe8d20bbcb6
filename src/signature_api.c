#include <string.h>

#include "namematch.h"
#include "signature.h"

/* Longer names are of nothing that stands in a table. */
#define NAME_MAX_LEN 256

/* In a static program the C library's functions have no module of their own. Below those that
 * take its internal locks lie at most so many that no table knows. */
#define STATIC_GAP 3

/* Frames without a name that may lie inside another library's wrapper of a lock. */
#define WRAPPER_GAP 2

struct api {
    const char *name;
    size_t len;
    enum lock_kind kind;
    enum lock_mode mode;
    const char *inside;
};

static const struct api apis[] = {
#define API(n, k, m, i) {n, sizeof(n) - 1, KIND_##k, MODE_##m, i},
#include "apis.def"
#undef API
};

static const struct api wrappers[] = {
#define WRAPPER(p, k, m) {p, sizeof(p) - 1, KIND_##k, MODE_##m, NULL},
#include "wrappers.def"
#undef WRAPPER
};

static const struct api loader = {"dl_*", 4, KIND_LIBC, MODE_EXCLUSIVE, "loader"};

/* Its functions, as far as no table says more. */
static const struct api library = {"", 0, KIND_NONE, MODE_NONE, NULL};

static bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static bool begins_any(const char *s, const char *const *with, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (begins(s, with[i]))
            return true;
    }
    return false;
}

/* Part of the C library, whatever file it is in. */
static bool is_libc(const struct frame_name *f)
{
    static const char *const files[] = {"libc.so", "libc-",      "ld-",      "ld64.",
                                        "ld.so",   "libdl.so",   "libdl-",   "librt.so",
                                        "librt-",  "libpthread", "libnss_",  "libresolv",
                                        "libanl.", "ld-musl",    "libc.musl"};

    return f->kind != MODULE_OTHER ||
           (f->module && begins_any(f->module, files, ARRAY_SIZE(files)));
}

/* Its functions wait on behalf of their callers. */
static bool is_language_library(const struct frame_name *f)
{
    static const char *const files[] = {"libstdc++.so", "libc++.so", "libc++abi.so", "libgcc_s.so",
                                        "libatomic.so"};

    return f->module && begins_any(f->module, files, ARRAY_SIZE(files));
}

static const struct api *find_api(const char *name)
{
    char plain[NAME_MAX_LEN];
    size_t len = c_name(plain, sizeof(plain), name);

    for (size_t i = 0; i < ARRAY_SIZE(apis); i++) {
        if (apis[i].len == len && memcmp(apis[i].name, plain, len) == 0)
            return &apis[i];
    }
    return begins(plain, "dl_") ? &loader : NULL;
}

static const struct api *find_wrapper(const char *name)
{
    char plain[NAME_MAX_LEN];

    plain_name(plain, sizeof(plain), name);
    for (size_t i = 0; i < ARRAY_SIZE(wrappers); i++) {
        if (wrappers[i].name[0] != plain[0])
            continue;
        struct pattern p = pattern_of(wrappers[i].name);
        if (pattern_matches(&p, plain))
            return &wrappers[i];
    }
    return NULL;
}

static bool is_trampoline(const struct frame_fact *f)
{
    const char *name = f->n.name;

    return name && (strcmp(name, "__restore_rt") == 0 || strcmp(name, "__restore") == 0 ||
                    strcmp(name, "__kernel_rt_sigreturn") == 0 ||
                    strcmp(name, "<signal handler called>") == 0);
}

/* Where the interrupted code begins when a signal handler runs, N when none does. */
static size_t find_interrupted(const struct frame_fact *f, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        if (f[i].exact || is_trampoline(&f[i]))
            return i;
    }
    return n;
}

/* The walk from the system call outwards. */
struct walk {
    const struct frame_fact *f;
    size_t n;
    struct api_match m;
    bool decided;     /* M says something */
    bool by_local;    /* ... which is what a local function of the C library says */
    bool is_static;   /* the C library is part of the program */
    bool direct_call; /* ... and the program made the system call by itself */
    bool left;        /* frames of other libraries lie between */
    bool call_known;  /* which function of the C library made the call */
};

static bool same_module(const struct frame_name *a, const struct frame_name *b)
{
    return a->module && b->module && strcmp(a->module, b->module) == 0;
}

/* In a static program: the row of frame I, if it belongs to the C library. Once a lock of the
 * program's own is known, only the loader takes such. */
static const struct api *static_api(const struct walk *w, size_t i)
{
    const struct frame_name *f = &w->f[i].n;
    const struct api *row;

    if (!w->is_static || w->direct_call)
        return NULL;
    for (size_t j = i; j < w->n && j <= i + (w->decided ? 0 : STATIC_GAP); j++) {
        const char *name = w->f[j].n.name;
        if (!name || !same_module(f, &w->f[j].n))
            continue;
        row = find_api(name);
        if (row && w->decided && row->kind != w->m.kind && row != &loader &&
            !(row->inside && strcmp(row->inside, "loader") == 0))
            return NULL;
        if (row && (j == i || row->inside))
            return j == i ? row : &library;
    }
    return NULL;
}

/* Whether frame I has no name and lies inside a wrapper that has one. */
static bool inside_wrapper(const struct walk *w, size_t i)
{
    const struct frame_name *f = &w->f[i].n;

    if (f->name)
        return false;
    for (size_t j = i + 1; j < w->n && j <= i + WRAPPER_GAP; j++) {
        if (!same_module(f, &w->f[j].n))
            return false;
        if (w->f[j].n.name)
            return find_wrapper(w->f[j].n.name) != NULL;
    }
    return false;
}

/* What frame I says, when it belongs to a library of locks; else NULL. */
static const struct api *row_of(const struct walk *w, size_t i)
{
    const struct frame_name *f = &w->f[i].n;
    const struct api *row = NULL;

    if (is_libc(f)) {
        row = f->name ? find_api(f->name) : NULL;
        return row ? row : &library;
    }
    row = static_api(w, i);
    if (!row && f->name)
        row = find_wrapper(f->name);
    if (!row && (is_language_library(f) || inside_wrapper(w, i)))
        row = &library;
    return row;
}

static void note_inside(struct walk *w, const struct api *row)
{
    if (!w->m.inside && !w->left)
        w->m.inside = row->inside;
}

static bool is_local(const struct frame_name *f)
{
    return f->kind != MODULE_OTHER && !f->exported;
}

/* Whether the row of frame I stands against the one that decided. pthread_cond_wait() takes its
 * mutex by a function of its own, of which only debug names tell: what was called stays the same.
 * With locks of the library's own it is the innermost that knows which. */
static bool overrules(const struct walk *w, const struct api *row, size_t i)
{
    return w->by_local && !w->left && !w->m.inside && !row->inside && !is_local(&w->f[i].n);
}

static void note(struct walk *w, const struct api *row, size_t i)
{
    if (w->m.other_call) {
        note_inside(w, row);
        return;
    }
    if (w->m.kind == KIND_MUTEX || w->m.kind == KIND_RWLOCK)
        note_inside(w, row);
    if (row->kind == KIND_NONE || (w->decided && !overrules(w, row, i)))
        return;
    w->decided = true;
    w->by_local = is_local(&w->f[i].n);
    w->m.kind = row->kind;
    w->m.mode = row->mode;
    w->m.inside = row->inside;
    w->m.frame = i;
}

/* Whether one of the frames from FROM on holds what M waits for. */
static bool holds_same(const struct walk *w, size_t from)
{
    for (size_t i = from; i < w->n; i++) {
        const struct frame_name *f = &w->f[i].n;
        const struct api *row = f->name && (is_libc(f) || w->is_static) ? find_api(f->name) : NULL;
        if (row && row->inside && strcmp(row->inside, w->m.inside) == 0)
            return true;
    }
    return false;
}

static bool is_syscall(const struct api *row)
{
    return strcmp(row->name, "syscall") == 0;
}

/* ROW is what frame I says: that of a function which only makes another call has none. */
static void note_call(struct walk *w, const struct api *row, size_t i)
{
    const struct frame_name *f = &w->f[i].n;

    if (w->call_known || !f->name || !is_libc(f))
        return;
    w->call_known = row == &library || row->kind != KIND_NONE || is_syscall(row);
    w->m.other_call = row == &library;
}

struct api_match api_classify(const struct frame_fact *frames, size_t n)
{
    struct walk w = {.f = frames, .n = n, .m = {.frame = n, .caller = n}};
    size_t interrupted = find_interrupted(frames, n), i;

    w.is_static = n > 0 && !is_libc(&frames[0].n) && frames[0].n.name && find_api(frames[0].n.name);
    for (i = 0; i < n; i++) {
        const struct api *row = row_of(&w, i);
        if (!row)
            break;
        if (i < interrupted) {
            note_call(&w, row, i);
            note(&w, row, i);
        }
        w.direct_call |= w.is_static && is_syscall(row);
        w.left |= !w.is_static && !is_libc(&frames[i].n);
    }
    w.m.caller = i;
    w.m.in_handler =
        interrupted < n && !w.m.other_call && w.m.inside && holds_same(&w, interrupted);
    return w.m;
}

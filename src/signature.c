#include "signature.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "namematch.h"

#define ANY UINT_MAX

/* Of longer ones only the beginning of the plain name is looked at. */
#define NAME_MAX_LEN 1024

/* More of its frames without a name than these lie nowhere between two of a library's. */
#define CALLER_GAP 2

/* Patterns of which any must match. */
struct patterns {
    struct pattern pattern;
    struct patterns *next;
};

struct signature {
    const char *function; /* key of the table of plain ones */
    struct pattern pattern;
    struct patterns *modules; /* NULL: any */
    enum sig_role role;
    bool by_caller;
    bool any_call;   /* LOCK: also when it waits in another call than futex */
    bool needs_cond; /* only when it waits on a condition variable */
    unsigned reach;
    const char *label;
    size_t rank;            /* the lowest of those that match one frame decides */
    struct signature *next; /* of the same function, or among those with wildcards */
    UT_hash_handle hh;
};

struct signatures {
    struct arena arena; /* owns the rows and their strings */
    struct signature *plain;
    struct signature *wild[UCHAR_MAX + 1]; /* by first character; [0]: those that begin with a
                                              wildcard */
    size_t users;                          /* rows of the user's */
};

struct builtin {
    enum { LOCK, COND_LOCK, POLLED, CALLER_LOCK, CALLER_POLLED, IDLE, PARKED, NONE } role;
    unsigned reach;
    const char *module, *function, *label;
};

static const struct builtin builtins[] = {
#define SIG(role, reach, module, function, label) {role, reach, module, function, label},
#include "signatures.def"
#undef SIG
};

/* Those of the user come first. */
#define RANK_BUILTIN (SIZE_MAX / 2)

static unsigned char first_byte(const char *s)
{
    return (unsigned char)*s;
}

static void insert(struct signatures *s, struct signature *row)
{
    struct signature *first = NULL;

    row->function = row->pattern.text;
    if (!row->pattern.plain) {
        struct signature **list = &s->wild[row->pattern.prefix ? first_byte(row->function) : 0];
        row->next = *list;
        *list = row;
        return;
    }
    HASH_FIND_STR(s->plain, row->function, first);
    if (first) {
        row->next = first->next;
        first->next = row;
        return;
    }
    HASH_ADD_KEYPTR(hh, s->plain, row->function, strlen(row->function), row);
}

/* The alternatives of TEXT, which are separated by '|'. */
static struct patterns *split_patterns(struct signatures *s, const char *text)
{
    struct patterns *all = NULL;

    for (const char *at = text, *end; at; at = *end ? end + 1 : NULL) {
        struct patterns *p = arena_zalloc(&s->arena, sizeof(*p));
        end = strchrnul(at, '|');
        p->pattern = pattern_of(arena_printf(&s->arena, "%.*s", (int)(end - at), at));
        p->next = all;
        all = p;
    }
    return all;
}

static void insert_builtin(struct signatures *s, const struct builtin *b, size_t rank)
{
    static const enum sig_role roles[] = {
        [LOCK] = SIG_LOCK,        [COND_LOCK] = SIG_LOCK,     [POLLED] = SIG_LOCK,
        [CALLER_LOCK] = SIG_LOCK, [CALLER_POLLED] = SIG_LOCK, [IDLE] = SIG_IDLE,
        [PARKED] = SIG_PARKED,    [NONE] = SIG_NONE};
    struct signature *row = arena_zalloc(&s->arena, sizeof(*row));

    row->pattern = pattern_of(b->function);
    row->modules = split_patterns(s, b->module);
    row->role = roles[b->role];
    row->by_caller = b->role == CALLER_LOCK || b->role == CALLER_POLLED;
    row->needs_cond = b->role == COND_LOCK;
    row->any_call = b->role == POLLED || b->role == CALLER_POLLED;
    row->reach = b->reach;
    row->label = b->label;
    row->rank = RANK_BUILTIN + rank;
    insert(s, row);
}

struct signatures *signatures_new(void)
{
    struct signatures *s = xcalloc(1, sizeof(*s));

    for (size_t i = 0; i < ARRAY_SIZE(builtins); i++)
        insert_builtin(s, &builtins[i], i);
    return s;
}

void signatures_free(struct signatures *s)
{
    if (!s)
        return;
    HASH_CLEAR(hh, s->plain);
    arena_release(&s->arena);
    free(s);
}

/* Lines of the user's ----------------------------------------------------------------------- */

struct user_line {
    enum sig_role role;
    const char *function, *module, *label;
    size_t function_len, module_len, label_len;
};

static bool word_is(const char *word, size_t len, const char *what)
{
    return strlen(what) == len && memcmp(word, what, len) == 0;
}

static bool parse_line(struct rule_line *line, struct user_line *out, char *err, size_t size)
{
    static const char *const roles[] = {
        [SIG_NONE] = "none", [SIG_LOCK] = "lock", [SIG_IDLE] = "idle", [SIG_PARKED] = "parked"};
    size_t len, role = 0;
    const char *word = rule_word(line, &len);

    while (role < ARRAY_SIZE(roles) && !word_is(word, len, roles[role]))
        role++;
    *out = (struct user_line){.role = (enum sig_role)role};
    out->function = rule_word(line, &out->function_len);
    if (line->len && line->text[0] == '@') {
        out->module = rule_word(line, &out->module_len) + 1;
        out->module_len--;
    }
    out->label = line->text;
    out->label_len = line->len;
    if (role == ARRAY_SIZE(roles))
        snprintf(err, size, "line %d: '%.*s' is none of 'lock', 'idle', 'parked', 'none'",
                 line->number, (int)MIN(len, (size_t)40), word);
    else if (out->function_len == 0 || *out->function == '@')
        snprintf(err, size, "line %d: no function behind '%.*s'", line->number, (int)len, word);
    else if (out->module && out->module_len == 0)
        snprintf(err, size, "line %d: no module behind '@'", line->number);
    else
        return true;
    return false;
}

static const char *keep(struct signatures *s, const char *text, size_t len)
{
    return arena_printf(&s->arena, "%.*s", (int)len, text);
}

static void insert_line(struct signatures *s, const struct user_line *line)
{
    struct signature *row = arena_zalloc(&s->arena, sizeof(*row));
    bool labelled = line->label_len > 0;

    row->pattern = pattern_of(keep(s, line->function, line->function_len));
    if (line->module)
        row->modules = split_patterns(s, keep(s, line->module, line->module_len));
    row->role = line->role;
    row->any_call = true;
    row->reach = ANY;
    row->label = labelled                ? keep(s, line->label, line->label_len)
                 : row->role == SIG_NONE ? NULL
                                         : row->pattern.text;
    row->rank = s->users++;
    insert(s, row);
}

bool signatures_add(struct signatures *s, const char *text, char *err, size_t size)
{
    struct rule_line line = {.at = text};
    struct user_line parsed;

    while (rule_next(&line)) {
        if (!parse_line(&line, &parsed, err, size))
            return false;
    }
    line = (struct rule_line){.at = text};
    while (rule_next(&line) && parse_line(&line, &parsed, err, size))
        insert_line(s, &parsed);
    return true;
}

/* Matching ---------------------------------------------------------------------------------- */

struct stack_view {
    const struct frame_fact *f;
    size_t n;
    const struct api_match *api;
};

static bool module_matches(const struct signature *row, const struct frame_name *f)
{
    const struct patterns *p = row->modules;

    while (p && !(f->module && pattern_matches(&p->pattern, f->module)))
        p = p->next;
    return p || !row->modules;
}

/* Whether frame I is near enough to the wait. */
static bool within_reach(const struct signature *row, const struct stack_view *v, size_t i)
{
    const char *module = v->f[i].n.module;
    size_t site = v->api->caller;

    if (row->reach == ANY || i <= site)
        return true;
    if (i - site > row->reach || !module)
        return false;
    for (size_t j = site; j < i; j++) {
        if (!v->f[j].n.module || strcmp(v->f[j].n.module, module) != 0)
            return false;
    }
    return true;
}

static const struct signature *better(const struct signature *best, const struct signature *row,
                                      const struct stack_view *v, size_t i)
{
    bool wins = (!best || row->rank < best->rank) && module_matches(row, &v->f[i].n) &&
                (!row->needs_cond || v->api->kind == KIND_COND) && within_reach(row, v, i);

    return wins ? row : best;
}

/* The best of BEST and the rows of S that match NAME. */
static const struct signature *match_name(const struct signatures *s, const char *name,
                                          const struct signature *best, const struct stack_view *v,
                                          size_t i)
{
    const size_t lists[] = {0, first_byte(name)};
    const struct signature *row;

    HASH_FIND_STR(s->plain, name, row);
    for (; row; row = row->next)
        best = better(best, row, v, i);
    for (size_t l = 0; l < ARRAY_SIZE(lists) - (lists[1] == 0); l++) {
        for (row = s->wild[lists[l]]; row; row = row->next) {
            if (pattern_matches(&row->pattern, name))
                best = better(best, row, v, i);
        }
    }
    return best;
}

static const struct signature *match_frame(const struct signatures *s, const struct stack_view *v,
                                           size_t i)
{
    const char *name = v->f[i].n.name;
    char plain[NAME_MAX_LEN];
    const struct signature *best;

    if (!name)
        return NULL;
    plain_name(plain, sizeof(plain), name);
    best = match_name(s, plain, NULL, v, i);
    if (strnlen(name, NAME_MAX_LEN) == NAME_MAX_LEN || strcmp(plain, name) == 0)
        return best;
    return match_name(s, name, best, v, i);
}

/* Whether frame I is a function of the lock that ROW describes. */
static bool is_same_lock(const struct signatures *s, const struct stack_view *v, size_t i,
                         const struct signature *row)
{
    const struct signature *other = match_frame(s, v, i);

    return other && other->label && row->label && strcmp(other->label, row->label) == 0;
}

/* The innermost frame outside the functions of the lock that ROW describes, of which frame I is
 * one. Its static functions may have no names. */
static size_t find_caller(const struct signatures *s, const struct stack_view *v, size_t i,
                          const struct signature *row)
{
    const char *module = v->f[i].n.module;
    size_t caller = MAX(i + 1, v->api->caller);

    for (size_t j = caller; j < v->n && j <= caller + CALLER_GAP; j++) {
        const struct frame_name *f = &v->f[j].n;
        if (is_same_lock(s, v, j, row))
            caller = j + 1;
        else if (f->name || !f->module || !module || strcmp(f->module, module) != 0)
            break;
    }
    return caller;
}

struct sig_match signatures_match(const struct signatures *s, const struct frame_fact *frames,
                                  size_t n, const struct api_match *api)
{
    struct stack_view v = {.f = frames, .n = n, .api = api};
    const struct signature *row = NULL;
    size_t i = 0;

    while (i < n && !(row = match_frame(s, &v, i)))
        i++;
    bool counts = row && (row->role != SIG_NONE || row->label) &&
                  !(row->role == SIG_LOCK && api->other_call && !row->any_call);
    if (!counts)
        return (struct sig_match){.role = SIG_NONE, .frame = n, .caller = n};
    return (struct sig_match){
        .role = row->role,
        .label = row->label,
        .frame = i,
        .by_caller = row->by_caller,
        .caller = row->role == SIG_LOCK ? find_caller(s, &v, i, row) : n,
    };
}

const char *signature_who_tells(const char *label)
{
    static const struct {
        const char *label, *hint;
    } rows[] = {
#define SIG(role, reach, module, function, label)
#define TELL(label, hint) {label, hint},
#include "signatures.def"
#undef SIG
#undef TELL
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (strcmp(rows[i].label, label) == 0)
            return rows[i].hint;
    }
    return NULL;
}

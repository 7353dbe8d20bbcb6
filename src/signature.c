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

struct signature {
    const char *function;           /* key of the table of plain ones */
    struct pattern pattern, module; /* MODULE.text NULL: any */
    enum sig_role role;
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
    enum { LOCK, COND_LOCK, POLLED, IDLE, NONE } role;
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

static void insert_builtin(struct signatures *s, const struct builtin *b, size_t rank)
{
    static const enum sig_role roles[] = {[LOCK] = SIG_LOCK,
                                          [COND_LOCK] = SIG_LOCK,
                                          [POLLED] = SIG_LOCK,
                                          [IDLE] = SIG_IDLE,
                                          [NONE] = SIG_NONE};
    struct signature *row = arena_zalloc(&s->arena, sizeof(*row));

    row->pattern = pattern_of(b->function);
    if (b->module)
        row->module = pattern_of(b->module);
    row->role = roles[b->role];
    row->needs_cond = b->role == COND_LOCK;
    row->any_call = b->role == POLLED;
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
        [SIG_NONE] = "none", [SIG_LOCK] = "lock", [SIG_IDLE] = "idle"};
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
        snprintf(err, size, "line %d: '%.*s' is neither 'lock' nor 'idle' nor 'none'", line->number,
                 (int)MIN(len, (size_t)40), word);
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
        row->module = pattern_of(keep(s, line->module, line->module_len));
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
    struct api_match api;
};

static bool module_matches(const struct signature *row, const struct frame_name *f)
{
    return !row->module.text || (f->module && pattern_matches(&row->module, f->module));
}

/* Whether frame I is near enough to the wait. */
static bool within_reach(const struct signature *row, const struct stack_view *v, size_t i)
{
    const char *module = v->f[i].n.module;

    if (row->reach == ANY || i <= v->api.caller)
        return true;
    if (i - v->api.caller > row->reach || !module)
        return false;
    for (size_t j = v->api.caller; j < i; j++) {
        if (!v->f[j].n.module || strcmp(v->f[j].n.module, module) != 0)
            return false;
    }
    return true;
}

static const struct signature *better(const struct signature *best, const struct signature *row,
                                      const struct stack_view *v, size_t i)
{
    bool wins = (!best || row->rank < best->rank) && module_matches(row, &v->f[i].n) &&
                (!row->needs_cond || v->api.kind == KIND_COND) && within_reach(row, v, i);

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

struct sig_match signatures_match(const struct signatures *s, const struct frame_fact *frames,
                                  size_t n)
{
    struct stack_view v = {.f = frames, .n = n, .api = api_classify(frames, n)};
    const struct signature *row = NULL;
    size_t i = 0;

    while (i < n && !(row = match_frame(s, &v, i)))
        i++;
    bool counts = row && (row->role != SIG_NONE || row->label) &&
                  !(row->role == SIG_LOCK && v.api.other_call && !row->any_call);
    if (!counts)
        return (struct sig_match){.role = SIG_NONE, .frame = n};
    return (struct sig_match){.role = row->role, .label = row->label, .frame = i};
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

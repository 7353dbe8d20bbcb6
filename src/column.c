#include "column.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "compiler.h"
#include "fmt.h"
#include "funcname.h"
#include "render_path.h"

/* Room for any cell: a path of PATH_MAX bytes. */
#define CELL_SIZE 4096

/* Cells of a symbol where the width says nothing, and fewest that are worth showing of the function
 * behind another name. */
#define SYMBOL_WIDTH 60
#define SITE_LEAST   10

#define NEVER INT_MAX /* no screen is wide enough */

/* A column that usually takes the rest of the line, when others stand behind it. */
#define REST_WIDTH 32

enum value_type { TYPE_INTEGER, TYPE_COUNT, TYPE_PERCENT, TYPE_MSEC, TYPE_TEXT };

static const struct {
    struct column_info info;
    enum value_type type;
} table[] = {
#define COLUMN(id, name, header, width, type, help)                                                \
    {{name, header, help, width, TYPE_##type != TYPE_TEXT}, TYPE_##type},
#include "columns.def"
#undef COLUMN
};
static_assert(ARRAY_SIZE(table) == COLUMNS_COUNT, "one row per column");

const struct column_info *column_info(enum column c)
{
    return &table[c].info;
}

void column_list(FILE *out)
{
    for (size_t c = 0; c < COLUMNS_COUNT; c++)
        fprintf(out, "%-8s %-6s %s\n", table[c].info.name, table[c].info.header,
                table[c].info.help);
}

static bool is_name(const char *known, const char *name, size_t len)
{
    return strlen(known) == len && strncasecmp(known, name, len) == 0;
}

int column_by_name(const char *name, size_t len)
{
    for (size_t c = 0; c < COLUMNS_COUNT; c++)
        if (is_name(table[c].info.name, name, len) || is_name(table[c].info.header, name, len))
            return (int)c;
    return -1;
}

/* Sets ------------------------------------------------------------------------------------- */

void column_set_default(struct column_set *set, int width, bool many)
{
    /* What each column is worth: the narrowest screen that still shows it. */
    static const struct {
        enum column column;
        int screen, screen_many;
    } wanted[] = {
        {COL_WAITERS, 0, 0}, {COL_AVG1, 72, 80},   {COL_AVG10, 0, 0},     {COL_AVG60, 80, 90},
        {COL_MAX, 90, 100},  {COL_BUSY, 56, 64},   {COL_SHARE, 110, 120}, {COL_AGE, 100, 110},
        {COL_KIND, 64, 72},  {COL_PID, NEVER, 40}, {COL_HOLDER, 0, 0},    {COL_LOCK, 0, 0},
    };

    set->n = 0;
    set->screen = width;
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
        if (width >= (many ? wanted[i].screen_many : wanted[i].screen))
            set->cols[set->n++] = wanted[i].column;
}

int column_width(const struct column_set *set, size_t i)
{
    /* Widths at which nothing of these needs to be cut any more. */
    static const struct {
        enum column column;
        int screen, width;
    } wider[] = {{COL_KIND, 120, 16}, {COL_HOLDER, 130, 31}};

    for (size_t k = 0; k < ARRAY_SIZE(wider); k++)
        if (wider[k].column == set->cols[i] && set->screen >= wider[k].screen)
            return wider[k].width;
    int width = table[set->cols[i]].info.width;
    return width == 0 && i + 1 < set->n ? REST_WIDTH : width;
}

/* Adds C once; where a column takes the rest of the line, that one stays the last when KEEP. */
static void set_add(struct column_set *set, enum column c, bool keep)
{
    for (size_t i = 0; i < set->n; i++)
        if (set->cols[i] == c)
            return;
    set->cols[set->n++] = c;
    if (keep && set->n > 1 && table[set->cols[set->n - 2]].info.width == 0) {
        set->cols[set->n - 1] = set->cols[set->n - 2];
        set->cols[set->n - 2] = c;
    }
}

bool column_set_parse(struct column_set *set, const char *list, int width, bool many, char *err,
                      size_t n)
{
    bool adding = list[0] == '+';

    column_set_default(set, width, many);
    if (!adding)
        set->n = 0;
    for (const char *item = list;; item++) {
        item += *item == '+';
        size_t len = strcspn(item, ",");
        int c = column_by_name(item, len);
        if (c < 0) {
            char safe[64];
            fmt_safe(safe, sizeof(safe), item, len, true);
            snprintf(err, n, "no column is named '%s'; '-o help' lists them", safe);
            return false;
        }
        set_add(set, (enum column)c, adding);
        item += len;
        if (*item == '\0')
            return true;
    }
}

void column_set_choose(struct column_set *set, const char *list, int width,
                       const struct snapshot *s)
{
    bool many = s && s->nprocesses > 1;
    char err[64];

    if (!list || !column_set_parse(set, list, width, many, err, sizeof(err)))
        column_set_default(set, width, many);
}

/* Values ----------------------------------------------------------------------------------- */

static double or_unknown(int64_t value)
{
    return value < 0 ? NAN : (double)value;
}

static double oldest_wait_ms(const struct snap_lock *l)
{
    /* They stand with the longest sleepers first. */
    double oldest = l->nwaiter_threads ? l->waiter_threads[0].age_ms : NAN;

    return oldest > 0 ? oldest : NAN; /* seen for the first time: nothing is known yet */
}

/* The value of a column of numbers, NaN when unknown. */
static double number(enum column c, const struct snap_lock *l)
{
    switch (c) {
    case COL_WAITERS:
        return or_unknown(l->waiters);
    case COL_AVG1:
        return l->waiters_avg_1s;
    case COL_AVG10:
        return l->waiters_avg_10s;
    case COL_AVG60:
        return l->waiters_avg_60s;
    case COL_MAX:
        return or_unknown(l->waiters_max);
    case COL_BUSY:
        return l->busy;
    case COL_SHARE:
        return l->wait_share;
    case COL_AGE:
        return oldest_wait_ms(l);
    case COL_SLEEP:
        return l->wait_ms;
    case COL_TRIES:
        return l->attempts_per_s;
    case COL_REFUSED:
        return l->refused_share;
    case COL_PID:
        return or_unknown(l->pid);
    default:
        return NAN;
    }
}

static char *copy(char *dst, size_t size, const char *text)
{
    snprintf(dst, size, "%s", text);
    return dst;
}

static char *number_text(char *dst, size_t size, enum value_type type, double v)
{
    if (type == TYPE_MSEC)
        return fmt_msec(dst, size, v);
    if (type == TYPE_COUNT)
        return fmt_count(dst, size, v);
    return fmt_fixed(dst, size, type == TYPE_PERCENT ? v * 100 : v, 0, "");
}

/* WIDTH is what the whole cell may take, 0: any. The mark of doubt is never cut off. */
static char *kind_text(char *dst, size_t size, const struct snap_lock *l, int width, bool ascii)
{
    const char *doubt = l->confidence < CONF_CONFIRMED ? "?" : "";
    char name[32];

    copy(name, sizeof(name), lock_kind_name(l->kind));
    if (width > 0)
        text_cut(name, sizeof(name), MAX(width - (int)strlen(doubt), 1), ascii);
    snprintf(dst, size, "%s%s", name, doubt);
    return dst;
}

/* What belongs to the path of a file lock: " (deleted)", " bytes 100-199". Returns its length. */
static size_t file_text(char *dst, size_t size, const struct snap_lock *l)
{
    size_t len = 0;

    if (l->deleted)
        len += (size_t)snprintf(dst, size, " (deleted)");
    if (l->ranged && l->range_end == UINT64_MAX)
        len += (size_t)snprintf(dst + len, size - len, " from byte %" PRIu64, l->range_start);
    else if (l->ranged)
        len += (size_t)snprintf(dst + len, size - len, " bytes %" PRIu64 "-%" PRIu64,
                                l->range_start, l->range_end);
    return len;
}

/* Which object: its name, else its file and its address; "" unknown. */
static char *object_text(char *dst, size_t size, const struct snap_lock *l, int width, bool ascii)
{
    if (l->name)
        return funcname_fit(dst, size, l->name, width > 0 ? width : SYMBOL_WIDTH, ascii);
    size_t len = strlen(copy(dst, size, ""));
    if (l->path)
        len = fmt_safe(dst, size, l->path, strlen(l->path), ascii);
    len += file_text(dst + len, size - len, l);
    /* A file holds one lock per flock, but a shared mapping may hold many. */
    if (l->address && l->class != CLASS_FILELOCK)
        snprintf(dst + len, size - len, "%s0x%" PRIx64, len ? " " : "", l->address);
    return dst;
}

/* Whether a name is only the place in a mapping or a file, "[heap]+0x11ee0": it tells no more than
 * an address. */
static bool is_place(const struct snap_lock *l, const char *name)
{
    const char *file = last_part(name), *plus = strrchr(name, '+');
    size_t len = plus ? (size_t)(plus - file) : 0;

    if (!plus || plus < file || strncmp(plus, "+0x", 3) != 0)
        return false;
    if (*name == '[' || *name == '/' || memmem(file, len, ".so", 3))
        return true;
    for (size_t i = 0; i < l->nstacks; i++)
        for (size_t k = 0; k < l->stacks[i].nframes; k++) {
            const char *module = l->stacks[i].frames[k].module;
            if (module && strlen(last_part(module)) == len &&
                !strncmp(last_part(module), file, len))
                return true;
        }
    return false;
}

/* Whether the code that waits for it tells more than what it is called. */
static bool is_nameless(const struct snap_lock *l)
{
    return l->name ? is_place(l, l->name) : !l->path;
}

/* Cells that a function takes without what funcname_fit() drops first, at most SITE_LEAST for the
 * one behind a name. */
static int site_least(const struct snap_lock *l, bool nameless)
{
    char site[4 * SYMBOL_WIDTH + 1];
    size_t len = strlen(l->site);

    if (!nameless)
        return (int)MIN(len, (size_t)SITE_LEAST);
    return text_cells(funcname_fit(site, sizeof(site), l->site, SYMBOL_WIDTH, true));
}

/* The object and where in the code it is waited for; WIDTH is what the whole cell may take, 0: any.
 * Where both have no room a name stands alone, but an address or a place, which tells less than the
 * code does, gives way. */
static char *lock_text(char *dst, size_t size, const struct snap_lock *l, int width, bool ascii)
{
    char site[4 * SYMBOL_WIDTH + 1];
    int object = text_cells(object_text(dst, size, l, width, ascii));
    int room = width > 0 ? MIN(width - object - (object ? 4 : 3), SYMBOL_WIDTH) : SYMBOL_WIDTH;
    bool nameless = is_nameless(l);

    if (!l->site)
        return object ? dst : copy(dst, size, "-");
    if (room < site_least(l, nameless) && object && !nameless)
        return dst;
    if (room < site_least(l, nameless)) {
        object = 0;
        room = MAX(width - 3, 1);
    }
    size_t len = object ? strlen(dst) : 0;
    snprintf(dst + len, size - len, "%sin %s", object ? " " : "",
             funcname_fit(site, sizeof(site), l->site, room, ascii));
    return dst;
}

char *column_title(char *dst, size_t size, const struct snap_lock *l, bool ascii)
{
    bool kind = l->kind != KIND_MONITOR || !l->name, quoted = kind && l->name && !is_nameless(l);
    const char *quote = quoted ? "\"" : "", *names = kind ? lock_kind_name(l->kind) : "";
    char object[CELL_SIZE], site[4 * SYMBOL_WIDTH + 1] = "";

    object_text(object, sizeof(object), l, 0, ascii);
    if (l->site)
        funcname_fit(site, sizeof(site), l->site, SYMBOL_WIDTH, ascii);
    snprintf(dst, size, "%s%s%s%s%s%s%s", names, kind && *object ? " " : "", quote, object, quote,
             *site ? " in " : "", site);
    return dst;
}

/* The TID that a text about a holder names, or 0. */
static long told_tid(const char *text)
{
    const char *at = strstr(text, "TID ");

    return at ? strtol(at + strlen("TID "), NULL, 10) : 0;
}

/* In few cells: that it is gone, and its number, before any reason. */
static char *short_holder(char *dst, size_t size, const struct snap_holder *h, const char *text)
{
    long tid = told_tid(h->detail);

    if (tid > 0)
        snprintf(dst, size, h->gone ? "gone %ld" : "? TID %ld", tid);
    else
        snprintf(dst, size, "%s", h->gone ? "gone" : text);
    return dst;
}

/* A holder without a number: what is known about why. */
static char *unnamed_holder(char *dst, size_t size, const struct snap_holder *h, int width,
                            bool ascii)
{
    char text[CELL_SIZE];

    if (!h->detail)
        return copy(dst, size, h->gone ? "gone" : "-");
    if (h->unrecorded && h->mode != MODE_SHARED)
        return copy(dst, size, "? (not recorded)");
    size_t len = strlen(copy(text, sizeof(text), h->confidence == CONF_CONFIRMED ? "" : "? "));
    fmt_safe(text + len, sizeof(text) - len, h->detail, strlen(h->detail), ascii);
    if (width > 0 && text_cells(text) > width)
        return short_holder(dst, size, h, text);
    return copy(dst, size, text);
}

/* WIDTH is what the whole cell may take, 0: any; it is the name that gives way. */
static char *holder_text(char *dst, size_t size, const struct snap_lock *l, int width, bool ascii)
{
    if (l->nholders == 0)
        return copy(dst, size, l->held == 0 ? "free now" : "-");
    const struct snap_holder *h = &l->holders[0];
    pid_t id = h->tid > 0 ? h->tid : h->pid;
    if (id <= 0)
        return unnamed_holder(dst, size, h, width, ascii);

    char name[4 * COMM_LEN + 1], tail[64], more[24] = "";
    const char *state = h->gone ? "gone" : h->state_known ? thread_state_name(h->state) : "";
    if (l->nholders > 1)
        snprintf(more, sizeof(more), " +%zu", l->nholders - 1);
    snprintf(tail, sizeof(tail), "%d%s%s%s%s", id, *state ? " " : "", state,
             h->confidence < CONF_CONFIRMED ? "?" : "", more);
    fmt_safe(name, sizeof(name), h->comm, strnlen(h->comm, COMM_LEN), ascii);
    if (width > 0)
        text_cut(name, sizeof(name), MAX(width - text_cells(tail) - 1, 4), ascii);
    snprintf(dst, size, "%s%s%s", name, *name ? " " : "", tail);
    return dst;
}

static char *text_value(char *dst, size_t size, enum column c, const struct snap_lock *l, int width,
                        bool ascii)
{
    switch (c) {
    case COL_CLASS:
        return copy(dst, size, lock_class_name(l->class));
    case COL_KIND:
        return kind_text(dst, size, l, width, ascii);
    case COL_HOLDER:
        return holder_text(dst, size, l, width, ascii);
    default:
        return lock_text(dst, size, l, width, ascii);
    }
}

char *column_text(char *dst, size_t size, enum column c, const struct snap_lock *l, bool ascii)
{
    if (table[c].type == TYPE_TEXT)
        return text_value(dst, size, c, l, 0, ascii);
    return number_text(dst, size, table[c].type, number(c, l));
}

/* Cells ------------------------------------------------------------------------------------ */

char *age_text(char *dst, size_t size, const struct snapshot *s, double ms)
{
    double watched = s ? (double)s->elapsed / (double)NSEC_PER_MSEC : 0;
    double sweep = s && s->self.sweep_hz > 0 ? 1000 / s->self.sweep_hz : 0;
    char text[24];

    fmt_msec(text, sizeof(text), ms);
    snprintf(dst, size, "%s%s", watched > 0 && ms > 0 && ms >= watched - sweep ? ">" : "", text);
    return dst;
}

char *column_cell(char *dst, size_t size, enum column c, const struct snapshot *s,
                  const struct snap_lock *l, int width, bool ascii)
{
    char text[CELL_SIZE];

    if (!l)
        copy(text, sizeof(text), table[c].info.header);
    else if (table[c].type == TYPE_TEXT)
        text_value(text, sizeof(text), c, l, width, ascii);
    else if (table[c].type == TYPE_MSEC)
        age_text(text, sizeof(text), s, number(c, l));
    else
        column_text(text, sizeof(text), c, l, ascii);
    text_cut(text, sizeof(text), width, ascii);
    int pad = MAX(width - text_cells(text), 0);
    if (table[c].info.right)
        snprintf(dst, size, "%*s%s", pad, "", text);
    else
        snprintf(dst, size, "%s%*s", text, pad, "");
    return dst;
}

/* Order ------------------------------------------------------------------------------------ */

static int compare_numbers(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return (a < b) - (a > b);
}

static int compare_texts(enum column c, const struct snap_lock *a, const struct snap_lock *b)
{
    char ta[CELL_SIZE], tb[CELL_SIZE];

    column_text(ta, sizeof(ta), c, a, true);
    column_text(tb, sizeof(tb), c, b, true);
    bool a_unknown = strcmp(ta, "-") == 0, b_unknown = strcmp(tb, "-") == 0;
    return a_unknown || b_unknown ? a_unknown - b_unknown : strcmp(ta, tb);
}

int column_compare(enum column c, const struct snap_lock *a, const struct snap_lock *b)
{
    int order = table[c].type == TYPE_TEXT ? compare_texts(c, a, b)
                                           : compare_numbers(number(c, a), number(c, b));
    return order ? order : strcmp(a->id, b->id);
}

static int compare_rows(const void *a, const void *b, void *column)
{
    return column_compare(*(enum column *)column, *(const struct snap_lock *const *)a,
                          *(const struct snap_lock *const *)b);
}

size_t column_sorted(const struct snapshot *s, enum column c, bool all,
                     const struct snap_lock **out)
{
    size_t n = 0;

    for (size_t i = 0; i < s->nlocks; i++)
        if (all || s->locks[i].class != CLASS_SYNC)
            out[n++] = &s->locks[i];
    if (n > 0)
        qsort_r(out, n, sizeof(*out), compare_rows, &c);
    return n;
}

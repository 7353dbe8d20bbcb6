#include "render.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compiler.h"
#include "fmt.h"
#include "funcname.h"
#include "render_path.h"
#include "render_stacks.h"
#include "render_threads.h"

/* Room for a line above the list, and for a cell of it with a path of PATH_MAX bytes. */
#define LINE_SIZE 4096

/* In sentences: cells of a function's name, and how many longer ones are looked for. */

/* Appends to DST as printf; what does not fit is cut off. */
static void add(char *dst, size_t size, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void add(char *dst, size_t size, const char *fmt, ...)
{
    size_t len = strlen(dst);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(dst + len, size - len, fmt, ap);
    va_end(ap);
}

static void add_safe(char *dst, size_t size, const char *text, size_t text_len, bool ascii)
{
    size_t len = strlen(dst);

    fmt_safe(dst + len, size - len, text, text_len, ascii);
}

/* "mariadbd[16147]", and whether it has exited. */
static void add_process_name(char *dst, size_t size, const struct snap_process *p, bool ascii)
{
    if (p->comm[0])
        add_safe(dst, size, p->comm, strnlen(p->comm, COMM_LEN), ascii);
    else
        add(dst, size, "?");
    add(dst, size, "[%d]%s", p->pid, p->ended ? " (exited)" : "");
}

static const char *plural(long n)
{
    return n == 1 ? "" : "s";
}

static const char *plural_es(size_t n)
{
    return n == 1 ? "" : "es";
}

/* Header ----------------------------------------------------------------------------------- */

static void add_who(char *dst, size_t size, const struct snapshot *s, bool ascii)
{
    size_t ended = 0;
    long threads = 0;

    for (size_t i = 0; i < s->nprocesses; i++) {
        ended += s->processes[i].ended;
        threads += MAX(s->processes[i].threads, 0);
    }
    if (s->nprocesses == 1) {
        add_process_name(dst, size, &s->processes[0], ascii);
    } else {
        add(dst, size, "%zu process%s", s->nprocesses, plural_es(s->nprocesses));
        if (ended > 0)
            add(dst, size, " (%zu exited)", ended);
    }
    add(dst, size, "  %ld thread%s", threads, plural(threads));
}

/* Whole seconds in the first minute: the header is no stop-watch. */
static void add_elapsed(char *dst, size_t size, nsec_t elapsed)
{
    long long seconds = (elapsed + NSEC_PER_SEC / 2) / NSEC_PER_SEC;
    char text[24];

    if (seconds >= 60)
        fmt_duration(text, sizeof(text), (double)seconds * NSEC_PER_SEC);
    else
        snprintf(text, sizeof(text), "%llds", seconds);
    add(dst, size, "  %s", text);
}

/* With one decimal always, so that the line does not move. */
static void add_tenths(char *dst, size_t size, double value, const char *unit)
{
    char text[32];

    add(dst, size, "%s", fmt_fixed(text, sizeof(text), value, 1, unit));
}

static void add_time_of_day(char *dst, size_t size, nsec_t wall)
{
    time_t seconds = (time_t)(wall / NSEC_PER_SEC);
    struct tm tm;
    char text[16] = "";

    tzset();
    if (localtime_r(&seconds, &tm))
        strftime(text, sizeof(text), "%H:%M:%S", &tm);
    add(dst, size, "  %s", text);
}

char *render_header(char *dst, size_t size, const struct snapshot *s, bool ascii)
{
    dst[0] = '\0';
    add(dst, size, "lock-top  ");
    add_who(dst, size, s, ascii);
    add_elapsed(dst, size, s->elapsed);
    if (isnan(s->self.sweep_hz))
        add(dst, size, "   -/s");
    else
        add(dst, size, "   %.0f/s", s->self.sweep_hz);
    add(dst, size, "  self ");
    add_tenths(dst, size, s->self.cpu_pct, "%");
    if (s->self.stops > 0)
        add(dst, size, "  stops %" PRIu64, s->self.stops);
    add_time_of_day(dst, size, s->wall);
    return dst;
}

/* Process line ----------------------------------------------------------------------------- */

/* A sum of parts of which a living one is not known is not known either. */
static void sum_process(struct snap_process *sum, const struct snap_process *p)
{
    sum->unreadable += p->unreadable;
    for (size_t i = 0; i < THREAD_STATES; i++)
        sum->states[i] += p->ended && isnan(p->states[i]) ? 0 : p->states[i];
    if (p->ended)
        return;
    sum->cpu_cores += p->cpu_cores;
    sum->cpus_allowed = MAX(sum->cpus_allowed, p->cpus_allowed);
    sum->rss_kb = sum->rss_kb < 0 || p->rss_kb < 0 ? -1 : sum->rss_kb + p->rss_kb;
    sum->rss_growth_kb = sum->rss_growth_kb == INT64_MIN || p->rss_growth_kb == INT64_MIN
                             ? INT64_MIN
                             : sum->rss_growth_kb + p->rss_growth_kb;
    sum->voluntary_per_s += p->voluntary_per_s;
    sum->involuntary_per_s += p->involuntary_per_s;
    sum->minflt_per_s += p->minflt_per_s;
    sum->majflt_per_s += p->majflt_per_s;
}

static struct snap_process pick_process(const struct snapshot *s, int process_index)
{
    struct snap_process sum = {.cpus_allowed = -1};

    if (process_index < 0 && s->nprocesses == 1)
        process_index = 0;
    if (process_index >= 0 && (size_t)process_index < s->nprocesses)
        return s->processes[process_index];
    for (size_t i = 0; i < s->nprocesses; i++)
        sum_process(&sum, &s->processes[i]);
    return sum;
}

static void add_rate(char *dst, size_t size, const char *what, double per_s)
{
    char text[24];

    add(dst, size, "   %s %s", what, fmt_si(text, sizeof(text), per_s));
    if (!isnan(per_s))
        add(dst, size, "/s");
}

static void add_rss(char *dst, size_t size, int64_t rss_kb, int64_t growth_kb)
{
    char rss[24], growth[24];
    double size_kb = rss_kb < 0 ? NAN : (double)rss_kb;

    add(dst, size, "   rss %s", fmt_kib(rss, sizeof(rss), size_kb));
    if (growth_kb == 0)
        add(dst, size, " +0");
    else if (growth_kb != INT64_MIN)
        add(dst, size, " %c%s", growth_kb < 0 ? '-' : '+',
            fmt_kib(growth, sizeof(growth), fabs((double)growth_kb)));
}

char *render_process(char *dst, size_t size, const struct snapshot *s, int process_index)
{
    struct snap_process p = pick_process(s, process_index);

    dst[0] = '\0';
    if (s->nprocesses > 1 && process_index >= 0) {
        add_process_name(dst, size, &p, true);
        add(dst, size, "  ");
    }
    add(dst, size, "cpu ");
    add_tenths(dst, size, p.cpu_cores, "");
    if (p.cpus_allowed > 0)
        add(dst, size, " of %d", p.cpus_allowed);
    add_rate(dst, size, "ctxsw", p.voluntary_per_s + p.involuntary_per_s);
    add_rate(dst, size, "majflt", p.majflt_per_s);
    add_rss(dst, size, p.rss_kb, p.rss_growth_kb);
    return dst;
}

/* States ----------------------------------------------------------------------------------- */

/* A zero of these says something; of the others it only takes the room of what is not zero. */
static bool zero_is_news(enum thread_state state)
{
    return state == THREAD_RUNNING || state == THREAD_RUNQ || state == THREAD_LOCK ||
           state == THREAD_SYNC;
}

char *render_states(char *dst, size_t size, const struct snapshot *s, int process_index)
{
    struct snap_process p = pick_process(s, process_index);
    const char *gap = "";

    dst[0] = '\0';
    for (enum thread_state i = 0; i < THREAD_STATES; i++) {
        if (!zero_is_news(i) && p.states[i] < 0.05)
            continue;
        add(dst, size, "%s%s ", gap, thread_state_label(i));
        add_tenths(dst, size, p.states[i], "");
        gap = "  ";
    }
    if (p.unreadable > 0)
        add(dst, size, "%s(%d unreadable)", gap, p.unreadable);
    return dst;
}

/* Verdict, what is degraded, the end ---------------------------------------------------------- */

char *render_verdict(char *dst, size_t size, const struct snapshot *s, bool ascii)
{
    dst[0] = '\0';
    if (!s->verdict)
        return dst;
    if (s->severity != SEVERITY_INFO) {
        for (const char *c = severity_name(s->severity); *c; c++)
            add(dst, size, "%c", toupper((unsigned char)*c));
        add(dst, size, " ");
    }
    size_t len = strlen(dst);
    render_sentence(dst + len, size - len, s, s->verdict, ascii);
    return dst;
}

char *render_degraded(char *dst, size_t size, const struct snapshot *s, int index, bool ascii)
{
    size_t from = index < 0 ? 0 : (size_t)index, to = index < 0 ? s->self.ndegraded : from + 1;

    dst[0] = '\0';
    for (size_t i = from; i < to && i < s->self.ndegraded; i++) {
        const char *why = s->self.degraded[i];
        add(dst, size, "%s", i == from ? "degraded: " : "; ");
        add_safe(dst, size, why, strlen(why), ascii);
    }
    return dst;
}

char *render_ended(char *dst, size_t size, const struct snapshot *s)
{
    dst[0] = '\0';
    if (!s || s->nprocesses == 0) {
        add(dst, size, "nothing is left to watch: every process has exited");
    } else if (s->nprocesses > 1) {
        add(dst, size, "all %zu processes have exited", s->nprocesses);
    } else {
        const struct snap_process *p = &s->processes[0];
        add(dst, size, "process %d (", p->pid);
        add_safe(dst, size, p->comm[0] ? p->comm : "?", COMM_LEN, true);
        add(dst, size, ") has exited");
    }
    return dst;
}

/* Sync objects ----------------------------------------------------------------------------- */

struct kind_count {
    enum lock_kind kind;
    long threads;
};

static int compare_counts(const void *a, const void *b)
{
    const struct kind_count *x = a, *y = b;

    if (x->threads != y->threads)
        return x->threads < y->threads ? 1 : -1;
    return strcmp(lock_kind_name(x->kind), lock_kind_name(y->kind));
}

char *render_sync_fold(char *dst, size_t size, const struct snapshot *s)
{
    struct kind_count counts[LOCK_KINDS];
    long threads = 0;
    const char *gap = "";

    dst[0] = '\0';
    if (s->sync_objects == 0)
        return dst;
    for (size_t k = 0; k < LOCK_KINDS; k++) {
        counts[k] = (struct kind_count){(enum lock_kind)k, s->sync_threads[k]};
        threads += s->sync_threads[k];
    }
    qsort(counts, LOCK_KINDS, sizeof(counts[0]), compare_counts);
    add(dst, size, "sync: %ld thread%s on %ld object%s (", threads, plural(threads),
        s->sync_objects, plural(s->sync_objects));
    for (size_t k = 0; k < LOCK_KINDS && counts[k].threads > 0; k++, gap = ", ")
        add(dst, size, "%s%s %ld", gap, lock_kind_name(counts[k].kind), counts[k].threads);
    add(dst, size, ")");
    return dst;
}

const char *render_no_locks(void)
{
    return "no lock is waited for";
}

char *render_no_chains(char *dst, size_t size, const struct snapshot *s)
{
    long waiters = 0;

    dst[0] = '\0';
    for (size_t i = 0; i < s->nlocks; i++)
        if (s->locks[i].class == CLASS_LOCK || s->locks[i].class == CLASS_FILELOCK)
            waiters += MAX(s->locks[i].waiters, 0);
    if (waiters == 0)
        add(dst, size, "no thread is known to wait for another");
    else
        add(dst, size, "%ld thread%s for a lock whose holder is not known at this moment", waiters,
            waiters == 1 ? " waits" : "s wait");
    return dst;
}

/* The list --------------------------------------------------------------------------------- */

static void print_trimmed(FILE *out, const char *line)
{
    size_t len = strlen(line);

    while (len > 0 && line[len - 1] == ' ')
        len--;
    fprintf(out, "%.*s\n", (int)len, line);
}

/* A row, or with L NULL the header. The last column is neither cut nor padded. */
static void print_row(FILE *out, const struct snapshot *s, const struct text_style *style,
                      const struct snap_lock *l)
{
    const struct column_set *set = style->columns;
    char line[2 * LINE_SIZE] = "", cell[LINE_SIZE];

    for (size_t i = 0; i < set->n; i++) {
        bool text_at_end = i + 1 == set->n && !column_info(set->cols[i])->right;
        int width = text_at_end ? 0 : column_width(set, i);
        column_cell(cell, sizeof(cell), set->cols[i], s, l, width, style->ascii);
        add(line, sizeof(line), "%s%s", i ? " " : "", cell);
    }
    print_trimmed(out, line);
}

static void print_list(FILE *out, const struct snapshot *s, const struct text_style *style)
{
    const struct snap_lock **locks = xcalloc(s->nlocks, sizeof(locks[0]));
    size_t n = column_sorted(s, style->sort, false, locks);
    const struct snap_lock *told = s->threads ? NULL : render_code_lock(s);

    if (n == 0)
        fprintf(out, "%s\n", render_no_locks());
    else
        print_row(out, s, style, NULL);
    for (size_t i = 0; i < n; i++) {
        print_row(out, s, style, locks[i]);
        if (locks[i] == told)
            render_code(out, told, style->ascii);
    }
    free(locks);
}

/* Of many processes only those in which somebody waits for a lock. */
#define PROCESSES_TOLD 8

static bool is_waiting(const struct snap_process *p)
{
    return p->states[THREAD_LOCK] + p->states[THREAD_FILELOCK] + p->states[THREAD_KERNEL] >= 0.05;
}

static void print_processes(FILE *out, const struct snapshot *s)
{
    char line[LINE_SIZE];
    size_t told = 0;

    for (size_t i = 0; i < s->nprocesses && told < PROCESSES_TOLD; i++) {
        if (s->nprocesses > PROCESSES_TOLD && !is_waiting(&s->processes[i]))
            continue;
        fprintf(out, "%s\n", render_process(line, sizeof(line), s, (int)i));
        told++;
    }
    if (told < s->nprocesses)
        fprintf(out, "%s\n", render_process(line, sizeof(line), s, -1));
}

/* All of it -------------------------------------------------------------------------------- */

void render_text(FILE *out, const struct snapshot *s, const struct text_style *style)
{
    char line[LINE_SIZE];

    fprintf(out, "%s\n", render_header(line, sizeof(line), s, style->ascii));
    if (render_verdict(line, sizeof(line), s, style->ascii)[0])
        fprintf(out, "%s\n", line);
    print_processes(out, s);
    fprintf(out, "%s\n", render_states(line, sizeof(line), s, -1));
    print_list(out, s, style);
    render_chains(out, s, style->ascii);
    if (render_sync_fold(line, sizeof(line), s)[0])
        fprintf(out, "%s\n", line);
    for (size_t i = 0; i < s->self.ndegraded; i++)
        fprintf(out, "%s\n", render_degraded(line, sizeof(line), s, (int)i, style->ascii));
    if (s->threads)
        render_stacks_of_locks(out, s, style->ascii);
    render_threads(out, s, style->ascii);
    fputc('\n', out);
}

#include "render.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "err.h"
#include "fmt.h"

/* Values: what is not known becomes null. -------------------------------------------------- */

static json_t *checked(json_t *value)
{
    if (!value)
        die(EXIT_FAILED, "out of memory (JSON)");
    return value;
}

/* Keys are ours and plain ASCII, so nothing needs to be checked in them. */
static void put(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new_nocheck(object, key, checked(value)) < 0)
        checked(NULL);
}

static void append(json_t *array, json_t *value)
{
    if (json_array_append_new(array, checked(value)) < 0)
        checked(NULL);
}

/* Three decimals; what is too large to have any keeps its digits. The zero makes -0.0 a plain
 * 0.0. */
static json_t *number(double value)
{
    if (!isfinite(value))
        return json_null();
    return json_real(fabs(value) < 1e12 ? round(value * 1000) / 1000 + 0.0 : value);
}

static json_t *integer_above(int64_t value, int64_t least)
{
    return value < least ? json_null() : json_integer(value);
}

static json_t *count(int64_t value)
{
    return integer_above(value, 0);
}

/* "At least so long": whole milliseconds, as a sweep is not more exact. */
static json_t *age(double ms)
{
    return ms >= 0 && ms < 1e15 ? json_integer((json_int_t)ms) : json_null();
}

static json_t *id_number(int64_t value)
{
    return integer_above(value, 1);
}

/* Our own words. */
static json_t *word(const char *text)
{
    return text ? json_string_nocheck(text) : json_null();
}

/* LEN bytes of the target, made printable and valid UTF-8. */
static json_t *safe_bytes(const char *text, size_t len)
{
    char small[256];
    size_t size = 4 * len + 1; /* the longest escape is \xNN for a byte */
    char *buf = size <= sizeof(small) ? small : xmalloc(size);

    json_t *value = json_stringn_nocheck(buf, fmt_safe(buf, size, text, len, false));
    if (buf != small)
        free(buf);
    return value;
}

static json_t *safe_text(const char *text)
{
    return text ? safe_bytes(text, strlen(text)) : json_null();
}

static json_t *comm(const char name[COMM_LEN])
{
    return name[0] ? safe_bytes(name, strnlen(name, COMM_LEN)) : json_null();
}

static json_t *address(uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "0x%" PRIx64, value);
    return value ? json_string_nocheck(text) : json_null();
}

static json_t *utc_time(nsec_t wall)
{
    time_t seconds = (time_t)(wall / NSEC_PER_SEC);
    int ms = (int)(wall % NSEC_PER_SEC / NSEC_PER_MSEC);
    struct tm tm;
    char date[40], text[64];

    if (wall < 0 || !gmtime_r(&seconds, &tm))
        return json_null();
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, sizeof(text), "%s.%03dZ", date, ms);
    return json_string_nocheck(text);
}

/* Host and lock-top itself ----------------------------------------------------------------- */

static json_t *host_json(const struct snapshot *s)
{
    json_t *o = checked(json_object());

    put(o, "name", safe_text(s->host[0] ? s->host : NULL));
    put(o, "kernel", safe_text(s->kernel[0] ? s->kernel : NULL));
    put(o, "cpus", id_number(s->cpus));
    return o;
}

static json_t *degraded_json(const struct snap_self *self)
{
    json_t *a = checked(json_array());

    for (size_t i = 0; i < self->ndegraded; i++)
        append(a, safe_text(self->degraded[i]));
    return a;
}

static json_t *self_json(const struct snap_self *self)
{
    json_t *o = checked(json_object());

    put(o, "cpu_pct", number(self->cpu_pct));
    put(o, "rss_kb", count(self->rss_kb));
    put(o, "sweep_hz", number(self->sweep_hz));
    put(o, "probe_hz", number(self->probe_hz));
    put(o, "samples", count((int64_t)self->samples));
    put(o, "stops", count((int64_t)self->stops));
    put(o, "stop_us_max", number(self->stop_us_max));
    put(o, "unreadable", count((int64_t)self->unreadable));
    put(o, "vanished", count((int64_t)self->vanished));
    put(o, "denied", count(self->denied));
    put(o, "degraded", degraded_json(self));
    return o;
}

/* Processes -------------------------------------------------------------------------------- */

static json_t *states_json(const double states[THREAD_STATES])
{
    json_t *o = checked(json_object());

    for (enum thread_state i = 0; i < THREAD_STATES; i++)
        put(o, thread_state_name(i), number(states[i]));
    return o;
}

static json_t *process_json(const struct snap_process *p)
{
    json_t *o = checked(json_object());

    put(o, "pid", id_number(p->pid));
    put(o, "comm", comm(p->comm));
    put(o, "threads", count(p->threads));
    put(o, "cpu_cores", number(p->cpu_cores));
    put(o, "cpus_allowed", id_number(p->cpus_allowed));
    put(o, "rss_kb", count(p->rss_kb));
    put(o, "voluntary_per_s", number(p->voluntary_per_s));
    put(o, "involuntary_per_s", number(p->involuntary_per_s));
    put(o, "minflt_per_s", number(p->minflt_per_s));
    put(o, "majflt_per_s", number(p->majflt_per_s));
    put(o, "states", states_json(p->states));
    put(o, "throttle", json_null());
    put(o, "frozen", json_boolean(p->frozen));
    return o;
}

/* Locks ------------------------------------------------------------------------------------ */

/* An offset: 0 is one, too. */
static json_t *hex(uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "0x%" PRIx64, value);
    return json_string_nocheck(text);
}

static json_t *frames_json(const struct snap_stack *st)
{
    json_t *a = checked(json_array());

    for (size_t i = 0; i < st->nframes; i++) {
        const struct snap_frame *f = &st->frames[i];
        json_t *o = checked(json_object());
        put(o, "name", safe_text(f->name));
        put(o, "into", f->name ? json_integer((json_int_t)f->into) : json_null());
        put(o, "module", safe_text(f->module));
        put(o, "offset", hex(f->offset));
        put(o, "file", safe_text(f->file));
        put(o, "line", id_number(f->line));
        append(a, o);
    }
    return a;
}

static void put_stack(json_t *o, const struct snap_stack *st)
{
    put(o, "complete", json_boolean(st->complete));
    put(o, "guessed", json_boolean(st->guessed));
    put(o, "presumed", json_boolean(st->presumed));
    put(o, "note", safe_text(st->note));
    put(o, "frames", frames_json(st));
}

static json_t *stacks_json(const struct snap_lock *l, bool known)
{
    json_t *a = known ? checked(json_array()) : json_null();

    for (size_t i = 0; known && i < l->nstacks; i++) {
        const struct snap_stack *st = &l->stacks[i];
        json_t *o = checked(json_object());
        put(o, "role", word(stack_role_name(st->role)));
        put(o, "count", count(st->count));
        put(o, "share", number(st->share));
        put(o, "pid", id_number(st->pid));
        put(o, "tid", id_number(st->tid));
        put_stack(o, st);
        append(a, o);
    }
    return a;
}

/* Bytes, both included; no end: null. A lock on all of a file has no range. */
static json_t *range_json(const struct snap_lock *l)
{
    if (!l->ranged)
        return json_null();
    json_t *o = checked(json_object());
    put(o, "start", json_integer((json_int_t)l->range_start));
    put(o, "end", l->range_end == UINT64_MAX ? json_null()
                                             : json_integer((json_int_t)l->range_end));
    return o;
}

static const char *holder_state(const struct snap_holder *h)
{
    if (h->gone)
        return "gone";
    return h->state_known ? thread_state_name(h->state) : NULL;
}

static json_t *holder_json(const struct snap_lock *l, const struct snap_holder *h)
{
    json_t *o = checked(json_object());

    put(o, "pid", id_number(h->pid));
    put(o, "tid", id_number(h->tid));
    put(o, "comm", comm(h->comm));
    put(o, "mode", word(lock_mode_name(h->mode)));
    put(o, "state", word(holder_state(h)));
    put(o, "detail", safe_text(h->detail));
    put(o, "confidence", word(confidence_name(h->confidence)));
    put(o, "age_ms", age(h->age_ms));
    put(o, "waits_for", safe_text(h->waits_for));
    put(o, "fd", l->class == CLASS_FILELOCK && h->fd >= 0 ? json_integer(h->fd) : json_null());
    put(o, "held_ms", l->class == CLASS_FILELOCK ? age(h->held_ms) : json_null());
    return o;
}

static json_t *waiter_json(const struct snap_waiter *w)
{
    json_t *o = checked(json_object());

    put(o, "pid", id_number(w->pid));
    put(o, "tid", id_number(w->tid));
    put(o, "comm", comm(w->comm));
    put(o, "mode", word(lock_mode_name(w->mode)));
    put(o, "age_ms", age(w->age_ms));
    put(o, "blocked_by", word(w->blocked_by));
    put(o, "level", id_number(w->level));
    put(o, "behind", id_number(w->behind));
    return o;
}

static json_t *holders_json(const struct snap_lock *l)
{
    json_t *a = checked(json_array());

    for (size_t i = 0; i < l->nholders; i++)
        append(a, holder_json(l, &l->holders[i]));
    return a;
}

static json_t *waiter_threads_json(const struct snap_lock *l)
{
    json_t *a = checked(json_array());

    for (size_t i = 0; i < l->nwaiter_threads; i++)
        append(a, waiter_json(&l->waiter_threads[i]));
    return a;
}

static json_t *history_json(const struct snap_lock *l)
{
    json_t *a = checked(json_array());
    size_t n = l->nhistory < SNAP_HISTORY ? l->nhistory : SNAP_HISTORY;

    for (size_t i = SNAP_HISTORY - n; i < SNAP_HISTORY; i++)
        append(a, l->history[i] == SNAP_NO_DATA ? json_null() : json_integer(l->history[i]));
    return a;
}

static void put_identity(json_t *o, const struct snap_lock *l)
{
    put(o, "id", safe_text(l->id));
    put(o, "class", word(lock_class_name(l->class)));
    put(o, "kind", word(lock_kind_name(l->kind)));
    put(o, "confidence", word(confidence_name(l->confidence)));
    put(o, "name", safe_text(l->name));
    put(o, "site", safe_text(l->site));
    put(o, "pid", id_number(l->pid));
    put(o, "address", address(l->address));
    put(o, "path", safe_text(l->path));
    put(o, "deleted", json_boolean(l->deleted));
    put(o, "range", range_json(l));
}

static void put_figures(json_t *o, const struct snap_lock *l)
{
    put(o, "waiters", count(l->waiters));
    put(o, "waiters_avg_1s", number(l->waiters_avg_1s));
    put(o, "waiters_avg_10s", number(l->waiters_avg_10s));
    put(o, "waiters_avg_60s", number(l->waiters_avg_60s));
    put(o, "waiters_max", count(l->waiters_max));
    put(o, "wait_share", number(l->wait_share));
    put(o, "busy", number(l->busy));
    put(o, "wait_ms", number(l->wait_ms));
    put(o, "wait_ms_p99", number(l->wait_ms_p99));
    put(o, "wait_ms_max", number(l->wait_ms_max));
    put(o, "contended_per_s", number(l->contended_per_s));
    put(o, "acquired_per_s", number(l->acquired_per_s));
    put(o, "hold_us", number(l->hold_us));
    put(o, "ceiling_per_s", number(l->ceiling_per_s));
    put(o, "model_wait_ms", number(l->model_wait_ms));
    put(o, "queue_depth", id_number(l->queue_depth));
    put(o, "attempts_per_s", number(l->attempts_per_s));
    put(o, "refused_share", number(l->refused_share));
    put(o, "only_held", json_boolean(l->only_held));
}

static json_t *lock_json(const struct snap_lock *l, bool has_stacks)
{
    json_t *o = checked(json_object());

    put_identity(o, l);
    put_figures(o, l);
    put(o, "holders", holders_json(l));
    put(o, "waiter_threads", waiter_threads_json(l));
    put(o, "stacks", stacks_json(l, has_stacks));
    put(o, "history", history_json(l));
    put(o, "held", l->held < 0 ? json_null() : json_boolean(l->held));
    return o;
}

/* Chains and threads ----------------------------------------------------------------------- */

/* With LOCKED, what it waits for too. */
static json_t *link_json(const struct snap_link *l, bool locked)
{
    json_t *o = checked(json_object());

    put(o, "pid", id_number(l->pid));
    put(o, "tid", id_number(l->tid));
    put(o, "comm", comm(l->comm));
    put(o, "state", word(thread_state_name(l->state)));
    if (!locked)
        return o;
    put(o, "lock", safe_text(l->lock));
    put(o, "confidence", word(l->lock ? confidence_name(l->confidence) : NULL));
    return o;
}

static json_t *chain_json(const struct snap_chain *c)
{
    json_t *o = checked(json_object()), *path = checked(json_array());

    for (size_t i = 0; i < c->npath; i++)
        append(path, link_json(&c->path[i], true));
    put(o, "root", link_json(&c->root, false));
    put(o, "end", word(chain_end_name(c->end)));
    put(o, "confidence", word(confidence_name(c->confidence)));
    put(o, "detail", safe_text(c->detail));
    put(o, "depth", count(c->depth));
    put(o, "blocked", count(c->blocked));
    put(o, "cycle", json_boolean(c->cycle));
    put(o, "path", path);
    put(o, "text", safe_text(c->text));
    return o;
}

static json_t *chains_json(const struct snapshot *s)
{
    json_t *a = checked(json_array());

    for (size_t i = 0; i < s->nchains; i++)
        append(a, chain_json(&s->chains[i]));
    return a;
}

static json_t *thread_json(const struct snap_thread *t)
{
    json_t *o = checked(json_object()), *stack = checked(json_object());

    put_stack(stack, &t->stack);
    put(o, "pid", id_number(t->pid));
    put(o, "tid", id_number(t->tid));
    put(o, "comm", comm(t->comm));
    put(o, "state", word(thread_state_name(t->state)));
    put(o, "age_ms", age(t->age_ms));
    put(o, "lock", safe_text(t->lock));
    put(o, "stack", stack);
    return o;
}

/* The whole -------------------------------------------------------------------------------- */

static json_t *processes_json(const struct snapshot *s)
{
    json_t *a = checked(json_array());

    for (size_t i = 0; i < s->nprocesses; i++)
        append(a, process_json(&s->processes[i]));
    return a;
}

static json_t *head_json(const struct snapshot *s)
{
    json_t *o = checked(json_object());

    put(o, "schema", word("lock-top/1"));
    put(o, "time", utc_time(s->wall));
    put(o, "elapsed_s", number((double)s->elapsed / NSEC_PER_SEC));
    put(o, "host", host_json(s));
    put(o, "self", self_json(&s->self));
    put(o, "processes", processes_json(s));
    return o;
}

static json_t *tail_json(const struct snapshot *s)
{
    json_t *o = checked(json_object());

    put(o, "chains", chains_json(s));
    put(o, "findings", json_null());
    put(o, "verdict", safe_text(s->verdict));
    return o;
}

/* Writes O and lets go of it. As one string: jansson's own way to a stream writes every comma
 * for itself, which takes a sixth longer. */
static int dump(FILE *out, json_t *o, size_t how)
{
    /* 15 digits give back every decimal that was rounded above, and nothing behind it. */
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(15) | how);
    int rc = text && fputs(text, out) != EOF ? 0 : -1;

    free(text);
    json_decref(o);
    return rc;
}

/* Lock by lock and thread by thread: a tree of all of them at once would be tens of megabytes. */
static int dump_locks(FILE *out, const struct snapshot *s)
{
    int rc = 0;

    fputs(",\"locks\":[", out);
    for (size_t i = 0; i < s->nlocks && rc == 0; i++) {
        if (i > 0)
            fputc(',', out);
        rc = dump(out, lock_json(&s->locks[i], s->has_stacks), 0);
    }
    fputs("],", out);
    return rc;
}

static int dump_threads(FILE *out, const struct snapshot *s)
{
    int rc = 0;

    fputs(s->threads ? ",\"threads\":[" : ",\"threads\":null", out);
    for (size_t i = 0; s->threads && i < s->nthreads && rc == 0; i++) {
        if (i > 0)
            fputc(',', out);
        rc = dump(out, thread_json(&s->threads[i]), 0);
    }
    fputs(s->threads ? "]}\n" : "}\n", out);
    return rc;
}

int render_json(FILE *out, const struct snapshot *s)
{
    fputc('{', out);
    if (dump(out, head_json(s), JSON_EMBED) < 0 || dump_locks(out, s) < 0 ||
        dump(out, tail_json(s), JSON_EMBED) < 0 || dump_threads(out, s) < 0)
        return -1;
    return ferror(out) ? -1 : 0;
}

/*
 * workload.h - the frame of the workload programs: each makes one lock situation, prints what is
 * true about it as one JSON line once it really stands, and then obeys stdin.
 *
 *   PROGRAM [NAME VALUE]...     "waiters 5" is understood by every one of them
 *
 * Commands on stdin, one a line: "release" lets the holder go on, "quit" (or the end of stdin)
 * ends the program at once; a program may add its own. Exit status: 0; 77 when this machine
 * cannot make the situation (the reason stands on stderr); 99 when the program itself failed.
 *
 * Nothing here waits for a fixed time: a thread counts as blocked when the kernel shows it in the
 * expected call in two looks with the same run count.
 */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include "workload_base.h"

struct wl_scene {
    const char *kind, *class; /* as lock-top is to name them */
    const void *address;      /* of the lock; NULL: what the waiters hand to the kernel */
    const char *path;         /* of a file lock */
    long call;                /* in which the waiters block; 0: futex */
    bool records_owner;       /* the lock names its holder */
    enum wl_rest rest;
    /* All may be NULL but WAIT. */
    void (*setup)(struct wl_scene *s);
    void (*hold)(void);           /* takes the lock, wl_rest(), gives it back; runs in a thread */
    void (*wait)(int i);          /* blocks on it; runs in as many threads as there are waiters */
    const char *(*mode)(int i);   /* "shared" or "exclusive" */
    const void *(*object)(int i); /* each waiter has an object of its own: its address */
    bool own_objects;             /* as above, the address being what each hands to the kernel */
    void (*background)(void);     /* runs beside, from when the situation stands */
    bool (*command)(char *line);  /* false: not understood */
    const char *more;             /* further JSON members, each with a comma before it */
};

/* Telling --------------------------------------------------------------------------------- */

/* One line on stdout, in one piece; stdio's own stdout may be the lock of the situation. */
__attribute__((format(printf, 1, 2))) static inline void wl_say(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int len = vasprintf(&text, fmt, ap);
    va_end(ap);
    wl_check(len > 0, "vasprintf");
    for (int done = 0; done < len;) {
        ssize_t n = write(wl.out ? wl.out : STDOUT_FILENO, text + done, (size_t)(len - done));
        wl_check(n > 0 || errno == EINTR, "write");
        done += n > 0 ? (int)n : 0;
    }
    free(text);
}

/* A JSON list of N values, made by ITEM. The caller may free() it. */
static inline char *wl_list(int n, void (*item)(FILE *out, int i, const void *arg), const void *arg)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    wl_check(out, "open_memstream");
    fputc('[', out);
    for (int i = 0; i < n; i++) {
        fputs(i ? "," : "", out);
        item(out, i, arg);
    }
    fputc(']', out);
    fclose(out);
    return text;
}

static inline void wl_item_tid(FILE *out, int i, const void *arg)
{
    fprintf(out, "%d", ((const struct wl_thread *)arg)[i].tid);
}

static inline void wl_item_int(FILE *out, int i, const void *arg)
{
    fprintf(out, "%d", ((const int *)arg)[i]);
}

static inline char *wl_tids(const struct wl_thread *t, int n)
{
    return wl_list(n, wl_item_tid, t);
}

static inline int wl_count_threads(void)
{
    char stat[512];
    int n = -1;
    wl_read_task(getpid(), getpid(), "stat", stat, sizeof stat);
    const char *rest = strrchr(stat, ')'); /* then: state and 16 numbers */
    if (rest)
        sscanf(rest, ") %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %d",
               &n);
    return n;
}

struct wl_scene_view {
    const struct wl_scene *s;
    const struct wl_thread *waiters;
};

static inline const void *wl_object_of(const struct wl_scene *s, const struct wl_thread *waiter,
                                       int i)
{
    uint64_t arg0 = 0;
    if (s->object)
        return s->object(i);
    if (s->address || s->path)
        return s->address;
    wl_call_of(getpid(), waiter->tid, &arg0, NULL);
    return (const void *)(uintptr_t)arg0;
}

static inline void wl_item_address(FILE *out, int i, const void *arg)
{
    const struct wl_scene_view *v = arg;
    const void *p = wl_object_of(v->s, &v->waiters[i], i);
    if (p)
        fprintf(out, "\"0x%llx\"", (unsigned long long)(uintptr_t)p);
    else
        fputs("null", out);
}

static inline void wl_item_mode(FILE *out, int i, const void *arg)
{
    const struct wl_scene_view *v = arg;
    if (v->s->mode)
        fprintf(out, "\"%s\"", v->s->mode(i));
    else
        fputs("null", out);
}

static inline void wl_item_path(FILE *out, int i, const void *arg)
{
    const struct wl_scene *s = ((const struct wl_scene_view *)arg)->s;
    fprintf(out, s->path ? "\"%s\"" : "null", s->path);
    (void)i;
}

/*
 * "addresses" has one object for all waiters, or one for each; "waiters" is how many wait on each
 * object. "holder_tid" is the holder that the lock itself records; "true_holder_tids" are those
 * who hold it in truth, recorded or not.
 */
static inline void wl_tell(const struct wl_scene *s, const struct wl_thread *waiters, int n,
                           const struct wl_thread *holder)
{
    static const char *const call[] = {"nanosleep", "read", "recvfrom", "openat", "write"};
    static const char *const state[] = {"sleep", "pipe", "net", "disk", "pipe"};
    struct wl_scene_view view = {s, waiters};
    bool apart = s->own_objects || s->object;
    char *tids = wl_tids(waiters, n), *modes = wl_list(n, wl_item_mode, &view);
    char *addresses = wl_list(apart ? n : 1, wl_item_address, &view);
    char *path = wl_list(1, wl_item_path, &view);
    char *holders = wl_list(wl.nholders, wl_item_int, wl.holders);
    char owner[16] = "null";

    if (holder && s->records_owner)
        snprintf(owner, sizeof owner, "%d", holder->tid);
    wl_say("{\"pid\":%d,\"kind\":\"%s\",\"class\":\"%s\",\"address\":%.*s,\"addresses\":%s,"
           "\"path\":%.*s,\"waiters\":%d,\"waiter_tids\":%s,\"modes\":%s,\"holder_tid\":%s,"
           "\"true_holder_tids\":%s,\"holder_call\":%s%s%s,\"holder_state\":%s%s%s,"
           "\"threads\":%d%s}\n",
           getpid(), s->kind, s->class, (int)strcspn(addresses + 1, ",]"), addresses + 1, addresses,
           (int)strlen(path) - 2, path + 1, apart ? 1 : n, tids, modes, owner, holders,
           holder ? "\"" : "", holder ? call[s->rest] : "null", holder ? "\"" : "",
           holder ? "\"" : "", holder ? state[s->rest] : "null", holder ? "\"" : "",
           wl_count_threads(), s->more ? s->more : "");
    free(tids);
    free(modes);
    free(addresses);
    free(path);
    free(holders);
}

/* Obeys stdin until it ends. COMMAND may be NULL. */
static inline int wl_serve(bool (*command)(char *line))
{
    char line[512];
    size_t len = 0;
    for (;;) {
        ssize_t n = read(STDIN_FILENO, line + len, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(0);
        if (line[len] != '\n' && len + 1 < sizeof line) {
            len++;
            continue;
        }
        line[len] = '\0';
        len = 0;
        if (!strcmp(line, "quit"))
            _exit(0);
        if (!strcmp(line, "release"))
            wl_release();
        else if (!command || !command(line))
            fprintf(stderr, "unknown command '%s'\n", line);
    }
}

/* The whole life of a program that is one scene ------------------------------------------- */

static inline void wl_start(int argc, char **argv)
{
    wl.argc = argc;
    wl.argv = argv;
    signal(SIGPIPE, SIG_IGN);
}

static void (*wl_hold_fn)(void);
static void (*wl_background_fn)(void);

static inline void wl_hold_thread(int arg)
{
    (void)arg;
    wl_hold_fn();
}

static inline void wl_background_thread(int arg)
{
    (void)arg;
    wl_background_fn();
}

static inline int wl_run(int argc, char **argv, struct wl_scene *s)
{
    static struct wl_thread holder, background;
    long call = s->call ? s->call : SYS_futex;

    wl_start(argc, argv);
    int n = (int)wl_arg("waiters", 5);
    struct wl_thread *waiters = wl_threads(n);
    wl_prepare_rest(s->rest);
    if (s->setup)
        s->setup(s);
    if (s->hold) {
        wl_hold_fn = s->hold;
        wl_spawn(&holder, wl_hold_thread, 0, wl_rest_call(s->rest));
        wl_holder(holder.tid);
        wl_settle(getpid(), &holder, 1);
    }
    for (int i = 0; i < n; i++)
        wl_spawn(&waiters[i], s->wait, i, call);
    wl_settle(getpid(), waiters, n);
    wl_tell(s, waiters, n, s->hold ? &holder : NULL);
    if (s->background) {
        wl_background_fn = s->background;
        wl_spawn(&background, wl_background_thread, 0, 0);
    }
    return wl_serve(s->command);
}

#endif

#include "procfs.h"

#include <string.h>

#include "compiler.h"

/* Numbers -------------------------------------------------------------------- */

/*
 * Each take_...() reads one thing at *P and moves *P behind it, or returns false. By hand and
 * not with strtoull or sscanf: these lines are parsed a hundred thousand times a second, and
 * strtoull takes a sign, spaces, and what follows an overflow.
 */
static bool take_char(const char **p, char c)
{
    if (**p != c)
        return false;
    ++*p;
    return true;
}

static bool take_dec(const char **p, uint64_t *out)
{
    const char *s = *p;
    uint64_t v = 0;

    for (; *s >= '0' && *s <= '9'; s++) {
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
            return false;
    }
    if (s == *p)
        return false;
    *p = s;
    *out = v;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

static bool take_hex(const char **p, uint64_t *out)
{
    const char *s = *p;
    uint64_t v = 0;

    for (int digit; (digit = hex_digit(*s)) >= 0; s++) {
        if (v >> 60)
            return false;
        v = v << 4 | (unsigned)digit;
    }
    if (s == *p)
        return false;
    *p = s;
    *out = v;
    return true;
}

/* A decimal number, negative ones as their two's complement. */
static bool take_signed(const char **p, uint64_t *out)
{
    bool negative = take_char(p, '-');

    if (!take_dec(p, out))
        return false;
    if (negative)
        *out = -*out;
    return true;
}

/* " 0xHEX" */
static bool take_register(const char **p, uint64_t *out)
{
    return take_char(p, ' ') && take_char(p, '0') && take_char(p, 'x') && take_hex(p, out);
}

/* schedstat and syscall ------------------------------------------------------ */

bool procfs_parse_schedstat(const char *text, struct procfs_schedstat *out)
{
    return take_dec(&text, &out->run_ns) && take_char(&text, ' ') &&
           take_dec(&text, &out->wait_ns) && take_char(&text, ' ') && take_dec(&text, &out->runs) &&
           take_char(&text, '\n');
}

bool procfs_parse_syscall(const char *text, struct procfs_syscall *out)
{
    static const char running[] = "running\n";
    uint64_t nr;

    if (*text == 'r') {
        out->kind = SYSCALL_RUNNING;
        return strncmp(text, running, sizeof(running) - 1) == 0;
    }
    out->kind = *text == '-' ? SYSCALL_NONE : SYSCALL_BLOCKED;
    if (!take_signed(&text, &nr))
        return false;
    out->nr = (long)nr;
    for (size_t i = 0; out->kind == SYSCALL_BLOCKED && i < ARRAY_SIZE(out->arg); i++) {
        if (!take_register(&text, &out->arg[i]))
            return false;
    }
    return take_register(&text, &out->sp) && take_register(&text, &out->pc) &&
           take_char(&text, '\n');
}

/* stat ----------------------------------------------------------------------- */

/* Fields of stat as proc(5) numbers them; the state is 3. */
enum stat_field {
    STAT_FIRST = 4, /* behind the state */
    STAT_PPID = 4,
    STAT_FLAGS = 9,
    STAT_MINFLT = 10,
    STAT_MAJFLT = 12,
    STAT_UTIME = 14,
    STAT_STIME = 15,
    STAT_THREADS = 20,
    STAT_START = 22,
    STAT_RSS = 24,
    STAT_STARTSTACK = 28,
};

static bool take_stat_name(const char **p, size_t len, struct procfs_stat *out)
{
    const char *close = memrchr(*p, ')', len);
    uint64_t pid;

    if (!close || !take_dec(p, &pid) || !take_char(p, ' ') || !take_char(p, '(') || close < *p)
        return false;
    size_t n = MIN((size_t)(close - *p), sizeof(out->comm) - 1);
    memcpy(out->comm, *p, n);
    out->comm[n] = '\0';
    out->pid = (pid_t)pid;
    *p = close + 1;
    return true;
}

bool procfs_parse_stat(const char *text, size_t len, struct procfs_stat *out)
{
    uint64_t f[STAT_STARTSTACK + 1];
    const char *p = text;

    if (!take_stat_name(&p, len, out) || !take_char(&p, ' ') || *p == '\0' || *p == ' ')
        return false;
    out->state = *p++;
    for (int i = STAT_FIRST; i <= STAT_STARTSTACK; i++) {
        if (!take_char(&p, ' ') || !take_signed(&p, &f[i]))
            return false;
    }
    /* A number at the very end of the text may have been cut off. */
    if (*p != ' ' && *p != '\n')
        return false;
    out->ppid = (pid_t)f[STAT_PPID];
    out->flags = (unsigned long)f[STAT_FLAGS];
    out->minflt = f[STAT_MINFLT];
    out->majflt = f[STAT_MAJFLT];
    out->utime_ticks = f[STAT_UTIME];
    out->stime_ticks = f[STAT_STIME];
    out->num_threads = (long)f[STAT_THREADS];
    out->start_ticks = f[STAT_START];
    out->rss_pages = (long)f[STAT_RSS];
    /* 0 where the kernel does not permit the address to be seen. */
    out->start_stack = f[STAT_STARTSTACK];
    return true;
}

/* status --------------------------------------------------------------------- */

/* "\tNUMBER", whole: what follows it says that it was not cut off. */
static bool take_value(const char **p, uint64_t *out)
{
    return take_char(p, '\t') && take_dec(p, out) && (**p == '\t' || **p == '\n');
}

static void set_tgid(const char *p, struct procfs_status *out)
{
    uint64_t v;

    if (take_value(&p, &v))
        out->tgid = (pid_t)v;
}

static void set_uids(const char *p, struct procfs_status *out)
{
    uint64_t real, effective;

    if (take_value(&p, &real) && take_value(&p, &effective))
        out->euid = (long)effective;
}

static void set_ns_pids(const char *p, struct procfs_status *out)
{
    const int last = ARRAY_SIZE(out->ns_pid) - 1;
    uint64_t v;

    for (int i = 0; take_value(&p, &v); i++) {
        out->ns_pid[MIN(i, last)] = (pid_t)v;
        out->ns_levels = MIN(i, last) + 1;
    }
}

static void set_voluntary(const char *p, struct procfs_status *out)
{
    uint64_t v;

    if (take_value(&p, &v))
        out->voluntary = (int64_t)v;
}

static void set_involuntary(const char *p, struct procfs_status *out)
{
    uint64_t v;

    if (take_value(&p, &v))
        out->involuntary = (int64_t)v;
}

static const struct status_line {
    const char *key;
    void (*set)(const char *value, struct procfs_status *out);
} status_lines[] = {
    {"Tgid:", set_tgid},
    {"Uid:", set_uids},
    {"NSpid:", set_ns_pids},
    {"voluntary_ctxt_switches:", set_voluntary},
    {"nonvoluntary_ctxt_switches:", set_involuntary},
};

static bool parse_status_line(const char *line, struct procfs_status *out)
{
    for (size_t i = 0; i < ARRAY_SIZE(status_lines); i++) {
        size_t n = strlen(status_lines[i].key);
        if (strncmp(line, status_lines[i].key, n) == 0) {
            status_lines[i].set(line + n, out);
            return true;
        }
    }
    return false;
}

bool procfs_parse_status(const char *text, struct procfs_status *out)
{
    bool any = false;

    *out = (struct procfs_status){.euid = -1, .voluntary = -1, .involuntary = -1};
    for (const char *line = text; *line;) {
        any |= parse_status_line(line, out);
        const char *end = strchrnul(line, '\n');
        line = *end ? end + 1 : end;
    }
    return any;
}

/* maps ----------------------------------------------------------------------- */

static bool take_permissions(const char **p, struct procfs_map *out)
{
    const char *s = *p;

    if ((s[0] != 'r' && s[0] != '-') || (s[1] != 'w' && s[1] != '-') ||
        (s[2] != 'x' && s[2] != '-') || (s[3] != 'p' && s[3] != 's'))
        return false;
    out->write = s[1] == 'w';
    out->exec = s[2] == 'x';
    out->shared = s[3] == 's';
    *p += 4;
    return true;
}

/* "MAJOR:MINOR INODE" */
static bool take_file_id(const char **p, struct procfs_map *out)
{
    uint64_t major, minor;

    if (!take_hex(p, &major) || !take_char(p, ':') || !take_hex(p, &minor) || !take_char(p, ' ') ||
        !take_dec(p, &out->inode))
        return false;
    if (major > UINT32_MAX || minor > UINT32_MAX)
        return false;
    out->dev_major = (uint32_t)major;
    out->dev_minor = (uint32_t)minor;
    return true;
}

static bool parse_map(const char *line, const char *end, struct procfs_map *out)
{
    const char *p = line;

    if (!take_hex(&p, &out->start) || !take_char(&p, '-') || !take_hex(&p, &out->end) ||
        !take_char(&p, ' ') || !take_permissions(&p, out) || !take_char(&p, ' ') ||
        !take_hex(&p, &out->offset) || !take_char(&p, ' ') || !take_file_id(&p, out))
        return false;
    if (out->start >= out->end || (p < end && *p != ' '))
        return false;
    while (p < end && *p == ' ')
        p++;
    out->path = p;
    out->path_len = (size_t)(end - p);
    return true;
}

bool procfs_next_map(const char **text, struct procfs_map *out)
{
    while (**text) {
        const char *line = *text, *end = strchrnul(line, '\n');
        bool whole = *end == '\n';

        *text = whole ? end + 1 : end;
        if (whole && parse_map(line, end, out))
            return true;
    }
    return false;
}

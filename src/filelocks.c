#include "filelocks.h"

#include <limits.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "compiler.h"

const char *filelock_kind_name(enum filelock_kind k)
{
    static const char *const names[] = {
        [FILELOCK_NONE] = "none", [FILELOCK_FLOCK] = "flock", [FILELOCK_POSIX] = "posix",
        [FILELOCK_OFD] = "ofd",   [FILELOCK_LEASE] = "lease",
    };

    return names[k];
}

static bool know_each_other(enum filelock_kind a, enum filelock_kind b)
{
    bool ranged =
        (a == FILELOCK_POSIX || a == FILELOCK_OFD) && (b == FILELOCK_POSIX || b == FILELOCK_OFD);

    return a != FILELOCK_NONE && (a == b || ranged);
}

bool filelock_conflict(const struct file_lock *a, const struct file_lock *b)
{
    return know_each_other(a->kind, b->kind) && a->file.inode != 0 &&
           a->file.inode == b->file.inode && a->file.dev == b->file.dev &&
           (a->exclusive || b->exclusive) && a->start <= b->end && b->start <= a->end;
}

/* A line under the eyes of the parser: between AT and END. */
struct cursor {
    const char *at, *end;
};

/* The next word, and behind it the blanks; false at the end of the line. */
static bool word(struct cursor *c, const char **w, size_t *len)
{
    while (c->at < c->end && *c->at == ' ')
        c->at++;
    *w = c->at;
    while (c->at < c->end && *c->at != ' ')
        c->at++;
    *len = (size_t)(c->at - *w);
    return *len > 0;
}

static bool is_word(const char *w, size_t len, const char *text)
{
    return strlen(text) == len && memcmp(w, text, len) == 0;
}

static int digit_of(char ch)
{
    if (ch >= '0' && ch <= '9')
        return ch - '0';
    return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : 99;
}

/* All of the word is one number of that base. */
static bool number(const char *w, size_t len, unsigned base, uint64_t *out)
{
    uint64_t n = 0;

    for (size_t i = 0; i < len; i++) {
        unsigned d = (unsigned)digit_of(w[i]);
        if (d >= base || __builtin_mul_overflow(n, base, &n) || __builtin_add_overflow(n, d, &n))
            return false;
    }
    *out = n;
    return len > 0;
}

static bool take_number(struct cursor *c, uint64_t *out)
{
    const char *w;
    size_t len;

    return word(c, &w, &len) && number(w, len, 10, out);
}

/* "12:" */
static bool take_nr(struct cursor *c, uint32_t *out)
{
    const char *w;
    size_t len;
    uint64_t n;

    if (!word(c, &w, &len) || w[len - 1] != ':' || !number(w, len - 1, 10, &n) || n > UINT32_MAX)
        return false;
    *out = (uint32_t)n;
    return true;
}

/* A waiter has as many blanks before its "->" as its level; where it has none, it is held. */
static int take_level(struct cursor *c)
{
    const char *blanks = c->at;

    while (c->at < c->end && *c->at == ' ')
        c->at++;
    if (c->end - c->at < 2 || c->at[0] != '-' || c->at[1] != '>')
        return 0;
    ptrdiff_t level = c->at - blanks;
    c->at += 2;
    return (int)MIN(level, INT_MAX);
}

/* ACCESS: mandatory locking of Linux before 5.15. */
static bool take_kind(struct cursor *c, enum filelock_kind *out)
{
    static const struct {
        const char *text;
        enum filelock_kind kind;
    } kinds[] = {
        {"FLOCK", FILELOCK_FLOCK}, {"POSIX", FILELOCK_POSIX}, {"ACCESS", FILELOCK_POSIX},
        {"OFDLCK", FILELOCK_OFD},  {"LEASE", FILELOCK_LEASE}, {"DELEG", FILELOCK_LEASE},
    };
    const char *w;
    size_t len;

    if (!word(c, &w, &len))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (is_word(w, len, kinds[i].text)) {
            *out = kinds[i].kind;
            return true;
        }
    }
    return false;
}

/* "READ" or "WRITE"; "UNLCK" of a lease that is taken back; "RW" and "NONE" of what old kernels
 * knew as LOCK_MAND. */
static bool take_type(struct cursor *c, bool *exclusive)
{
    const char *w;
    size_t len;

    if (!word(c, &w, &len))
        return false;
    *exclusive = is_word(w, len, "WRITE") || is_word(w, len, "RW");
    return *exclusive || is_word(w, len, "READ") || is_word(w, len, "UNLCK") ||
           is_word(w, len, "NONE");
}

/* Negative ones are -1 of an OFD lock, and of a client of a file server its number there. */
static bool take_pid(struct cursor *c, enum filelock_kind kind, pid_t *out)
{
    const char *w;
    size_t len;
    uint64_t n;

    if (!word(c, &w, &len))
        return false;
    bool minus = *w == '-';
    if (!number(w + minus, len - minus, 10, &n) || n > INT_MAX)
        return false;
    if (minus)
        *out = kind == FILELOCK_OFD ? -1 : 0;
    else
        *out = (pid_t)n;
    return true;
}

/* What stands up to the next colon of the word at *W, which moves behind it. */
static bool part(const char **w, size_t *len, unsigned base, uint64_t *out)
{
    const char *colon = memchr(*w, ':', *len);

    if (!colon || !number(*w, (size_t)(colon - *w), base, out))
        return false;
    *len -= (size_t)(colon + 1 - *w);
    *w = colon + 1;
    return true;
}

/* "fe:00:10952922"; "<none>:0" of one who waits for a lease. */
static bool take_file(struct cursor *c, struct file_id *out)
{
    const char *w;
    size_t len;
    uint64_t maj, min, inode;

    if (!word(c, &w, &len))
        return false;
    *out = (struct file_id){0};
    if (is_word(w, len, "<none>:0"))
        return true;
    if (!part(&w, &len, 16, &maj) || !part(&w, &len, 16, &min) || !number(w, len, 10, &inode) ||
        maj > UINT32_MAX || min > UINT32_MAX)
        return false;
    *out = (struct file_id){.dev = makedev((unsigned)maj, (unsigned)min), .inode = inode};
    return true;
}

static bool take_end(struct cursor *c, uint64_t *out)
{
    const char *w;
    size_t len;

    if (!word(c, &w, &len))
        return false;
    if (!is_word(w, len, "EOF"))
        return number(w, len, 10, out);
    *out = FILE_END;
    return true;
}

static bool parse_line(struct cursor c, struct lock_line *out)
{
    const char *w;
    size_t len;

    *out = (struct lock_line){0};
    if (!take_nr(&c, &out->nr))
        return false;
    out->level = take_level(&c);
    if (!take_kind(&c, &out->lock.kind) || !word(&c, &w, &len))
        return false;
    out->breaking = is_word(w, len, "BREAKING");
    if (!take_type(&c, &out->lock.exclusive) || !take_pid(&c, out->lock.kind, &out->pid) ||
        !take_file(&c, &out->lock.file) || !take_number(&c, &out->lock.start) ||
        !take_end(&c, &out->lock.end) || word(&c, &w, &len))
        return false;
    /* Its type is then what it is to become. */
    out->lock.exclusive |= out->breaking;
    return out->lock.start <= out->lock.end;
}

/* The line at *TEXT, which moves behind it; false when it has no newline. */
static bool next_line(const char **text, struct cursor *c)
{
    const char *end = strchr(*text, '\n');

    c->at = *text;
    c->end = end ? end : *text + strlen(*text);
    *text = end ? end + 1 : c->end;
    return end != NULL;
}

enum line_result filelocks_next(const char **text, struct lock_line *out)
{
    struct cursor c;

    if (**text == '\0')
        return LINE_END;
    bool whole = next_line(text, &c);
    return whole && parse_line(c, out) ? LINE_TAKEN : LINE_MALFORMED;
}

/* fdinfo ------------------------------------------------------------------------------- */

/* Whether the line begins with KEY; then C stands behind it. */
static bool has_key(struct cursor *c, const char *key)
{
    size_t n = strlen(key);

    if ((size_t)(c->end - c->at) < n || memcmp(c->at, key, n) != 0)
        return false;
    c->at += n;
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t'))
        c->at++;
    return true;
}

enum line_result filelocks_next_of_fd(const char **text, struct lock_line *out)
{
    struct cursor c;

    while (**text != '\0') {
        bool whole = next_line(text, &c);
        if (has_key(&c, "lock:"))
            return whole && parse_line(c, out) ? LINE_TAKEN : LINE_MALFORMED;
    }
    return LINE_END;
}

/* The kernel's dev_t (linux/kdev_t.h), which is not the one of stat(). */
#define KERNEL_MINORBITS 20
#define KERNEL_MINORMASK ((1u << KERNEL_MINORBITS) - 1)

void filelocks_fdinfo(const char *text, struct fdinfo *out)
{
    struct cursor c;
    uint64_t n;

    *out = (struct fdinfo){.mount = -1, .pos = -1};
    while (*text != '\0' && next_line(&text, &c)) {
        if (has_key(&c, "ino:") && take_number(&c, &n))
            out->inode = n;
        else if (has_key(&c, "mnt_id:") && take_number(&c, &n) && n <= INT32_MAX)
            out->mount = (int)n;
        else if (has_key(&c, "pos:") && take_number(&c, &n) && n <= INT64_MAX)
            out->pos = (int64_t)n;
        else if (has_key(&c, "fuse_connection:") && take_number(&c, &n) && n <= UINT32_MAX)
            out->fuse = makedev((unsigned)n >> KERNEL_MINORBITS, (unsigned)n & KERNEL_MINORMASK);
    }
}

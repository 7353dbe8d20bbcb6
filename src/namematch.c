#include "namematch.h"

#include <fnmatch.h>
#include <string.h>

#include "compiler.h"

static bool starts(const char *s, const char *end, const char *with)
{
    size_t n = strlen(with);

    return (size_t)(end - s) >= n && memcmp(s, with, n) == 0;
}

static bool in_word(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/* The end of NAME without a hash as in "::h0123456789abcdef". */
static const char *without_hash(const char *name, const char *end)
{
    static const char mark[] = "::h";
    const size_t digits = 16, len = sizeof(mark) - 1 + digits;

    if ((size_t)(end - name) <= len || !starts(end - len, end, mark))
        return end;
    for (const char *s = end - digits; s < end; s++) {
        if (!is_hex(*s))
            return end;
    }
    return end - len;
}

static const char *without_suffix(const char *name, const char *end)
{
    static const char *const marks[] = {" [clone .", ".part.", ".constprop.", ".isra.",
                                        ".cold",     ".llvm.", ".lto_priv."};

    for (size_t i = 0; i < ARRAY_SIZE(marks) && memchr(name, '.', (size_t)(end - name)); i++) {
        const char *at = memmem(name, (size_t)(end - name), marks[i], strlen(marks[i]));
        if (at && at > name)
            end = at;
    }
    return end;
}

/* What may follow a parameter list. */
static const char *without_qualifiers(const char *name, const char *end)
{
    static const char *const words[] = {" const", " volatile", " &&", " &", " noexcept"};
    bool more = memchr(name, '(', (size_t)(end - name)) != NULL;

    while (more) {
        more = false;
        for (size_t i = 0; i < ARRAY_SIZE(words) && !more; i++) {
            size_t n = strlen(words[i]);
            more = (size_t)(end - name) > n && starts(end - n, end, words[i]);
            end -= more ? n : 0;
        }
    }
    return end;
}

/* Bytes of "operator" and of its sign, whose brackets are none; 0 when S is no such. */
static size_t operator_length(const char *name, const char *s, const char *end)
{
    static const char word[] = "operator";
    size_t len = sizeof(word) - 1;

    if (!starts(s, end, word) || (s > name && in_word(s[-1])) || s + len == end)
        return 0;
    if (starts(s + len, end, "()"))
        return len + 2;
    if (s[len] == ' ') /* new, delete, a conversion */
        return len + 1;
    size_t sign = strspn(s + len, "<>=-!+*/%^&|~,[]");
    return sign ? len + MIN(sign, (size_t)(end - s) - len) : 0;
}

/* Behind the bracket that closes the one at S; NULL when it is not closed. */
static const char *skip_brackets(const char *s, const char *end)
{
    int depth = 0;

    for (; s < end; s++) {
        bool arrow = *s == '>' && s[-1] == '-';
        depth += (*s == '(' || *s == '<') - (*s == ')' || (*s == '>' && !arrow));
        if (depth == 0)
            return s + 1;
    }
    return NULL;
}

struct writer {
    char *dst;
    size_t n, size;
};

static void put(struct writer *w, const char *s, size_t len)
{
    size_t room = w->size - 1 - w->n;

    len = MIN(len, room);
    memcpy(w->dst + w->n, s, len);
    w->n += len;
}

static size_t finish(struct writer *w, size_t begin)
{
    w->n -= begin;
    memmove(w->dst, w->dst + begin, w->n);
    w->dst[w->n] = '\0';
    return w->n;
}

/* Bytes at S that are copied as they are, brackets or not; 0 where something to be left out
 * begins. */
static size_t literal(const char *name, const char *s, const char *end)
{
    static const char anonymous[] = "(anonymous namespace)";
    size_t op = operator_length(name, s, end);

    if (op)
        return op;
    if (starts(s, end, anonymous))
        return sizeof(anonymous) - 1;
    if (*s == ' ' && s + 1 < end && s[1] == '<') /* "operator< <int>" */
        return 0;
    bool receiver = *s == '(' && s > name && s[-1] == '.'; /* Go: "pkg.(*T).f" */
    return *s == '<' || (*s == '(' && !receiver) ? 0 : 1;
}

/* What is being written, and where what stands behind the return type begins. */
struct plain {
    struct writer w;
    size_t after_type;
    bool params;
};

/* Writes what is left of NAME from S to END; false when brackets do not match. */
static bool scan(struct plain *p, const char *name, const char *s, const char *end)
{
    int braces = 0;

    while (s < end) {
        size_t n = literal(name, s, end);
        if (n == 0) {
            p->params |= *s == '(';
            s = skip_brackets(s + (*s == ' '), end);
            if (!s)
                return false;
            continue;
        }
        braces += (*s == '{') - (*s == '}');
        put(&p->w, s, n);
        if (n == 1 && *s == ' ' && braces == 0)
            p->after_type = p->w.n;
        s += n;
    }
    return true;
}

/* The end of T in "T>..." or "T as U>...", which begins at S. */
static const char *end_of_type(const char *s, const char *close)
{
    int depth = 0;

    for (; s < close; s++) {
        if (depth == 0 && starts(s, close, " as "))
            return s;
        depth += (*s == '<' || *s == '(') - (*s == '>' || *s == ')');
    }
    return close - 1;
}

/* Rust: "<T>::f" and "<T as U>::f" are "T::f". */
static bool scan_whole(struct plain *p, const char *name, const char *end)
{
    const char *close = *name == '<' ? skip_brackets(name, end) : NULL;

    if (!close)
        return *name != '<' && scan(p, name, name, end);
    const char *type_end = end_of_type(name + 1, close);
    return scan(p, name + 1, name + 1, type_end) && scan(p, close, close, end);
}

size_t plain_name(char *dst, size_t size, const char *name)
{
    struct plain p = {.w = {.dst = dst, .size = size}};
    const char *end = without_hash(name, name + strlen(name));

    end = without_qualifiers(name, without_suffix(name, end));
    if (!scan_whole(&p, name, end)) {
        p = (struct plain){.w = {.dst = dst, .size = size}};
        put(&p.w, name, (size_t)(end - name));
    }
    return finish(&p.w, p.params ? p.after_type : 0);
}

/* The C library's names --------------------------------------------------------------------- */

static const char *without_prefixes(const char *s, const char *end)
{
    static const char *const prefixes[] = {"_",    "GI_",     "IO_",     "libc_", "new_",
                                           "old_", "isoc99_", "isoc23_", "nptl_"};
    bool more = true;

    while (more) {
        more = false;
        for (size_t i = 0; i < ARRAY_SIZE(prefixes) && !more; i++) {
            more = starts(s, end, prefixes[i]);
            s += more ? strlen(prefixes[i]) : 0;
        }
    }
    return s;
}

size_t c_name(char *dst, size_t size, const char *name)
{
    static const char checked[] = "_chk";
    const size_t check = sizeof(checked) - 1;
    struct writer w = {.dst = dst, .size = size};
    const char *end = without_suffix(name, name + strcspn(name, "@"));
    const char *s = without_prefixes(name, end);

    if ((size_t)(end - s) > check && starts(end - check, end, checked))
        end -= check;
    const char *wide = memmem(s, (size_t)(end - s), "64", 2);
    put(&w, s, (size_t)((wide ? wide : end) - s));
    if (wide)
        put(&w, wide + 2, (size_t)(end - wide) - 2);
    return finish(&w, 0);
}

/* Patterns ---------------------------------------------------------------------------------- */

struct pattern pattern_of(const char *text)
{
    size_t prefix = strcspn(text, "*?[\\");

    return (struct pattern){.text = text, .prefix = prefix, .plain = text[prefix] == '\0'};
}

bool pattern_matches(const struct pattern *p, const char *s)
{
    if (p->plain)
        return strcmp(p->text, s) == 0;
    return strncmp(p->text, s, p->prefix) == 0 &&
           fnmatch(p->text + p->prefix, s + p->prefix, 0) == 0;
}

/* Lines of files ---------------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

static void trim(struct rule_line *line)
{
    while (line->len && is_blank(*line->text)) {
        line->text++;
        line->len--;
    }
    while (line->len && is_blank(line->text[line->len - 1]))
        line->len--;
}

static size_t before_comment(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '#' && (i == 0 || is_blank(s[i - 1])))
            return i;
    }
    return len;
}

bool rule_next(struct rule_line *line)
{
    line->len = 0;
    while (line->at && line->len == 0) {
        size_t n = strcspn(line->at, "\n");
        line->text = line->at;
        line->len = before_comment(line->at, n);
        line->number++;
        line->at = line->at[n] ? line->at + n + 1 : NULL;
        trim(line);
    }
    return line->len > 0;
}

const char *rule_word(struct rule_line *line, size_t *len)
{
    const char *word = line->text;

    for (*len = 0; *len < line->len && !is_blank(word[*len]); ++*len)
        ;
    line->text += *len;
    line->len -= *len;
    trim(line);
    return word;
}

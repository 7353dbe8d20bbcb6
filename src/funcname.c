#include "funcname.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fmt.h"
#include "namematch.h"
#include "xalloc.h"

/* The longest end of TEXT that begins behind a "::" and takes at most WIDTH cells, or the last
 * component when that is longer; TEXT itself when it has only one. */
static const char *tail(const char *text, int width)
{
    const char *best = text, *next = text;

    while ((next = strstr(next, "::"))) {
        next += 2;
        best = next;
        if (text_cells(next) <= width)
            break;
    }
    return best;
}

/* As much of TEXT as has room in DST, in whole characters. */
static void copy_whole(char *dst, size_t size, const char *text)
{
    size_t len = 0;
    int cells;

    for (size_t n; text[len] && len + (n = text_next(text + len, &cells)) < size; len += n)
        ;
    snprintf(dst, size, "%.*s", (int)len, text);
}

static char *safe(char *dst, size_t size, const char *name, bool ascii)
{
    fmt_safe(dst, size, name, strlen(name), ascii);
    return dst;
}

char *funcname_fit(char *dst, size_t size, const char *name, int width, bool ascii)
{
    size_t len = strlen(name), room = 4 * len + 8; /* the longest escape is \xNN; and a mark */

    if (width <= 0)
        return safe(dst, size, name, ascii);
    char *text = xmalloc(2 * room + len + 1), *fit = text + room, *plain = fit + room;
    safe(text, room, name, ascii);
    if (text_cells(text) > width && plain_name(plain, len + 1, name) > 0)
        safe(text, room, plain, ascii);
    const char *end = text_cells(text) <= width ? text : tail(text, width - 1);
    snprintf(fit, room, "%s%s", end == text ? "" : ascii ? "~" : "\u2026", end);
    text_cut(fit, room, width, ascii);
    copy_whole(dst, size, fit);
    free(text);
    return dst;
}

/* The longest of NAMES with which TEXT begins, or NULL. */
static const char *name_at(const char *text, const char *const *names, size_t n)
{
    const char *longest = NULL;
    size_t most = 0;

    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(names[i]);
        if (len > most && strncmp(text, names[i], len) == 0) {
            longest = names[i];
            most = len;
        }
    }
    return longest;
}

char *funcname_fit_all(char *dst, size_t size, const char *text, const char *const *names, size_t n,
                       int width, bool ascii)
{
    size_t len = 0;

    dst[0] = '\0';
    while (*text && len + 1 < size) {
        const char *name = NULL;
        size_t plain = 0;
        while (text[plain] && !(name = name_at(text + plain, names, n)))
            plain++;
        len += fmt_safe(dst + len, size - len, text, plain, ascii);
        text += plain;
        if (!name)
            break;
        len += strlen(funcname_fit(dst + len, size - len, name, width, ascii));
        text += strlen(name);
    }
    return dst;
}

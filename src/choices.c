#include "choices.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "err.h"
#include "signature.h"
#include "xalloc.h"

/* Columns ---------------------------------------------------------------------------------- */

static bool find_columns(struct choices *c, const struct options *opt, char *err, size_t size)
{
    struct column_set set;
    char why[256];
    int sort = opt->sort ? column_by_name(opt->sort, strlen(opt->sort)) : COL_AVG10;

    if (sort < 0) {
        snprintf(err, size, "-s: no column '%s'; 'lock-top -s help' lists them", opt->sort);
        return false;
    }
    c->sort = (enum column)sort;
    if (!opt->columns || column_set_parse(&set, opt->columns, 0, false, why, sizeof(why)))
        return true;
    snprintf(err, size, "-o: %s", why);
    return false;
}

/* Files ------------------------------------------------------------------------------------ */

/* A pipe that nobody writes into must not make lock-top hang. */
#define PATIENCE_MS 5000

/* All of FD up to SIZE bytes. Returns their number, or -errno. */
static ssize_t read_all(int fd, char *dst, size_t size)
{
    size_t len = 0;

    while (len < size) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, PATIENCE_MS) == 0)
            return -ETIMEDOUT;
        ssize_t n = read(fd, dst + len, size - len);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    return (ssize_t)len;
}

/* The text of file PATH, or NULL and *WHY. */
static char *read_text(const char *path, const char **why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    char *text = fd >= 0 ? xmalloc(CHOICES_FILE_MAX + 1) : NULL;
    ssize_t len = fd >= 0 ? read_all(fd, text, CHOICES_FILE_MAX + 1) : -errno;

    *why = NULL;
    if (len == -ETIMEDOUT)
        *why = "nothing comes out of it";
    else if (len < 0)
        *why = strerror((int)-len);
    else if (len > CHOICES_FILE_MAX)
        *why = "larger than 1 MiB";
    else if (memchr(text, '\0', (size_t)len))
        *why = "not a text file";
    else
        text[len] = '\0';
    if (fd >= 0)
        close(fd);
    if (!*why)
        return text;
    free(text);
    return NULL;
}

/* The text of file PATH that OPTION names, or NULL and a message in ERR. */
static char *take_file(const char *path, const char *option, char *err, size_t size)
{
    const char *why;
    char *text = read_text(path, &why);

    if (!text)
        snprintf(err, size, "%s %.256s: %s", option, path, why);
    return text;
}

static bool read_names(struct choices *c, const char *path, char *err, size_t size)
{
    char wrong[256];

    if (!path)
        return true;
    char *text = take_file(path, "--names", err, size);
    if (text && !(c->names = name_rules_new(text, wrong, sizeof(wrong))))
        snprintf(err, size, "--names %.256s: %s", path, wrong);
    free(text);
    return c->names != NULL;
}

static bool read_signatures(struct choices *c, const char *path, char *err, size_t size)
{
    char wrong[256];

    c->signatures = signatures_new();
    if (!path)
        return true;
    char *text = take_file(path, "--signatures", err, size);
    bool right = text && signatures_add(c->signatures, text, wrong, sizeof(wrong));
    if (text && !right)
        snprintf(err, size, "--signatures %.256s: %s", path, wrong);
    free(text);
    return right;
}

int choices_make(struct choices *c, const struct options *opt, char *err, size_t size)
{
    *c = (struct choices){0};
    bool right = find_columns(c, opt, err, size) && read_names(c, opt->names_file, err, size) &&
                 read_signatures(c, opt->signatures_file, err, size);
    return right ? 0 : EXIT_USAGE;
}

void choices_release(struct choices *c)
{
    name_rules_free(c->names);
    signatures_free(c->signatures);
    *c = (struct choices){0};
}

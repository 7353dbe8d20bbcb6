#include "sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "procfs.h"

#define NET_MAX       (32u << 20)
#define TCP_LISTENS   0x0A /* TCP_LISTEN of net/tcp_states.h */
#define UNIX_PATH_MAX 108  /* linux/un.h */

/* A part of a line. */
struct span {
    const char *at, *end;
};

/* The next word of the line AT of LINE, which moves behind it; empty at its end. */
static struct span next_word(struct span *line)
{
    struct span w;

    while (line->at < line->end && *line->at == ' ')
        line->at++;
    w.at = line->at;
    while (line->at < line->end && *line->at != ' ')
        line->at++;
    w.end = line->at;
    return w;
}

static struct span word_behind(struct span *line, int skipped)
{
    while (skipped-- > 0)
        next_word(line);
    return next_word(line);
}

static unsigned digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0');
    return c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10 : 99;
}

/* All of the word is one number of that base. */
static bool number(struct span w, unsigned base, uint64_t *out)
{
    uint64_t n = 0;

    for (const char *p = w.at; p < w.end; p++) {
        unsigned d = digit_of(*p);
        if (d >= base || __builtin_mul_overflow(n, base, &n) || __builtin_add_overflow(n, d, &n))
            return false;
    }
    *out = n;
    return w.at < w.end;
}

/* TCP and UDP ----------------------------------------------------------------------------- */

struct address {
    unsigned char bytes[16];
    bool v6;
    unsigned port; /* 0: none */
};

/* "0100007F:1538": words of 32 bits as the machine has them, and the port. */
static bool take_address(struct span w, struct address *out)
{
    const char *colon = memchr(w.at, ':', (size_t)(w.end - w.at));
    ptrdiff_t digits = colon ? colon - w.at : 0;
    uint64_t n;

    if (digits != 8 && digits != 32)
        return false;
    out->v6 = digits == 32;
    for (ptrdiff_t i = 0; i < digits; i += 8) {
        if (!number((struct span){w.at + i, w.at + i + 8}, 16, &n))
            return false;
        const uint32_t four = (uint32_t)n;
        memcpy(out->bytes + i / 2, &four, sizeof(four));
    }
    if (!number((struct span){colon + 1, w.end}, 16, &n) || n > UINT16_MAX)
        return false;
    out->port = (unsigned)n;
    return true;
}

/* An IPv4 peer of an IPv6 socket is shown as what it is. */
static void show_address(const struct address *a, char *dst, size_t size)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    bool v6 = a->v6 && memcmp(a->bytes, mapped, sizeof(mapped)) != 0;
    const unsigned char *bytes = a->v6 && !v6 ? a->bytes + sizeof(mapped) : a->bytes;
    char text[INET6_ADDRSTRLEN] = "?";

    inet_ntop(v6 ? AF_INET6 : AF_INET, bytes, text, sizeof(text));
    snprintf(dst, size, v6 ? "[%s]:%u" : "%s:%u", text, a->port);
}

/* "sl: local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode ..."
 */
static bool take_inet(struct span line, const char *proto, uint64_t inode, char *dst, size_t size)
{
    struct span local = word_behind(&line, 1), peer = next_word(&line), st = next_word(&line);
    struct address here, there;
    uint64_t found, state;
    char text[INET6_ADDRSTRLEN + 16];

    if (!number(word_behind(&line, 5), 10, &found) || found != inode ||
        !take_address(local, &here) || !take_address(peer, &there) || !number(st, 16, &state))
        return false;
    show_address(there.port ? &there : &here, text, sizeof(text));
    bool listens = *proto == 't' && state == TCP_LISTENS;
    /* What "tcp6" says its address says too. */
    snprintf(dst, size, "%.3s %s%s", proto,
             there.port ? ""
             : listens  ? "listening on "
                        : "bound to ",
             text);
    return true;
}

/* Unix ------------------------------------------------------------------------------------ */

/* "Num RefCount Protocol Flags Type St Inode Path"; the last may be missing, and an abstract one
 * begins with '@'. */
static bool take_unix(struct span line, uint64_t inode, char *dst, size_t size)
{
    uint64_t found;

    if (!number(word_behind(&line, 6), 10, &found) || found != inode)
        return false;
    if (line.at < line.end)
        line.at++; /* a path may begin with a blank of its own */
    if (line.at < line.end)
        snprintf(dst, size, "unix %.*s", (int)MIN(line.end - line.at, UNIX_PATH_MAX), line.at);
    else
        snprintf(dst, size, "unix (no name)");
    return true;
}

/* All ------------------------------------------------------------------------------------- */

bool sockets_find_in(const char *text, const char *proto, uint64_t inode, char *dst, size_t size)
{
    bool is_unix = strcmp(proto, "unix") == 0;

    if (inode == 0) /* stands there for sockets without a descriptor */
        return false;
    for (const char *end; (end = strchr(text, '\n')); text = end + 1) {
        const struct span line = {text, end};
        if (is_unix ? take_unix(line, inode, dst, size) : take_inet(line, proto, inode, dst, size))
            return true;
    }
    return false;
}

int sockets_find(int dirfd, uint64_t inode, char *dst, size_t size)
{
    static const char *const files[] = {"tcp", "tcp6", "unix", "udp", "udp6"};
    int err = -ENOENT;

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        char rel[16], *text;
        snprintf(rel, sizeof(rel), "net/%s", files[i]);
        ssize_t n = procfs_slurp_alloc(dirfd, rel, &text, NET_MAX);
        if (n < 0) { /* without IPv6 there is no tcp6 */
            err = n == -ENOENT ? err : (int)n;
            continue;
        }
        bool found = sockets_find_in(text, files[i], inode, dst, size);
        free(text);
        if (found)
            return 0;
    }
    return err;
}

uint64_t sockets_inode(const char *path)
{
    static const char before[] = "socket:[";
    const size_t skip = sizeof(before) - 1;
    uint64_t inode;

    if (!path || strncmp(path, before, skip) != 0)
        return 0;
    const char *end = path + strcspn(path, "]");
    if (strcmp(end, "]") != 0 || !number((struct span){path + skip, end}, 10, &inode))
        return 0;
    return inode;
}

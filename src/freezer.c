#include "freezer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mounts.h"
#include "procfs.h"

#define MOUNTINFO_MAX (4u << 20)

static bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

bool freezer_events_say(const char *text)
{
    for (; *text; text = strchr(text, '\n') ? strchr(text, '\n') + 1 : "") {
        if (begins(text, "frozen 1\n"))
            return true;
    }
    return false;
}

/* Stopped threads (T) sleep in get_signal, too. */
bool freezer_hint(char state, const char *wchan)
{
    if (!wchan || state == 'T' || state == 't')
        return false;
    return begins(wchan, "get_signal") || begins(wchan, "do_freezer_trap") ||
           begins(wchan, "__refrigerator");
}

bool freezer_suspects(char state, const char *wchan)
{
    return state == 'D' || state == 'T' || freezer_hint(state, wchan);
}

/* Whether NAME is one of those in LIST, which commas part and which ends at END. */
static bool lists(const char *list, const char *end, const char *name)
{
    size_t len = strlen(name);

    while (list < end) {
        const char *comma = memchr(list, ',', (size_t)(end - list));
        const char *stop = comma ? comma : end;
        if ((size_t)(stop - list) == len && strncmp(list, name, len) == 0)
            return true;
        list = stop + 1;
    }
    return false;
}

/* Hierarchies of version 1 are mounted at the names of their controllers. */
static bool is_freezer(const struct mount *m)
{
    const char *slash = strrchr(m->point, '/');

    return strcmp(m->type, "cgroup") == 0 && slash &&
           lists(slash + 1, slash + strlen(slash), "freezer");
}

static void find_groups(struct freezer *f, int rootfd)
{
    char *mountinfo;
    struct mount m;

    f->sought = true;
    if (procfs_slurp_alloc(rootfd, "self/mountinfo", &mountinfo, MOUNTINFO_MAX) < 0)
        return;
    for (const char *text = mountinfo; mounts_next(&text, &m);) {
        if (!f->v2[0] && strcmp(m.type, "cgroup2") == 0)
            snprintf(f->v2, sizeof(f->v2), "%s", m.point);
        else if (!f->v1[0] && is_freezer(&m))
            snprintf(f->v1, sizeof(f->v1), "%s", m.point);
    }
    free(mountinfo);
}

/* A line "ID:CONTROLLERS:PATH" of /proc/PID/cgroup: version 2 is "0::PATH". The path that it has in
 * the hierarchy of V2, or in that of the freezer; false when there is none. */
static bool group_path(const char *cgroup, bool v2, char *dst, size_t size)
{
    for (const char *end; (end = strchr(cgroup, '\n')); cgroup = end + 1) {
        const char *names = memchr(cgroup, ':', (size_t)(end - cgroup));
        const char *path = names ? memchr(names + 1, ':', (size_t)(end - names - 1)) : NULL;
        if (!path || (v2 ? !begins(cgroup, "0::") : !lists(names + 1, path, "freezer")))
            continue;
        return snprintf(dst, size, "%.*s", (int)(end - path - 1), path + 1) < (int)size;
    }
    return false;
}

/* 1: frozen, 0: not, -1: cannot be read. The root of version 2 has no cgroup.events: what lies
 * there cannot be frozen. */
static int ask_group(const char *point, const char *cgroup, bool v2)
{
    char group[512], file[1024], text[256];

    if (!point[0] || !group_path(cgroup, v2, group, sizeof(group)))
        return 0;
    if (strcmp(group, "/") == 0)
        return 0;
    snprintf(file, sizeof(file), "%s%s/%s", point, group, v2 ? "cgroup.events" : "freezer.state");
    if (procfs_slurp(AT_FDCWD, file, text, sizeof(text)) <= 0)
        return -1;
    return v2 ? freezer_events_say(text) : begins(text, "FROZEN");
}

bool freezer_is_frozen(struct freezer *f, int rootfd, int dirfd, char state, const char *wchan)
{
    char cgroup[4096];
    int v2 = -1, v1 = -1;

    if (!f->sought)
        find_groups(f, rootfd);
    if (procfs_slurp(dirfd, "cgroup", cgroup, sizeof(cgroup)) > 0) {
        v2 = ask_group(f->v2, cgroup, true);
        v1 = ask_group(f->v1, cgroup, false);
    }
    if (v2 > 0 || v1 > 0)
        return true;
    return (v2 < 0 || v1 < 0) && freezer_hint(state, wchan);
}

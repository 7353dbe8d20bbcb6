/*
 * freezer.h - whether a process's control group is frozen, of version 2 (cgroup.events) or
 * version 1 (freezer.state).
 *
 * Measured on Linux 6.18: a frozen thread of version 2 has been woken to sleep in get_signal (older
 * kernels: do_freezer_trap), state S, and its syscall file still shows the call that it was in; of
 * version 1 it is in the state D wherever it slept, or in __refrigerator.
 */
#ifndef LT_FREEZER_H
#define LT_FREEZER_H

#include <stdbool.h>

/* Where groups are mounted, as our own mountinfo says; read once. */
struct freezer {
    bool sought;
    char v2[256], v1[256]; /* "": not mounted */
};

/* Whether TEXT, a cgroup.events, says so. */
bool freezer_events_say(const char *text);

/* Whether WCHAN, in which a thread in STATE sleeps (NULL unknown), is a place where only frozen
 * threads sleep. */
bool freezer_hint(char state, const char *wchan);

/* Whether what is seen of a process's first thread makes it worth asking its group. */
bool freezer_suspects(char state, const char *wchan);

/* Whether the group of the process below DIRFD is frozen; where that cannot be read (the group lies
 * outside what is mounted here), what STATE and WCHAN hint at. ROOTFD is /proc. */
bool freezer_is_frozen(struct freezer *f, int rootfd, int dirfd, char state, const char *wchan);

#endif

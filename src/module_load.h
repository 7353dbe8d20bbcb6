/*
 * module_load.h - making modules and sharing them; for space.c.
 */
#ifndef LT_MODULE_LOAD_H
#define LT_MODULE_LOAD_H

#include "module.h"

struct stat;
typedef int (*target_reader)(pid_t, struct remote_item *, size_t);

/* Each returns a module with one more user. */

/* Of the file FD, whose status is ST; DEV and INODE as the map shows them. */
struct module *module_load_file(struct module_set *set, int fd, const struct stat *st,
                                const struct map_entry *e);

/* Out of the memory of PID: the [vdso] from E's range, or the segments of a file whose first
 * page is mapped at E: what is needed of them, at most LIMIT bytes. */
struct module *module_load_vdso(struct module_set *set, const struct map_entry *e, pid_t pid,
                                target_reader read);
struct module *module_load_memory(struct module_set *set, const struct map_entry *e, pid_t pid,
                                  target_reader read, size_t limit);

/* One that is known by name only. */
struct module *module_load_nothing(struct module_set *set, const struct map_entry *e);

/* The user goes; the last one takes the module away. */
void module_put(struct module_set *set, struct module *m);

uint64_t module_set_generation(struct module_set *set); /* another one at each call */

#endif

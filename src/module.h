/*
 * module.h - the files a process runs from (program, libraries, vDSO), mapped here as well, so
 * that unwind tables, code and symbols are read without asking the target.
 *
 * A file is known by device, inode, size and time of change and is shared by all processes that
 * map it. It is opened through the process (/proc/PID/root, /proc/PID/map_files, /proc/PID/exe),
 * so that containers and deleted files work; of what cannot be opened the code and what is not
 * written to are copied from the target's memory, up to 64 MiB of one process. Not thread-safe:
 * one thread uses a module set.
 */
#ifndef LT_MODULE_H
#define LT_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "maps.h"
#include "remote.h"

#define BUILD_ID_MAX 32

/* Which library a module is, by its name. */
enum module_kind { MODULE_OTHER, MODULE_GLIBC, MODULE_MUSL, MODULE_VDSO };

/* Part of a file that is loaded. */
struct segment {
    uint64_t vaddr, offset, filesz, memsz;
    bool exec, write;
};

struct symbols; /* symbol.h's, made on first use */

struct module {
    uint64_t dev, inode;
    const char *path; /* as the target sees it, without " (deleted)"; "[vdso]" */
    const char *name; /* the last part of PATH */
    enum module_kind kind;
    int elf_class;        /* 32 or 64; 0: no ELF file that can be used: everything below is empty */
    int machine;          /* e_machine */
    uint64_t entry;       /* where the program begins, 0: it is no program */
    const uint8_t *image; /* the file (mapped read-only, or copied) */
    size_t size;
    /* From memory: IMAGE holds the loaded segments at their file offsets, no section headers.
     * COPIED_BYTES were read; segments that were not have a FILESZ of 0. */
    bool copied;
    size_t copied_bytes;
    struct segment *segments;
    size_t nsegments;
    uint8_t build_id[BUILD_ID_MAX];
    size_t build_id_len; /* 0: none */
    /* The search table of unwind entries, EH_ENTRIES pairs as in ehframe.h, relative to EH_BASE;
     * 0 entries: none that can be used. */
    const uint8_t *eh_table;
    uint64_t eh_base;
    size_t eh_entries;
    /* Go's own table (gotable.h), which is there instead of EH_TABLE; NULL: none. */
    const uint8_t *go_table;
    size_t go_size;
    uint64_t go_text;
    struct symbols *symbols;                /* owned by symbol.c */
    void (*free_symbols)(struct symbols *); /* set with it */
    unsigned users;                         /* spaces that map it */
};

/* Reads the headers of M's image and what they lead to, all of it without trust; M holds nothing of
 * these yet. *OWN: a table that was made, to be freed when M goes, or NULL. */
struct eh_entry;
void module_parse(struct module *m, struct eh_entry **own);

/* LEN bytes of M's file at virtual address VADDR (of the file, not of a process), or NULL when
 * they are not all within one segment's file part. */
const void *module_at(const struct module *m, uint64_t vaddr, size_t len);

/* All modules, shared by the processes of one set. */
struct module_set;
struct module_set *module_set_new(void);
void module_set_free(struct module_set *set); /* after its spaces; NULL is allowed */

/* One loaded module of a process. */
struct mapped {
    uint64_t start, end; /* first to last mapping, tail of .bss included */
    uint64_t bias;       /* address in the process - address in the file */
    struct module *module;
};

/* What a process has mapped. */
struct space;

/*
 * The map of process PID (whose directory below /proc is DIRFD, borrowed while the space lives),
 * read through its thread TID. Reads the map and opens the files at once. Returns NULL and
 * *ERR = errno when the map cannot be read. READ is remote_read or a stand-in.
 */
struct space *space_new(struct module_set *set, int dirfd, pid_t pid, pid_t tid,
                        int (*read)(pid_t, struct remote_item *, size_t), int *err);
void space_free(struct space *s); /* NULL is allowed */

/* Reads the map again (a library was loaded, another program was started). Files that stay are
 * not opened again. Returns 0 or -errno; on an error the old content stays. */
int space_refresh(struct space *s, pid_t tid);

pid_t space_pid(const struct space *s);

/* The module loaded at ADDR, or NULL. */
const struct mapped *space_find(const struct space *s, uint64_t addr);

/* Another number whenever a module that was loaded is no longer where it was: what was derived
 * from addresses of S before is then void. Unique within the set. */
uint64_t space_generation(const struct space *s);

/* 32 or 64, as the program is; 0 unknown. */
int space_elf_class(const struct space *s);

/* The mapping that holds ADDR (anonymous memory too), or NULL. */
const struct map_entry *space_entry(const struct space *s, uint64_t addr);

/* Whether ADDR is in executable memory. */
bool space_is_code(const struct space *s, uint64_t addr);

/* LEN bytes at ADDR that lie in a mapped file where its segment is not writable, or NULL. Valid
 * while the space stays as it is. */
const void *space_at(const struct space *s, uint64_t addr, size_t len);

/* Reads LEN bytes at ADDR: from a mapped file where the segment is not writable, else from the
 * target. False when they cannot all be read. */
bool space_read(const struct space *s, uint64_t addr, void *dst, size_t len);

/* Opens the regular file PATH as the target sees it (below its root), for debug files and the like.
 * Returns an fd or -errno; -ETIMEDOUT when a file server does not answer, and then for all files
 * until the next refresh. */
int space_open(struct space *s, const char *path);

/* The same of our own SPACE_DEBUG_DIR, within which PATH and its symbolic links stay. */
#define SPACE_DEBUG_DIR "/usr/lib/debug"
int space_open_debug(struct space *s, const char *path);

#endif

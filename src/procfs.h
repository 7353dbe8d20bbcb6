/*
 * procfs.h - /proc as text: a reader below a root that tests can move, and parsers
 * that are pure functions of a buffer.
 *
 * Low level: knows nothing of samples or locks. Every reader returns a length or
 * -errno; it never prints, and a vanished or forbidden file is a normal result.
 */
#ifndef LT_PROCFS_H
#define LT_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Opens ROOT ("/proc", or a captured tree) as a directory. Returns an fd or -errno. */
int procfs_open_root(const char *root);

/* Opens the directory PID below ROOTFD. Returns an fd or -errno (-ENOENT: no such process). */
int procfs_open_pid(int rootfd, pid_t pid);

/* Reads the file REL below DIRFD whole into BUF (SIZE bytes with the NUL that is always
 * written). What does not fit is cut off. Returns the length or -errno. */
ssize_t procfs_slurp(int dirfd, const char *rel, char *buf, size_t size);

/* As procfs_slurp, from the start of an fd that is kept open, in one read: for files of one
 * record (syscall, schedstat, stat, status, comm), which the kernel gives whole. */
ssize_t procfs_reread(int fd, char *buf, size_t size);

/* As procfs_slurp, into memory that grows up to MAX bytes and that the caller frees with
 * free(); the last byte of MAX is the NUL's. Returns the length or -errno; *BUF is NULL on error.
 */
ssize_t procfs_slurp_alloc(int dirfd, const char *rel, char **buf, size_t max);

/* Reads the symbolic link REL below DIRFD, NUL-terminated; what does not fit is cut off. Returns
 * the length or -errno. */
ssize_t procfs_readlink(int dirfd, const char *rel, char *buf, size_t size);

/* Takes the " (deleted)" off the end of a descriptor's link, which the kernel writes there when the
 * file has no name any more; returns whether it stood there. */
bool procfs_strip_deleted(char *link);

/* What the link REL below DIRFD (exe, fd/N) leads to, as far as it is known without asking a file
 * server, which may hang. Returns 0 or -errno. */
struct stat;
int procfs_stat_link(int dirfd, const char *rel, struct stat *out);

/* Lists the numeric entries of the directory REL below DIRFD into *IDS (grown with xgrow,
 * *CAP elements). Returns how many, or -errno. */
ssize_t procfs_list_ids(int dirfd, const char *rel, pid_t **ids, size_t *cap);

/* Read and parse the file REL below DIRFD, a status (however long its lines are) or a stat.
 * Return 0 or -errno; -EINVAL for what the kernel would not have written. */
struct procfs_status;
struct procfs_stat;
int procfs_read_status(int dirfd, const char *rel, struct procfs_status *out);
int procfs_read_stat(int dirfd, const char *rel, struct procfs_stat *out);

/*
 * The parsers take NUL-terminated text, return false for what the kernel would not have written
 * (*OUT is then of no use) and depend on no locale. Lines must end with their newline: what was
 * cut off is not taken for a smaller number.
 */

/* /proc/.../schedstat, "RUN_NS WAIT_NS COUNT". All zero where the kernel does not count. */
struct procfs_schedstat {
    uint64_t run_ns;  /* on a CPU */
    uint64_t wait_ns; /* runnable, waiting for a CPU */
    uint64_t runs;    /* times put on a CPU; unchanged = has not run since */
};
bool procfs_parse_schedstat(const char *text, struct procfs_schedstat *out);

/* /proc/.../syscall. */
enum procfs_syscall_kind {
    SYSCALL_RUNNING, /* "running": on a CPU or runnable */
    SYSCALL_BLOCKED, /* "NR A0..A5 SP PC": blocked in a system call */
    SYSCALL_NONE,    /* "-1 SP PC": blocked outside one (page fault) */
};
struct procfs_syscall {
    enum procfs_syscall_kind kind;
    long nr;
    uint64_t arg[6]; /* registers at entry, not cut to the argument's width */
    uint64_t sp, pc;
};
bool procfs_parse_syscall(const char *text, struct procfs_syscall *out);

/* /proc/.../stat. The name is taken up to the LAST ')': it may hold ") R 1 1 (" itself. */
struct procfs_stat {
    pid_t pid;
    char comm[64]; /* raw bytes: newline, ESC and broken UTF-8 are possible */
    char state;    /* the kernel's letter */
    pid_t ppid;    /* 0: none, or not in the reader's PID namespace */
    unsigned long flags; /* PF_... of the kernel */
    uint64_t minflt, majflt;
    uint64_t utime_ticks, stime_ticks; /* units of 1/sysconf(_SC_CLK_TCK) s */
    long num_threads;     /* of its process */
    uint64_t start_ticks; /* since boot; with the TID it names a thread for ever */
    long rss_pages;
    uint64_t start_stack; /* 0 when not permitted; another one after exec where addresses are
                             randomised, but without that the same program may get the same */
};
#define PROCFS_PF_KTHREAD 0x00200000UL /* in FLAGS: a kernel thread, without user memory */
/* LEN bytes of TEXT, with a NUL behind them. */
bool procfs_parse_stat(const char *text, size_t len, struct procfs_stat *out);

/* /proc/.../status: the few lines that are wanted. Missing lines give the values named. */
struct procfs_status {
    pid_t tgid;          /* 0 */
    long euid;           /* -1 */
    pid_t ns_pid[8];     /* NSpid, outermost (the reader's) first */
    int ns_levels;       /* how many of them, the last is the target's own; 0: kernel without the
                            line. Of more than 8 the ones before the last are left out */
    int64_t voluntary;   /* voluntary_ctxt_switches, -1 */
    int64_t involuntary; /* nonvoluntary_ctxt_switches, -1 */
};
/* False when none of the lines stands in TEXT; one whose value is no number counts as missing. */
bool procfs_parse_status(const char *text, struct procfs_status *out);

/* One line of /proc/PID/maps. Path points into TEXT (not terminated). It stands as the kernel
 * writes it: a newline in a name is \012, a file that is gone ends in " (deleted)". */
struct procfs_map {
    uint64_t start, end, offset, inode;
    uint32_t dev_major, dev_minor;
    bool exec, write, shared;
    const char *path; /* "" when the mapping has none */
    size_t path_len;
};
/* Parses the line at *TEXT and moves *TEXT behind it. False at the end of the text; malformed
 * lines are skipped. */
bool procfs_next_map(const char **text, struct procfs_map *out);

#endif

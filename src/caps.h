/*
 * caps.h - what is permitted here, and why not: turns an errno into the sentence that an
 * engineer needs (which check failed, and the exact line that would allow it).
 */
#ifndef LT_CAPS_H
#define LT_CAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Facts behind a refusal; -1 and false where they could not be read (DUMPABLE: true). */
struct caps_facts {
    long my_uid, target_uid; /* effective uids */
    bool have_ptrace_cap;    /* CAP_SYS_PTRACE effective here */
    int same_userns;      /* the target lives in our user namespace: 1, 0; -1: not to be told */
    int yama_scope;          /* kernel.yama.ptrace_scope, -1: no yama */
    bool dumpable;           /* the files in /proc/PID belong to the target's uid, not to root;
                                always true for a target of root */
    bool kernel_thread;      /* has no user memory at all */
};

/* Collects them for PID through the /proc at ROOTFD. */
void caps_collect(int rootfd, pid_t pid, struct caps_facts *out);

/*
 * One or two sentences, no newline, no full stop at the end: why ERR (an errno, EPERM or
 * EACCES) came back for process PID named COMM (raw bytes, "" unknown), and what to do. Pure
 * function of its arguments.
 */
void caps_explain(char *dst, size_t size, pid_t pid, const char *comm, int err,
                  const struct caps_facts *f);

/* Raises the soft RLIMIT_NOFILE to the hard one; returns the limit now in force. */
long caps_raise_nofile(void);

#endif

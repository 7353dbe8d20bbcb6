#include "caps.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler.h"
#include "fmt.h"
#include "procfs.h"

/* Facts ---------------------------------------------------------------------- */

#define STATUS_MAX         (1u << 20) /* the line of groups may have 700 KB */
#define CAP_SYS_PTRACE_BIT 19 /* of <linux/capability.h> */

static bool has_ptrace_cap(int rootfd)
{
    char *text;

    if (procfs_slurp_alloc(rootfd, "self/status", &text, STATUS_MAX) < 0)
        return false;
    const char *line = strstr(text, "\nCapEff:\t");
    bool has =
        line && strtoull(line + strlen("\nCapEff:\t"), NULL, 16) >> CAP_SYS_PTRACE_BIT & 1;
    free(text);
    return has;
}

static int read_yama_scope(int rootfd)
{
    char text[16];

    if (procfs_slurp(rootfd, "sys/kernel/yama/ptrace_scope", text, sizeof(text)) < 1)
        return -1;
    return text[0] >= '0' && text[0] <= '9' ? text[0] - '0' : -1;
}

/* -1 when a link may not be read. */
static int shares_userns(int rootfd, int dirfd)
{
    char ours[64], theirs[64];

    if (procfs_readlink(rootfd, "self/ns/user", ours, sizeof(ours)) <= 0 ||
        procfs_readlink(dirfd, "ns/user", theirs, sizeof(theirs)) <= 0)
        return -1;
    return strcmp(ours, theirs) == 0;
}

static void collect_status(int dirfd, struct caps_facts *out)
{
    struct procfs_status status;
    struct stat st;

    if (procfs_read_status(dirfd, "status", &status) == 0)
        out->target_uid = status.euid;
    /* The kernel gives the files (not the directory) of a process that is not dumpable to root. */
    if (out->target_uid > 0 && fstatat(dirfd, "status", &st, 0) == 0)
        out->dumpable = st.st_uid != 0;
}

/* The owner of /proc/PID: all that is left to ask under hidepid. */
static long directory_owner(int rootfd, pid_t pid)
{
    char name[16];
    struct stat st;

    snprintf(name, sizeof(name), "%d", (int)pid);
    return fstatat(rootfd, name, &st, 0) == 0 ? (long)st.st_uid : -1;
}

static bool is_kernel_thread(int dirfd)
{
    struct procfs_stat stat;

    return procfs_read_stat(dirfd, "stat", &stat) == 0 && (stat.flags & PROCFS_PF_KTHREAD) != 0;
}

void caps_collect(int rootfd, pid_t pid, struct caps_facts *out)
{
    *out = (struct caps_facts){
        .my_uid = (long)geteuid(),
        .target_uid = directory_owner(rootfd, pid),
        .have_ptrace_cap = has_ptrace_cap(rootfd),
        .same_userns = -1,
        .yama_scope = read_yama_scope(rootfd),
        .dumpable = true,
    };

    int dirfd = procfs_open_pid(rootfd, pid);
    if (dirfd < 0)
        return;
    out->same_userns = shares_userns(rootfd, dirfd);
    out->kernel_thread = is_kernel_thread(dirfd);
    collect_status(dirfd, out);
    close(dirfd);
}

/* Sentences ------------------------------------------------------------------ */

/* What a refusal is explained with; WHO is "process 1 (systemd)", escaped. */
struct refusal {
    const char *who;
    int pid;
    const struct caps_facts *facts;
};

static void explain_capable(char *dst, size_t size, const struct refusal *r)
{
    if (r->facts->same_userns == 0)
        snprintf(dst, size,
                 "%s lives in another user namespace, where your CAP_SYS_PTRACE does not count: "
                 "run lock-top as root on the host, outside this container",
                 r->who);
    else
        snprintf(
            dst, size,
            "you have CAP_SYS_PTRACE, yet the kernel does not let you look into %s: a seccomp "
            "filter or a security module (SELinux, AppArmor, a container's profile) forbids it%s",
            r->who, r->facts->same_userns < 0 ? ", or it lives in another user namespace" : "");
}

static void explain_other_user(char *dst, size_t size, const struct refusal *r)
{
    /* Where yama is on, the same user would be refused as well. */
    const char *as = r->facts->yama_scope > 0 ? "as root" : "as that user or as root";

    snprintf(dst, size,
             "%s belongs to uid %ld and you are uid %ld: run it %s (sudo lock-top -p %d)", r->who,
             r->facts->target_uid, r->facts->my_uid, as, r->pid);
}

static void explain_same_user(char *dst, size_t size, const struct refusal *r)
{
    const struct caps_facts *f = r->facts;

    /* Not dumpable comes first: lowering yama would not help there. */
    if (!f->dumpable)
        snprintf(dst, size,
                 "%s is not dumpable (it changed its uid, has capabilities, or asked for it), so "
                 "its own user may not look into it: run as root (sudo lock-top -p %d)",
                 r->who, r->pid);
    else if (f->yama_scope == 1)
        snprintf(dst, size,
                 "kernel.yama.ptrace_scope is 1, so only descendants may be looked into: run as "
                 "root (sudo lock-top -p %d), or allow it until reboot with: "
                 "sudo sysctl kernel.yama.ptrace_scope=0",
                 r->pid);
    else if (f->yama_scope == 2)
        snprintf(dst, size,
                 "kernel.yama.ptrace_scope is 2, so only root may look into processes: run as root "
                 "(sudo lock-top -p %d)",
                 r->pid);
    else
        snprintf(dst, size,
                 "%s has capabilities that you lack or lives in another user namespace, or a "
                 "container's profile forbids it: run as root on the host (sudo lock-top -p %d)",
                 r->who, r->pid);
}

static void explain_refusal(char *dst, size_t size, const struct refusal *r)
{
    const struct caps_facts *f = r->facts;

    if (f->yama_scope >= 3)
        snprintf(dst, size,
                 "kernel.yama.ptrace_scope is %d, so nobody may look into %s, not even root, and "
                 "it cannot be lowered before a reboot: remove it from /etc/sysctl.d and reboot",
                 f->yama_scope, r->who);
    else if (f->have_ptrace_cap)
        explain_capable(dst, size, r);
    else if (f->my_uid == 0)
        snprintf(dst, size,
                 "you are root here but without CAP_SYS_PTRACE (a container?): start it with "
                 "--cap-add=SYS_PTRACE");
    else if (f->target_uid < 0)
        snprintf(dst, size,
                 "%s is hidden from you (/proc is mounted with hidepid): run as root "
                 "(sudo lock-top -p %d)",
                 r->who, r->pid);
    else if (f->target_uid != f->my_uid)
        explain_other_user(dst, size, r);
    else
        explain_same_user(dst, size, r);
}

void caps_explain(char *dst, size_t size, pid_t pid, const char *comm, int err,
                  const struct caps_facts *f)
{
    char name[256], who[300];

    fmt_safe(name, sizeof(name), comm, strlen(comm), false);
    snprintf(who, sizeof(who), *name ? "process %d (%s)" : "process %d", (int)pid, name);
    if (f->kernel_thread)
        snprintf(dst, size, "%s is a kernel thread: it has no user-space locks", who);
    else if (err == EPERM || err == EACCES)
        explain_refusal(dst, size, &(struct refusal){.who = who, .pid = pid, .facts = f});
    else if (err == ENOSYS)
        snprintf(dst, size,
                 "%s cannot be looked into: this kernel lacks process_vm_readv "
                 "(CONFIG_CROSS_MEMORY_ATTACH), or a seccomp filter hides it",
                 who);
    else
        snprintf(dst, size, "%s cannot be looked into: %s", who, strerror(err));
}

long caps_raise_nofile(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return sysconf(_SC_OPEN_MAX);

    struct rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        limit = raised;
    return limit.rlim_cur > LONG_MAX ? LONG_MAX : (long)limit.rlim_cur;
}

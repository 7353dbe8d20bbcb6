#include "tracer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "compiler.h"
#include "remote.h"
#include "tracer_budget.h"
#include "tracer_check.h"
#include "xalloc.h"

#define WORKER_STACK (256 * 1024)
#define PATIENCE     NSEC_PER_SEC
#define LATE_MAX     4 /* stops waited for beyond the deadline; then no other is asked for */
#define WORKERS_KEPT 8
#define LOOKS        6
#define LOOKS_APART  (20 * NSEC_PER_USEC)
#define MET_PAUSE    (60 * NSEC_PER_SEC) /* of a thread met in a transfer */

/* Registers ------------------------------------------------------------------------------- */

struct call_result {
    enum abi abi;
    long nr; /* -1: the thread was not in a system call */
    long value;
    uint64_t arg[6];
};

#if defined(__x86_64__) && defined(__LP64__)

#include <libunwind.h>

#define STOPS_ARE_HARMLESS true
#define CODE_SEGMENT_32    0x23 /* of a thread in 32-bit mode */

static void read_call_32(const struct user_regs_struct *r, struct call_result *c)
{
    *c = (struct call_result){.abi = ABI_COMPAT,
                              .nr = (int32_t)r->orig_rax,
                              .value = (int32_t)r->rax,
                              .arg = {(uint32_t)r->rbx, (uint32_t)r->rcx, (uint32_t)r->rdx,
                                      (uint32_t)r->rsi, (uint32_t)r->rdi, (uint32_t)r->rbp}};
}

/* GETREGS, not GETREGSET: it gives the 64-bit registers of a 32-bit program as well. */
static bool read_registers(pid_t tid, struct stack_regs *out, struct call_result *call)
{
    struct user_regs_struct r;

    if (ptrace(PTRACE_GETREGS, tid, 0, &r) != 0)
        return false;
    *out = (struct stack_regs){
        .pc = r.rip,
        .sp = r.rsp,
        .full = true,
        .gpr = {[UNW_X86_64_RAX] = r.rax, [UNW_X86_64_RDX] = r.rdx, [UNW_X86_64_RCX] = r.rcx,
                [UNW_X86_64_RBX] = r.rbx, [UNW_X86_64_RSI] = r.rsi, [UNW_X86_64_RDI] = r.rdi,
                [UNW_X86_64_RBP] = r.rbp, [UNW_X86_64_RSP] = r.rsp, [UNW_X86_64_R8] = r.r8,
                [UNW_X86_64_R9] = r.r9,   [UNW_X86_64_R10] = r.r10, [UNW_X86_64_R11] = r.r11,
                [UNW_X86_64_R12] = r.r12, [UNW_X86_64_R13] = r.r13, [UNW_X86_64_R14] = r.r14,
                [UNW_X86_64_R15] = r.r15, [UNW_X86_64_RIP] = r.rip},
    };
    *call = (struct call_result){.abi = ABI_NATIVE,
                                 .nr = (long)r.orig_rax,
                                 .value = (long)r.rax,
                                 .arg = {r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9}};
    if (r.cs == CODE_SEGMENT_32)
        read_call_32(&r, call);
    return true;
}

/* The kernel's own way to say "restart, unless a handler runs: then EINTR" (include/linux/errno.h).
 * It is looked at when the thread goes on, after the stop. */
#define ERESTARTNOHAND 514

static bool restart_call(pid_t tid)
{
    return ptrace(PTRACE_POKEUSER, tid, offsetof(struct user, regs.rax), -ERESTARTNOHAND) == 0;
}

#else

/* The calls cannot be repaired: on aarch64 the kernel has decided whether to restart before the
 * thread stops, and the first argument is lost to us. So no thread is stopped. */
#define STOPS_ARE_HARMLESS false

static bool read_registers(pid_t tid UNUSED, struct stack_regs *out UNUSED,
                           struct call_result *call UNUSED)
{
    return false;
}

static bool restart_call(pid_t tid UNUSED)
{
    return false;
}

#endif

/* One look ------------------------------------------------------------------------------- */

/* One look at a thread, made by a thread of its own. */
struct attempt {
    int dirfd;
    pid_t tid;
    struct tracer_look look;
    enum tracer_result result;
    uint64_t word_addr;  /* read as well; 0: none */
    bool running_only;
    bool asked, stopped; /* the thread was asked to stop; it did */
    bool repaired, cut_short, met;
    pthread_t worker;
    pid_t worker_tid;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool done;          /* under MUTEX */
    atomic_bool late;   /* nobody waits for the result any more */
    atomic_bool give_up;
};

/* Waiting for the stop -------------------------------------------------------------------- */

/* Ends a wait that is given up. A signal, since nothing else ends waitid(). */
static int wake_signal(void)
{
    return SIGRTMIN + 5;
}

static void on_wake(int sig UNUSED)
{
}

/*
 * Waits until the thread stops and says which signal it has to get when it goes on (0: none). The
 * wait blocks: asking again and again with short sleeps between kept threads stopped for 20 to
 * 30 us longer in the median, and spinning keeps the CPU from the thread that is to stop.
 *
 * What is reported is only looked at (WNOWAIT): an exit is for the parent, which may be lock-top.
 */
static enum tracer_result await_stop(struct attempt *a, int *sig)
{
    siginfo_t what = {0};

    while (waitid(P_PID, (id_t)a->tid, &what, WEXITED | WSTOPPED | WNOWAIT | __WALL | __WNOTHREAD) <
           0) {
        if (errno != EINTR)
            return TRACER_GONE;
        if (atomic_load(&a->give_up))
            return TRACER_TIMEOUT;
    }
    if (what.si_code != CLD_TRAPPED)
        return TRACER_GONE;
    /* Either it stopped for us or with its process (the kernel sees to it that it stays stopped
     * then), or a signal came first: that is delivered. */
    *sig = what.si_status >> 8 == PTRACE_EVENT_STOP ? 0 : what.si_status & 0x7f;
    return TRACER_OK;
}

/* While it is stopped --------------------------------------------------------------------- */

/* Bytes that the call was to transfer, 0 when not known. */
static uint64_t wanted(enum call call, const struct call_result *c)
{
    bool all = call == CALL_write || call == CALL_pwrite64 || call == CALL_sendto ||
               (call == CALL_recvfrom && c->arg[3] & MSG_WAITALL);
    return all ? c->arg[2] : 0;
}

/* The thread may have begun a call since it was seen to run, and the stop may have ended it. */
static void mend_call(struct attempt *a, const struct call_result *c)
{
    enum call call = syscalls_lookup(c->abi, c->nr);
    struct procfs_syscall as_blocked = {.kind = SYSCALL_BLOCKED, .nr = c->nr};

    if (c->value == -EINTR && tracer_can_restart(call))
        a->repaired = restart_call(a->tid);
    memcpy(as_blocked.arg, c->arg, sizeof(as_blocked.arg));
    if (c->value <= 0 || !tracer_cuts_short(c->abi, &as_blocked))
        return;
    uint64_t want = wanted(call, c);
    a->cut_short = (uint64_t)c->value < want;
    a->met = a->cut_short || want == 0;
}

static void copy_stack(struct attempt *a)
{
    struct tracer_look *out = &a->look;
    struct remote_item it = {.addr = out->regs.sp - STACK_RED_ZONE,
                             .dst = out->bytes,
                             .len = sizeof(out->bytes)};

    remote_read(a->tid, &it, 1);
    if (it.got == 0) { /* the page below SP need not be there */
        it.addr = out->regs.sp;
        remote_read(a->tid, &it, 1);
    }
    out->copy = (struct stack_copy){it.addr, out->bytes, it.got};
}

static void read_word(struct attempt *a)
{
    struct remote_item it = {.addr = a->word_addr, .dst = &a->look.word, .len = sizeof(uint32_t)};

    a->look.has_word = a->word_addr && remote_read(a->tid, &it, 1) == 1;
}

/* The deed -------------------------------------------------------------------------------- */

/*
 * It stood still from when it stopped, which is when we were woken, to when it was let go. The
 * first moment is not told; but between it and SEEN, the end of our wait, we can only have waited
 * for a CPU.
 */
static void note_times(struct attempt *a, nsec_t asked, nsec_t seen, nsec_t before, nsec_t after)
{
    nsec_t now = clock_mono();

    a->stopped = true;
    a->look.asked_ns = a->look.stopped_ns = now - asked;
    if (before >= 0 && after >= 0)
        a->look.stopped_ns = MIN(now - asked, now - seen + after - before);
}

static bool look_at_stopped(struct attempt *a)
{
    struct call_result call;

    if (!read_registers(a->tid, &a->look.regs, &call))
        return false;
    mend_call(a, &call);
    if (!atomic_load(&a->late)) {
        copy_stack(a);
        read_word(a);
    }
    return true;
}

static enum tracer_result stop_and_look(struct attempt *a, int schedstat)
{
    int sig = 0;
    nsec_t before = tracer_own_wait(schedstat), asked = clock_mono();

    if (ptrace(PTRACE_INTERRUPT, a->tid, 0, 0) != 0)
        return TRACER_GONE;
    a->asked = true;
    enum tracer_result r = await_stop(a, &sig);
    if (r != TRACER_OK)
        return r;
    nsec_t seen = clock_mono();
    bool alive = look_at_stopped(a);
    alive = ptrace(PTRACE_DETACH, a->tid, 0, sig) == 0 && alive;
    note_times(a, asked, seen, before, tracer_own_wait(schedstat));
    return alive ? TRACER_OK : TRACER_GONE;
}

static enum tracer_result check_call(struct attempt *a)
{
    enum tracer_result r = tracer_check_call(a->dirfd, a->tid, &a->look, &a->met);

    return r == TRACER_OK && a->running_only && a->look.was_blocked ? TRACER_UNSAFE : r;
}

static enum tracer_result seize(struct attempt *a)
{
    if (ptrace(PTRACE_SEIZE, a->tid, 0, 0) == 0)
        return TRACER_OK;
    if (errno == ESRCH)
        return TRACER_GONE;
    /* Also refused: one that has ended, or that somebody else has just begun to trace. */
    enum tracer_result now = tracer_check_status(a->dirfd, a->tid, &a->look);
    return now == TRACER_GONE || now == TRACER_TRACED ? now : TRACER_DENIED;
}

/* All signals are blocked but those of a fault and ours. */
static void block_signals(void)
{
    static const int open[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t mask;

    sigfillset(&mask);
    for (size_t i = 0; i < ARRAY_SIZE(open); i++)
        sigdelset(&mask, open[i]);
    sigdelset(&mask, wake_signal());
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

static void attempt(struct attempt *a)
{
    int schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);

    a->result = seize(a);
    /* Looked at again as late as possible: each microsecond it may begin another call. */
    if (a->result == TRACER_OK)
        a->result = check_call(a);
    if (a->result == TRACER_OK)
        a->result = atomic_load(&a->late) ? TRACER_TIMEOUT : stop_and_look(a, schedstat);
    if (schedstat >= 0)
        close(schedstat);
}

/* The only thread that ever traces; when it ends, whatever it still holds goes on. */
static void *attempt_main(void *arg)
{
    struct attempt *a = arg;

    a->worker_tid = (pid_t)syscall(SYS_gettid);
    block_signals();
    setpriority(PRIO_PROCESS, 0, -20); /* of this thread alone; where real-time is not to be had */
    attempt(a);
    pthread_mutex_lock(&a->mutex);
    a->done = true;
    pthread_cond_signal(&a->ended);
    pthread_mutex_unlock(&a->mutex);
    return NULL;
}

/* Attempts -------------------------------------------------------------------------------- */

/* DIRFD is the caller's, and may be closed while a late one still needs it. */
static struct attempt *attempt_new(int dirfd, pid_t tid)
{
    struct attempt *a = xcalloc(1, sizeof(*a));
    pthread_condattr_t monotonic;

    a->tid = tid;
    a->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
    pthread_mutex_init(&a->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&a->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return a;
}

static void attempt_free(struct attempt *a)
{
    pthread_cond_destroy(&a->ended);
    pthread_mutex_destroy(&a->mutex);
    if (a->dirfd >= 0)
        close(a->dirfd);
    free(a);
}

/*
 * Somebody stands still until the worker is given a CPU. Beside twelve others that wanted one, 99 %
 * of stops took less than 0.2 ms at real-time priority, and up to 15 ms without.
 */
static bool attempt_start(struct attempt *a)
{
    const struct sched_param lowest = {.sched_priority = 1};
    pthread_attr_t attr;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, WORKER_STACK);
    pthread_attr_setschedpolicy(&attr, SCHED_FIFO);
    pthread_attr_setschedparam(&attr, &lowest);
    pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
    int err = pthread_create(&a->worker, &attr, attempt_main, a);
    if (err == EPERM) {
        pthread_attr_setinheritsched(&attr, PTHREAD_INHERIT_SCHED);
        err = pthread_create(&a->worker, &attr, attempt_main, a);
    }
    pthread_attr_destroy(&attr);
    return err == 0;
}

/* Whether it is over before END. */
static bool attempt_await(struct attempt *a, nsec_t end)
{
    struct timespec when = {end / NSEC_PER_SEC, end % NSEC_PER_SEC};
    int err = 0;

    pthread_mutex_lock(&a->mutex);
    while (!a->done && err == 0)
        err = pthread_cond_timedwait(&a->ended, &a->mutex, &when);
    bool done = a->done;
    pthread_mutex_unlock(&a->mutex);
    return done;
}

struct tracer {
    struct tracer_limits limits;
    struct tracer_stats stats;
    struct tracer_budget *budget;
    struct attempt *late[LATE_MAX]; /* of threads that have not stopped yet; NULL: none */
    pid_t workers[WORKERS_KEPT];    /* the last that ended, a ring */
    size_t next_worker;
    uint64_t word_addr;             /* of the next look */
};

static void spare_if_met(struct tracer *t, const struct attempt *a)
{
    if (a->met)
        tracer_budget_spare(t->budget, a->tid, clock_mono() + MET_PAUSE);
}

/* What a stop cost, whether or not somebody still waited for it. */
static void account_stop(struct tracer *t, const struct attempt *a)
{
    struct tracer_stats *s = &t->stats;
    nsec_t ns = a->look.stopped_ns;

    s->stops += a->stopped;
    s->stopped_ns += ns;
    s->stopped_max = MAX(s->stopped_max, ns);
    s->repaired += a->repaired;
    s->cut_short += a->cut_short;
    spare_if_met(t, a);
    if (a->asked)
        tracer_budget_charge(t->budget, clock_mono(), ns);
}

static void attempt_end(struct tracer *t, struct attempt *a)
{
    pthread_join(a->worker, NULL);
    t->workers[t->next_worker] = a->worker_tid;
    t->next_worker = (t->next_worker + 1) % WORKERS_KEPT;
    account_stop(t, a);
    attempt_free(a);
}

/* A thread counts as ended a moment before the kernel lets go of what it traced. */
static bool was_ours(const struct tracer *t, pid_t tracer)
{
    size_t i = 0;

    while (i < WORKERS_KEPT && t->workers[i] != tracer)
        i++;
    return i < WORKERS_KEPT;
}

/* A place for one more, once those that are over are gone. NULL: none is free, or TID has one. */
static struct attempt **place_for(struct tracer *t, pid_t tid)
{
    struct attempt **free_place = NULL;

    for (size_t i = 0; i < LATE_MAX; i++) {
        struct attempt **at = &t->late[i];
        if (*at && attempt_await(*at, 0)) {
            attempt_end(t, *at);
            *at = NULL;
        }
        if (*at && (*at)->tid == tid)
            return NULL;
        if (!*at)
            free_place = at;
    }
    return free_place;
}

/*
 * A thread that does not stop in time waits for a CPU, or came into a wait that nothing ends. To
 * call the stop off would not take back that the kernel has told it to stop: a call that it makes
 * now would fail with EINTR. So it is let go when it does stop, at once; only nobody waits for it.
 */
static enum tracer_result run_attempt(struct tracer *t, struct attempt *a, struct attempt **place,
                                      struct tracer_look *out)
{
    if (!attempt_start(a)) {
        attempt_free(a);
        return TRACER_NOT_NOW;
    }
    if (!attempt_await(a, clock_mono() + t->limits.deadline)) {
        atomic_store(&a->late, true);
        *place = a;
        return TRACER_TIMEOUT;
    }
    enum tracer_result r = a->result;
    *out = a->look;
    out->copy.bytes = out->bytes;
    attempt_end(t, a);
    return r;
}

/*
 * A thread amid a transfer that its other end takes piece by piece runs and sleeps in turn, many
 * times in a millisecond, and would be found running as easily as a thread that computes. So a
 * running one is looked at a few times.
 */
static enum tracer_result check_calls(struct attempt *a)
{
    enum tracer_result r = check_call(a);

    for (int i = 1; i < LOOKS && r == TRACER_OK && !a->look.was_blocked; i++) {
        nanosleep(&(struct timespec){0, LOOKS_APART}, NULL);
        r = check_call(a);
    }
    return r;
}

/* Only looks, and says whether the thread may be stopped. */
static enum tracer_result examine(struct tracer *t, struct attempt *a)
{
    nsec_t now = clock_mono();

    if (!tracer_budget_allows(t->budget, now))
        return TRACER_NOT_NOW;
    if (!STOPS_ARE_HARMLESS || tracer_budget_spares(t->budget, a->tid, now))
        return TRACER_UNSAFE;
    enum tracer_result r = tracer_check_status(a->dirfd, a->tid, &a->look);
    if (r == TRACER_OK)
        r = check_calls(a);
    spare_if_met(t, a);
    return r;
}

static enum tracer_result look(struct tracer *t, int dirfd, pid_t tid, struct tracer_look *out)
{
    struct attempt **place = place_for(t, tid);

    if (!place)
        return TRACER_NOT_NOW;
    struct attempt *a = attempt_new(dirfd, tid);
    a->word_addr = t->word_addr;
    a->running_only = t->limits.running_only;
    enum tracer_result r = a->dirfd < 0 ? TRACER_NOT_NOW : examine(t, a);
    if (r == TRACER_OK)
        return run_attempt(t, a, place, out);
    *out = a->look;
    attempt_free(a);
    return r;
}

/* Outside --------------------------------------------------------------------------------- */

struct tracer *tracer_new(const struct tracer_limits *limits)
{
    struct sigaction action = {.sa_handler = on_wake};
    struct tracer *t = xcalloc(1, sizeof(*t));

    t->limits = *limits;
    t->budget = tracer_budget_new(limits);
    sigaction(wake_signal(), &action, NULL);
    return t;
}

/* A worker that hangs in the kernel with the target is left behind, with what it still touches. */
static void give_up(struct tracer *t, struct attempt *a)
{
    nsec_t end = clock_mono() + PATIENCE;
    bool done = false;

    atomic_store(&a->give_up, true);
    while (!done && clock_mono() < end) {
        pthread_kill(a->worker, wake_signal()); /* again: it may not have come to the wait yet */
        done = attempt_await(a, clock_mono() + NSEC_PER_MSEC);
    }
    if (done)
        attempt_end(t, a);
    else
        pthread_detach(a->worker);
}

void tracer_free(struct tracer *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < LATE_MAX; i++) {
        if (t->late[i])
            give_up(t, t->late[i]);
    }
    tracer_budget_free(t->budget);
    free(t);
}

enum tracer_result tracer_look(struct tracer *t, int dirfd, pid_t tid, struct tracer_look *out)
{
    *out = (struct tracer_look){0};
    enum tracer_result r = look(t, dirfd, tid, out);
    t->word_addr = 0;
    if (r == TRACER_TRACED && was_ours(t, out->tracer_pid))
        r = TRACER_NOT_NOW;
    t->stats.timeouts += r == TRACER_TIMEOUT;
    t->stats.refused += r == TRACER_UNSAFE || r == TRACER_NOT_NOW;
    return r;
}

void tracer_ask_word(struct tracer *t, uint64_t addr)
{
    t->word_addr = addr;
}

struct tracer_stats tracer_stats(const struct tracer *t)
{
    return t->stats;
}

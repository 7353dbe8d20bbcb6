/* Counts calls that this process and its children make, on a file of their own; tracefs is mounted
 * in a mount namespace of this process only. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/lockevents.h"
#include "../src/source_events.h"

#define TRACEFS  "/sys/kernel/tracing"
#define DEBUGFS  "/sys/kernel/debug"
#define MANY     (LOCKEVENTS_FILES + 4)
#define PATIENCE (20 * NSEC_PER_SEC)

static char dir[64];
static bool own_namespace;

struct scene {
    struct lockevents *e;
    int a, b; /* two descriptions of the first file */
    struct file_id files[MANY];
};

/* The machine ---------------------------------------------------------------------------- */

/* A mount namespace and a file system of our own: nothing of it is left when we end. */
static int group_setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/lock-top-events.XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    own_namespace = unshare(CLONE_NEWNS) == 0 &&
                    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                    mount("none", dir, "tmpfs", 0, NULL) == 0;
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    if (own_namespace)
        umount2(dir, MNT_DETACH);
    return rmdir(dir);
}

static void open_file(const char *dirname, int i, int *fd, struct file_id *id)
{
    char path[96];
    struct stat st;

    snprintf(path, sizeof(path), "%s/%d", dirname, i);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(*fd >= 0);
    assert_int_equal(fstat(*fd, &st), 0);
    *id = (struct file_id){st.st_dev, st.st_ino};
}

static bool have_tracefs(void)
{
    return access(TRACEFS "/events/filelock", F_OK) == 0 ||
           (own_namespace && mount("nodev", TRACEFS, "tracefs", 0, NULL) == 0 &&
            access(TRACEFS "/events/filelock", F_OK) == 0);
}

static void open_files(struct scene *s)
{
    for (int i = MANY - 1; i >= 0; i--) {
        if (i < MANY - 1)
            close(s->a);
        open_file(dir, i, &s->a, &s->files[i]);
    }
    open_file(dir, 0, &s->b, &s->files[0]);
}

/* Skips the test where nothing can be counted. */
static void begin(struct scene *s)
{
    const char *why = "no mount namespace of our own, or no tracefs: run as root";

    *s = (struct scene){.a = -1, .b = -1};
    if (own_namespace && have_tracefs())
        s->e = lockevents_open(&why);
    if (!s->e) {
        print_message("%s\n", why);
        skip();
    }
    assert_null(why);
    open_files(s);
}

static void end(struct scene *s)
{
    lockevents_close(s->e);
    close(s->a);
    close(s->b);
}

static struct attempt_fact counts(struct scene *s)
{
    struct attempt_fact f = {.attempts = 99};

    assert_int_equal(lockevents_read(s->e, 77, &f, 1), 1);
    assert_int_equal(f.file.inode, s->files[0].inode);
    assert_int_equal(f.file.dev, s->files[0].dev);
    assert_int_equal(f.until, 77);
    return f;
}

static void assert_counted(struct scene *s, uint64_t attempts, uint64_t refused)
{
    struct attempt_fact f = counts(s);

    assert_int_equal(f.attempts, attempts);
    assert_int_equal(f.refused, refused);
}

static int lock_range(int fd, int cmd, short type)
{
    struct flock l = {.l_type = type, .l_whence = SEEK_SET};
    return fcntl(fd, cmd, &l);
}

/* Runs CALL in a child and returns that. */
static pid_t in_child(void (*call)(const struct scene *), const struct scene *s)
{
    pid_t parent = getpid(), pid = fork();

    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        call(s);
    _exit(0);
}

static void await_end(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* Until as many as N stand in /proc/locks as waiting for the first file. */
static void await_waiters(const struct scene *s, int n)
{
    char line[256], inode[32];
    nsec_t until = clock_mono() + PATIENCE;

    snprintf(inode, sizeof(inode), ":%llu ", (unsigned long long)s->files[0].inode);
    for (int found = -1; found < n; usleep(2000)) {
        FILE *f = fopen("/proc/locks", "re");
        assert_non_null(f);
        assert_true(clock_mono() < until);
        for (found = 0; fgets(line, sizeof(line), f);)
            found += strstr(line, "->") && strstr(line, inode);
        fclose(f);
    }
}

/* What is counted ------------------------------------------------------------------------ */

static void test_flock_without_waiting(void **state)
{
    struct scene s;

    (void)state;
    begin(&s);
    assert_int_equal(lockevents_follow(s.e, s.files, 1), 1);
    assert_counted(&s, 0, 0);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(flock(s.a, LOCK_EX | LOCK_NB), 0);
        for (int k = 0; k < 3; k++)
            assert_int_equal(flock(s.b, LOCK_EX | LOCK_NB), -1);
        assert_int_equal(flock(s.a, LOCK_UN), 0);
    }
    assert_counted(&s, 40, 30);
    end(&s);
}

static void test_shared_locks_are_attempts_too(void **state)
{
    struct scene s;

    (void)state;
    begin(&s);
    lockevents_follow(s.e, s.files, 1);
    assert_int_equal(flock(s.a, LOCK_SH | LOCK_NB), 0);
    assert_int_equal(flock(s.b, LOCK_SH | LOCK_NB), 0);
    assert_int_equal(flock(s.b, LOCK_EX | LOCK_NB), -1);
    assert_counted(&s, 3, 1);
    end(&s);
}

static void try_posix(const struct scene *s)
{
    if (lock_range(s->a, F_SETLK, F_WRLCK) == 0 || errno != EAGAIN)
        _exit(1);
}

static void test_posix_and_ofd_without_waiting(void **state)
{
    struct scene s;

    (void)state;
    begin(&s);
    lockevents_follow(s.e, s.files, 1);
    assert_int_equal(lock_range(s.a, F_SETLK, F_WRLCK), 0);
    await_end(in_child(try_posix, &s));
    assert_counted(&s, 2, 1);
    assert_int_equal(lock_range(s.b, F_OFD_SETLK, F_WRLCK), -1);
    assert_counted(&s, 3, 2);
    assert_int_equal(lock_range(s.a, F_GETLK, F_WRLCK), 0);
    assert_int_equal(lock_range(s.a, F_SETLK, F_UNLCK), 0);
    assert_counted(&s, 3, 2);
    end(&s);
}

static void wait_flock(const struct scene *s)
{
    char path[96];

    snprintf(path, sizeof(path), "%s/0", dir);
    close(s->a);
    if (flock(open(path, O_RDWR | O_CLOEXEC), LOCK_EX) != 0)
        _exit(1);
}

static void wait_posix(const struct scene *s)
{
    if (lock_range(s->a, F_SETLKW, F_WRLCK) != 0)
        _exit(1);
}

static void wait_ofd(const struct scene *s)
{
    if (lock_range(s->b, F_OFD_SETLKW, F_WRLCK) != 0 || lock_range(s->b, F_OFD_SETLK, F_UNLCK) != 0)
        _exit(1);
}

/* The kernel tells of them when they go to sleep, and when they get it. */
static void test_who_waits_is_counted_once(void **state)
{
    struct scene s;
    pid_t child[3];

    (void)state;
    begin(&s);
    lockevents_follow(s.e, s.files, 1);
    assert_int_equal(flock(s.a, LOCK_EX), 0);
    for (int i = 0; i < 3; i++)
        child[i] = in_child(wait_flock, &s);
    await_waiters(&s, 3);
    assert_counted(&s, 1, 0);
    assert_int_equal(flock(s.a, LOCK_UN), 0);
    for (int i = 0; i < 3; i++)
        await_end(child[i]);
    assert_counted(&s, 4, 0);

    assert_int_equal(lock_range(s.a, F_SETLK, F_WRLCK), 0);
    child[0] = in_child(wait_posix, &s);
    child[1] = in_child(wait_ofd, &s);
    await_waiters(&s, 2);
    assert_int_equal(lock_range(s.a, F_SETLK, F_UNLCK), 0);
    await_end(child[0]);
    await_end(child[1]);
    assert_counted(&s, 7, 0);
    end(&s);
}

/* Another file system may use the same inode numbers. */
static void test_other_files_are_not_counted(void **state)
{
    struct scene s;
    struct file_id id;
    char other[80];
    int fd = -1, same = -1;

    (void)state;
    begin(&s);
    snprintf(other, sizeof(other), "%s/other", dir);
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(mount("none", other, "tmpfs", 0, NULL), 0);
    lockevents_follow(s.e, s.files, 1);
    for (int i = 0; i < MANY + 8 && same < 0; i++) {
        open_file(other, i, &fd, &id);
        if (id.inode == s.files[0].inode)
            same = fd;
        else
            close(fd);
    }
    assert_true(same >= 0);
    assert_int_equal(flock(same, LOCK_EX | LOCK_NB), 0);
    open_file(dir, 1, &fd, &id);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_counted(&s, 0, 0);
    assert_int_equal(flock(s.a, LOCK_EX | LOCK_NB), 0);
    assert_counted(&s, 1, 0);
    close(same);
    close(fd);
    assert_int_equal(umount2(other, MNT_DETACH), 0);
    assert_int_equal(rmdir(other), 0);
    end(&s);
}

/* On every CPU that we may use. */
static void test_all_cpus_are_counted(void **state)
{
    struct scene s;
    cpu_set_t all, one;
    uint64_t n = 0;

    (void)state;
    begin(&s);
    lockevents_follow(s.e, s.files, 1);
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all))
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
        assert_int_equal(flock(s.a, LOCK_EX | LOCK_NB), 0);
        assert_int_equal(flock(s.b, LOCK_EX | LOCK_NB), -1);
        assert_int_equal(flock(s.a, LOCK_UN), 0);
        assert_counted(&s, 2 * (n + 1), n + 1);
        n++;
    }
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    end(&s);
}

/* Which files ------------------------------------------------------------------------------ */

static void test_a_file_left_out_begins_anew(void **state)
{
    struct scene s;
    nsec_t since;

    (void)state;
    begin(&s);
    assert_int_equal(lockevents_follow(s.e, s.files, 2), 2);
    assert_int_equal(flock(s.a, LOCK_EX | LOCK_NB), 0);
    since = counts(&s).since;
    assert_true(since > 0 && since <= clock_mono());

    assert_int_equal(lockevents_follow(s.e, s.files, 1), 1); /* it stays */
    assert_counted(&s, 1, 0);
    assert_int_equal(counts(&s).since, since);

    assert_int_equal(lockevents_follow(s.e, s.files + 1, 1), 1);
    assert_int_equal(flock(s.b, LOCK_EX | LOCK_NB), -1);
    assert_int_equal(lockevents_follow(s.e, s.files, 1), 1);
    assert_counted(&s, 0, 0);
    assert_true(counts(&s).since > since);
    assert_int_equal(lockevents_follow(s.e, NULL, 0), 0);
    assert_int_equal(lockevents_read(s.e, 1, &(struct attempt_fact){.until = 0}, 1), 0);
    end(&s);
}

static void test_no_more_than_so_many(void **state)
{
    struct scene s;
    struct attempt_fact out[MANY];
    struct file_id twice[2];

    (void)state;
    begin(&s);
    size_t n = lockevents_follow(s.e, s.files, MANY);
    assert_in_range(n, 1, LOCKEVENTS_FILES);
    assert_int_equal(lockevents_read(s.e, 1, out, MANY), n);
    assert_int_equal(lockevents_read(s.e, 1, out, 1), 1);
    twice[0] = twice[1] = s.files[0];
    assert_int_equal(lockevents_follow(s.e, twice, 2), 1);
    end(&s);
}

/* Sweeps wait for it: where the last counter of a tracepoint is closed the kernel takes that out,
 * which takes four of them. */
static void test_to_end_is_as_quick_as_to_begin(void **state)
{
    struct scene s;
    nsec_t best = INT64_MAX;

    (void)state;
    begin(&s);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(lockevents_follow(s.e, s.files, 1), 1);
        nsec_t before = clock_mono();
        assert_int_equal(lockevents_follow(s.e, NULL, 0), 0);
        best = MIN(best, clock_mono() - before);
    }
    assert_true(best < 15 * NSEC_PER_MSEC);
    end(&s);
}

/* Too few of them to count on each CPU: part of a count would be told as the whole. */
static void test_too_few_descriptors(void **state)
{
    struct scene s;
    struct rlimit before, few;

    (void)state;
    begin(&s);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int next = dup(s.a);
    close(next);
    few = before;
    few.rlim_cur = (rlim_t)next + (rlim_t)sysconf(_SC_NPROCESSORS_ONLN) * 4 - 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(lockevents_follow(s.e, s.files, 1), 0);
    int left = dup(s.a); /* all were given back */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(left, next);
    close(left);
    assert_int_equal(lockevents_follow(s.e, s.files, 1), 1);
    end(&s);
}

/* Why not ---------------------------------------------------------------------------------- */

static void test_without_tracefs(void **state)
{
    const char *why = NULL;
    bool hidden;

    (void)state;
    hidden = own_namespace && mount("none", TRACEFS, "tmpfs", 0, NULL) == 0;
    bool covered = hidden && access(DEBUGFS, F_OK) == 0 &&
                   mount("none", DEBUGFS, "tmpfs", 0, NULL) == 0;
    if (!hidden) {
        print_message("no mount namespace of our own\n");
        skip();
    }
    struct lockevents *e = lockevents_open(&why);
    umount2(TRACEFS, MNT_DETACH);
    if (covered)
        umount2(DEBUGFS, MNT_DETACH);
    assert_null(e);
    assert_string_equal(why,
                        "tracefs is not mounted (mount -t tracefs nodev /sys/kernel/tracing)");
}

static void open_as_nobody(const struct scene *s)
{
    const char *why = NULL;

    (void)s;
    if (setgid(65534) != 0 || setuid(65534) != 0)
        _exit(1);
    _exit(lockevents_open(&why) || !strstr(why, "may not be read: run as root") ? 2 : 0);
}

static void test_another_user(void **state)
{
    struct scene s;
    struct stat st;

    (void)state;
    begin(&s);
    assert_int_equal(stat(TRACEFS, &st), 0);
    if (st.st_mode & 0007) {
        end(&s);
        print_message("everybody may read tracefs here\n");
        skip();
    }
    await_end(in_child(open_as_nobody, &s));
    end(&s);
}

/* In a sweep ------------------------------------------------------------------------------- */

static size_t look(struct events *ev, const struct file_fact *files, size_t n, nsec_t now)
{
    struct sample sample = {.files = files, .nfiles = n};
    struct self_fact self = {.attempts_counted = false};

    events_look(ev, &sample, now, &self);
    assert_true(self.attempts_counted);
    assert_null(self.attempts_why);
    assert_ptr_equal(sample.attempts, ev->facts);
    return sample.nattempts;
}

/* Refusals of a file server pass no tracepoint. */
static void test_files_of_a_sweep(void **state)
{
    struct scene s;
    struct events ev = {0};
    struct file_fact files[3];

    (void)state;
    begin(&s);
    events_open(&ev);
    files[0] = (struct file_fact){.file = s.files[1], .fs = FS_NFS};
    files[1] = (struct file_fact){.file = s.files[2], .fs = FS_FUSE};
    files[2] = (struct file_fact){.file = s.files[0], .fs = FS_LOCAL};
    assert_int_equal(look(&ev, files, 3, NSEC_PER_SEC), 1);
    assert_int_equal(ev.facts[0].file.inode, s.files[0].inode);
    assert_int_equal(ev.facts[0].attempts, 0);
    assert_int_equal(flock(s.a, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(flock(s.b, LOCK_EX | LOCK_NB), -1);
    assert_int_equal(look(&ev, files, 3, NSEC_PER_SEC + 249 * NSEC_PER_MSEC), 0);
    assert_int_equal(look(&ev, files, 3, NSEC_PER_SEC + 250 * NSEC_PER_MSEC), 1);
    assert_int_equal(ev.facts[0].attempts, 2);
    assert_int_equal(ev.facts[0].refused, 1);
    assert_int_equal(look(&ev, files, 2, 2 * NSEC_PER_SEC), 0);
    events_close(&ev);
    assert_null(ev.counters);
    end(&s);
}

static void test_not_asked_for_is_not_counted(void **state)
{
    struct events ev = {0};
    struct file_fact file = {.file = {1, 2}};
    struct sample sample = {.files = &file, .nfiles = 1};
    struct self_fact self = {.attempts_counted = true};

    (void)state;
    events_look(&ev, &sample, NSEC_PER_SEC, &self);
    assert_false(self.attempts_counted);
    assert_null(self.attempts_why);
    assert_int_equal(sample.nattempts, 0);
    events_close(&ev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flock_without_waiting),
        cmocka_unit_test(test_shared_locks_are_attempts_too),
        cmocka_unit_test(test_posix_and_ofd_without_waiting),
        cmocka_unit_test(test_who_waits_is_counted_once),
        cmocka_unit_test(test_other_files_are_not_counted),
        cmocka_unit_test(test_all_cpus_are_counted),
        cmocka_unit_test(test_a_file_left_out_begins_anew),
        cmocka_unit_test(test_no_more_than_so_many),
        cmocka_unit_test(test_to_end_is_as_quick_as_to_begin),
        cmocka_unit_test(test_too_few_descriptors),
        cmocka_unit_test(test_without_tracefs),
        cmocka_unit_test(test_another_user),
        cmocka_unit_test(test_files_of_a_sweep),
        cmocka_unit_test(test_not_asked_for_is_not_counted),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}

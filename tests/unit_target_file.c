/* Processes that lock a file or wait for it, as they come and go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "target_play.h"

struct place {
    char dir[64], file[96], link[96], fifo[96];
};

static int make_place(void **state)
{
    struct place *p = calloc(1, sizeof(*p));

    snprintf(p->dir, sizeof(p->dir), "/tmp/lock-top-find.XXXXXX");
    if (!mkdtemp(p->dir))
        return -1;
    snprintf(p->file, sizeof(p->file), "%s/the.lock", p->dir);
    snprintf(p->link, sizeof(p->link), "%s/link", p->dir);
    snprintf(p->fifo, sizeof(p->fifo), "%s/fifo", p->dir);
    int fd = open(p->file, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    close(fd);
    *state = p;
    return fd < 0 || symlink("the.lock", p->link) || mkfifo(p->fifo, 0666);
}

static int remove_place(void **state)
{
    struct place *p = *state;

    unlink(p->file);
    unlink(p->link);
    unlink(p->fifo);
    rmdir(p->dir);
    free(p);
    return 0;
}

static struct target *lockers_of(const char *path)
{
    struct target *t = seek((struct target_spec){.file = path});

    assert_non_null(t);
    assert_string_equal(err, "");
    assert_true(target_may_come(t));
    return t;
}

static void test_lockers_come_and_go(void **state)
{
    const char *path = ((struct place *)*state)->file;
    struct target *t = lockers_of(path);

    await_list(t, NULL, 0);
    pid_t holder = settled((struct role){.path = path, .kind = LOCK_EX});
    await_list(t, &holder, 1);
    pid_t waiter = begin((struct role){.path = path, .kind = LOCK_EX}, NULL);
    await_pair(t, holder, waiter);
    end(holder);
    await_list(t, &waiter, 1);
    end(waiter);
    await_list(t, NULL, 0);
    assert_int_equal(target_denied(t), 0);
    target_free(t, 0);
}

static void test_every_kind_of_lock(void **state)
{
    static const int kinds[] = {LOCK_EX, LOCK_SH, KIND_POSIX, KIND_OFD, KIND_LEASE};
    const char *path = ((struct place *)*state)->file;
    struct target *t = lockers_of(path);

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        pid_t holder = settled((struct role){.path = path, .kind = kinds[i]});
        await_list(t, &holder, 1);
        struct target *late = lockers_of(path);
        await_list(late, &holder, 1);
        target_free(late, 0);
        end(holder);
        await_list(t, NULL, 0);
    }
    target_free(t, 0);
}

/* Takes the lock, tells, and lets go of it when it is told to. */
static void NORETURN lock_for_a_moment(const char *path, int told, int tell)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char byte = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (flock(fd, LOCK_EX) != 0 || write(tell, &byte, 1) != 1 || read(told, &byte, 1) != 1 ||
        flock(fd, LOCK_UN) != 0 || write(tell, &byte, 1) != 1)
        _exit(1);
    sleep_for_ever();
}

/* Who locks for moments is met by few looks; it stays for a while. */
static void test_locker_of_a_moment_stays(void **state)
{
    const char *path = ((struct place *)*state)->file;
    int to[2], from[2];
    char byte = 0;

    assert_int_equal(pipe(to) | pipe(from), 0);
    pid_t pid = fork();
    if (pid == 0)
        lock_for_a_moment(path, to[0], from[1]);
    assert_int_equal(read(from[0], &byte, 1), 1);
    struct target *t = lockers_of(path);
    await_list(t, &pid, 1);
    assert_int_equal(write(to[1], &byte, 1), 1);
    assert_int_equal(read(from[0], &byte, 1), 1);
    assert_true(lists(t, pid));
    end(pid);
    await_list(t, NULL, 0);
    target_free(t, 0);
    for (int i = 0; i < 2; i++) {
        close(to[i]);
        close(from[i]);
    }
}

/* Looks that find it through the descriptor that they know go on finding it. */
static void test_nameless_holder_stays(void **state)
{
    const char *path = ((struct place *)*state)->file;
    pid_t holder = settled((struct role){.path = path, .kind = KIND_OFD});
    struct target *t = lockers_of(path);
    const pid_t *pids;

    for (int i = 0; i < 10; i++) {
        assert_int_equal(look(t, &pids), 1);
        assert_int_equal(pids[0], holder);
    }
    target_free(t, 0);
    end(holder);
}

/* Though everybody was searched before, and another lock's holder is known. */
static void test_nameless_holder_is_found_at_once(void **state)
{
    const char *path = ((struct place *)*state)->file;
    pid_t first = settled((struct role){.path = path, .kind = LOCK_EX});
    struct target *t = lockers_of(path);

    await_list(t, &first, 1);
    for (int i = 0; i < 6; i++) { /* wherever the turn of everybody is */
        pid_t second = settled((struct role){.path = path, .kind = KIND_OFD});
        assert_true(lists(t, second));
        end(second);
        assert_false(lists(t, second));
    }
    target_free(t, 0);
    end(first);
}

static void test_shared_holders(void **state)
{
    const char *path = ((struct place *)*state)->file;
    pid_t a = settled((struct role){.path = path, .kind = LOCK_SH});
    pid_t b = settled((struct role){.path = path, .kind = LOCK_SH});
    struct target *t = lockers_of(path);

    await_pair(t, a, b);
    target_free(t, 0);
    end(a);
    end(b);
}

/* Of a locker and its child both hold; and the child alone when the locker has ended, reaped or
 * not. */
static void test_child_that_inherits(void **state)
{
    const char *path = ((struct place *)*state)->file;
    pid_t child,
        taker = begin((struct role){.path = path, .kind = LOCK_EX, .by_child = true}, &child);
    struct target *t = lockers_of(path);
    siginfo_t info;

    await_pair(t, taker, child);
    kill(taker, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)taker, &info, WEXITED | WNOWAIT), 0);
    await_list(t, &child, 1);
    assert_int_equal(waitpid(taker, NULL, 0), taker);
    await_list(t, &child, 1);
    end(child);
    await_list(t, NULL, 0);
    target_free(t, 0);
}

/* Who has passed the lock on holds it no longer, though the kernel goes on to name it. */
static void test_one_that_got_it_from_a_living_taker(void **state)
{
    const char *path = ((struct place *)*state)->file;
    pid_t orphan,
        taker = begin((struct role){.path = path, .kind = LOCK_EX, .by_orphan = true}, &orphan);
    struct target *t = lockers_of(path);

    await_list(t, &orphan, 1);
    for (int i = 0; i < 10; i++)
        assert_false(lists(t, taker));
    end(orphan);
    await_list(t, NULL, 0);
    target_free(t, 0);
    end(taker);
}

static void pass_to_orphan(int sig UNUSED)
{
    pid_t child = fork();

    if (child == 0 && fork() == 0) {
        alarm(600);
        sleep_for_ever();
    }
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
}

/* One that is listed and neither TAKER nor a child of it; 0: none. */
static pid_t one_of_another(struct target *t, pid_t taker)
{
    struct proclist *l = proclist_open();
    struct proc_entry e;
    const pid_t *pids;
    size_t n = look(t, &pids);
    pid_t found = 0;

    for (size_t i = 0; i < n; i++) {
        if (pids[i] != taker && proclist_one(l, pids[i], &e) == 0 && e.ppid != taker)
            found = pids[i];
    }
    proclist_close(l);
    return found;
}

/* A taker that holds it as well hides whom it passed it on to, until everybody is searched. */
static void test_one_that_gets_it_later(void **state)
{
    const char *path = ((struct place *)*state)->file;
    nsec_t deadline = clock_mono() + PATIENCE;
    pid_t orphan;

    signal(SIGUSR1, pass_to_orphan); /* the taker inherits that */
    pid_t taker = settled((struct role){.path = path, .kind = LOCK_EX});
    signal(SIGUSR1, SIG_DFL);
    struct target *t = lockers_of(path);
    await_list(t, &taker, 1);
    kill(taker, SIGUSR1);
    while ((orphan = one_of_another(t, taker)) == 0 && clock_mono() < deadline)
        usleep(2000);
    assert_int_not_equal(orphan, 0);
    await_pair(t, taker, orphan);
    end(taker);
    await_list(t, &orphan, 1);
    end(orphan);
    await_list(t, NULL, 0);
    target_free(t, 0);
}

static void test_never_itself(void **state)
{
    const char *path = ((struct place *)*state)->file;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct target *t = lockers_of(path);

    assert_true(take_lock(fd, LOCK_EX));
    await_list(t, NULL, 0);
    pid_t waiter = begin((struct role){.path = path, .kind = LOCK_EX}, NULL);
    await_list(t, &waiter, 1);
    end(waiter);
    target_free(t, 0);
    close(fd);
}

/* Nothing of it is opened: a FIFO that nobody writes to does not block, and a link is followed. */
static void test_other_paths(void **state)
{
    const struct place *p = *state;
    struct target *fifo = lockers_of(p->fifo), *dir = lockers_of(p->dir);
    struct target *by_link = lockers_of(p->link);
    pid_t holder = settled((struct role){.path = p->file, .kind = LOCK_EX});

    await_list(by_link, &holder, 1);
    await_list(fifo, NULL, 0);
    await_list(dir, NULL, 0);
    end(holder);
    target_free(fifo, 0);
    target_free(dir, 0);
    target_free(by_link, 0);
}

/* It lies in a file system that is mounted nowhere. */
static void test_file_without_a_mount(void **state UNUSED)
{
    char path[64];
    int fd = memfd_create("lock-top-test", MFD_CLOEXEC);

    assert_true(fd >= 0);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
    struct target *t = lockers_of(path);
    pid_t holder = settled((struct role){.path = path, .kind = LOCK_EX});
    await_list(t, &holder, 1);
    end(holder);
    await_list(t, NULL, 0);
    target_free(t, 0);
    close(fd);
}

static void test_file_that_is_not_there(void **state)
{
    char path[160], want[512];

    snprintf(path, sizeof(path), "%s/no\033such", ((struct place *)*state)->dir);
    assert_null(seek((struct target_spec){.file = path}));
    assert_int_equal(status, EXIT_NOTHING);
    snprintf(
        want, sizeof(want),
        "cannot look at the file '%s/no\\x1bsuch': No such file or directory; give the path of "
        "a file that is there (lslocks lists those that are locked)",
        ((struct place *)*state)->dir);
    assert_string_equal(err, want);
    snprintf(path, sizeof(path), "%s/under", ((struct place *)*state)->file);
    assert_null(seek((struct target_spec){.file = path}));
    assert_int_equal(status, EXIT_NOTHING);
    assert_non_null(strstr(err, "Not a directory"));
}

#define file_test(f) cmocka_unit_test_setup_teardown(f, make_place, remove_place)

int main(void)
{
    const struct CMUnitTest tests[] = {
        file_test(test_lockers_come_and_go),
        file_test(test_every_kind_of_lock),
        file_test(test_nameless_holder_stays),
        file_test(test_locker_of_a_moment_stays),
        file_test(test_nameless_holder_is_found_at_once),
        file_test(test_shared_holders),
        file_test(test_child_that_inherits),
        file_test(test_one_that_got_it_from_a_living_taker),
        file_test(test_one_that_gets_it_later),
        file_test(test_never_itself),
        file_test(test_other_paths),
        cmocka_unit_test(test_file_without_a_mount),
        file_test(test_file_that_is_not_there),
    };

    prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans come to this one, whatever ends them */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

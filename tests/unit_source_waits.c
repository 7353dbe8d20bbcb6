/* What blocked threads want that no futex word tells: locks on files, System V semaphores; and
 * where in the kernel they sleep. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <elf.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/sysmacros.h>

#include "source_tree.h"

#define TID     4001
#define LOCAL   "36 25 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
#define NFS     "37 36 0:45 / /mnt rw,relatime shared:2 - nfs4 10.0.0.5:/x rw,vers=4.2\n"
#define FDINFO  "pos:\t100\nflags:\t02\nmnt_id:\t36\nino:\t77\n"
#define ON_NFS  "pos:\t0\nflags:\t02\nmnt_id:\t37\nino:\t78\n"
#define FLOCKED "73 0x7 0x2 0x0 0x0 0x0 0x0 0x7ffc0000 0x7f02"
#define SETLKW  "72 0x7 0x7 0x5000 0x0 0x0 0x0 0x7ffc0000 0x7f02"
#define SEMOP   "65 0x3 0x5000 0x2 0x0 0x0 0x0 0x7ffc0000 0x7f02"

/* What stands at 0x5000 of the target; elsewhere there are zeros. */
static uint8_t memory[256];

static int read_memory(pid_t pid UNUSED, struct remote_item *items, size_t n)
{
    reads++;
    if (refuse)
        return refuse;
    for (size_t i = 0; i < n; i++) {
        bool here = items[i].addr == 0x5000 && items[i].len <= sizeof(memory);
        memset(items[i].dst, 0, items[i].len);
        if (here)
            memcpy(items[i].dst, memory, items[i].len);
        items[i].got = items[i].len;
    }
    return (int)n;
}

/* Its first thread sleeps, and TID is in CALL with a file of FDINFO at descriptor 7. */
static void scene(struct tree *t, struct watch *w, const char *call, const char *fdinfo)
{
    char path[128];

    make_tree(t, 'S');
    tree_thread(t, PID, TID, 101, 3, call);
    tree_put(t, "4000/mountinfo", LOCAL NFS);
    tree_put(t, "4000/task/4001/fdinfo/7", "%s", fdinfo);
    tree_put(t, "4000/task/4001/fd/0", "%s", "");
    tree_put(t, "file", "%0250d", 0);
    tree_put(t, "self/mountinfo", "40 25 0:50 / /hidden rw - ext4 /dev/vdb rw\n");
    snprintf(path, sizeof(path), "%s/4000/task/4001/fd/7", t->root);
    char file[128];
    snprintf(file, sizeof(file), "%s/file", t->root);
    assert_int_equal(symlink(file, path), 0);
    watch_tree(w, t->root, read_memory, &the_pid, 1);
}

static struct file_lock wanted(const char *call, const char *fdinfo)
{
    struct tree t;
    struct watch w;

    scene(&t, &w, call, fdinfo);
    struct file_lock lock = look(&w, TID)->wants;
    close_tree(&t, &w);
    return lock;
}

static void test_flock(void **state UNUSED)
{
    struct file_lock l = wanted(FLOCKED, FDINFO);

    assert_int_equal(l.kind, FILELOCK_FLOCK);
    assert_true(l.exclusive);
    assert_int_equal(l.file.dev, makedev(254, 0));
    assert_int_equal(l.file.inode, 77);
    assert_true(l.start == 0 && l.end == FILE_END);
    /* The upper half of a register is noise. */
    l = wanted("73 0x7 0x5500000001 0x0 0x0 0x0 0x0 0x7ffc0000 0x7f02", FDINFO);
    assert_int_equal(l.kind, FILELOCK_FLOCK);
    assert_false(l.exclusive);
    /* Giving it up, and not wanting to wait. */
    assert_int_equal(wanted("73 0x7 0x8 0x0 0x0 0x0 0x0 0x1 0x2", FDINFO).kind, FILELOCK_NONE);
    assert_int_equal(wanted("73 0x7 0x6 0x0 0x0 0x0 0x0 0x1 0x2", FDINFO).kind, FILELOCK_NONE);
    assert_int_equal(reads, 0);
}

static void put_flock(int16_t type, int16_t whence, int64_t start, int64_t len)
{
    memcpy(memory, &type, 2);
    memcpy(memory + 2, &whence, 2);
    memcpy(memory + 8, &start, 8);
    memcpy(memory + 16, &len, 8);
}

static void test_ranges(void **state UNUSED)
{
    static const struct {
        int16_t type, whence;
        int64_t start, len;
        uint64_t first, last;
    } cases[] = {
        {F_WRLCK, SEEK_SET, 0, 0, 0, FILE_END},
        {F_RDLCK, SEEK_SET, 10, 5, 10, 14},
        {F_WRLCK, SEEK_SET, 10, -4, 6, 9},
        {F_WRLCK, SEEK_SET, 7, 0, 7, FILE_END},
        {F_WRLCK, SEEK_CUR, 5, 1, 105, 105},
        {F_WRLCK, SEEK_CUR, -100, 100, 0, 99},
        {F_WRLCK, SEEK_END, -50, 0, 200, FILE_END},
        {F_WRLCK, SEEK_SET, 5, INT64_MAX - 4, 5, FILE_END},
        /* What the kernel would not have taken: not known. */
        {F_WRLCK, SEEK_SET, -1, 5, 0, FILE_END},
        {F_WRLCK, SEEK_CUR, INT64_MAX, 5, 0, FILE_END},
        {F_WRLCK, SEEK_SET, 9, INT64_MIN, 0, FILE_END},
        {F_WRLCK, 9, 5, 5, 0, FILE_END},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        put_flock(cases[i].type, cases[i].whence, cases[i].start, cases[i].len);
        struct file_lock l = wanted(SETLKW, FDINFO);
        assert_int_equal(l.kind, FILELOCK_POSIX);
        assert_int_equal(l.exclusive, cases[i].type == F_WRLCK);
        assert_int_equal(l.file.inode, 77);
        if (l.start != cases[i].first || l.end != cases[i].last)
            fail_msg("%zu: %ju to %ju", i, (uintmax_t)l.start, (uintmax_t)l.end);
    }
}

static void test_commands_of_fcntl(void **state UNUSED)
{
    put_flock(F_WRLCK, SEEK_SET, 0, 0);
    assert_int_equal(wanted("72 0x7 0x26 0x5000 0x0 0x0 0x0 0x1 0x2", FDINFO).kind, FILELOCK_OFD);
    assert_int_equal(wanted("72 0x7 0xe 0x5000 0x0 0x0 0x0 0x1 0x2", FDINFO).kind, FILELOCK_POSIX);
    assert_int_equal(wanted("72 0x7 0x6 0x5000 0x0 0x0 0x0 0x1 0x2", FDINFO).kind, FILELOCK_NONE);
    put_flock(F_UNLCK, SEEK_SET, 0, 0);
    assert_int_equal(wanted(SETLKW, FDINFO).kind, FILELOCK_NONE);
    refuse = -EPERM; /* all that it can be */
    struct file_lock l = wanted(SETLKW, FDINFO);
    assert_int_equal(l.kind, FILELOCK_POSIX);
    assert_int_equal(l.file.inode, 77);
    assert_true(l.exclusive && l.start == 0 && l.end == FILE_END);
}

static void put_elf32(const struct tree *t)
{
    unsigned char head[20] = {0x7f, 'E', 'L', 'F', ELFCLASS32, ELFDATA2LSB};
    char path[128];

    head[18] = EM_386;
    snprintf(path, sizeof(path), "%s/4000/exe", t->root);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(head, sizeof(head), 1, f), 1);
    fclose(f);
}

static const struct thread_fact *compat_look(struct tree *t, struct watch *w, const char *call)
{
    make_tree(t, 'S');
    put_elf32(t);
    tree_thread(t, PID, TID, 101, 3, call);
    tree_put(t, "4000/mountinfo", LOCAL);
    tree_put(t, "4000/task/4001/fdinfo/7", FDINFO);
    watch_tree(w, t->root, read_memory, &the_pid, 1);
    return look(w, TID);
}

/* The two layouts of struct flock on i386, and its one call for all of System V IPC. */
static void test_32_bits(void **state UNUSED)
{
#ifdef __x86_64__
    static const struct {
        const char *call;
        int at, size; /* of the offsets */
    } cases[] = {
        {"55 0x7 0x7 0x5000 0x0 0x0 0x0 0xffc0000 0x7f02", 4, 4},
        {"221 0x7 0xe 0x5000 0x0 0x0 0x0 0xffc0000 0x7f02", 4, 8},
        {"221 0x7 0x26 0x5000 0x0 0x0 0x0 0xffc0000 0x7f02", 4, 8},
    };
    static const int16_t ops[] = {2, -1, 0};
    int64_t start = 64, len = 32;
    struct tree t;
    struct watch w;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        memset(memory, 0, sizeof(memory));
        memory[0] = F_WRLCK;
        memcpy(memory + cases[i].at, &start, (size_t)cases[i].size);
        memcpy(memory + cases[i].at + cases[i].size, &len, (size_t)cases[i].size);
        const struct thread_fact *f = compat_look(&t, &w, cases[i].call);
        assert_int_equal(f->wants.kind, i < 2 ? FILELOCK_POSIX : FILELOCK_OFD);
        assert_int_equal(f->wants.start, 64);
        assert_int_equal(f->wants.end, 95);
        close_tree(&t, &w);
    }
    memcpy(memory, ops, sizeof(ops));
    const struct thread_fact *f =
        compat_look(&t, &w, "117 0x10001 0x9 0x1 0x0 0x5000 0x0 0xffc0000 0x7f02");
    assert_int_equal(f->call, CALL_semop);
    assert_int_equal(f->sem.id, 9);
    assert_int_equal(f->sem.num, 2);
    assert_int_equal(f->sem.op, -1);
    assert_false(f->sem.timed);
    close_tree(&t, &w);
    f = compat_look(&t, &w, "117 0x4 0x9 0x1 0x0 0x5000 0x6000 0xffc0000 0x7f02");
    assert_int_equal(f->call, CALL_semtimedop);
    assert_true(f->sem.timed);
    close_tree(&t, &w);
    f = compat_look(&t, &w, "117 0xc 0x9 0x1 0x0 0x5000 0x0 0xffc0000 0x7f02"); /* msgrcv */
    assert_int_equal(f->call, CALL_ipc);
    assert_int_equal(f->sem.id, -1);
    close_tree(&t, &w);
#else
    skip();
#endif
}

/* Linux before 5.14 does not tell the inode; some mounts only we can see, some nobody. */
static void test_which_file(void **state UNUSED)
{
    struct tree t;
    struct watch w;
    struct stat st;
    char file[128];

    scene(&t, &w, FLOCKED, "pos:\t0\nflags:\t02\nmnt_id:\t36\n");
    snprintf(file, sizeof(file), "%s/file", t.root);
    assert_int_equal(stat(file, &st), 0);
    struct file_id id = look(&w, TID)->wants.file;
    assert_int_equal(id.dev, makedev(254, 0));
    assert_int_equal(id.inode, st.st_ino);
    close_tree(&t, &w);

    id = wanted(FLOCKED, "pos:\t0\nflags:\t02\nmnt_id:\t40\nino:\t5\n").file;
    assert_int_equal(id.dev, makedev(0, 50));
    assert_int_equal(id.inode, 5);

    scene(&t, &w, FLOCKED, "pos:\t0\nflags:\t02\nmnt_id:\t99\nino:\t5\n");
    snprintf(file, sizeof(file), "%s/file", t.root);
    assert_int_equal(stat(file, &st), 0);
    id = look(&w, TID)->wants.file;
    assert_int_equal(id.dev, st.st_dev);
    assert_int_equal(id.inode, st.st_ino);
    close_tree(&t, &w);

    id = wanted("73 0x8 0x2 0x0 0x0 0x0 0x0 0x1 0x2", FDINFO).file; /* no such descriptor */
    assert_true(id.dev == 0 && id.inode == 0);
}

/* A thread that sleeps on is not asked again; one that comes anew is. */
static void test_read_once_a_sleep(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    put_flock(F_WRLCK, SEEK_SET, 1, 1);
    scene(&t, &w, SETLKW, FDINFO);
    assert_int_equal(look(&w, TID)->wants.start, 1);
    assert_int_equal(reads, 1);
    put_flock(F_WRLCK, SEEK_SET, 2, 1);
    assert_int_equal(look(&w, TID)->wants.start, 1);
    assert_int_equal(reads, 1);
    tree_thread(&t, PID, TID, 101, 4, SETLKW);
    assert_int_equal(look(&w, TID)->wants.start, 2);
    assert_int_equal(reads, 2);
    tree_thread(&t, PID, TID, 101, 5, IDLE);
    assert_int_equal(look(&w, TID)->wants.kind, FILELOCK_NONE);
    tree_thread(&t, PID, TID, 101, 6, "-1 0x7ffc0000 0x7f02");
    assert_int_equal(look(&w, TID)->wants.kind, FILELOCK_NONE);
    close_tree(&t, &w);
}

/* The path is there in the sweep that sees the wait, though 200 threads poll; and it belongs to the
 * file that is locked, though the descriptor was another file's a moment ago. */
static void test_path_at_once(void **state UNUSED)
{
    struct tree t;
    struct watch w;
    char path[128];

    scene(&t, &w, FLOCKED, FDINFO);
    for (int i = 2; i <= 202; i++)
        tree_thread(&t, PID, 4000 + i, 101, 3, "232 0x7 0x0 0x0 0x0 0x0 0x0 0x1 0x2");
    const struct thread_fact *f = look(&w, TID);
    assert_int_equal(f->fd_kind, FD_FILE);
    assert_string_equal(strrchr(f->fd_path, '/'), "/file");
    snprintf(path, sizeof(path), "%s/4000/task/4001/fd/7", t.root);
    unlink(path);
    assert_int_equal(symlink("/other (deleted)", path), 0);
    tree_put(&t, "4000/task/4001/fdinfo/7", "pos:\t0\nmnt_id:\t36\nino:\t79\n");
    tree_thread(&t, PID, TID, 101, 4, FLOCKED);
    f = look(&w, TID);
    assert_int_equal(f->wants.file.inode, 79);
    assert_string_equal(f->fd_path, "/other (deleted)");
    close_tree(&t, &w);
}

static struct sem_wait sem_of(const char *call)
{
    struct tree t;
    struct watch w;

    scene(&t, &w, call, FDINFO);
    struct sem_wait s = look(&w, TID)->sem;
    close_tree(&t, &w);
    return s;
}

static void test_semop(void **state UNUSED)
{
    /* Gives 1, then takes 3 of it. */
    static const int16_t two[] = {1, 1, 0, 5, -3, 0x1000 /* SEM_UNDO */};
    static const int16_t zero[] = {6, 0, 0, 5, -3, 0};

    memcpy(memory, two, sizeof(two));
    struct sem_wait s = sem_of(SEMOP);
    assert_int_equal(s.id, 3);
    assert_int_equal(s.num, 5);
    assert_int_equal(s.op, -3);
    assert_int_equal(s.nops, 2);
    assert_true(s.undo && !s.timed);
    s = sem_of("65 0x3 0x5000 0x1 0x0 0x0 0x0 0x1 0x2"); /* only the first: gives */
    assert_int_equal(s.num, 1);
    assert_int_equal(s.op, 1);
    memcpy(memory, zero, sizeof(zero));
    s = sem_of("220 0x3 0x5000 0x2 0x6000 0x0 0x0 0x1 0x2"); /* semtimedop */
    assert_int_equal(s.num, 6);
    assert_int_equal(s.op, 0);
    assert_true(s.timed);
    s = sem_of("65 0x3 0x5000 0x7700000200 0x0 0x0 0x0 0x1 0x2"); /* 512: just the first are read */
    assert_int_equal(s.nops, 512);
    assert_int_equal(s.num, 6);
    refuse = -EPERM;
    s = sem_of(SEMOP);
    assert_int_equal(s.id, 3);
    assert_int_equal(s.nops, 0);
    refuse = 0;
    assert_int_equal(sem_of(FLOCKED).id, -1);
    assert_int_equal(sem_of(IDLE).id, -1);
}

/* Inside the kernel ------------------------------------------------------------------------ */

static void sleeps_in(const struct tree *t, int tid, const char *wchan, char state)
{
    char dir[64], rel[96];

    snprintf(dir, sizeof(dir), "4000/task/%d", tid);
    tree_stat(t, dir, tid, "worker", state, 101, 0);
    snprintf(rel, sizeof(rel), "%s/wchan", dir);
    tree_put(t, rel, "%s", wchan);
}

/* In which look the kernel function stands there: 0 in none. */
static int look_with_wchan(const char *call, const char *fdinfo, char state)
{
    struct tree t;
    struct watch w;
    int when = 0;

    scene(&t, &w, call, fdinfo);
    sleeps_in(&t, TID, "down_read", state);
    for (int i = 1; i <= 3 && !when; i++) {
        const struct thread_fact *f = look(&w, TID);
        if (!f->wchan)
            continue;
        when = i;
        assert_string_equal(f->wchan, "down_read");
        assert_int_equal(f->uninterruptible, state == 'D');
    }
    close_tree(&t, &w);
    return when;
}

static void test_whose_wchan_is_read(void **state UNUSED)
{
    put_flock(F_WRLCK, SEEK_SET, 0, 0);
    assert_int_equal(look_with_wchan("-1 0x7ffc0000 0x7f02", FDINFO, 'D'), 1);
    assert_int_equal(look_with_wchan("11 0x1000 0x1000 0x0 0x0 0x0 0x0 0x1 0x2", FDINFO, 'D'), 1);
    assert_int_equal(look_with_wchan("0 0x7 0x0 0x0 0x0 0x0 0x0 0x1 0x2", FDINFO, 'S'), 1);
    assert_int_equal(look_with_wchan("74 0x7 0x0 0x0 0x0 0x0 0x0 0x1 0x2", FDINFO, 'D'), 1);
    assert_int_equal(look_with_wchan("87 0x7 0x0 0x0 0x0 0x0 0x0 0x1 0x2", FDINFO, 'D'), 1);
    /* Locks on the files of a server. */
    assert_int_equal(look_with_wchan(FLOCKED, ON_NFS, 'D'), 2);
    assert_int_equal(look_with_wchan(SETLKW, ON_NFS, 'D'), 2);
    assert_int_equal(look_with_wchan(FLOCKED, FDINFO, 'S'), 0);
    assert_int_equal(look_with_wchan(SETLKW, FDINFO, 'S'), 0);
    /* The call says it all. */
    assert_int_equal(look_with_wchan(LOCK, FDINFO, 'S'), 0);
    assert_int_equal(look_with_wchan(IDLE, FDINFO, 'S'), 0);
    assert_int_equal(look_with_wchan(SEMOP, FDINFO, 'S'), 0);
    assert_int_equal(look_with_wchan("232 0x7 0x0 0x0 0x0 0x0 0x0 0x1 0x2", FDINFO, 'S'), 0);
    /* A call that is not known: only where it cannot be interrupted. */
    assert_int_equal(look_with_wchan("9999 0x0 0x0 0x0 0x0 0x0 0x0 0x1 0x2", FDINFO, 'S'), 0);
    assert_int_equal(look_with_wchan("9999 0x0 0x0 0x0 0x0 0x0 0x0 0x1 0x2", FDINFO, 'D'), 2);
}

static void test_wchan_of_one_sleep(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    scene(&t, &w, "74 0x7 0x0 0x0 0x0 0x0 0x0 0x1 0x2", FDINFO);
    sleeps_in(&t, TID, "jbd2_log_wait_commit", 'D');
    sweep(&w);
    assert_string_equal(look(&w, TID)->wchan, "jbd2_log_wait_commit");
    sleeps_in(&t, TID, "folio_wait_bit", 'S'); /* not asked again */
    const struct thread_fact *f = look(&w, TID);
    assert_string_equal(f->wchan, "jbd2_log_wait_commit");
    assert_true(f->uninterruptible);
    tree_thread(&t, PID, TID, 101, 4, "74 0x7 0x0 0x0 0x0 0x0 0x0 0x1 0x2"); /* another sleep */
    assert_string_equal(look(&w, TID)->wchan, "folio_wait_bit");
    tree_thread(&t, PID, TID, 101, 5, IDLE);
    f = look(&w, TID);
    assert_true(!f->wchan && !f->uninterruptible);
    close_tree(&t, &w);
}

static void test_wchan_not_told(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    scene(&t, &w, "-1 0x7ffc0000 0x7f02", FDINFO);
    sleeps_in(&t, TID, "0", 'D');
    const struct thread_fact *f = look(&w, TID);
    assert_true(!f->wchan && !f->uninterruptible);
    close_tree(&t, &w);
    scene(&t, &w, "-1 0x7ffc0000 0x7f02", FDINFO); /* no such file */
    assert_null(look(&w, TID)->wchan);
    close_tree(&t, &w);
}

static int with_wchan(const struct watch *w)
{
    int n = 0;

    for (int i = 1; i <= 40; i++)
        n += thread_in(&w->s, 4000 + i)->wchan != NULL;
    return n;
}

/* 40 at once: so many a sweep, and all in the end. */
static void test_wchan_bounded(void **state UNUSED)
{
    struct tree t;
    struct watch w;

    make_tree(&t, 'S');
    for (int i = 1; i <= 40; i++) {
        tree_thread(&t, PID, 4000 + i, 101, 3, "-1 0x7ffc0000 0x7f02");
        sleeps_in(&t, 4000 + i, "handle_mm_fault", 'D');
    }
    watch_tree(&w, t.root, read_memory, &the_pid, 1);
    sweep(&w);
    int first = with_wchan(&w);
    assert_true(first > 0 && first <= 20);
    sweep(&w);
    assert_int_equal(with_wchan(&w), 2 * first);
    for (int i = 0; i < 3; i++)
        sweep(&w);
    assert_int_equal(with_wchan(&w), 40);
    close_tree(&t, &w);
}

/* Names of files below DIR that are opened while nobody is there for whom that would be. */
static void test_nothing_read_for_nobody(void **state UNUSED)
{
    struct tree t;
    struct watch w;
    char dir[128], event[4096];

    make_tree(&t, 'S');
    for (int i = 1; i <= 4; i++) {
        tree_thread(&t, PID, 4000 + i, 101, 3, i % 2 ? LOCK : IDLE);
        sleeps_in(&t, 4000 + i, "futex_do_wait", 'S');
    }
    watch_tree(&w, t.root, read_pattern, &the_pid, 1);
    int in = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    assert_true(in >= 0);
    sweep(&w);
    for (int i = 1; i <= 4; i++) {
        snprintf(dir, sizeof(dir), "%s/4000/task/%d", t.root, 4000 + i);
        assert_true(inotify_add_watch(in, dir, IN_OPEN) >= 0);
    }
    for (int i = 0; i < 20; i++)
        sweep(&w);
    assert_int_equal(read(in, event, sizeof(event)), -1);
    assert_int_equal(errno, EAGAIN);
    snprintf(dir, sizeof(dir), "%s/4000/task/4001/wchan", t.root);
    close(open(dir, O_RDONLY)); /* it would have been seen */
    assert_true(read(in, event, sizeof(event)) > 0);
    close(in);
    close_tree(&t, &w);
}

static int waits_setup(void **state)
{
    memset(memory, 0, sizeof(memory));
    return fixture_setup(state);
}

#define waits_test(f) cmocka_unit_test_setup_teardown(f, waits_setup, fds_after)

int main(void)
{
    const struct CMUnitTest tests[] = {
        waits_test(test_flock),
        waits_test(test_ranges),
        waits_test(test_commands_of_fcntl),
        waits_test(test_32_bits),
        waits_test(test_which_file),
        waits_test(test_read_once_a_sleep),
        waits_test(test_path_at_once),
        waits_test(test_semop),
        waits_test(test_whose_wchan_is_read),
        waits_test(test_wchan_of_one_sleep),
        waits_test(test_wchan_not_told),
        waits_test(test_wchan_bounded),
        waits_test(test_nothing_read_for_nobody),
    };

    return cmocka_run_group_tests_name("source_waits", tests, NULL, NULL);
}

/* unit_filetab - which rows waits for files and semaphores make, and who is in whose way. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/filetab.h"

#define DEV   0xfe00
#define INODE 1234
#define TICK  (20 * NSEC_PER_MSEC)

static const struct file_id the_file = {.dev = DEV, .inode = INODE};
static const struct process_fact proc1 = {.pid = 100, .start_ticks = 7};
static const struct process_fact proc2 = {.pid = 200, .start_ticks = 8};

static struct file_lock range(enum filelock_kind kind, bool exclusive, uint64_t start, uint64_t end)
{
    return (struct file_lock){
        .kind = kind, .exclusive = exclusive, .file = the_file, .start = start, .end = end};
}

static struct file_lock flock_of(bool exclusive)
{
    return range(FILELOCK_FLOCK, exclusive, 0, FILE_END);
}

/* A table of locks, and what the running sweep says of files. */
struct scene {
    struct locktab locks;
    struct filetab files;
    struct sample sample;
};

static struct scene *scene_new(void)
{
    struct scene *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    s->sample.kind = SAMPLE_SWEEP;
    s->sample.mono = 1000 * NSEC_PER_SEC;
    return s;
}

static void begin(struct scene *s)
{
    s->sample.mono += TICK;
    locktab_begin(&s->locks, &s->sample, 1000 * NSEC_PER_SEC);
    filetab_take(&s->files, &s->sample);
}

static void end(struct scene *s)
{
    filetab_end_sweep(&s->files, &s->locks);
    locktab_end_sweep(&s->locks);
}

static void scene_free(struct scene *s)
{
    locktab_release(&s->locks);
    free(s);
}

static struct lock_row *wait_for(struct scene *s, const struct process_fact *p,
                                 struct file_lock want)
{
    struct lock_row *r = filetab_row(&s->files, &s->locks, p, &want);

    if (r)
        locktab_wait(&s->locks, r, p);
    return r;
}

/* Rows ---------------------------------------------------------------------------------- */

static void test_one_row_for_each_range_and_family(void **state UNUSED)
{
    struct scene *s = scene_new();

    begin(s);
    struct lock_row *whole = wait_for(s, &proc1, flock_of(true));
    struct lock_row *posix = wait_for(s, &proc1, range(FILELOCK_POSIX, true, 0, FILE_END));
    struct lock_row *part = wait_for(s, &proc1, range(FILELOCK_POSIX, true, 0, 99));
    struct lock_row *next = wait_for(s, &proc1, range(FILELOCK_POSIX, true, 100, 199));
    struct lock_row *lease = wait_for(s, &proc1, range(FILELOCK_LEASE, true, 0, FILE_END));
    assert_int_equal(HASH_COUNT(s->locks.rows), 5);
    assert_string_equal(whole->id, "flock:fe00:1234");
    assert_string_equal(posix->id, "posix:fe00:1234");
    assert_string_equal(part->id, "posix:fe00:1234:0-99");
    assert_string_equal(next->id, "posix:fe00:1234:100-199");
    assert_string_equal(lease->id, "lease:fe00:1234");
    assert_int_equal(whole->kind, KIND_FLOCK);
    assert_int_equal(part->kind, KIND_POSIX);
    assert_int_equal(lease->kind, KIND_LEASE);
    assert_int_equal(part->confidence, CONF_CONFIRMED);
    /* Another process that wants the same bytes stands in the same queue, as does an OFD lock. */
    assert_ptr_equal(wait_for(s, &proc2, range(FILELOCK_POSIX, false, 0, 99)), part);
    assert_ptr_equal(wait_for(s, &proc2, range(FILELOCK_OFD, true, 100, 199)), next);
    assert_int_equal(part->now, 2);
    assert_int_equal(part->npids, 2);
    assert_int_equal(part->pid, 100);
    scene_free(s);
}

static void test_ofd_alone(void **state UNUSED)
{
    struct scene *s = scene_new();

    begin(s);
    struct lock_row *r = wait_for(s, &proc1, range(FILELOCK_OFD, true, 0, 0));
    assert_int_equal(r->kind, KIND_OFD);
    assert_string_equal(r->id, "posix:fe00:1234:0-0");
    scene_free(s);
}

static void test_unknown_file_makes_no_row(void **state UNUSED)
{
    struct scene *s = scene_new();
    struct file_lock want = flock_of(true);

    begin(s);
    want.file.inode = 0;
    assert_null(wait_for(s, &proc1, want));
    want = flock_of(true);
    want.kind = FILELOCK_NONE;
    assert_null(wait_for(s, &proc1, want));
    assert_int_equal(HASH_COUNT(s->locks.rows), 0);
    scene_free(s);
}

/* One who wants it alone sees more holders in the way than those who share: within a sweep it is
 * not forgotten, whoever is listed later; after that it is. */
static void test_the_strictest_waiter_counts(void **state UNUSED)
{
    struct scene *s = scene_new();

    begin(s);
    struct lock_row *r = wait_for(s, &proc1, flock_of(true));
    wait_for(s, &proc2, flock_of(false));
    assert_true(r->file.exclusive);
    end(s);
    begin(s);
    wait_for(s, &proc2, flock_of(false));
    assert_false(r->file.exclusive);
    wait_for(s, &proc1, flock_of(true));
    assert_true(r->file.exclusive);
    scene_free(s);
}

static void test_path_is_learned_when_it_comes(void **state UNUSED)
{
    struct scene *s = scene_new();
    struct file_fact f = {.file = the_file, .path = "/run/app.lock"};

    begin(s);
    struct lock_row *r = wait_for(s, &proc1, flock_of(true));
    assert_null(r->path);
    s->sample.files = &f;
    s->sample.nfiles = 1;
    begin(s);
    wait_for(s, &proc1, flock_of(true));
    assert_string_equal(r->path, "/run/app.lock");
    assert_false(r->deleted);
    f.deleted = true;
    begin(s);
    wait_for(s, &proc1, flock_of(true));
    assert_true(r->deleted);
    scene_free(s);
}

/* Conflicts ----------------------------------------------------------------------------- */

static const struct file_holder *first_in_the_way(const struct file_holder *h, size_t n,
                                                  struct file_lock want)
{
    struct filetab t = {.holders = h, .nholders = n};
    size_t i = 0;

    return filetab_next_holder(&t, &want, &i);
}

static bool is_in_the_way(struct file_lock held, struct file_lock want)
{
    struct file_holder h = {.lock = held, .pid = 5};

    return first_in_the_way(&h, 1, want) != NULL;
}

static void test_conflicts(void **state UNUSED)
{
    const enum filelock_kind P = FILELOCK_POSIX, O = FILELOCK_OFD, L = FILELOCK_LEASE;

    assert_true(is_in_the_way(flock_of(true), flock_of(false)));
    assert_true(is_in_the_way(flock_of(false), flock_of(true)));
    assert_false(is_in_the_way(flock_of(false), flock_of(false)));
    /* Both ends belong to a range. */
    assert_true(is_in_the_way(range(P, true, 10, 19), range(P, true, 19, 30)));
    assert_true(is_in_the_way(range(P, true, 10, 19), range(P, true, 0, 10)));
    assert_false(is_in_the_way(range(P, true, 10, 19), range(P, true, 20, 30)));
    assert_false(is_in_the_way(range(P, true, 10, 19), range(P, true, 0, 9)));
    assert_true(is_in_the_way(range(P, true, 10, FILE_END), range(P, false, 1 << 30, FILE_END)));
    /* Which kinds know each other. */
    assert_true(is_in_the_way(range(O, true, 0, 9), range(P, true, 0, 9)));
    assert_true(is_in_the_way(range(P, true, 0, 9), range(O, true, 0, 9)));
    assert_false(is_in_the_way(flock_of(true), range(P, true, 0, FILE_END)));
    assert_false(is_in_the_way(range(P, true, 0, FILE_END), flock_of(true)));
    assert_false(is_in_the_way(range(L, true, 0, FILE_END), flock_of(true)));
}

static void test_only_holders_of_that_file(void **state UNUSED)
{
    struct file_holder h[4] = {
        {.lock = flock_of(true), .pid = 1}, {.lock = flock_of(true), .pid = 2},
        {.lock = flock_of(true), .pid = 3}, {.lock = flock_of(true), .pid = 4}};
    struct filetab t = {.holders = h, .nholders = 4};
    struct file_lock want = flock_of(true);
    size_t i = 0;

    h[0].lock.file.inode++;
    h[2].lock.file.dev++;
    assert_int_equal(filetab_next_holder(&t, &want, &i)->pid, 2);
    assert_int_equal(filetab_next_holder(&t, &want, &i)->pid, 4);
    assert_null(filetab_next_holder(&t, &want, &i));
    assert_null(filetab_next_holder(&t, &want, &i));
}

/* A process does not wait for a POSIX lock of its own, but for a flock of its own it may. */
static void test_own_lock(void **state UNUSED)
{
    struct scene *s = scene_new();
    struct file_holder own = {.lock = range(FILELOCK_POSIX, true, 0, 9), .pid = 100};

    begin(s);
    struct lock_row *r = wait_for(s, &proc1, range(FILELOCK_POSIX, true, 0, 9));
    assert_true(filetab_is_own(r, &own));
    own.pid = 200;
    assert_false(filetab_is_own(r, &own));
    own.pid = 100;
    own.lock.kind = FILELOCK_OFD;
    assert_false(filetab_is_own(r, &own));
    own.lock.kind = FILELOCK_FLOCK;
    assert_false(filetab_is_own(r, &own));
    own.lock.kind = FILELOCK_POSIX;
    wait_for(s, &proc2, range(FILELOCK_POSIX, true, 0, 9)); /* it is in the way of this one */
    assert_false(filetab_is_own(r, &own));
    scene_free(s);
}

/* The queue ----------------------------------------------------------------------------- */

static void test_place_and_depth(void **state UNUSED)
{
    const struct file_lock mine = range(FILELOCK_POSIX, true, 0, 9);
    struct file_lock shared = mine, elsewhere = range(FILELOCK_POSIX, true, 10, 19);
    const struct file_lock ofd = range(FILELOCK_OFD, true, 0, 9);
    struct scene *s = scene_new();

    shared.exclusive = false;
    const struct file_waiter w[] = {
        {.lock = elsewhere, .pid = 100, .level = 7, .behind = -1},
        {.lock = mine, .pid = 200, .level = 1, .behind = -1},
        {.lock = shared, .pid = 100, .level = 3, .behind = 1},
        {.lock = mine, .pid = 100, .level = 2, .behind = 1},
        {.lock = ofd, .pid = -1, .level = 4, .behind = 2}, /* these two kinds queue together */
    };
    s->sample.file_waiters = w;
    s->sample.nfile_waiters = ARRAY_SIZE(w);
    begin(s);
    struct lock_row *r = wait_for(s, &proc1, mine);
    assert_ptr_equal(filetab_place(&s->files, 100, &mine), &w[3]);
    assert_ptr_equal(filetab_place(&s->files, 100, &shared), &w[2]);
    assert_ptr_equal(filetab_place(&s->files, 200, &mine), &w[1]);
    assert_null(filetab_place(&s->files, 300, &mine));
    assert_null(filetab_place(&s->files, 200, &elsewhere));
    assert_int_equal(filetab_depth(&s->files, r), 4);
    assert_int_equal(filetab_depth(&s->files, wait_for(s, &proc1, elsewhere)), 7);
    assert_int_equal(filetab_depth(&s->files, wait_for(s, &proc1, flock_of(true))), -1);
    scene_free(s);
}

/* The kernel does not tell whose an OFD lock is. */
static void test_place_of_an_ofd_waiter(void **state UNUSED)
{
    const struct file_lock want = range(FILELOCK_OFD, true, 0, 9);
    const struct file_waiter w = {.lock = want, .pid = -1, .level = 1, .behind = -1};
    const struct filetab t = {.waiters = &w, .nwaiters = 1};
    const struct file_lock posix = range(FILELOCK_POSIX, true, 0, 9);

    assert_ptr_equal(filetab_place(&t, 100, &want), &w);
    assert_null(filetab_place(&t, 100, &posix));
}

/* Semaphores ---------------------------------------------------------------------------- */

static struct sem_wait takes(int id, uint16_t num, bool undo)
{
    return (struct sem_wait){.id = id, .num = num, .op = -1, .undo = undo, .nops = 1};
}

static void test_semaphore_lock_or_hand_off(void **state UNUSED)
{
    struct scene *s = scene_new();
    struct sem_wait w = takes(3, 0, true);

    begin(s);
    struct lock_row *lock = filetab_sem_row(&s->locks, &proc1, &w);
    assert_string_equal(lock->id, "sysv:3[0]");
    assert_int_equal(lock->kind, KIND_SYSV_SEM);
    assert_int_equal(lock->confidence, CONF_LIKELY); /* how it is used, and no more, says so */
    assert_ptr_equal(filetab_sem_row(&s->locks, &proc2, &w), lock);
    w = takes(3, 1, false);
    struct lock_row *other = filetab_sem_row(&s->locks, &proc1, &w);
    assert_string_equal(other->id, "sysv:3[1]");
    assert_int_equal(other->kind, KIND_SEM);
    assert_int_equal(lock_kind_class(other->kind), CLASS_SYNC);
    w.undo = true;
    w.op = 0; /* waits until it is 0: nothing is taken */
    w.num = 2;
    assert_int_equal(filetab_sem_row(&s->locks, &proc1, &w)->kind, KIND_SEM);
    assert_int_equal(HASH_COUNT(s->locks.rows), 3);
    /* Used in another way from now on. */
    w = takes(3, 0, false);
    assert_ptr_equal(filetab_sem_row(&s->locks, &proc1, &w), lock);
    assert_int_equal(lock->kind, KIND_SEM);
    assert_int_equal(lock->confidence, CONF_CONFIRMED);
    scene_free(s);
}

static void test_unknown_operations_make_no_row(void **state UNUSED)
{
    struct scene *s = scene_new();
    struct sem_wait w = takes(3, 0, true);

    begin(s);
    w.nops = 0;
    assert_null(filetab_sem_row(&s->locks, &proc1, &w));
    w = takes(-1, 0, true);
    assert_null(filetab_sem_row(&s->locks, &proc1, &w));
    assert_int_equal(HASH_COUNT(s->locks.rows), 0);
    scene_free(s);
}

static void test_semaphore_facts(void **state UNUSED)
{
    const struct sem_fact f[] = {{.id = 3, .num = 0, .known = true, .value = 0, .last_pid = 9},
                                 {.id = 3, .num = 1, .known = false}};
    const struct filetab t = {.sems = f, .nsems = 2};

    assert_ptr_equal(filetab_sem(&t, 3, 0), &f[0]);
    assert_null(filetab_sem(&t, 3, 1)); /* may not be read */
    assert_null(filetab_sem(&t, 4, 0));
}

/* Held, and waited for by nobody ------------------------------------------------------------ */

static void test_row_of_what_is_only_held(void **state UNUSED)
{
    struct scene *s = scene_new();
    struct file_fact f = {.file = the_file, .path = "/run/app.lock", .open_elsewhere = true};
    struct file_holder h[] = {{.lock = flock_of(true), .pid = 5, .fd = 3},
                              {.lock = range(FILELOCK_POSIX, true, 0, 9), .pid = 6, .fd = 4},
                              {.lock = flock_of(true), .pid = 7, .fd = 3}};

    h[2].lock.file.inode++;
    s->sample.files = &f;
    s->sample.nfiles = 1;
    s->sample.file_holders = h;
    s->sample.nfile_holders = 3;
    begin(s);
    end(s);
    assert_int_equal(HASH_COUNT(s->locks.rows), 2); /* one for each lock; not another file's */
    struct lockkey key = lockkey_file(&h[0].lock);
    struct lock_row *r = locktab_find(&s->locks, &key);
    assert_non_null(r);
    assert_int_equal(r->only_held, s->locks.sweep);
    assert_string_equal(r->path, "/run/app.lock");
    assert_int_equal(r->kind, KIND_FLOCK);
    assert_int_equal(locktab_waiters(&s->locks, r), 0);
    assert_int_equal(locktab_held(&s->locks, r), 1);
    key = lockkey_file(&h[1].lock);
    assert_int_equal(locktab_find(&s->locks, &key)->kind, KIND_POSIX);
    /* Nobody but the holder has it open any more. */
    f.open_elsewhere = false;
    begin(s);
    end(s);
    assert_true(r->only_held < s->locks.sweep);
    /* Somebody who waits turns the same row into a lock that is waited for. */
    begin(s);
    assert_ptr_equal(wait_for(s, &proc1, flock_of(true)), r);
    assert_int_equal(r->pid, 100);
    scene_free(s);
}

static void test_not_open_elsewhere_no_row(void **state UNUSED)
{
    struct scene *s = scene_new();
    const struct file_fact f = {.file = the_file, .path = "/run/app.lock"};
    const struct file_holder h = {.lock = flock_of(true), .pid = 5, .fd = 3};

    s->sample.files = &f;
    s->sample.nfiles = 1;
    s->sample.file_holders = &h;
    s->sample.nfile_holders = 1;
    begin(s);
    end(s);
    assert_int_equal(HASH_COUNT(s->locks.rows), 0);
    scene_free(s);
}

/* Utilisation ------------------------------------------------------------------------------- */

/* Of 20 looks: 5 saw a waiter, 5 just a holder, 10 neither. */
static void test_busy(void **state UNUSED)
{
    struct scene *s = scene_new();
    const struct file_fact f = {.file = the_file};
    const struct file_holder h = {.lock = flock_of(false), .pid = 5, .fd = 3};
    struct lock_row *r = NULL;

    s->sample.files = &f;
    s->sample.nfiles = 1;
    for (int i = 0; i < 20; i++) {
        s->sample.file_holders = &h;
        s->sample.nfile_holders = i >= 5 && i < 10;
        begin(s);
        if (i < 5)
            r = wait_for(s, &proc1, flock_of(false));
        end(s);
        assert_int_equal(locktab_held(&s->locks, r), i < 10);
        if (i + 1 < BUSY_MIN_LOOKS)
            assert_true(isnan(locktab_busy(&s->locks, r)));
    }
    assert_true(fabs(locktab_busy(&s->locks, r) - 0.5) < 1e-9);
    scene_free(s);
}

/* A file that nobody looks at any more is not one that is free. */
static void test_busy_counts_only_looks(void **state UNUSED)
{
    struct scene *s = scene_new();
    struct lock_row *r = NULL;

    for (int i = 0; i < 40; i++) {
        begin(s);
        if (i < 10)
            r = wait_for(s, &proc1, flock_of(true));
        end(s);
    }
    assert_true(fabs(locktab_busy(&s->locks, r) - 1) < 1e-9);
    scene_free(s);
}

/* A lock on other bytes of the file does not make these busy. */
static void test_busy_is_of_the_range(void **state UNUSED)
{
    struct scene *s = scene_new();
    const struct file_fact f = {.file = the_file};
    const struct file_holder h = {.lock = range(FILELOCK_POSIX, true, 10, 19), .pid = 5, .fd = 3};

    s->sample.files = &f;
    s->sample.nfiles = 1;
    s->sample.file_holders = &h;
    s->sample.nfile_holders = 1;
    begin(s);
    struct lock_row *beside = wait_for(s, &proc1, range(FILELOCK_POSIX, true, 0, 9));
    struct lock_row *over = wait_for(s, &proc1, range(FILELOCK_POSIX, false, 15, 30));
    end(s);
    begin(s);
    end(s);
    assert_int_equal(locktab_held(&s->locks, beside), 0);
    assert_int_equal(locktab_held(&s->locks, over), 1);
    scene_free(s);
}

/* Names ------------------------------------------------------------------------------------- */

static const char *sqlite(const char *path, uint64_t start, uint64_t stop)
{
    const struct file_lock l = range(FILELOCK_POSIX, true, start, stop);

    return filetab_sqlite_name(path, &l);
}

static void test_sqlite_database(void **state UNUSED)
{
    assert_string_equal(sqlite("/srv/app.db", 0x40000000, 0x40000000), "PENDING");
    assert_string_equal(sqlite("/srv/app.db", 0x40000001, 0x40000001), "RESERVED");
    assert_string_equal(sqlite("/srv/app.db", 0x40000002, 0x400001ff), "SHARED");
    assert_string_equal(sqlite("/srv/app.db", 0x40000010, 0x40000010), "SHARED"); /* one of them */
    assert_string_equal(sqlite(NULL, 0x40000001, 0x40000001), "RESERVED");
    assert_null(sqlite("/srv/app.db", 0x40000002, 0x40000200)); /* one byte too far */
    assert_null(sqlite("/srv/app.db", 0x40000000, 0x40000001));
    assert_null(sqlite("/srv/app.db", 0x3fffffff, 0x3fffffff));
    assert_null(sqlite("/srv/app.db", 120, 120)); /* only its -shm file is locked there */
    assert_null(sqlite("/srv/app.db", 0, FILE_END));
}

static void test_sqlite_write_ahead_log(void **state UNUSED)
{
    static const char *const names[] = {
        "WAL write",  "WAL checkpoint", "WAL recover", "WAL read 0", "WAL read 1",
        "WAL read 2", "WAL read 3",     "WAL read 4",  "WAL DMS",
    };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_string_equal(sqlite("/srv/app.db-shm", 120 + i, 120 + i), names[i]);
    assert_null(sqlite("/srv/app.db-shm", 119, 119));
    assert_null(sqlite("/srv/app.db-shm", 129, 129));
    assert_null(sqlite("/srv/app.db-shm", 120, 121));
    assert_null(sqlite("/srv/app.db-shm", 0x40000001, 0x40000001));
    assert_null(sqlite("-sh", 120, 120));
}

static void test_sqlite_locks_by_fcntl(void **state UNUSED)
{
    struct file_lock l = range(FILELOCK_OFD, true, 0x40000001, 0x40000001);

    assert_string_equal(filetab_sqlite_name("/srv/app.db", &l), "RESERVED");
    l.kind = FILELOCK_LEASE;
    assert_null(filetab_sqlite_name("/srv/app.db", &l));
    l.kind = FILELOCK_FLOCK;
    assert_null(filetab_sqlite_name("/srv/app.db", &l));
}

static const char *id_of(const struct lockkey *key)
{
    static char text[128];

    lockkey_text(text, sizeof(text), key);
    return text;
}

static void test_key_texts(void **state UNUSED)
{
    struct file_lock l = flock_of(true);
    struct lockkey key = lockkey_file(&l);

    assert_string_equal(id_of(&key), "flock:fe00:1234");
    l = range(FILELOCK_POSIX, true, 100, FILE_END);
    key = lockkey_file(&l);
    assert_string_equal(id_of(&key), "posix:fe00:1234:100-");
    l = range(FILELOCK_OFD, false, 5, 5);
    key = lockkey_file(&l);
    assert_string_equal(id_of(&key), "posix:fe00:1234:5-5");
    l = range(FILELOCK_LEASE, true, 0, FILE_END);
    key = lockkey_file(&l);
    assert_string_equal(id_of(&key), "lease:fe00:1234");
    key = lockkey_sem(32769, 14);
    assert_string_equal(id_of(&key), "sysv:32769[14]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_row_for_each_range_and_family),
        cmocka_unit_test(test_ofd_alone),
        cmocka_unit_test(test_unknown_file_makes_no_row),
        cmocka_unit_test(test_the_strictest_waiter_counts),
        cmocka_unit_test(test_path_is_learned_when_it_comes),
        cmocka_unit_test(test_conflicts),
        cmocka_unit_test(test_only_holders_of_that_file),
        cmocka_unit_test(test_own_lock),
        cmocka_unit_test(test_place_and_depth),
        cmocka_unit_test(test_place_of_an_ofd_waiter),
        cmocka_unit_test(test_semaphore_lock_or_hand_off),
        cmocka_unit_test(test_unknown_operations_make_no_row),
        cmocka_unit_test(test_semaphore_facts),
        cmocka_unit_test(test_row_of_what_is_only_held),
        cmocka_unit_test(test_not_open_elsewhere_no_row),
        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_busy_counts_only_looks),
        cmocka_unit_test(test_busy_is_of_the_range),
        cmocka_unit_test(test_sqlite_database),
        cmocka_unit_test(test_sqlite_write_ahead_log),
        cmocka_unit_test(test_sqlite_locks_by_fcntl),
        cmocka_unit_test(test_key_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

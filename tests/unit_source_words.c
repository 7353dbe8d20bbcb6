#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "proc_tree.h"
#include "source_watch.h"
#include "../src/source_words.h"

#define KEEP (60 * NSEC_PER_SEC)

static const struct futex_wait mutex_wait = {
    .cmd = FUTEX_WAIT, .val = 2, .is_private = true, .words = 1};
static const struct futex_wait cond_wait = {
    .cmd = FUTEX_WAIT_BITSET, .val = 0, .is_private = true, .realtime = true, .words = 1};
static const struct futex_wait join_wait = {
    .cmd = FUTEX_WAIT_BITSET, .val = 4711, .realtime = true, .words = 1};

static nsec_t now;

static struct word *note(struct words *w, const struct futex_wait *kind, uint64_t addr)
{
    struct futex_wait f = *kind;

    f.addr = addr;
    return words_note(w, &f, now);
}

static void next_sweep(struct words *w)
{
    now += 20 * NSEC_PER_MSEC;
    words_begin(w, now, KEEP);
}

/* The words of this very process. */
static int setup(void **state)
{
    static struct words w;

    now = clock_mono();
    w = (struct words){
        .dirfd = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC), .tid = getpid()};
    *state = &w;
    return w.dirfd >= 0 ? 0 : -1;
}

static int teardown(void **state)
{
    struct words *w = *state;

    words_release(w);
    close(w->dirfd);
    return w->by_addr || w->nwaited || w->nprobed || w->nshared ? -1 : 0;
}

/* Windows at the borders of pages ------------------------------------------------------------ */

static uint8_t *three_pages(size_t page)
{
    uint8_t *p = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(p != MAP_FAILED);
    for (size_t i = 0; i < 3 * page; i++)
        p[i] = (uint8_t)(i * 7 + i / page);
    return p;
}

/* What of the window around OFFSET lies in the middle page, or in all three. */
static void check_window(struct words *w, const uint8_t *p, size_t offset, size_t from, size_t to)
{
    struct word *word = note(w, &mutex_wait, (uintptr_t)p + offset);
    size_t lo = MAX(offset - WORD_BEFORE, from), hi = MIN(offset + WORD_AFTER, to);

    assert_int_equal(words_read_late(w, remote_read), 0);
    assert_true(word->has_late);
    assert_int_equal(word->late.lo, lo + WORD_BEFORE - offset);
    assert_int_equal(word->late.hi, hi + WORD_BEFORE - offset);
    assert_memory_equal(word->late.bytes + word->late.lo, p + lo, hi - lo);
}

static void test_page_borders(void **state)
{
    static const int offsets[] = {0, 4, 44, 48, 52, 2048, -52, -48, -44, -8, -4};
    struct words *w = *state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *p = three_pages(page);

    for (size_t i = 0; i < ARRAY_SIZE(offsets); i++)
        check_window(w, p, (offsets[i] < 0 ? 2 * page : page) + (size_t)(ssize_t)offsets[i], 0,
                     3 * page);
    next_sweep(w);
    assert_int_equal(mprotect(p, page, PROT_NONE), 0);
    assert_int_equal(munmap(p + 2 * page, page), 0);
    for (size_t i = 0; i < ARRAY_SIZE(offsets); i++)
        check_window(w, p, (offsets[i] < 0 ? 2 * page : page) + (size_t)(ssize_t)offsets[i], page,
                     2 * page);
    next_sweep(w);
    struct word *gone = note(w, &mutex_wait, (uintptr_t)p + page - 4); /* not readable itself */
    assert_int_equal(words_read_late(w, remote_read), 0);
    assert_int_equal(gone->late.lo, gone->late.hi);
    munmap(p, 2 * page);
}

static void test_ends_of_address_space(void **state)
{
    static const uint64_t addrs[] = {4, 44, UINT64_MAX - 3, UINT64_MAX - 127, UINT64_MAX - 4095};
    struct words *w = *state;
    uint32_t value;

    for (size_t i = 0; i < ARRAY_SIZE(addrs); i++) {
        struct word *word = note(w, &mutex_wait, addrs[i]);
        assert_int_equal(words_read_late(w, remote_read), 0);
        assert_int_equal(words_read_early(w, remote_read), 0);
        assert_int_equal(word->region, REGION_UNKNOWN);
        assert_false(word_u32(&word->late, 0, &value));
        assert_false(word_u32(&word->early, 0, &value));
    }
}

static void test_many_in_one_batch(void **state)
{
    struct words *w = *state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *p = three_pages(page);
    struct word *words[700];

    mprotect(p + page, page, PROT_NONE); /* a hole in the middle of the batch */
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        words[i] = note(w, &cond_wait, (uintptr_t)p + 64 + i * 16);
    assert_int_equal(words_read_late(w, remote_read), 0);
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        size_t at = 64 + i * 16;
        uint32_t value;
        assert_int_equal(word_u32(&words[i]->late, 0, &value), at < page || at >= 2 * page);
        if (at < page)
            assert_memory_equal(&value, p + at, 4);
    }
    munmap(p, 3 * page);
}

/* Early and late ----------------------------------------------------------------------------- */

static void test_early_and_late(void **state)
{
    struct words *w = *state;
    static uint32_t lock, cond;
    uint32_t value;

    lock = 1;
    cond = 1;
    words_begin(w, now, KEEP);
    assert_int_equal(words_read_early(w, remote_read), 0);
    struct word *l = note(w, &mutex_wait, (uintptr_t)&lock);
    struct word *c = note(w, &cond_wait, (uintptr_t)&cond);
    assert_int_equal(words_read_late(w, remote_read), 0);
    assert_false(l->has_early || c->has_early);
    assert_true(word_u32(&l->late, 0, &value) && value == 1);
    assert_true(word_u32(&c->late, 0, &value) && value == 1);

    next_sweep(w);
    lock = 2;
    cond = 2;
    assert_int_equal(words_read_early(w, remote_read), 0);
    assert_true(l->has_early);
    assert_false(c->has_early); /* never held: not probed */
    assert_true(word_u32(&l->early, 0, &value) && value == 2);
    assert_true(word_u32(&l->late, 0, &value) && value == 1);
    lock = 3;
    words_wait(w, l, now); /* both sleep on */
    words_wait(w, c, now);
    assert_int_equal(words_read_late(w, remote_read), 0);
    assert_true(word_u32(&l->early, 0, &value) && value == 2);
    assert_true(word_u32(&l->late, 0, &value) && value == 3);
    assert_true(word_u32(&c->late, 0, &value) && value == 1); /* what was read still holds */

    next_sweep(w);
    assert_false(l->has_early); /* until it is read in this sweep */
    note(w, &cond_wait, (uintptr_t)&cond); /* somebody came: read anew */
    assert_int_equal(words_read_late(w, remote_read), 0);
    assert_true(word_u32(&c->late, 0, &value) && value == 2);
    assert_true(word_u32(&l->late, 0, &value) && value == 3); /* nobody waits: not read */
}

static void test_what_is_probed(void **state)
{
    struct words *w = *state;
    static uint32_t word[8];
    struct futex_wait pi = mutex_wait, vector = mutex_wait, requeue = mutex_wait;

    pi.cmd = FUTEX_LOCK_PI;
    pi.val = 0;
    vector.words = 2;
    requeue.cmd = FUTEX_WAIT_REQUEUE_PI;
    assert_true(note(w, &mutex_wait, (uintptr_t)&word[0])->maybe_lock);
    assert_true(note(w, &pi, (uintptr_t)&word[1])->maybe_lock);
    assert_false(note(w, &cond_wait, (uintptr_t)&word[2])->maybe_lock);
    assert_false(note(w, &join_wait, (uintptr_t)&word[3])->maybe_lock);
    assert_false(note(w, &vector, (uintptr_t)&word[4])->maybe_lock);
    assert_false(note(w, &requeue, (uintptr_t)&word[5])->maybe_lock);
    /* One waiter that tells more is enough, and what is known stays known. */
    assert_true(note(w, &mutex_wait, (uintptr_t)&word[2])->maybe_lock);
    assert_true(note(w, &cond_wait, (uintptr_t)&word[2])->maybe_lock);
    assert_int_equal(w->nprobed, 3);
}

static void test_waiters_are_counted(void **state)
{
    struct words *w = *state;
    static uint32_t word[2];

    struct word *a = note(w, &mutex_wait, (uintptr_t)&word[0]);
    assert_ptr_equal(note(w, &mutex_wait, (uintptr_t)&word[0]), a);
    words_wait(w, a, now);
    struct word *b = note(w, &cond_wait, (uintptr_t)&word[1]);
    assert_int_equal(a->waiters, 3);
    assert_int_equal(b->waiters, 1);
    assert_int_equal(w->nwaited, 2);
    next_sweep(w);
    assert_int_equal(a->waiters, 0);
    assert_int_equal(w->nwaited, 0);
    words_wait(w, b, now);
    assert_int_equal(w->nwaited, 1);
    assert_ptr_equal(w->waited[0], b);
}

static int read_error;

static int failing_reader(pid_t pid UNUSED, struct remote_item *items UNUSED, size_t n UNUSED)
{
    return read_error;
}

static void test_read_fails(void **state)
{
    struct words *w = *state;
    static uint32_t word = 2;
    uint32_t value;

    read_error = -EPERM;
    assert_int_equal(words_read_early(w, failing_reader), 0); /* nothing to read */
    assert_int_equal(words_read_late(w, failing_reader), 0);
    struct word *l = note(w, &mutex_wait, (uintptr_t)&word);
    assert_int_equal(words_read_late(w, remote_read), 0);
    assert_true(word_u32(&l->late, 0, &value));
    assert_int_equal(words_read_late(w, failing_reader), -EPERM);
    assert_int_equal(words_read_early(w, failing_reader), -EPERM);
    assert_false(word_u32(&l->late, 0, &value)); /* the old value is not passed off as new */
    assert_false(word_u32(&l->early, 0, &value));
}

/* Pruning ------------------------------------------------------------------------------------ */

static void test_prune(void **state)
{
    struct words *w = *state;
    static uint32_t word[3];

    struct word *slept_on = note(w, &mutex_wait, (uintptr_t)&word[0]);
    note(w, &mutex_wait, (uintptr_t)&word[1]);
    note(w, &cond_wait, (uintptr_t)&word[2]);
    assert_int_equal(HASH_COUNT(w->by_addr), 3);
    for (int s = 0; s < 2 * 60; s++) {
        now += NSEC_PER_SEC;
        words_begin(w, now, KEEP);
        words_wait(w, slept_on, now);
        if (s < 58)
            assert_int_equal(HASH_COUNT(w->by_addr), 3);
    }
    assert_int_equal(HASH_COUNT(w->by_addr), 1);
    assert_int_equal(w->nprobed, 1);
    assert_ptr_equal(w->probed[0], slept_on);
    /* Even after a long pause: its waiter still points to it. */
    now += 1000 * NSEC_PER_SEC;
    words_begin(w, now, KEEP);
    assert_int_equal(HASH_COUNT(w->by_addr), 1);
    words_wait(w, slept_on, now);
    now += 1000 * NSEC_PER_SEC;
    words_begin(w, now, KEEP);
    now += 1000 * NSEC_PER_SEC;
    words_begin(w, now, KEEP); /* and one without waiters goes */
    assert_int_equal(HASH_COUNT(w->by_addr), 0);
    assert_int_equal(w->nprobed, 0);
}

static void test_probed_are_bounded(void **state)
{
    struct words *w = *state;
    static uint32_t word[2000];

    for (size_t i = 0; i < ARRAY_SIZE(word); i++)
        note(w, &mutex_wait, (uintptr_t)&word[i]);
    assert_int_equal(w->nwaited, ARRAY_SIZE(word));
    assert_true(w->nprobed < 1000);
    assert_int_equal(words_read_early(w, remote_read), 0);
    assert_int_equal(words_read_late(w, remote_read), 0);
    for (size_t i = 0; i < w->nwaited; i++)
        assert_true(w->waited[i]->late.hi > w->waited[i]->late.lo);
}

static const struct futex_wait sequence_wait = {
    .cmd = FUTEX_WAIT, .val = 7, .is_private = true, .words = 1};

/* Threads of a pool that each sleep on a sequence number, and then a mutex. */
static void test_lock_among_many(void **state)
{
    struct words *w = *state;
    static uint32_t word[600], lock;
    struct word *idle[ARRAY_SIZE(word)];

    words_begin(w, now, KEEP);
    for (size_t i = 0; i < ARRAY_SIZE(word); i++)
        idle[i] = note(w, &sequence_wait, (uintptr_t)&word[i]);
    assert_int_equal(words_read_late(w, remote_read), 0);
    assert_int_equal(w->nprobed, MAX_PROBED);
    assert_int_equal(w->unprobed, 600 - MAX_PROBED);
    for (int s = 0; s < 3; s++) {
        next_sweep(w);
        for (size_t i = 0; i < ARRAY_SIZE(word); i++)
            words_wait(w, idle[i], now);
        if (s == 2)
            note(w, &mutex_wait, (uintptr_t)&lock);
        assert_int_equal(words_read_late(w, remote_read), 0);
    }
    struct word *l = note(w, &mutex_wait, (uintptr_t)&lock);
    assert_true(l->probed && l->maybe_lock);
    assert_int_equal(w->nprobed, MAX_PROBED);
    assert_int_equal(w->unprobed, 601 - MAX_PROBED);
    size_t probed = 0;
    for (size_t i = 0; i < w->nprobed; i++)
        probed += w->probed[i]->probed;
    assert_int_equal(probed, MAX_PROBED);
    next_sweep(w);
    assert_int_equal(words_read_early(w, remote_read), 0);
    assert_true(l->has_early);
    for (size_t i = 0; i < ARRAY_SIZE(word); i++)
        assert_int_equal(idle[i]->has_early, idle[i]->probed);
    assert_int_equal(words_read_late(w, remote_read), 0);
    assert_int_equal(w->unprobed, 0); /* nobody waits */
}

/* Locks that others wait for are not exchanged for each other, but one that is free for long is. */
static void test_locks_among_locks(void **state)
{
    struct words *w = *state;
    static uint32_t word[MAX_PROBED], other;
    struct word *first[MAX_PROBED];

    words_begin(w, now, KEEP);
    for (size_t i = 0; i < MAX_PROBED; i++)
        first[i] = note(w, &mutex_wait, (uintptr_t)&word[i]);
    next_sweep(w);
    struct word *late = note(w, &mutex_wait, (uintptr_t)&other);
    assert_int_equal(words_read_late(w, remote_read), 0);
    assert_false(late->probed);
    assert_int_equal(w->unprobed, 1);
    for (int s = 0; s < 11; s++) { /* all but the first go on */
        now += NSEC_PER_SEC;
        words_begin(w, now, KEEP);
        for (size_t i = 1; i < MAX_PROBED; i++)
            words_wait(w, first[i], now);
        words_wait(w, late, now);
        assert_int_equal(words_read_late(w, remote_read), 0);
    }
    assert_true(late->probed);
    assert_false(first[0]->probed);
    assert_int_equal(w->unprobed, 0);
}

/* What can be a lock only in shared memory: a reader that waits for a count of readers. */
static void test_lock_if_shared(void **state)
{
    struct words *w = *state;
    uint8_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct futex_wait reader = join_wait, cond = join_wait;

    reader.val = 36;
    cond.val = 0;
    assert_true(note(w, &reader, (uintptr_t)shared)->maybe_lock); /* the first time already */
    assert_false(note(w, &cond, (uintptr_t)shared + 64)->maybe_lock);
    assert_int_equal(w->nprobed, 1);
    munmap(shared, 4096);
}

/* Where words lie ---------------------------------------------------------------------------- */

static uint32_t in_data = 7;

static void test_regions(void **state)
{
    struct words *w = *state;
    uint32_t *heap = malloc(64);
    char name[] = "/tmp/lock-top-words.XXXXXX";
    int fd = mkstemp(name);
    struct stat st;

    assert_true(fd >= 0 && ftruncate(fd, 8192) == 0 && fstat(fd, &st) == 0);
    uint8_t *file = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096);
    uint8_t *anon = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(note(w, &mutex_wait, (uintptr_t)__builtin_frame_address(0))->region,
                     REGION_ANON);
    assert_int_equal(note(w, &mutex_wait, (uintptr_t)heap)->region, REGION_ANON);
    struct word *data = note(w, &mutex_wait, (uintptr_t)&in_data);
    assert_int_equal(data->region, REGION_FILE);
    assert_non_null(strstr(data->path, "unit_source_words"));
    assert_int_equal(note(w, &mutex_wait, (uintptr_t)stdout)->region, REGION_LIBC);
    struct word *shared = note(w, &mutex_wait, (uintptr_t)file + 72);
    assert_int_equal(shared->region, REGION_SHARED);
    assert_int_equal(shared->inode, st.st_ino);
    assert_int_equal(shared->offset, 4096 + 72);
    assert_string_equal(shared->path, name);
    assert_int_equal(note(w, &mutex_wait, (uintptr_t)anon)->region, REGION_SHARED);
    assert_int_equal(w->nshared, 2);
    assert_int_equal(w->libc, LIBC_GLIBC);

    assert_true(words_maps_file(w, w->shared[0], now));
    assert_true(words_maps_file(w, (struct file_id){shared->dev, shared->inode}, now));
    assert_false(words_maps_file(w, (struct file_id){shared->dev, shared->inode + 1}, now));
    /* A private mapping of a file is not shared. */
    assert_false(words_maps_file(w, (struct file_id){data->dev, data->inode}, now));
    munmap(file, 4096);
    munmap(anon, 4096);
    close(fd);
    unlink(name);
    free(heap);
}

/* A map that changes: in a tree, where it is seen when it is read. */
static void test_map_is_read_seldom(void **state UNUSED)
{
    struct tree t;
    char path[96];

    tree_new(&t);
    tree_put(&t, "1/task/9/maps", "1000-2000 rw-p 00000000 00:00 0\n");
    snprintf(path, sizeof(path), "%s/1", t.root);
    struct words w = {.dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), .tid = 9};
    now = clock_mono();
    assert_int_equal(note(&w, &mutex_wait, 0x1100)->region, REGION_ANON);
    tree_put(&t, "1/task/9/maps", "3000-4000 rw-s 00000000 08:01 7 /x\n"
                                  "5000-6000 rw-p 00000000 08:01 7 /lib/ld-musl-x86_64.so.1\n");
    struct word *word = note(&w, &mutex_wait, 0x3100);
    assert_int_equal(word->region, REGION_UNKNOWN); /* not twice in a second */
    assert_int_equal(w.libc, LIBC_UNKNOWN);
    now += NSEC_PER_SEC;
    words_begin(&w, now, KEEP);
    words_wait(&w, word, now); /* its waiter sleeps on, and it is found all the same */
    assert_int_equal(word->region, REGION_SHARED);
    assert_int_equal(word->offset, 0x100);
    assert_int_equal(w.libc, LIBC_MUSL);
    /* A map that cannot be read leaves what is known. */
    tree_remove(&t, "1/task/9/maps");
    now += NSEC_PER_SEC;
    words_begin(&w, now, KEEP);
    assert_int_equal(note(&w, &mutex_wait, 0x9000)->region, REGION_UNKNOWN);
    assert_int_equal(note(&w, &mutex_wait, 0x5008)->region, REGION_LIBC);
    assert_int_equal(w.libc, LIBC_MUSL);
    words_release(&w);
    assert_int_equal(w.tid, 9);
    close(w.dirfd);
    tree_free(&t);
}

static void test_found_shared_later(void **state UNUSED)
{
    struct tree t;
    char path[96];
    struct futex_wait reader = join_wait;

    tree_new(&t);
    tree_put(&t, "1/task/9/maps", "1000-2000 rw-p 00000000 00:00 0\n");
    snprintf(path, sizeof(path), "%s/1", t.root);
    struct words w = {.dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), .tid = 9};
    now = clock_mono();
    note(&w, &reader, 0x1100);
    reader.val = 36;
    struct word *word = note(&w, &reader, 0x3100);
    assert_false(word->maybe_lock);
    tree_put(&t, "1/task/9/maps", "3000-4000 rw-s 00000000 08:01 7 /x\n");
    now += NSEC_PER_SEC;
    words_begin(&w, now, KEEP);
    words_wait(&w, word, now);
    assert_true(word->maybe_lock && word->news > 0);
    words_release(&w);
    close(w.dirfd);
    tree_free(&t);
}

/* A long map is read the less often. */
static void test_long_map(void **state UNUSED)
{
    struct tree t;
    char path[96];

    tree_new(&t);
    tree_put(&t, "1/task/9/maps", "%s", "");
    snprintf(path, sizeof(path), "%s/1/task/9/maps", t.root);
    FILE *f = fopen(path, "w");
    for (unsigned i = 1; i <= 300000; i++)
        fprintf(f, "%x000-%x800 rw-p 00000000 08:01 7 /srv/shop/%u\n", i, i, i);
    assert_int_equal(fclose(f), 0);
    snprintf(path, sizeof(path), "%s/1", t.root);
    struct words w = {.dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), .tid = 9};
    now = clock_mono();
    assert_int_equal(note(&w, &mutex_wait, 0x1100)->region, REGION_FILE);
    assert_true(w.maps_next >= now + 2 * NSEC_PER_SEC);
    words_release(&w);
    close(w.dirfd);
    tree_free(&t);
}

#define words_test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        words_test(test_page_borders),
        words_test(test_ends_of_address_space),
        words_test(test_many_in_one_batch),
        words_test(test_early_and_late),
        words_test(test_what_is_probed),
        words_test(test_waiters_are_counted),
        words_test(test_read_fails),
        words_test(test_prune),
        words_test(test_probed_are_bounded),
        words_test(test_lock_among_many),
        words_test(test_locks_among_locks),
        words_test(test_lock_if_shared),
        words_test(test_regions),
        cmocka_unit_test(test_map_is_read_seldom),
        cmocka_unit_test(test_found_shared_later),
        cmocka_unit_test(test_long_map),
    };

    return cmocka_run_group_tests_name("source_words", tests, NULL, NULL);
}

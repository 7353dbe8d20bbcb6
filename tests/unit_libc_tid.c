/* unit_libc_tid - the TID behind a thread descriptor: where it stands, and the owners of stdio
 * locks read by it; on this process itself, and on libraries that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <elf.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/libc_tid.h"
#include "../src/maps.h"
#include "../src/source_words.h"

static struct maps maps;
static int dirfd_self = -1;

static int load(void **state)
{
    (void)state;
    dirfd_self = open("/proc/self", O_RDONLY | O_DIRECTORY);
    return dirfd_self < 0 || maps_load(&maps, dirfd_self, getpid()) != 0;
}

static int unload(void **state)
{
    (void)state;
    maps_release(&maps);
    return close(dirfd_self);
}

/* Where the file to which stdout belongs is mapped. */
static const struct map_entry *libc_entry(void)
{
    const struct map_entry *in = maps_find(&maps, (uint64_t)(uintptr_t)stdout);

    assert_non_null(in);
    for (size_t i = 0; i < maps.n; i++) {
        if (maps.entries[i].offset == 0 && strcmp(maps.entries[i].path, in->path) == 0)
            return &maps.entries[i];
    }
    fail_msg("no libc in the map");
    return NULL;
}

static pid_t my_tid(void)
{
    return (pid_t)syscall(SYS_gettid);
}

static void test_own_libc(void **state)
{
    (void)state;
    uint32_t offset = 0;

    assert_true(libc_tid_offset(getpid(), libc_entry()->start, remote_read, &offset));
    assert_in_range(offset, 4, 8192);
    pid_t tid;
    memcpy(&tid, (const char *)pthread_self() + offset, sizeof(tid));
    assert_int_equal(tid, my_tid());
}

/* Every other mapped file, and memory that is none. */
static void test_no_libc(void **state)
{
    (void)state;
    uint32_t offset = 4711;

    for (size_t i = 0; i < maps.n; i++) {
        if (maps.entries[i].offset == 0 && strcmp(maps.entries[i].path, libc_entry()->path) != 0)
            assert_false(libc_tid_offset(getpid(), maps.entries[i].start, remote_read, &offset));
    }
    assert_false(libc_tid_offset(getpid(), 0, remote_read, &offset));
    assert_false(libc_tid_offset(getpid(), UINT64_MAX - 4, remote_read, &offset));
    assert_int_equal(offset, 4711);
}

/* A library that lies ------------------------------------------------------------------------- */

#define LIE_BASE UINT64_C(0x7f1200000000)

static unsigned char *lie;
static size_t lie_size;
static unsigned reads;

/* Memory is the buffer LIE at LIE_BASE. */
static int read_lie(pid_t tid, struct remote_item *items, size_t n)
{
    int whole = 0;

    (void)tid;
    for (size_t i = 0; i < n; i++) {
        uint64_t at = items[i].addr - LIE_BASE;
        reads++;
        items[i].got = 0;
        if (at > lie_size || items[i].len > lie_size - at)
            continue;
        memcpy(items[i].dst, lie + at, items[i].len);
        items[i].got = items[i].len;
        whole++;
    }
    return whole;
}

/* A copy of libc's read-only parts as they are mapped. */
static void copy_libc(void)
{
    const struct map_entry *first = libc_entry();

    lie_size = 0;
    for (const struct map_entry *e = first; e < maps.entries + maps.n; e++) {
        if (strcmp(e->module, first->path) == 0 && e->end - first->start > lie_size)
            lie_size = e->end - first->start;
    }
    lie = calloc(1, lie_size);
    assert_non_null(lie);
    int mem = openat(dirfd_self, "mem", O_RDONLY);
    assert_true(mem >= 0);
    for (const struct map_entry *e = first; e < maps.entries + maps.n; e++) {
        if (strcmp(e->module, first->path) == 0)
            assert_true(pread(mem, lie + (e->start - first->start), e->end - e->start,
                              (off_t)e->start) > 0);
    }
    close(mem);
}

static Elf64_Phdr *dynamic_header(void)
{
    const Elf64_Ehdr *eh = (const void *)lie;
    Elf64_Phdr *ph = (void *)(lie + eh->e_phoff);

    for (int i = 0; i < eh->e_phnum; i++) {
        if (ph[i].p_type == PT_DYNAMIC)
            return &ph[i];
    }
    fail_msg("no dynamic section");
    return NULL;
}

/* The loader has made addresses of the real place out of some entries: as in the file again. */
static void unrelocate(void)
{
    Elf64_Dyn *d = (void *)(lie + dynamic_header()->p_vaddr);
    uint64_t base = libc_entry()->start;

    for (; d->d_tag != DT_NULL; d++) {
        if (d->d_un.d_ptr >= base && d->d_un.d_ptr < base + lie_size)
            d->d_un.d_ptr -= base;
    }
}

static void test_hostile_library(void **state)
{
    (void)state;
    uint32_t honest = 0, offset;
    unsigned seed = 1;

    assert_true(libc_tid_offset(getpid(), libc_entry()->start, remote_read, &honest));
    copy_libc();
    unrelocate();
    assert_true(libc_tid_offset(1, LIE_BASE, read_lie, &offset));
    assert_int_equal(offset, honest);
    unsigned char *sound = malloc(lie_size);
    assert_non_null(sound);
    memcpy(sound, lie, lie_size);
    uint64_t dynamic = dynamic_header()->p_vaddr;
    for (int i = 0; i < 20000; i++) {
        /* Bytes of the headers and of the dynamic section, one to four of them. */
        for (int k = 0; k <= i % 4; k++) {
            seed = seed * 1103515245u + 12345u;
            size_t at = seed >> 31 ? (seed >> 8) % 1024 : dynamic + (seed >> 8) % 512;
            lie[at] = (unsigned char)(seed >> 3);
        }
        reads = 0;
        if (libc_tid_offset(1, LIE_BASE, read_lie, &offset))
            assert_in_range(offset, 0, 8192);
        assert_true(reads < 250);
        memcpy(lie, sound, 1024);
        memcpy(lie + dynamic, sound + dynamic, 512);
    }
    free(sound);
    free(lie);
}

/* Owners of stdio locks ------------------------------------------------------------------------ */

struct keeper {
    FILE *stream;
    pthread_barrier_t holds, end;
    pid_t tid;
};

static void *keep(void *arg)
{
    struct keeper *k = arg;

    k->tid = my_tid();
    flockfile(k->stream);
    pthread_barrier_wait(&k->holds);
    pthread_barrier_wait(&k->end);
    funlockfile(k->stream);
    return NULL;
}

static void test_owner_of_a_stream(void **state)
{
    (void)state;
    struct keeper k = {.stream = fopen("/dev/null", "w")};
    struct words w = {.dirfd = dirfd_self, .tid = getpid()};
    pthread_t thread;

    assert_non_null(k.stream);
    pthread_barrier_init(&k.holds, NULL, 2);
    pthread_barrier_init(&k.end, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, keep, &k), 0);
    pthread_barrier_wait(&k.holds);
    struct futex_wait f = {.addr = (uint64_t)(uintptr_t)k.stream->_lock,
                           .cmd = FUTEX_WAIT,
                           .val = 2,
                           .is_private = true};
    words_begin(&w, 1, 60 * NSEC_PER_SEC);
    struct word *word = words_note(&w, &f, 1);
    assert_int_equal(words_read_late(&w, remote_read), 0);
    assert_int_equal(word->late_owner, k.tid);
    assert_int_not_equal(word->late_owner, my_tid());
    assert_int_equal(words_read_early(&w, remote_read), 0);
    assert_int_equal(word->early_owner, k.tid);
    pthread_barrier_wait(&k.end);
    pthread_join(thread, NULL);
    assert_int_equal(words_read_early(&w, remote_read), 0);
    assert_int_equal(word->early_owner, 0);
    words_release(&w);
    fclose(k.stream);
    pthread_barrier_destroy(&k.holds);
    pthread_barrier_destroy(&k.end);
}

/* A mutex holds its owner itself: nothing is followed. */
static void test_mutex_is_no_stream(void **state)
{
    (void)state;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct words w = {.dirfd = dirfd_self, .tid = getpid()};

    pthread_mutex_lock(&mutex);
    struct futex_wait f = {
        .addr = (uint64_t)(uintptr_t)&mutex, .cmd = FUTEX_WAIT, .val = 2, .is_private = true};
    words_begin(&w, 1, 60 * NSEC_PER_SEC);
    struct word *word = words_note(&w, &f, 1);
    assert_int_equal(words_read_late(&w, remote_read), 0);
    assert_int_equal(word->late_owner, 0);
    pthread_mutex_unlock(&mutex);
    words_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_libc),           cmocka_unit_test(test_no_libc),
        cmocka_unit_test(test_hostile_library),    cmocka_unit_test(test_owner_of_a_stream),
        cmocka_unit_test(test_mutex_is_no_stream),
    };
    return cmocka_run_group_tests(tests, load, unload);
}

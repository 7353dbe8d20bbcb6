/* Limits of what is kept open and read, and processes that are looked at though not watched. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "source_child.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void wait_mutex(struct room *r UNUSED)
{
    pthread_mutex_lock(&mutex);
}

static void wait_word(struct room *r)
{
    futex(&r->word, FUTEX_WAIT, 0, NULL);
}

/* Few descriptors ---------------------------------------------------------------------------- */

static void wait_pipe_end(struct room *r UNUSED)
{
    int fd[2];
    char c;

    if (pipe(fd) == 0 && read(fd[0], &c, 1) >= 0)
        pause();
}

static int mixed_threads(struct room *r)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < 60; i++)
        room_thread(r, i, i % 3 == 0 ? wait_mutex : i % 3 == 1 ? wait_word : wait_pipe_end);
    return be_ready(r);
}

/* What must not depend on how many descriptors there are. Returns 0 or a number that tells. */
static int check_mixed(const struct sample *s, const struct room *r, pid_t pid)
{
    if (s->nprocesses != 1 || s->processes[0].nthreads != 61 || s->processes[0].pid != pid)
        return 10;
    for (int i = 0; i < 60; i++) {
        const struct thread_fact *f = thread_in(s, r->tid[i]);
        if (!f || f->seen != SEEN_CALL || f->fresh)
            return 11;
        if (i % 3 == 2 && (f->call != CALL_read || f->fd_kind != FD_PIPE || f->word != -1))
            return 12;
        if (i % 3 != 2 && (f->call != CALL_futex || f->word < 0))
            return 13;
        if (i % 3 == 1 && f->futex.addr != (uintptr_t)&r->word)
            return 14;
        uint32_t owner;
        if (i % 3 == 0 && (!word_u32(&s->words[f->word].late, 8, &owner) || owner != (uint32_t)pid))
            return 15;
    }
    return s->self.unreadable || s->self.vanished || s->nwords != 2 ? 16 : 0;
}

/* Runs in a child of its own, so that the limit dies with it. */
static int look_with_few_fds(struct room *r)
{
    rlim_t few = (rlim_t)atomic_load(&r->go);
    struct room *inner = mmap(NULL, sizeof(*inner), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = fork();
    struct sample s;
    int err, result = 0;

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(mixed_threads(inner));
    }
    while (!atomic_load(&inner->ready))
        nap();
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){few, few});
    const struct source_proc_config cfg = {
        .root = "/proc", .pids = &pid, .npids = 1, .read_memory = remote_read};
    struct source *source = source_proc_new(&cfg, &err);
    for (nsec_t end = clock_mono() + PATIENCE; source && clock_mono() < end; nap()) {
        source->ops->sweep(source, &s);
        result = check_mixed(&s, inner, pid);
        if (result == 0)
            break;
    }
    if (result == 0 && !s.self.fds_short)
        result = 20;
    if (source)
        source->ops->free(source);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return source ? result : 21;
}

static void test_few_descriptors(void **state UNUSED)
{
    static const int limits[] = {24, 70, 100}; /* none to keep, a few, not enough */

    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        struct room *r = room_new();
        int status;

        atomic_store(&r->go, limits[i]);
        pid_t pid = child_start(r, look_with_few_fds);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        room_free(r);
    }
}

/* Many descriptors to name ------------------------------------------------------------------- */

static int many_readers(struct room *r)
{
    for (int i = 0; i < 300; i++)
        room_thread(r, i, wait_pipe_end);
    return be_ready(r);
}

static void test_many_links(void **state UNUSED)
{
    struct room *r = room_new();
    pid_t pid = child_start(r, many_readers);
    struct watch w;
    nsec_t end = clock_mono() + PATIENCE;
    size_t named;

    await_value(&r->ready);
    watch_pid(&w, &pid);
    do {
        sweep(&w);
        named = 0;
        const struct process_fact *p = process_in(&w.s, pid);
        for (size_t i = 0; i < p->nthreads; i++)
            named += p->threads[i].fd_kind == FD_PIPE;
        if (clock_mono() > end)
            fail_msg("only %zu of 300 sleeping readers were found to read a pipe", named);
        nap();
    } while (named < 300);
    watch_end(&w);
    child_kill(pid);
    room_free(r);
}

/* Outsiders ---------------------------------------------------------------------------------- */

/* Maps the file of the room shared and holds the mutex in it. */
static int map_and_hold(struct room *r)
{
    int fd = open(r->path, O_RDWR | O_CLOEXEC);
    pthread_mutex_t *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    pthread_mutex_lock(m);
    return be_ready(r);
}

static int map_and_wait(struct room *r)
{
    int fd = open(r->path, O_RDWR | O_CLOEXEC);
    pthread_mutex_t *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    atomic_store(&r->ready, 1);
    pthread_mutex_lock(m);
    return 0;
}

static void make_shared_mutex(struct room *r)
{
    pthread_mutexattr_t attr;
    pthread_mutex_t m;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&m, &attr);
    strcpy(r->path, "/tmp/lock-top-unit.XXXXXX");
    int fd = mkstemp(r->path);
    assert_true(fd >= 0 && write(fd, &m, sizeof(m)) == sizeof(m) && ftruncate(fd, 4096) == 0);
    close(fd);
}

static void ask(struct watch *w, pid_t tid, const struct word_fact *word)
{
    struct request q = {
        .kind = REQUEST_HOLDER, .tid = tid, .file = {.dev = word->dev, .inode = word->inode}};

    w->source->ops->request(w->source, &q);
}

static void test_outsider(void **state UNUSED)
{
    struct room *r = room_new(), *r2 = room_new(), *r3 = room_new();
    struct watch w;
    nsec_t end = clock_mono() + PATIENCE;

    make_shared_mutex(r);
    strcpy(r2->path, r->path);
    pid_t holder = child_start(r, map_and_hold);
    await_value(&r->ready);
    pid_t stranger = child_start(r3, be_ready);
    await_value(&r3->ready);
    pid_t pid = child_start(r2, map_and_wait);
    await_value(&r2->ready);
    watch_pid(&w, &pid);
    const struct thread_fact *f = await_call(&w, pid, CALL_futex);
    sweep(&w);
    f = thread_in(&w.s, pid);
    struct word_fact word = *word_of(&w.s, f);
    uint32_t owner;
    assert_int_equal(word.region, REGION_SHARED);
    assert_int_equal(word.offset, 0);
    assert_true(word_u32(&word.late, 8, &owner));
    assert_int_equal(owner, holder);

    ask(&w, holder, &word);
    sweep(&w);
    const struct process_fact *p = process_in(&w.s, holder);
    assert_non_null(p);
    assert_true(p->outsider && !p->ended);
    assert_int_equal(p->nthreads, 1);
    assert_int_equal(p->threads[0].tid, holder);
    assert_int_equal(p->threads[0].call, CALL_pause);
    assert_true(p->nshared == 1 && p->shared[0].inode == word.inode);
    assert_int_equal(w.alive, 1);

    for (int i = 0; i < 200; i++) /* more than are taken */
        ask(&w, stranger, &word);
    ask(&w, 999999999, &word);
    sweep(&w);
    p = process_in(&w.s, stranger);
    assert_true(!p || (p->outsider && p->nthreads == 0 && p->nshared == 0));
    assert_int_equal(process_in(&w.s, holder)->nthreads, 1);

    do { /* not asked for any more: it leaves */
        sweep(&w);
        nap();
        p = process_in(&w.s, holder);
        if (clock_mono() > end)
            fail_msg("a holder that nobody asks for stays");
    } while (p);
    ask(&w, holder, &word);
    sweep(&w);
    assert_int_equal(process_in(&w.s, holder)->nthreads, 1);
    child_kill(holder); /* a normal mutex: its waiter goes on waiting */
    sweep(&w);
    assert_true(process_in(&w.s, holder)->ended);
    assert_int_equal(w.alive, 1);
    watch_end(&w);
    child_kill(pid);
    child_kill(stranger);
    unlink(r->path);
    room_free(r);
    room_free(r2);
    room_free(r3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(test_few_descriptors),
        leak_test(test_many_links),
        leak_test(test_outsider),
    };

    return cmocka_run_group_tests_name("source_limits", tests, NULL, NULL);
}

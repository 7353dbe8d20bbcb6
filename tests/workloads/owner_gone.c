/*
 * owner_gone - a thread ended while it held a mutex that is not robust; the others wait for ever.
 * With "file PATH" the mutex is process-shared, in that file, and a whole process ended so.
 */
#include "workload_mutex.h"

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;

static void take_and_end(int i)
{
    (void)i;
    pthread_mutex_lock(wl_mutex);
    wl_holder((pid_t)syscall(SYS_gettid));
}

static void lose_thread(void)
{
    static struct wl_thread lost;
    wl_spawn(&lost, take_and_end, 0, 0);
    pthread_join(lost.thread, NULL);
}

static void take_and_exit(void)
{
    pthread_mutex_lock(wl_mutex);
}

static void lose_process(void)
{
    pid_t child = wl_fork(take_and_exit);
    wl_holder(child);
    wl_check(waitpid(child, NULL, 0) == child, "waitpid");
}

static void setup(struct wl_scene *s)
{
    const struct wl_mutex spec = {.type = PTHREAD_MUTEX_NORMAL, .shared = true};
    wl_mutex = &plain;
    if (!s->path) {
        lose_thread();
    } else {
        int fd = open(s->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        wl_check(fd >= 0 && ftruncate(fd, 4096) == 0, s->path);
        wl_mutex = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        wl_check(wl_mutex != MAP_FAILED, "mmap");
        wl_mutex_init(wl_mutex, &spec);
        lose_process();
    }
    s->address = wl_mutex;
}

int main(int argc, char **argv)
{
    struct wl_scene s = {.kind = "mutex", .class = "lock", .setup = setup, .wait = wl_mutex_wait};
    wl_start(argc, argv);
    s.path = wl_arg_text("file", NULL);
    return wl_run(argc, argv, &s);
}

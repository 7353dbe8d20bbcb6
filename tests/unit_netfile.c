#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/clock.h"
#include "../src/compiler.h"
#include "../src/netfile.h"
#include "module_tree.h"

static void test_is_remote(void **state UNUSED)
{
    struct made m;

    made_new(&m, false);
    tree_put(&m.tree, "1/mountinfo", "%s",
             "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
             "23 22 0:30 / /home rw,relatime shared:5 - nfs4 server:/home rw\n"
             "24 22 0:3 / /tmp rw - tmpfs tmpfs rw\n"
             "25 22 0:31 / /mnt/a - nfs rw master:1 - tmpfs nfs rw\n"
             "26 22 0:32 / /mnt/s rw - fuse.sshfs you@there: rw\n"
             "garbage\n0:33 x\n27 22 0:34 / /cut rw - nf");
    assert_true(netfile_is_remote(m.dirfd, makedev(0, 30)));
    assert_true(netfile_is_remote(m.dirfd, makedev(0, 32)));
    assert_false(netfile_is_remote(m.dirfd, makedev(0, 3)));
    assert_false(netfile_is_remote(m.dirfd, makedev(8, 1)));
    assert_false(netfile_is_remote(m.dirfd, makedev(0, 33)));
    assert_false(netfile_is_remote(m.dirfd, makedev(0, 34)));
    assert_false(netfile_is_remote(m.dirfd, makedev(0, 300)));
    unlinkat(m.dirfd, "mountinfo", 0);
    assert_false(netfile_is_remote(m.dirfd, makedev(0, 30)));
    made_free(&m);
}

static int open_plain(int dirfd, const char *path)
{
    int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

static int gate[2];

static int open_late(int dirfd, const char *path)
{
    char c;

    return read(gate[0], &c, 1) == 1 ? open_plain(dirfd, path) : -EIO;
}

static int count_open(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void test_open(void **state UNUSED)
{
    char c;
    int fd = netfile_open(AT_FDCWD, "/proc/self/exe", open_plain, 20000);

    assert_int_equal(fd, -EBADF); /* a descriptor is asked for */
    int root = open("/", O_DIRECTORY | O_CLOEXEC), before = count_open();
    fd = netfile_open(root, "proc/self/exe", open_plain, 20000);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, &c, 1), 1);
    assert_int_equal(c, 0x7f);
    close(fd);
    assert_int_equal(netfile_open(root, "no/such", open_plain, 20000), -ENOENT);
    assert_int_equal(count_open(), before);
    close(root);
}

/* Given up, and when the answer comes after all, nothing is left open. */
static void test_hangs(void **state UNUSED)
{
    int root = open("/", O_DIRECTORY | O_CLOEXEC);

    assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
    int before = count_open();
    nsec_t begun = clock_mono();
    assert_int_equal(netfile_open(root, "proc/self/exe", open_late, 50), -ETIMEDOUT);
    assert_true(clock_mono() - begun >= 50 * NSEC_PER_MSEC);
    assert_int_equal(count_open(), before + 1); /* the thread's own */
    assert_int_equal(write(gate[1], "x", 1), 1);
    nsec_t end = clock_mono() + 20 * NSEC_PER_SEC;
    while (count_open() != before && clock_mono() < end)
        usleep(1000);
    assert_int_equal(count_open(), before);
    close(root); /* the gate stays open: the thread may not be quite done with it */
}

/* A file system whose server never answers; a process has a library from there. */
static void test_dead_server(void **state UNUSED)
{
    struct made m;
    char at[128], options[64], *text;
    unsigned ma = 0, mi = 0;
    int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);

    made_new(&m, true);
    snprintf(at, sizeof(at), "%s/mnt", m.tree.root);
    mkdir(at, 0755);
    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
    if (fuse < 0 || mount("none", at, "fuse", 0, options) != 0) {
        if (fuse >= 0)
            close(fuse);
        made_free(&m);
        print_message("no file system can be mounted here\n");
        skip();
    }
    int self = open("/proc/self", O_DIRECTORY | O_CLOEXEC);
    assert_true(procfs_slurp_alloc(self, "mountinfo", &text, 1 << 20) > 0);
    const char *line = strstr(text, at);
    while (line > text && line[-1] != '\n')
        line--;
    assert_int_equal(sscanf(line, "%*d %*d %u:%u", &ma, &mi), 2);
    tree_put(&m.tree, "1/mountinfo", "%s", text);
    tree_put(&m.tree, "1/task/1/maps",
             "10000-20000 r-xp 00000000 %02x:%02x 77 %s/lib.so\n"
             "30000-40000 r-xp 00000000 %02x:%02x 78 %s/lib2.so\n",
             ma, mi, at, ma, mi, at);
    nsec_t begun = clock_mono();
    struct space *s = made_space(&m);
    nsec_t took = clock_mono() - begun;

    close(fuse); /* ends what hangs */
    umount2(at, MNT_DETACH);
    assert_true(took < 10 * NSEC_PER_SEC);
    assert_string_equal(space_find(s, 0x10000)->module->name, "lib.so");
    assert_int_equal(space_find(s, 0x30000)->module->elf_class, 0);
    space_free(s);
    free(text);
    close(self);
    made_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_remote),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_hangs),
        cmocka_unit_test(test_dead_server),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

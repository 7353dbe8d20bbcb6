#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/filelocks.h"
#include "../src/mounts.h"
#include "../src/procfs.h"
#include "proc_tree.h"

static void test_lines(void **state UNUSED)
{
    const char *text = "36 35 254:1 / /srv/my\\040data rw,noatime - ext4 /dev/vda1 rw\n"
                       "37 36 0:51 /a /mnt rw master:1 shared:5 - nfs4 10.0.0.5:/export rw,hard\n"
                       "38 36 0:52 / /s rw - fuse.sshfs me@there:/x rw,user_id=0\n"
                       "39 36 0:53 / /odd\\134\\011x\\9\\04 rw -  none rw\n" /* no type */
                       "40 36 0:54 / /empty rw - tmpfs  rw\n";
    struct mount m;

    assert_true(mounts_next(&text, &m));
    assert_int_equal(m.id, 36);
    assert_true(m.dev == makedev(254, 1));
    assert_int_equal(m.fs, FS_LOCAL);
    assert_string_equal(m.point, "/srv/my data");
    assert_string_equal(m.type, "ext4");
    assert_string_equal(m.source, "/dev/vda1");
    assert_true(mounts_next(&text, &m));
    assert_int_equal(m.id, 37);
    assert_int_equal(m.fs, FS_NFS);
    assert_string_equal(m.source, "10.0.0.5:/export");
    assert_string_equal(m.point, "/mnt");
    assert_true(mounts_next(&text, &m));
    assert_int_equal(m.fs, FS_FUSE);
    assert_string_equal(m.type, "fuse.sshfs");
    assert_true(mounts_next(&text, &m));
    assert_int_equal(m.id, 40);
    assert_string_equal(m.source, "");
    assert_string_equal(m.type, "tmpfs");
    assert_false(mounts_next(&text, &m));
}

static void test_escapes(void **state UNUSED)
{
    const char *text = "1 1 0:1 / /a\\134b\\011c\\012\\9\\04 rw - ext4 x\\043 rw\n";
    struct mount m;

    assert_true(mounts_next(&text, &m));
    assert_string_equal(m.point, "/a\\b\tc\n\\9\\04");
    assert_string_equal(m.source, "x#");
}

static void test_malformed(void **state UNUSED)
{
    const char *text = "\ngarbage\n"
                       "x 1 0:1 / / rw - ext4 a rw\n"
                       "-1 1 0:1 / / rw - ext4 a rw\n"
                       "2147483648 1 0:1 / / rw - ext4 a rw\n"
                       "2 1 0 / / rw - ext4 a rw\n"
                       "2 1 0:x / / rw - ext4 a rw\n"
                       "2 1 :1 / / rw - ext4 a rw\n"
                       "2 1 0:1 / / rw ext4 a rw\n"
                       "2 1 0:1 / / rw -\n"
                       "2 1 0:1 / / rw - ext4\n"
                       "7 1 0:9 / / rw - ext4 good rw\n"
                       "2 1 0:1 / / rw - ext4 cut off";
    struct mount m;

    assert_true(mounts_next(&text, &m));
    assert_int_equal(m.id, 7);
    assert_string_equal(m.source, "good");
    assert_false(mounts_next(&text, &m));
    assert_string_equal(text, "");
}

static void test_long_names(void **state UNUSED)
{
    char line[1300], name[401];
    const char *text = line;
    struct mount m;

    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    snprintf(line, sizeof(line), "1 1 0:1 / /%s rw - %s %s rw\n", name, name, name);
    assert_true(mounts_next(&text, &m));
    assert_int_equal(strlen(m.point), sizeof(m.point) - 1);
    assert_int_equal(strlen(m.source), sizeof(m.source) - 1);
    assert_int_equal(strlen(m.type), sizeof(m.type) - 1);
}

static void test_kinds(void **state UNUSED)
{
    static const struct {
        const char *type;
        enum fs_kind fs;
    } kinds[] = {
        {"ext4", FS_LOCAL},       {"btrfs", FS_LOCAL},
        {"overlay", FS_LOCAL},    {"nfs", FS_NFS},
        {"nfs4", FS_NFS},         {"nfsd", FS_LOCAL},
        {"fuse", FS_FUSE},        {"fuse.glusterfs", FS_FUSE},
        {"fuseblk", FS_FUSE},     {"fuseblk.ntfs-3g", FS_FUSE},
        {"fusectl", FS_LOCAL},    {"cifs", FS_REMOTE},
        {"smb3", FS_REMOTE},      {"9p", FS_REMOTE},
        {"ceph", FS_REMOTE},      {"afs", FS_REMOTE},
        {"glusterfs", FS_REMOTE},
    };

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        char line[96];
        const char *text = line;
        struct mount m;
        snprintf(line, sizeof(line), "1 1 0:1 / / rw - %s x rw\n", kinds[i].type);
        assert_true(mounts_next(&text, &m));
        if (m.fs != kinds[i].fs)
            fail_msg("%s is taken for %d", kinds[i].type, m.fs);
    }
}

static void test_find(void **state UNUSED)
{
    struct tree t;
    struct mount m;

    tree_new(&t);
    tree_put(&t, "5/mountinfo", "%s",
             "21 1 8:1 / / rw - ext4 /dev/sda1 rw\nbad\n"
             "22 21 0:40 / /a rw - nfs s:/a rw\n23 21 0:40 / /b rw - nfs s:/b rw\n");
    int root = procfs_open_root(t.root), dir = procfs_open_pid(root, 5);
    assert_true(dir >= 0);
    assert_true(mounts_find(dir, 23, 0, &m));
    assert_string_equal(m.point, "/b");
    assert_true(mounts_find(dir, -1, makedev(0, 40), &m));
    assert_string_equal(m.point, "/a");
    assert_false(mounts_find(dir, 24, makedev(0, 40), &m));
    assert_false(mounts_find(dir, -1, makedev(0, 41), &m));
    tree_remove(&t, "5/mountinfo");
    assert_false(mounts_find(dir, 23, 0, &m));
    close(dir);
    close(root);
    tree_free(&t);
}

/* The mount that fdinfo names leads to the device of the file's file system. */
static void test_own_file(void **state UNUSED)
{
    char path[] = "/tmp/lock-top-mounts.XXXXXX", rel[32], text[4096];
    struct fdinfo info;
    struct mount m;
    struct stat st;
    int fd = mkstemp(path), root = procfs_open_root("/proc");
    int dir = procfs_open_pid(root, getpid());

    assert_true(fd >= 0 && dir >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    snprintf(rel, sizeof(rel), "fdinfo/%d", fd);
    assert_true(procfs_slurp(dir, rel, text, sizeof(text)) > 0);
    filelocks_fdinfo(text, &info);
    assert_true(mounts_find(dir, info.mount, 0, &m));
    assert_int_equal(m.id, info.mount);
    if (info.inode)
        assert_true(info.inode == st.st_ino);
    if (strcmp(m.type, "btrfs") != 0 && strcmp(m.type, "overlay") != 0)
        assert_true(m.dev == st.st_dev);
    unlink(path);
    close(fd);
    close(dir);
    close(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),     cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_malformed), cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_kinds),     cmocka_unit_test(test_find),
        cmocka_unit_test(test_own_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

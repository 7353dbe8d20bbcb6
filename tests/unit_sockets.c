#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/procfs.h"
#include "../src/sockets.h"
#include "proc_tree.h"

#define TCP_HEAD                                                                                   \
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "  \
    "inode\n"
#define REST "00000000:00000000 00:00000000 00000000"

static void assert_found(const char *text, const char *proto, uint64_t inode, const char *want)
{
    char got[160];

    assert_true(sockets_find_in(text, proto, inode, got, sizeof(got)));
    assert_string_equal(got, want);
}

/* The kernel writes words in the machine's byte order: these are those of a little-endian one. */
static void test_inet(void **state UNUSED)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    static const char tcp[] = TCP_HEAD
        "   0: 00000000:0050 00000000:0000 0A " REST "     0        0 1124 1 0 100 0 0 10 0\n"
        "  10: 0100007F:C350 0100007F:1538 01 " REST "  1000        0 77 1 0 20 4 30 10 -1\n";
    static const char tcp6[] = TCP_HEAD
        "   0: 00000000000000000000000001000000:C351 00000000000000000000000001000000:1538 01 " REST
        "     0        0 78 1 0\n"
        "   1: 0000000000000000FFFF00000100007F:C352 0000000000000000FFFF00000200007F:0016 01 " REST
        "     0        0 79 1 0\n"
        "   2: 00000000000000000000000000000000:01BB 00000000000000000000000000000000:0000 0A " REST
        "     0        0 80 1 0\n";
    static const char udp[] =
        TCP_HEAD "  10: 00000000:0044 00000000:0000 07 " REST "     0        0 90 2 0 0\n";

    assert_found(tcp, "tcp", 1124, "tcp listening on 0.0.0.0:80");
    assert_found(tcp, "tcp", 77, "tcp 127.0.0.1:5432");
    assert_found(tcp6, "tcp6", 78, "tcp [::1]:5432");
    assert_found(tcp6, "tcp6", 79, "tcp 127.0.0.2:22");
    assert_found(tcp6, "tcp6", 80, "tcp listening on [::]:443");
    assert_found(udp, "udp", 90, "udp bound to 0.0.0.0:68");
    char got[64];
    assert_false(sockets_find_in(tcp, "tcp", 7, got, sizeof(got)));
    assert_false(sockets_find_in(tcp, "tcp", 112, got, sizeof(got)));
    assert_false(sockets_find_in(tcp, "tcp", 1000, got, sizeof(got))); /* a user */
#else
    skip();
#endif
}

static void test_inet_malformed(void **state UNUSED)
{
    static const char *const bad[] = {
        "",
        "\n",
        "0: 0100007F:1538 0100007F:1538 01 " REST " 0 0 77 1", /* cut off */
        "0: 0100007F:1538 0100007F:1538 01 " REST " 0 0 77x 1\n",
        "0: 0100007F:1538 0100007F:1538 01 " REST " 0 0\n",
        "0: 0100007F:1538 0100007:1538 01 " REST " 0 0 77 1\n",
        "0: 0100007F:1538 0100007F 01 " REST " 0 0 77 1\n",
        "0: 0100007F:1538 0100007F:10000 01 " REST " 0 0 77 1\n",
        "0: 0100007F:1538 0100007F: 01 " REST " 0 0 77 1\n",
        "0: 0100007F:1538 0100007G:1538 01 " REST " 0 0 77 1\n",
        "0: 0100007F:1538 0100007F:1538 XX " REST " 0 0 77 1\n",
        "0: 0100007F:1538 0100007F:1538 01 " REST " 0 0 18446744073709551693 1\n",
    };
    char got[64];

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (sockets_find_in(bad[i], "tcp", 77, got, sizeof(got)))
            fail_msg("taken: %s", bad[i]);
    }
    /* Sockets without a descriptor have the inode 0. */
    assert_false(sockets_find_in("0: 0100007F:1538 0100007F:1538 06 " REST " 0 0 0 1\n", "tcp", 0,
                                 got, sizeof(got)));
}

static void test_unix(void **state UNUSED)
{
    static const char text[] =
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        "0000000000000000: 00000003 00000000 00000000 0001 03  1120\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01  1121 /run/my x.sock\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 11223344 @abstract\n";
    char small[12];

    assert_found(text, "unix", 1120, "unix (no name)");
    assert_found(text, "unix", 1121, "unix /run/my x.sock");
    assert_found(text, "unix", 11223344, "unix @abstract");
    assert_true(sockets_find_in(text, "unix", 1121, small, sizeof(small)));
    assert_string_equal(small, "unix /run/m");
    assert_false(sockets_find_in(text, "unix", 112, small, sizeof(small)));
}

static void test_inode_of_link(void **state UNUSED)
{
    assert_true(sockets_inode("socket:[12345]") == 12345);
    assert_true(sockets_inode("socket:[18446744073709551615]") == UINT64_MAX);
    assert_true(sockets_inode("socket:[12345") == 0);
    assert_true(sockets_inode("socket:[12345]x") == 0);
    assert_true(sockets_inode("socket:[]") == 0);
    assert_true(sockets_inode("socket:[-1]") == 0);
    assert_true(sockets_inode("pipe:[12345]") == 0);
    assert_true(sockets_inode("/tmp/socket:[1]") == 0);
    assert_true(sockets_inode(NULL) == 0);
}

static void test_files_of_a_tree(void **state UNUSED)
{
    struct tree t;
    char got[64];

    tree_new(&t);
    tree_put(&t, "9/net/tcp", "%s", TCP_HEAD);
    tree_put(&t, "9/net/unix", "%s", "Num\n0: 2 0 0 1 1 55 /run/a.sock\n");
    int root = procfs_open_root(t.root), dir = procfs_open_pid(root, 9);
    assert_int_equal(sockets_find(dir, 55, got, sizeof(got)), 0);
    assert_string_equal(got, "unix /run/a.sock");
    assert_int_equal(sockets_find(dir, 56, got, sizeof(got)), -ENOENT);
    close(dir);
    close(root);
    tree_free(&t);
}

static uint64_t inode_of(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return st.st_ino;
}

static void test_own_sockets(void **state UNUSED)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    char got[64], want[64];
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int root = procfs_open_root("/proc"), dir = procfs_open_pid(root, getpid());

    assert_int_equal(bind(server, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(server, 1), 0);
    assert_int_equal(getsockname(server, (struct sockaddr *)&a, &len), 0);
    assert_int_equal(connect(client, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(sockets_find(dir, inode_of(client), got, sizeof(got)), 0);
    snprintf(want, sizeof(want), "tcp 127.0.0.1:%u", ntohs(a.sin_port));
    assert_string_equal(got, want);
    assert_int_equal(sockets_find(dir, inode_of(server), got, sizeof(got)), 0);
    snprintf(want, sizeof(want), "tcp listening on 127.0.0.1:%u", ntohs(a.sin_port));
    assert_string_equal(got, want);
    close(client);
    close(server);

    struct sockaddr_un u = {.sun_family = AF_UNIX};
    snprintf(u.sun_path + 1, sizeof(u.sun_path) - 1, "lock-top-test-%d", getpid());
    int un = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(u.sun_path + 1));
    assert_int_equal(bind(un, (struct sockaddr *)&u, len), 0);
    assert_int_equal(sockets_find(dir, inode_of(un), got, sizeof(got)), 0);
    snprintf(want, sizeof(want), "unix @%s", u.sun_path + 1);
    assert_string_equal(got, want);
    close(un);
    close(dir);
    close(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inet),
        cmocka_unit_test(test_inet_malformed),
        cmocka_unit_test(test_unix),
        cmocka_unit_test(test_inode_of_link),
        cmocka_unit_test(test_files_of_a_tree),
        cmocka_unit_test(test_own_sockets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

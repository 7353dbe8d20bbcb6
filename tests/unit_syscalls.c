#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/syscalls.h"

static void test_native(void **state UNUSED)
{
    assert_int_equal(syscalls_lookup(ABI_NATIVE, SYS_futex), CALL_futex);
    assert_int_equal(syscalls_lookup(ABI_NATIVE, SYS_restart_syscall), CALL_restart_syscall);
    assert_int_equal(syscalls_lookup(ABI_NATIVE, SYS_read), CALL_read);
    assert_int_equal(syscalls_lookup(ABI_NATIVE, SYS_flock), CALL_flock);
    assert_int_equal(syscalls_lookup(ABI_NATIVE, SYS_fcntl), CALL_fcntl);
    assert_int_equal(syscalls_lookup(ABI_NATIVE, SYS_epoll_pwait), CALL_epoll_pwait);
    assert_int_equal(syscalls_lookup(ABI_NATIVE, SYS_clock_nanosleep), CALL_clock_nanosleep);
    assert_int_equal(syscalls_lookup(ABI_NATIVE, SYS_mq_timedsend), CALL_mq_timedsend);
}

/* These may be newer than the headers of the machine that builds. */
static void test_new_calls(void **state UNUSED)
{
#if !defined(__alpha__) && !defined(__mips__)
    assert_int_equal(syscalls_lookup(ABI_NATIVE, 449), CALL_futex_waitv);
    assert_int_equal(syscalls_lookup(ABI_NATIVE, 455), CALL_futex_wait);
#else
    skip();
#endif
}

static void test_compat(void **state UNUSED)
{
#ifdef __x86_64__
    assert_int_equal(syscalls_lookup(ABI_COMPAT, 240), CALL_futex);
    assert_int_equal(syscalls_lookup(ABI_NATIVE, 240), CALL_OTHER); /* mq_open */
    assert_int_equal(syscalls_lookup(ABI_COMPAT, 422), CALL_futex_time64);
    assert_int_equal(syscalls_lookup(ABI_COMPAT, 0), CALL_restart_syscall);
    assert_int_equal(syscalls_lookup(ABI_NATIVE, 0), CALL_read);
    assert_int_equal(syscalls_lookup(ABI_COMPAT, 3), CALL_read);
    assert_int_equal(syscalls_lookup(ABI_COMPAT, 102), CALL_socketcall);
    assert_int_equal(syscalls_lookup(ABI_COMPAT, 143), CALL_flock);
    assert_int_equal(syscalls_lookup(ABI_COMPAT, 221), CALL_fcntl64);
    assert_int_equal(syscalls_lookup(ABI_COMPAT, 455), CALL_futex_wait);
    assert_int_equal(syscalls_lookup(ABI_COMPAT, 202), CALL_OTHER);
#else
    for (long nr = 0; nr < 500; nr++)
        assert_int_equal(syscalls_lookup(ABI_COMPAT, nr), CALL_OTHER);
#endif
}

static void test_out_of_range(void **state UNUSED)
{
    static const long odd[] = {-1, LONG_MIN, 456, 457, 10000, 0x40000000L + 202, LONG_MAX};

    for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
        assert_int_equal(syscalls_lookup(ABI_NATIVE, odd[i]), CALL_OTHER);
        assert_int_equal(syscalls_lookup(ABI_COMPAT, odd[i]), CALL_OTHER);
    }
    assert_int_equal(syscalls_lookup(ABI_UNKNOWN, SYS_futex), CALL_OTHER);
}

/* No call of the table stands at two numbers, and every number leads to a named one. */
static void test_numbers_unique(void **state UNUSED)
{
    static const enum abi abis[] = {ABI_NATIVE, ABI_COMPAT};

    for (size_t a = 0; a < ARRAY_SIZE(abis); a++) {
        bool seen[CALL_COUNT] = {false};
        for (long nr = 0; nr < 10000; nr++) {
            enum call call = syscalls_lookup(abis[a], nr);
            assert_in_range(call, 0, CALL_COUNT - 1);
            assert_false(call != CALL_OTHER && seen[call]);
            seen[call] = true;
        }
    }
}

static void test_meaning(void **state UNUSED)
{
    assert_string_equal(syscalls_name(CALL_OTHER), "?");
    assert_string_equal(syscalls_name(CALL_futex), "futex");
    assert_string_equal(syscalls_name(CALL_recvfrom), "recvfrom");
    assert_string_equal(syscalls_name(CALL_mq_timedsend), "mq_timedsend");
    assert_int_equal(syscalls_wait(CALL_OTHER), WAIT_OTHER);
    assert_int_equal(syscalls_wait(CALL_futex_waitv), WAIT_FUTEX);
    assert_int_equal(syscalls_wait(CALL_restart_syscall), WAIT_RESTART);
    assert_int_equal(syscalls_wait(CALL_flock), WAIT_FILELOCK);
    assert_int_equal(syscalls_wait(CALL_fcntl), WAIT_FCNTL);
    assert_int_equal(syscalls_wait(CALL_read), WAIT_FD);
    assert_int_equal(syscalls_wait(CALL_poll), WAIT_NET);
    assert_int_equal(syscalls_wait(CALL_nanosleep), WAIT_SLEEP);
    assert_false(syscalls_has_fd(CALL_OTHER));
    assert_false(syscalls_has_fd(CALL_futex));
    assert_true(syscalls_has_fd(CALL_read));
    assert_true(syscalls_has_fd(CALL_fsync));
}

/* ELF ------------------------------------------------------------------------ */

struct elf_head {
    unsigned char bytes[20];
};

static struct elf_head elf(unsigned char class, unsigned char data, unsigned machine)
{
    struct elf_head h = {{0x7f, 'E', 'L', 'F', class, data, 1}};
    bool little = data == ELFDATA2LSB;

    h.bytes[16] = little ? ET_DYN : 0;
    h.bytes[little ? 18 : 19] = (unsigned char)(machine & 255);
    h.bytes[little ? 19 : 18] = (unsigned char)(machine >> 8);
    return h;
}

static enum abi abi_of(unsigned char class, unsigned char data, unsigned machine)
{
    struct elf_head h = elf(class, data, machine);

    return syscalls_abi_from_elf(h.bytes, sizeof(h.bytes));
}

static void test_elf_self(void **state UNUSED)
{
    unsigned char head[64];
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(read(fd, head, sizeof(head)), sizeof(head));
    close(fd);
    assert_int_equal(syscalls_abi_from_elf(head, sizeof(head)), ABI_NATIVE);
}

static void test_elf_machines(void **state UNUSED)
{
#if defined(__x86_64__)
    assert_int_equal(abi_of(ELFCLASS64, ELFDATA2LSB, EM_X86_64), ABI_NATIVE);
    assert_int_equal(abi_of(ELFCLASS32, ELFDATA2LSB, EM_386), ABI_COMPAT);
    assert_int_equal(abi_of(ELFCLASS64, ELFDATA2LSB, EM_AARCH64), ABI_UNKNOWN);
#elif defined(__aarch64__)
    assert_int_equal(abi_of(ELFCLASS64, ELFDATA2LSB, EM_AARCH64), ABI_NATIVE);
    assert_int_equal(abi_of(ELFCLASS32, ELFDATA2LSB, EM_386), ABI_UNKNOWN);
#endif
    assert_int_equal(abi_of(ELFCLASS32, ELFDATA2LSB, EM_X86_64), ABI_UNKNOWN); /* x32 */
    assert_int_equal(abi_of(ELFCLASS32, ELFDATA2LSB, EM_ARM), ABI_UNKNOWN);
    assert_int_equal(abi_of(ELFCLASS64, ELFDATA2MSB, EM_X86_64), ABI_UNKNOWN);
    assert_int_equal(abi_of(ELFCLASS64, ELFDATA2LSB, EM_PPC64), ABI_UNKNOWN);
    assert_int_equal(abi_of(ELFCLASSNONE, ELFDATA2LSB, EM_X86_64), ABI_UNKNOWN);
}

static void test_elf_bad(void **state UNUSED)
{
    struct elf_head h = elf(ELFCLASS64, ELFDATA2LSB, EM_X86_64);

    assert_int_equal(syscalls_abi_from_elf(h.bytes, 19), ABI_UNKNOWN);
    assert_int_equal(syscalls_abi_from_elf(h.bytes, 0), ABI_UNKNOWN);
    for (size_t i = 0; i < 4; i++) {
        struct elf_head broken = h;
        broken.bytes[i] ^= 1;
        assert_int_equal(syscalls_abi_from_elf(broken.bytes, sizeof(broken.bytes)), ABI_UNKNOWN);
    }
    assert_int_equal(syscalls_abi_from_elf((const unsigned char *)"#!/bin/sh\nexit 0 # long", 20),
                     ABI_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_native),         cmocka_unit_test(test_new_calls),
        cmocka_unit_test(test_compat),         cmocka_unit_test(test_out_of_range),
        cmocka_unit_test(test_numbers_unique), cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_elf_self),       cmocka_unit_test(test_elf_machines),
        cmocka_unit_test(test_elf_bad),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

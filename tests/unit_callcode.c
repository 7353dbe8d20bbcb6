#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../src/callcode.h"
#include "../src/compiler.h"
#include "module_tree.h"

#define RET 0x1000

/* The kind of the call whose LEN bytes end before RET. */
static enum call_kind kind_of(const char *bytes, size_t len, uint64_t *target)
{
    uint8_t code[CALLCODE_BYTES];

    memset(code, 0x90, sizeof(code));
    memcpy(code + sizeof(code) - len, bytes, len);
    return callcode_decode(code, RET, target);
}

#define KIND(bytes) kind_of(bytes, sizeof(bytes) - 1, &(uint64_t){0})

static void test_direct(void **state UNUSED)
{
    uint64_t target;

    assert_int_equal(kind_of("\xe8\x10\x00\x00\x00", 5, &target), CALL_DIRECT);
    assert_int_equal(target, RET + 0x10);
    assert_int_equal(kind_of("\xe8\xf0\xff\xff\xff", 5, &target), CALL_DIRECT);
    assert_int_equal(target, RET - 0x10);
    assert_int_equal(kind_of("\xff\x15\x20\x00\x00\x00", 6, &target), CALL_SLOT);
    assert_int_equal(target, RET + 0x20);
}

static void test_indirect(void **state UNUSED)
{
    assert_int_equal(KIND("\xff\xd0"), CALL_INDIRECT);                 /* call *%rax */
    assert_int_equal(KIND("\x41\xff\xd4"), CALL_INDIRECT);             /* call *%r12 */
    assert_int_equal(KIND("\xff\x10"), CALL_INDIRECT);                 /* call *(%rax) */
    assert_int_equal(KIND("\xff\x14\xc8"), CALL_INDIRECT);             /* call *(%rax,%rcx,8) */
    assert_int_equal(KIND("\xff\x50\x18"), CALL_INDIRECT);             /* call *0x18(%rax) */
    assert_int_equal(KIND("\xff\x54\x24\x08"), CALL_INDIRECT);         /* call *8(%rsp) */
    assert_int_equal(KIND("\xff\x90\x00\x01\x00\x00"), CALL_INDIRECT); /* call *0x100(%rax) */
    assert_int_equal(KIND("\xff\x94\x24\x00\x01\x00\x00"), CALL_INDIRECT);
    assert_int_equal(KIND("\xff\x14\x25\x00\x10\x00\x00"), CALL_INDIRECT); /* call *0x1000 */
}

static void test_no_call(void **state UNUSED)
{
    assert_int_equal(KIND("\x90\x90\x90"), CALL_NONE);
    assert_int_equal(KIND("\xff\xe0"), CALL_NONE);                 /* jmp *%rax */
    assert_int_equal(KIND("\xff\x50\x18\x90"), CALL_NONE);         /* it ends earlier */
    assert_int_equal(KIND("\xff\x54"), CALL_NONE);                 /* it ends later */
    assert_int_equal(KIND("\xff\x35\x00\x00\x00\x00"), CALL_NONE); /* push */
    assert_int_equal(KIND("\xe9\x10\x00\x00\x00"), CALL_NONE);     /* jmp */
}

/* Machine code, as data of a file that is mapped. */
static const uint8_t prologue[48] = {
    0xf3, 0x0f, 0x1e, 0xfa,       /* endbr64 */
    0x55, 0x48, 0x89, 0xe5,       /* push %rbp; mov %rsp,%rbp */
    0x41, 0x57, 0x41, 0x56, 0x53, /* push %r15; push %r14; push %rbx */
    0x48, 0x83, 0xec, 0x28,       /* sub $0x28,%rsp */
};
static const uint8_t long_prologue[48] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x81, 0xec, 0, 0x10, 0, 0};
static const uint8_t none_pushed[48] = {0x55, 0x48, 0x89, 0xe5, 0xc3};
static const uint8_t no_frame[48] = {0x41, 0x57, 0x48, 0x83, 0xec, 0x28};
static const uint8_t exits[48] = {0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05, 0xf4};
static const uint8_t halts[48] = {0xf4};
static const uint8_t sigreturns[48] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
static const uint8_t jumps[48] = {0xf3, 0x0f, 0x1e, 0xfa, 0xe9, 0x07, 0, 0, 0};

struct looked {
    struct module_set *set;
    int dirfd;
    struct space *space;
};

static int look(void **state)
{
    static struct looked l;

    l.set = module_set_new();
    l.space = own_space(l.set, &l.dirfd);
    *state = &l;
    return 0;
}

static int look_away(void **state)
{
    struct looked *l = *state;

    space_free(l->space);
    module_set_free(l->set);
    close(l->dirfd);
    return 0;
}

static void test_frame_size(void **state)
{
    const struct looked *l = *state;
    uint64_t size = 0;

    assert_true(callcode_frame_size(l->space, (uintptr_t)prologue, &size));
    assert_int_equal(size, 3 * 8 + 0x28);
    assert_true(callcode_frame_size(l->space, (uintptr_t)long_prologue, &size));
    assert_int_equal(size, 0x1000);
    assert_true(callcode_frame_size(l->space, (uintptr_t)none_pushed, &size));
    assert_int_equal(size, 0);
    assert_false(callcode_frame_size(l->space, (uintptr_t)no_frame, &size));
    assert_false(callcode_frame_size(l->space, 0, &size));
}

static void test_ends(void **state)
{
    const struct looked *l = *state;

    assert_true(callcode_ends_thread(l->space, (uintptr_t)exits));
    assert_true(callcode_ends_thread(l->space, (uintptr_t)halts));
    assert_false(callcode_ends_thread(l->space, (uintptr_t)prologue));
    assert_false(callcode_ends_thread(l->space, 0));
    assert_true(callcode_is_sigreturn(l->space, (uintptr_t)sigreturns));
    assert_false(callcode_is_sigreturn(l->space, (uintptr_t)exits));
    assert_false(callcode_is_sigreturn(l->space, 0));
}

/* Through a jump to where it goes. */
static void test_reaches(void **state)
{
    const struct looked *l = *state;
    uint64_t stub = (uintptr_t)jumps, end = stub + 9 + 7;

    assert_true(callcode_reaches(l->space, CALL_DIRECT, end, end));
    assert_true(callcode_reaches(l->space, CALL_DIRECT, stub, end));
    assert_false(callcode_reaches(l->space, CALL_DIRECT, stub, end + 1));
    assert_false(callcode_reaches(l->space, CALL_DIRECT, 0, end));
    assert_true(callcode_reaches(l->space, CALL_INDIRECT, 0, end));
    assert_false(callcode_reaches(l->space, CALL_NONE, end, end));
    uint64_t slot = end;
    assert_true(callcode_reaches(l->space, CALL_SLOT, (uintptr_t)&slot, end));
    slot = end + 4;
    assert_false(callcode_reaches(l->space, CALL_SLOT, (uintptr_t)&slot, end));
    assert_false(callcode_reaches(l->space, CALL_SLOT, 8, end));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_direct),  cmocka_unit_test(test_indirect),
        cmocka_unit_test(test_no_call), cmocka_unit_test(test_frame_size),
        cmocka_unit_test(test_ends),    cmocka_unit_test(test_reaches),
    };

#if !defined(__x86_64__)
    return 0; /* no call is known on other machines */
#endif
    return cmocka_run_group_tests(tests, look, look_away);
}

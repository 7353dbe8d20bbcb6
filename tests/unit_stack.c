#include <alloca.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../src/compiler.h"
#include "../src/tracer.h"
#include "stack_child.h"

#define NOINLINE __attribute__((noinline))
#define APART    __attribute__((aligned(NEAR)))
#define NEAR     2048 /* no function here is longer, and all lie this far APART */

static volatile int sink;

#if defined(__x86_64__)
/* Calls the function in its first argument with the second, and has cleanups, as C++ has: its
 * unwind entry leads to their runner through a pointer that the loader writes. */
extern void with_cleanups(void (*function)(int), int n);
__asm__(".pushsection .data.rel.ro,\"aw\"\n"
        "cleanup_runner: .quad with_cleanups\n"
        ".popsection\n"
        ".pushsection .text\n"
        ".globl with_cleanups\n"
        "with_cleanups:\n"
        ".cfi_startproc\n"
        ".cfi_personality 0x9b, cleanup_runner\n"
        "sub $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "mov %rdi, %rax\n"
        "mov %esi, %edi\n"
        "call *%rax\n"
        "add $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".popsection\n");
#endif

/* How many frames of S lie in FUNCTION. */
APART static size_t frames_in(const struct stack *s, void (*function)(int))
{
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++)
        n += s->pc[i] > (uintptr_t)function && s->pc[i] - (uintptr_t)function < NEAR;
    return n;
}

APART static void check_all_code(const struct child *c, const struct stack *s)
{
    assert_true(s->n >= 1 && s->n <= STACK_MAX_FRAMES);
    assert_true(s->exact[0]);
    assert_int_equal(s->pc[0], c->call.pc);
    for (size_t i = 1; i < s->n; i++)
        assert_true(space_is_code(c->space, s->pc[i] - !s->exact[i]));
}

/* Chains of functions; each keeps something to do behind the call, so that none is a jump. */

NOINLINE APART static void recurse(int n)
{
    if (n == 0)
        block_here();
    else
        recurse(n - 1);
    sink++;
}

/* alloca makes the compiler keep rbp as the frame pointer, and find the frame through it. */
NOINLINE APART static void recurse_alloca(int n)
{
    volatile char *p = alloca((size_t)(n + 1) * 40);

    p[n] = (char)n;
    if (n == 0)
        block_here();
    else
        recurse_alloca(n - 1);
    sink += p[n];
}

NOINLINE APART static void big_frame(int n)
{
    volatile char pad[20000];

    pad[n] = 1;
    if (n == 0)
        block_here();
    else
        big_frame(n - 1);
    sink += pad[n];
}

APART static void *in_thread(void *arg)
{
    void (*body)(void) = *(void (**)(void))arg;

    body();
    return NULL;
}

APART static void start_thread(void (*body)(void))
{
    static void (*kept)(void);
    pthread_t t;

    kept = body;
    if (pthread_create(&t, NULL, in_thread, &kept) == 0)
        pthread_join(t, NULL);
}

APART static void five_deep(void)
{
    recurse(5);
}

APART static void five_deep_thread(void)
{
    start_thread(five_deep);
}

APART static void test_thread(void **state UNUSED)
{
    struct child *c = child_new(five_deep_thread);
    struct stack s;

    unwind(c, &s);
    check_all_code(c, &s);
    assert_int_equal(s.end, STACK_COMPLETE);
    assert_int_equal(frames_in(&s, recurse), 6);
    assert_false(s.live);
    for (size_t i = 1; i < s.n; i++)
        assert_false(s.exact[i]);
    child_free(c);
}

/* The main thread, through main() to the program's start. */
APART static void test_main_thread(void **state UNUSED)
{
    struct child *c = child_new(five_deep);
    struct stack s;

    unwind(c, &s);
    assert_int_equal(s.end, STACK_COMPLETE);
    assert_int_equal(frames_in(&s, recurse), 6);
    const struct mapped *last = space_find(c->space, s.pc[s.n - 1]);
    assert_non_null(last);
    uint64_t into = s.pc[s.n - 1] - last->bias - last->module->entry;
    assert_true(into < 64); /* _start */
    child_free(c);
}

APART static void alloca_deep(void)
{
    recurse_alloca(7);
}

APART static void alloca_thread(void)
{
    start_thread(alloca_deep);
}

APART static void test_recovery(void **state UNUSED)
{
    struct child *c = child_new(alloca_thread);
    struct stack s;

    for (int warm = 0; warm < 2; warm++) {
        unwind(c, &s);
        check_all_code(c, &s);
        assert_int_equal(s.end, STACK_COMPLETE);
        assert_int_equal(frames_in(&s, recurse_alloca), 8);
    }
    child_free(c);
}

/* Clears all return addresses in the copy but those of the first N callers in S. */
APART static void clear_returns(struct child *c, const struct stack *s, size_t n)
{
    for (size_t at = 0; at + 8 <= c->copy.len; at += 8) {
        uint64_t word;
        bool keep = false;

        memcpy(&word, c->bytes + at, sizeof(word));
        for (size_t i = 1; i <= n; i++)
            keep |= word == s->pc[i];
        if (!keep && space_is_code(c->space, word))
            memset(c->bytes + at, 0, sizeof(word));
    }
}

/* Where nothing on the stack can be rbp, the walk ends, and nothing is made up. */
APART static void test_no_recovery(void **state UNUSED)
{
    struct child *c = child_new(alloca_thread);
    struct stack whole, s;
    size_t at = 0;

    unwind(c, &whole);
    while (whole.pc[at] - (uintptr_t)recurse_alloca >= NEAR)
        at++; /* the frame that is found through rbp */
    clear_returns(c, &whole, at);
    unwind(c, &s);
    assert_int_equal(s.end, STACK_BROKEN);
    assert_int_equal(s.n, at + 1);
    assert_memory_equal(s.pc, whole.pc, s.n * sizeof(s.pc[0]));
    child_free(c);
}

APART static void too_deep(void)
{
    recurse(200);
}

APART static void test_too_deep(void **state UNUSED)
{
    struct child *c = child_new(too_deep);
    struct stack s;

    unwind(c, &s);
    assert_int_equal(s.end, STACK_CUT);
    assert_int_equal(s.n, STACK_MAX_FRAMES);
    assert_true(frames_in(&s, recurse) > STACK_MAX_FRAMES - 5);
    child_free(c);
}

APART static void big_frames(void)
{
    big_frame(5);
}

/* More than the copy holds of a thread that sleeps. */
APART static void test_beyond_copy(void **state UNUSED)
{
    struct child *c = child_new(big_frames);
    struct stack s;

    unwind(c, &s);
    assert_int_equal(s.end, STACK_COMPLETE);
    assert_int_equal(frames_in(&s, big_frame), 6);
    assert_true(s.live);

    c->copy.len = 0;
    unwind(c, &s);
    assert_int_equal(s.end, STACK_COMPLETE);
    assert_true(s.live);
    child_free(c);
}

/* Of a thread that was stopped all registers are known, and the copy is all there is: it has gone
 * on since. */
APART static void test_stopped(void **state UNUSED)
{
    struct child *c = child_new(big_frames), *d = child_new(alloca_thread);
    struct tracer *t =
        tracer_new(&(struct tracer_limits){100, 10 * NSEC_PER_SEC, 10 * NSEC_PER_SEC, false});
    struct tracer_look *look = malloc(sizeof(*look));
    struct stack s;

    assert_int_equal(tracer_look(t, c->dirfd, c->tid, look), TRACER_OK);
    stack_unwind(c->unwinder, c->space, &look->regs, &look->copy, &s);
    assert_int_equal(s.end, STACK_CUT);
    assert_true(frames_in(&s, big_frame) >= 1 && frames_in(&s, big_frame) < 6);
    assert_false(s.live);

    assert_int_equal(tracer_look(t, d->dirfd, d->tid, look), TRACER_OK);
    stack_unwind(d->unwinder, d->space, &look->regs, &look->copy, &s);
    assert_int_equal(s.end, STACK_COMPLETE);
    assert_int_equal(frames_in(&s, recurse_alloca), 8);
    free(look);
    tracer_free(t);
    child_free(c);
    child_free(d);
}

APART static void handler(int sig UNUSED)
{
    recurse(2);
}

APART static void catch_signal(int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
}

APART static void in_handler(void)
{
    catch_signal(0);
}

APART static void in_handler_elsewhere(void)
{
    stack_t other = {.ss_sp = malloc(65536), .ss_size = 65536};

    sigaltstack(&other, NULL);
    catch_signal(SA_ONSTACK);
}

/* The instruction that a signal interrupted is exact: there is no call before it. */
APART static void check_handler(void (*body)(void), bool elsewhere)
{
    struct child *c = child_new(body);
    struct stack s;
    size_t exact = 0, at = 0;

    unwind(c, &s);
    check_all_code(c, &s);
    assert_int_equal(s.end, STACK_COMPLETE);
    assert_int_equal(frames_in(&s, recurse), 3);
    assert_int_equal(s.live, elsewhere);
    for (size_t i = 1; i < s.n; i++) {
        exact += s.exact[i];
        at = s.exact[i] ? i : at;
    }
    assert_int_equal(exact, 1);
    assert_true(at > 4 && at < s.n - 2);
    assert_int_equal(space_find(c->space, s.pc[at])->module->kind, MODULE_GLIBC); /* in raise() */
    child_free(c);
}

APART static void test_handler(void **state UNUSED)
{
    check_handler(in_handler, false);
}

APART static void test_handler_elsewhere(void **state UNUSED)
{
    check_handler(in_handler_elsewhere, true);
}

#if defined(__x86_64__)
/* Code that is in no file and no table: calls the function in its first argument. */
APART static void through_made_code(void (*function)(int), bool keeps_rbp)
{
    static const uint8_t with[] = {0x55, 0x48, 0x89, 0xe5, 0x89, 0xf0, 0x48, 0x89,
                                   0xf8, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
    static const uint8_t without[] = {0x48, 0x83, 0xec, 0x48, 0x48, 0x89, 0xf8, 0x89,
                                      0xf7, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x48, 0xc3};
    uint8_t *code =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    union {
        uint8_t *bytes;
        void (*call)(void (*)(int), int);
    } made = {code};

    if (keeps_rbp)
        memcpy(code, with, sizeof(with));
    else
        memcpy(code, without, sizeof(without));
    atomic_store(&the_room->a, (uintptr_t)code);
    made.call(function, 3);
    sink++;
}

APART static void made_chain(void)
{
    through_made_code(recurse_alloca, true);
}

APART static void made_scan(void)
{
    through_made_code(recurse, false);
}

APART static void check_made(void (*body)(void), void (*function)(int))
{
    struct child *c = child_new(body);
    uint64_t code = atomic_load(&c->room->a);
    struct stack s;
    size_t in_code = 0;

    unwind(c, &s);
    check_all_code(c, &s);
    assert_int_equal(s.end, STACK_COMPLETE);
    assert_true(s.guessed);
    assert_int_equal(frames_in(&s, function), 4);
    for (size_t i = 0; i < s.n; i++)
        in_code += s.pc[i] > code && s.pc[i] < code + 4096;
    assert_int_equal(in_code, 1);
    child_free(c);
}

APART static void test_made_code(void **state UNUSED)
{
    check_made(made_chain, recurse_alloca);
    check_made(made_scan, recurse);
}
#endif

#if defined(__x86_64__)
APART static void through_cleanups(void)
{
    with_cleanups(recurse, 3);
    sink++;
}

/* They are nothing that the walk needs, and nothing is read of the process for them. */
APART static void test_cleanups(void **state UNUSED)
{
    struct child *c = child_new(through_cleanups);
    struct tracer *t =
        tracer_new(&(struct tracer_limits){100, 10 * NSEC_PER_SEC, 10 * NSEC_PER_SEC, false});
    struct tracer_look *look = malloc(sizeof(*look));
    struct stack s;

    unwind(c, &s);
    assert_int_equal(s.end, STACK_COMPLETE);
    assert_false(s.live);
    assert_int_equal(tracer_look(t, c->dirfd, c->tid, look), TRACER_OK);
    unwinder_free(c->unwinder);
    c->unwinder = unwinder_new(); /* that knows nothing yet */
    stack_unwind(c->unwinder, c->space, &look->regs, &look->copy, &s);
    assert_int_equal(s.end, STACK_COMPLETE);
    assert_int_equal(frames_in(&s, recurse), 4);
    assert_false(s.live);
    assert_false(s.guessed);
    free(look);
    tracer_free(t);
    child_free(c);
}
#endif

/* Two programs that have different code at the same addresses, by turns. */
APART static void test_two_spaces(void **state UNUSED)
{
    struct child *a = child_new(five_deep_thread), *b = child_new(alloca_thread);
    struct unwinder *u = unwinder_new();
    struct stack s;

    for (int i = 0; i < 40; i++) {
        struct child *c = i % 2 ? a : b;
        struct stack_regs regs = {.pc = c->call.pc, .sp = c->call.sp};
        stack_unwind(u, c->space, &regs, &c->copy, &s);
        assert_int_equal(s.end, STACK_COMPLETE);
        assert_int_equal(frames_in(&s, i % 2 ? recurse : recurse_alloca), i % 2 ? 6 : 8);
    }
    unwinder_free(u);
    child_free(a);
    child_free(b);
}

/* A stack of any content: no crash, no endless walk, no frame outside of code. */
APART static void test_garbage(void **state UNUSED)
{
    struct child *c = child_new(alloca_thread);
    const struct stack_copy whole = c->copy;
    uint8_t *kept = malloc(whole.len);
    uint32_t x = 11;
    struct stack s;

    memcpy(kept, c->bytes, whole.len);
    for (int i = 0; i < 300; i++) {
        memcpy(c->bytes, kept, whole.len);
        for (int k = 0; k < 1 << (i % 10); k++) {
            x = x * 1664525 + 1013904223;
            size_t at = (x >> 4) % (whole.len / 8) * 8, from = (x >> 9) % (whole.len / 8) * 8;
            memcpy(c->bytes + at, i % 2 ? kept + from : (const uint8_t *)&x, 4 + (i % 2) * 4);
        }
        c->copy.len = i % 3 ? whole.len : x % whole.len;
        unwind(c, &s);
        check_all_code(c, &s);
    }
    free(kept);
    child_free(c);
}

APART static void test_bad_registers(void **state UNUSED)
{
    struct child *c = child_new(five_deep);
    static const uint64_t values[] = {0, 1, 0xfffffffffffff000, UINT64_MAX, 1ull << 63};
    struct stack s;

    for (size_t i = 0; i < ARRAY_SIZE(values) * ARRAY_SIZE(values); i++) {
        struct stack_regs regs = {.pc = values[i % ARRAY_SIZE(values)],
                                  .sp = values[i / ARRAY_SIZE(values)]};
        stack_unwind(c->unwinder, c->space, &regs, &c->copy, &s);
        assert_int_equal(s.end, STACK_BROKEN);
        assert_int_equal(s.n, 1);
        assert_int_equal(s.pc[0], regs.pc);
        regs.pc = c->call.pc;
        stack_unwind(c->unwinder, c->space, &regs, &c->copy, &s);
        assert_int_not_equal(s.end, STACK_COMPLETE);
    }
    unwinder_free(NULL);
    child_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thread),
        cmocka_unit_test(test_main_thread),
        cmocka_unit_test(test_recovery),
        cmocka_unit_test(test_no_recovery),
        cmocka_unit_test(test_too_deep),
        cmocka_unit_test(test_beyond_copy),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_handler),
        cmocka_unit_test(test_handler_elsewhere),
        cmocka_unit_test(test_two_spaces),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_bad_registers),
#if defined(__x86_64__)
        cmocka_unit_test(test_made_code),
        cmocka_unit_test(test_cleanups),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../src/caps.h"
#include "../src/compiler.h"

/* Sentences ------------------------------------------------------------------ */

/* A refusal without any of the causes: same user, same namespace, no yama. */
static const struct caps_facts plain = {
    .my_uid = 1000, .target_uid = 1000, .same_userns = 1, .yama_scope = -1, .dumpable = true};

static char text[1024];

static const char *explain(pid_t pid, const char *comm, int err, struct caps_facts f)
{
    memset(text, '#', sizeof(text));
    caps_explain(text, sizeof(text), pid, comm, err, &f);
    size_t n = strlen(text);
    assert_in_range(n, 20, 400);
    assert_null(strchr(text, '\n'));
    assert_int_not_equal(text[n - 1], '.');
    return text;
}

static void check_has(const char *part)
{
    if (!strstr(text, part))
        fail_msg("no '%s' in '%s'", part, text);
}

static void check_lacks(const char *part)
{
    if (strstr(text, part))
        fail_msg("'%s' in '%s'", part, text);
}

static void test_other_user(void **state UNUSED)
{
    struct caps_facts f = plain;

    f.target_uid = 0;
    assert_string_equal(explain(1, "systemd", EPERM, f),
                        "process 1 (systemd) belongs to uid 0 and you are uid 1000: run it as that "
                        "user or as root (sudo lock-top -p 1)");
    explain(1, "systemd", EACCES, f);
    check_has("belongs to uid 0");
    /* With yama the same user would be refused too, so that is no advice. */
    f.yama_scope = 1;
    assert_string_equal(explain(1, "systemd", EPERM, f),
                        "process 1 (systemd) belongs to uid 0 and you are uid 1000: run it as root "
                        "(sudo lock-top -p 1)");
    f.yama_scope = 0;
    explain(1, "systemd", EPERM, f);
    check_has("as that user");
}

static void test_yama(void **state UNUSED)
{
    struct caps_facts f = plain;

    f.yama_scope = 1;
    assert_string_equal(explain(77, "shop", EPERM, f),
                        "kernel.yama.ptrace_scope is 1, so only descendants may be looked into: "
                        "run as root (sudo lock-top -p 77), or allow it until reboot with: sudo "
                        "sysctl kernel.yama.ptrace_scope=0");
    f.yama_scope = 2;
    explain(77, "shop", EPERM, f);
    check_has("ptrace_scope is 2");
    check_has("sudo lock-top -p 77");
    check_lacks("sysctl kernel");
}

/* Scope 3 stops root as well, so it comes before everything else. */
static void test_yama_3(void **state UNUSED)
{
    struct caps_facts f = plain;

    f.yama_scope = 3;
    for (int cap = 0; cap < 2; cap++) {
        f.have_ptrace_cap = cap;
        f.my_uid = cap ? 0 : 1000;
        explain(77, "shop", EPERM, f);
        check_has("ptrace_scope is 3");
        check_has("reboot");
        check_lacks("sudo");
    }
}

static void test_not_dumpable(void **state UNUSED)
{
    struct caps_facts f = plain;

    f.dumpable = false;
    f.yama_scope = 1;
    explain(77, "shop", EPERM, f);
    check_has("process 77 (shop) is not dumpable");
    check_has("sudo lock-top -p 77");
    check_lacks("yama");
}

static void test_root_without_cap(void **state UNUSED)
{
    struct caps_facts f = plain;

    f.my_uid = 0;
    f.yama_scope = 1;
    assert_string_equal(explain(77, "shop", EPERM, f),
                        "you are root here but without CAP_SYS_PTRACE (a container?): start it "
                        "with --cap-add=SYS_PTRACE");
    check_lacks("sudo");
}

static void test_other_namespace(void **state UNUSED)
{
    struct caps_facts f = plain;

    f.my_uid = 0;
    f.target_uid = 65534;
    f.have_ptrace_cap = true;
    f.same_userns = 0;
    explain(77, "shop", EPERM, f);
    check_has("another user namespace");
    check_has("on the host");
    check_lacks("sudo");
}

static void test_all_rights_yet_refused(void **state UNUSED)
{
    struct caps_facts f = plain;

    f.my_uid = 0;
    f.target_uid = 0;
    f.have_ptrace_cap = true;
    explain(77, "shop", EPERM, f);
    check_has("seccomp");
    check_has("process 77 (shop)");
    check_lacks("sudo");
}

static void test_no_cause_known(void **state UNUSED)
{
    struct caps_facts f = plain;

    explain(77, "shop", EPERM, f);
    check_has("process 77 (shop)");
    check_has("capabilities that you lack");
    f.target_uid = -1;
    explain(77, "shop", EPERM, f);
    check_has("hidepid");
}

static void test_kernel_thread(void **state UNUSED)
{
    struct caps_facts f = plain;

    f.kernel_thread = true;
    f.target_uid = 0;
    explain(2, "kthreadd", EPERM, f);
    check_has("process 2 (kthreadd) is a kernel thread");
    check_has("no user-space locks");
    check_lacks("sudo");
}

static void test_other_errors(void **state UNUSED)
{
    explain(77, "shop", ENOSYS, plain);
    check_has("process_vm_readv");
    explain(77, "shop", ESRCH, plain);
    check_has("process 77 (shop) cannot be looked into: ");
    check_has(strerror(ESRCH));
}

static void test_hostile_name(void **state UNUSED)
{
    struct caps_facts f = plain;

    f.target_uid = 0;
    explain(9, "a\n\033[31m\xff", EPERM, f);
    check_has("process 9 (a\\n\\x1b[31m\\xff) belongs");
    explain(9, "", EPERM, f);
    check_has("process 9 belongs");
    explain(9, "%s%n%d", EPERM, f);
    check_has("process 9 (%s%n%d) belongs");
}

static void test_small_buffer(void **state UNUSED)
{
    char small[10];

    caps_explain(small, sizeof(small), 1, "x", EPERM, &plain);
    assert_int_equal(strlen(small), sizeof(small) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_user),
        cmocka_unit_test(test_yama),
        cmocka_unit_test(test_yama_3),
        cmocka_unit_test(test_not_dumpable),
        cmocka_unit_test(test_root_without_cap),
        cmocka_unit_test(test_other_namespace),
        cmocka_unit_test(test_all_rights_yet_refused),
        cmocka_unit_test(test_no_cause_known),
        cmocka_unit_test(test_kernel_thread),
        cmocka_unit_test(test_other_errors),
        cmocka_unit_test(test_hostile_name),
        cmocka_unit_test(test_small_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

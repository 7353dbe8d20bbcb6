/* unit_ui_term - the terminal is put back on every way out of the program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "../src/err.h"
#include "../ui/term.h"

#define LEAVE_SCREEN "\033[?1049l"

/* In a child whose terminal is the slave of MASTER. */
static void take_terminal(int master, void (*leave)(void))
{
    struct winsize size = {.ws_row = 24, .ws_col = 80};

    setsid();
    int fd = open(ptsname(master), O_RDWR); /* becomes its controlling terminal */
    ioctl(fd, TIOCSWINSZ, &size);
    for (int i = 0; i < 3; i++)
        dup2(fd, i);
    setenv("TERM", "xterm", 1);
    if (!term_start())
        _exit(90);
    term_show(true);
    leave();
    _exit(91);
}

/* What a terminal gets from a program that takes it over and then leaves by LEAVE; its modes then
 * go to *MODES, its exit status to *STATUS. */
static char *watch(void (*leave)(void), struct termios *modes, int *status)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    size_t n = 0, room = 1 << 16;
    ssize_t got;

    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int keeper = open(ptsname(master), O_RDWR | O_NOCTTY);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        take_terminal(master, leave);
    assert_int_equal(waitpid(pid, status, 0), pid);
    assert_int_equal(tcgetattr(keeper, modes), 0);
    close(keeper);
    char *text = malloc(room);
    while (n + 1 < room && (got = read(master, text + n, room - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = '\0';
    close(master);
    return text;
}

static void check(void (*leave)(void), int want)
{
    struct termios modes;
    int status;
    char *text = watch(leave, &modes, &status);

    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), want);
    const char *left = strstr(text, LEAVE_SCREEN);
    assert_non_null(left);
    assert_null(strstr(left + 1, LEAVE_SCREEN)); /* once */
    assert_true((modes.c_lflag & (ECHO | ICANON)) == (ECHO | ICANON));
    free(text);
}

static void stop_and_exit(void)
{
    term_stop();
    exit(3);
}

static void just_exit(void)
{
    exit(4); /* as a library may do */
}

static void just_die(void)
{
    die(5, "a message");
}

static void test_every_way_out(void **state)
{
    (void)state;
    check(stop_and_exit, 3);
    check(just_exit, 4);
    check(just_die, 5);
}

static void test_terminal_without_a_screen(void **state)
{
    (void)state;
    setenv("TERM", "dumb", 1);
    assert_false(term_start()); /* stdin and stdout may be anything here */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_way_out),
        cmocka_unit_test(test_terminal_without_a_screen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

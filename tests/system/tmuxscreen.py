"""A terminal that a test can look at: a shell in a private tmux server of its own.

    with TmuxScreen(80, 24) as t:
        t.run("lock-top -p 123")
        t.wait(lambda s: "F10Quit" in s)
        t.keys("q")
        t.wait_prompt()

The server runs under a name of its own and without the user's configuration, and is killed at
the end whatever happened, with everything in it.
"""
import itertools
import os
import shlex
import shutil
import subprocess
import time

PROMPT = "SANE-PROMPT$"
# Without line editing the shell leaves the terminal's modes as it finds them.
SHELL = "exec env PS1='%s ' bash --norc --noprofile --noediting -i" % PROMPT
_count = itertools.count()


def available():
    return shutil.which("tmux") is not None


class ScreenTimeout(AssertionError):
    """What was waited for did not come; the text says what was there instead."""


class TmuxScreen:
    def __init__(self, width=80, height=24, env=None):
        self.width, self.height = width, height
        self.server = "lock-top-test-%d-%d" % (os.getpid(), next(_count))
        self.env = dict(os.environ, LC_ALL="C.UTF-8")
        for name in ("TMUX", "TMUX_PANE", "NO_COLOR", "LINES", "COLUMNS", "PROMPT_COMMAND"):
            self.env.pop(name, None)
        self.env.update(env or {})

    def tmux(self, *args, check=True):
        return subprocess.run(("tmux", "-L", self.server, "-f", "/dev/null") + args,
                              env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=check, timeout=20).stdout

    def __enter__(self):
        try:
            self.tmux("new-session", "-d", "-x", str(self.width), "-y", str(self.height),
                      SHELL)
            self.tmux("set-option", "-g", "status", "off")
            self.tmux("set-option", "-g", "escape-time", "0")
            self.resize(self.width, self.height)
            self.wait(lambda s: PROMPT in s)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc):
        self.close()

    def close(self):
        self.tmux("kill-server", check=False)

    # Doing -------------------------------------------------------------------------------

    def keys(self, *names):
        """Keys as tmux names them: "q", "F6", "Down", "C-c", "Escape"."""
        self.tmux("send-keys", *names)

    def type(self, text):
        self.tmux("send-keys", "-l", text)
        self.keys("Enter")

    def run(self, command, **env):
        """Types a command line; ENV goes in front of it."""
        words = ["%s=%s" % (k, shlex.quote(str(v))) for k, v in env.items()]
        self.type(" ".join(words + [command]))

    def resize(self, width, height):
        self.width, self.height = width, height
        self.tmux("resize-window", "-x", str(width), "-y", str(height))

    # Looking -----------------------------------------------------------------------------

    def capture(self):
        """The text on the screen, one line per row, blanks at the end cut off."""
        return self.tmux("capture-pane", "-p")

    def lines(self):
        return self.capture().split("\n")[:self.height]

    def wait(self, predicate, timeout=15.0):
        """The screen's text as soon as PREDICATE holds for it."""
        end = time.monotonic() + timeout
        while True:
            text = self.capture()
            if predicate(text):
                return text
            if time.monotonic() > end:
                raise ScreenTimeout("not seen within %g s; the screen shows:\n%s" % (timeout, text))
            time.sleep(0.05)

    def wait_prompt(self, timeout=15.0):
        """Waits until the shell asks again: its prompt is the last text on the screen."""
        return self.wait(lambda s: s.rstrip().endswith(PROMPT), timeout)

    def alternate(self):
        """Whether the alternate screen is on: a full-screen program has the terminal."""
        return self.tmux("display-message", "-p", "#{alternate_on}").strip() == "1"

    def cursor_shown(self):
        return self.tmux("display-message", "-p", "#{cursor_flag}").strip() == "1"

    def shell_pid(self):
        return int(self.tmux("display-message", "-p", "#{pane_pid}"))

    def child_pid(self, timeout=10.0):
        """The program that runs in the shell now."""
        path = "/proc/%d/task/%d/children" % ((self.shell_pid(),) * 2)
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            with open(path, encoding="ascii") as f:
                pids = f.read().split()
            if pids:
                return int(pids[0])
            time.sleep(0.05)
        raise ScreenTimeout("nothing runs in the shell")

    def exit_status(self):
        """Exit status of the last command, asked of the shell."""
        self.type("echo status=$?=")
        text = self.wait(lambda s: "status=" in s.replace("status=$?=", ""))
        return int(text.replace("status=$?=", "").rsplit("status=", 1)[1].split("=")[0])

    def stty(self):
        """The words of 'stty -a' in this terminal, from a file: the screen would cut them."""
        out = subprocess.run(("stty", "-a", "-F", self.tmux("display-message", "-p",
                                                            "#{pane_tty}").strip()),
                             stdout=subprocess.PIPE, text=True, check=True, timeout=20).stdout
        return out.replace(";", " ").split()

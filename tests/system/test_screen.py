"""The live screen, in a real terminal."""

import ctypes
import os
import re
import shlex
import signal
import time

import pytest
import tmuxscreen
from tmuxscreen import TmuxScreen

pytestmark = pytest.mark.skipif(not tmuxscreen.available(), reason="tmux is not installed")

MARK = "MARK-BEFORE"
EMPTY = "no lock is waited for"
BLOCKS = "\u2581\u2582\u2583\u2584\u2588"
TGKILL = {"x86_64": 234, "aarch64": 131, "i686": 270}


@pytest.fixture
def terminal():
    with TmuxScreen(80, 24) as t:
        yield t


@pytest.fixture
def screen(terminal, lock_top, workload):
    """screen(WORKLOAD) opens lock-top on it; returns the workload."""

    def open_on(load, *options, **env):
        if isinstance(load, str):
            load = workload(load)
        terminal.type(f"echo {MARK}")
        terminal.wait(lambda s: s.count(MARK) >= 2)
        words = [lock_top, "-p", str(load.pid), "-d", "0.3", *map(str, options)]
        terminal.run(" ".join(map(shlex.quote, words)), **env)
        terminal.wait(is_up)
        return load

    return open_on


def is_up(text):
    """The lock list stands there, with at least one snapshot."""
    listed = "WAIT" in text or EMPTY in text
    return "F10Quit" in text and listed and "run " in text


def rows(text):
    """The lines of the lock list."""
    lines = text.split("\n")
    titles = [i for i, line in enumerate(lines) if "WAIT" in line and "LOCK" in line]
    found = []
    for line in lines[titles[0] + 1 :] if titles else []:
        if not re.match(r" *\d+ ", line):
            break
        found.append(line)
    return found


def row_of(text, tid):
    found = [line for line in rows(text) if re.search(rf"\b{tid}\b", line)]
    return found[0] if found else None


def check_sane(t):
    """The terminal is as it was: modes, cursor, and what stood there before."""
    text = t.wait_prompt(30)
    words = t.stty()
    for word in ("echo", "icanon", "isig", "icrnl", "opost"):
        assert word in words, f"'{word}' is off after lock-top: {words}"
    assert not t.alternate()
    assert t.cursor_shown()
    assert MARK in text, text
    return text


def test_list_shows_lock_and_holder(terminal, screen):
    truth = screen("mutex_normal").truth
    text = terminal.wait(lambda s: row_of(s, truth["holder_tid"]), 30)
    row = row_of(text, truth["holder_tid"])
    assert int(row.split()[0]) == truth["waiters"] == 5
    assert "mutex" in row
    lines = text.split("\n")
    assert lines[0].startswith("lock-top") and f"[{truth['pid']}]" in lines[0]
    assert "cpu " in text and "LOCK 5.0" in text
    assert lines[23].startswith("F1Help")


def test_first_screen_comes_at_once(terminal, lock_top, workload):
    load = workload("mutex_normal")
    terminal.run(f"{shlex.quote(lock_top)} -p {load.pid} -d 60")
    terminal.wait(lambda s: "F10Quit" in s)
    terminal.keys("q")
    terminal.wait_prompt()


def test_no_row_without_contention(terminal, screen):
    screen("idle_pool")
    text = terminal.wait(lambda s: "sync: " in s, 30)
    assert rows(text) == []
    assert EMPTY in text and "HOLDER" not in text  # no titles above nothing
    assert "CRITICAL" not in text and "WARNING" not in text
    terminal.keys("S")
    assert EMPTY not in terminal.wait(lambda s: rows(s) and "HOLDER" in s)
    terminal.keys("y")
    terminal.wait(lambda s: not rows(s) and EMPTY in s)


def test_step_through_sort_columns(terminal, screen):
    screen("mutex_normal")
    terminal.wait(lambda s: "F6Sort:10s" in s)
    terminal.keys(">")
    terminal.wait(lambda s: "F6Sort:60s" in s)
    terminal.keys("<", "<")
    terminal.wait(lambda s: "F6Sort:1s" in s)


@pytest.mark.parametrize("key", ["s", "F6"])
def test_choose_sort_column(terminal, screen, key):
    truth = screen("two_locks").truth
    by_address = sorted(truth["locks"], key=lambda one: int(one["address"], 16))
    first, last = (one["holder_tid"] for one in by_address)

    def order(text):
        return [tid for line in rows(text) for tid in (first, last) if str(tid) in line.split()]

    terminal.keys(key)
    terminal.wait(lambda s: "Sort by" in s)
    terminal.keys("End", "Enter")
    terminal.wait(lambda s: "F6Sort:lock" in s and order(s) == [first, last], 30)
    terminal.keys("I")
    terminal.wait(lambda s: order(s) == [last, first], 30)


def test_selection_follows_the_lock(terminal, screen):
    truth = screen("two_locks", "-s", "lock").truth
    terminal.wait(lambda s: len(rows(s)) == 2, 30)
    terminal.keys("Down", "Enter")
    address = re.search(r"address +(0x[0-9a-f]+)", terminal.wait(lambda s: "address" in s)).group(1)
    assert int(address, 16) == max(int(one["address"], 16) for one in truth["locks"])
    terminal.keys("Escape")
    terminal.wait(is_up)
    terminal.keys("I")
    terminal.wait(lambda s: "F6Sort:-lock" in s)
    terminal.keys("Enter")
    assert address in terminal.wait(lambda s: "address" in s)


@pytest.mark.parametrize("key", ["p", "F8", "Space", "Z"])
def test_pause(terminal, screen, key):
    truth = (load := screen("mutex_normal")).truth
    terminal.wait(lambda s: row_of(s, truth["holder_tid"]), 30)
    terminal.keys(key)
    held = terminal.wait(lambda s: s.startswith("PAUSED") and "F8Resume" in s)
    load.send("release")
    time.sleep(1.5)
    assert terminal.capture() == held
    terminal.keys(key)
    text = terminal.wait(lambda s: s.startswith("lock-top") and "LOCK 0.0" in s, 30)
    assert "F8Pause" in text


@pytest.mark.parametrize("key", ["h", "F1", "?"])
def test_help(terminal, screen, key):
    screen("mutex_normal")
    terminal.keys(key)
    text = terminal.wait(lambda s: "F6 s" in s)
    assert "F10 Ctrl-C" in text
    # Enter means one thing on one page and another on another: under different titles.
    lines = [line.strip() for line in text.split("\n")]
    titles = [i for i, line in enumerate(lines) if line.startswith("Keys on ")]
    entered = [i for i, line in enumerate(lines) if line.startswith("Enter ")]
    assert len(entered) == 2 and any(entered[0] < i < entered[1] for i in titles), text
    terminal.keys("G")
    terminal.wait(lambda s: "HOLDER" in s and "F6 s" not in s)
    terminal.keys("q")
    terminal.wait(is_up)


@pytest.mark.parametrize("key", ["Escape", "BSpace", "q"])
def test_detail_page(terminal, screen, key):
    truth = screen("mutex_normal").truth
    terminal.wait(lambda s: row_of(s, truth["holder_tid"]), 30)
    terminal.keys("Enter")
    text = terminal.wait(lambda s: "Holder" in s and "waiters " in s)
    assert truth["address"] in text
    assert str(truth["holder_tid"]) in text and "confirmed" in text
    terminal.keys("G")
    terminal.wait(lambda s: all(str(tid) in s for tid in truth["waiter_tids"]))
    # The plot comes with the first whole second, and makes the page longer.
    terminal.wait(lambda s: terminal.keys("G") or any(block in s for block in BLOCKS), 30)
    terminal.keys(key)
    terminal.wait(is_up)


def all_pages(terminal):
    """Everything on the page that is open, from its top to its end."""
    terminal.keys("g")
    seen = [terminal.capture()]
    while True:
        terminal.keys("PgDn")
        time.sleep(0.2)
        if (now := terminal.capture()) == seen[-1]:
            return "\n".join(seen)
        seen.append(now)


def test_stacks_on_the_page_of_a_lock(terminal, screen):
    truth = screen("mutex_normal").truth
    terminal.wait(lambda s: row_of(s, truth["holder_tid"]), 30)
    terminal.keys("Enter")
    terminal.wait(lambda s: re.search(r"Stack of the holder\n.*\n +#0", s), 30)
    terminal.keys("p")  # hold it still, to read all of it
    text = all_pages(terminal)
    assert "Waiters by stack" in text and f"thread {truth['holder_tid']}" in text
    assert re.search(r"#\d+ +\S*pthread_mutex_lock\+0x", text), text
    assert re.search(r"5 threads, such as \d+", text), text
    assert re.search(r"\d+ % (sleep|sync|pipe|net|other|lock)", text), text


def test_no_stacks_when_they_are_off(terminal, screen):
    truth = screen("mutex_normal", "--stacks", "off").truth
    terminal.wait(lambda s: row_of(s, truth["holder_tid"]), 30)
    terminal.keys("Enter")
    terminal.wait(lambda s: "--stacks off" in s)


@pytest.mark.parametrize("key", ["F4", "c"])
def test_chains(terminal, screen, key):
    load = screen("abba")
    terminal.keys(key)
    text = terminal.wait(lambda s: "waits for mutex" in s, 30)
    assert "DEADLOCK 2 threads" in text
    assert len(re.findall(r"^ +\S+\[\d+\] lock: waits for mutex", text, re.M)) == 2, text
    assert re.search(r"\x1b\[[0-9;]*31m", terminal.tmux("capture-pane", "-p", "-e"))
    terminal.keys("Down", "Enter")
    address = re.search(r"address +(0x[0-9a-f]+)", terminal.wait(lambda s: "address" in s)).group(1)
    assert address in str(load.truth)
    terminal.keys("Escape")
    terminal.wait(lambda s: "waits for mutex" in s)
    terminal.keys(key)
    terminal.wait(is_up)


def test_the_whole_deadlock_is_told(terminal, screen):
    """In the verdict, and again on the page of chains; each breaks where the screen ends."""
    tids = screen("abba").truth["cycle_tids"]
    text = terminal.wait(lambda s: "DEADLOCK 2 threads" in s, 30)
    lines = text.split("\n")
    end = next(i for i, line in enumerate(lines) if line.startswith("cpu "))
    verdict = " ".join(line.strip() for line in lines[1:end])
    assert 2 <= end - 1 <= 4 and "\u2026" not in verdict, text
    assert all(f"[{tid}] holds" in verdict for tid in tids), verdict
    assert len(re.findall(r"wants mutex", verdict)) == 2, verdict
    terminal.keys("c")
    text = terminal.wait(lambda s: "waits for mutex" in s and "DEADLOCK" in s, 30)
    assert len(re.findall(r"wants\s+mutex", text)) == 2, text


def test_no_chains(terminal, screen):
    screen("idle_pool")
    terminal.keys("c")
    terminal.wait(lambda s: "no thread is known to wait for another" in s)
    terminal.keys("Enter", "Escape")
    terminal.wait(is_up)


@pytest.mark.parametrize("setting", ["option", "locale", "no locale"])
def test_ascii(terminal, screen, setting):
    options = ["--ascii"] if setting == "option" else []
    env = {"locale": {"LC_ALL": "C"}, "no locale": {"LC_ALL": "xx_YY.UTF-8"}}.get(setting, {})
    truth = screen("mutex_normal", *options, **env).truth
    assert terminal.wait(lambda s: row_of(s, truth["holder_tid"]), 30).isascii()
    terminal.keys("Enter")
    assert terminal.wait(lambda s: "Holder" in s and "waiters " in s).isascii()


def test_colours_only_when_wanted(terminal, screen):
    screen("mutex_normal")
    assert re.search(r"\x1b\[[0-9;]*[34][0-7]m", terminal.tmux("capture-pane", "-p", "-e"))
    terminal.keys("q")
    terminal.wait_prompt()
    screen("mutex_normal", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*[34][0-7]m", terminal.tmux("capture-pane", "-p", "-e"))


def test_hostile_names_do_not_reach_the_terminal(terminal, screen):
    screen("hostile_names")
    terminal.wait(lambda s: rows(s), 30)
    terminal.keys("Enter")
    terminal.wait(lambda s: "waiters " in s)
    raw = terminal.tmux("capture-pane", "-p", "-e")
    assert not re.search(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]", raw)
    assert terminal.lines()[23].startswith("F1Help")


def test_resize(terminal, screen):
    truth = screen("mutex_normal").truth
    terminal.wait(lambda s: row_of(s, truth["holder_tid"]), 30)
    terminal.resize(40, 10)
    text = terminal.wait(lambda s: s.split("\n")[9].startswith("F1Help"))
    assert all(len(line) <= 40 for line in text.split("\n"))
    terminal.wait(lambda s: row_of(s, truth["holder_tid"]))
    for width, height in ((20, 5), (2, 1), (130, 30)):
        terminal.resize(width, height)
        time.sleep(0.4)
    terminal.wait(lambda s: "SHARE" in s and s.split("\n")[29].startswith("F1Help"))
    terminal.resize(80, 24)
    terminal.wait(lambda s: "SHARE" not in s and s.split("\n")[23].startswith("F1Help"))
    terminal.wait(lambda s: row_of(s, truth["holder_tid"]))


def test_added_column_on_a_wide_terminal(terminal, screen):
    screen("mutex_normal", "-o", "+class")
    text = terminal.wait(lambda s: "CLASS" in s, 30)
    assert "SHARE" not in text
    terminal.resize(140, 24)
    text = terminal.wait(lambda s: "SHARE" in s)
    for title in ("MAX", "AGE", "CLASS", "60s"):
        assert title in text
    terminal.resize(80, 24)
    terminal.wait(lambda s: "SHARE" not in s and "CLASS" in s)


def test_size_zero(terminal, screen):
    terminal.type("stty rows 0 cols 0")
    screen("mutex_normal")
    terminal.keys("q")
    terminal.wait_prompt()
    assert terminal.exit_status() == 0


@pytest.mark.parametrize("key", ["q", "F10", "C-c"])
def test_quit_restores_the_terminal(terminal, screen, key):
    screen("mutex_normal")
    assert terminal.alternate() and "icanon" not in terminal.stty()
    terminal.keys(key)
    check_sane(terminal)
    assert terminal.exit_status() == 0


def test_iterations_end_it(terminal, screen, lock_top, workload):
    load = workload("mutex_normal")
    terminal.type(f"echo {MARK}")
    terminal.run(f"{shlex.quote(lock_top)} -p {load.pid} -d 0.2 -n 3")
    terminal.wait(lambda s: "F10Quit" in s)
    check_sane(terminal)
    assert terminal.exit_status() == 0


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGQUIT", "SIGHUP"])
def test_signals_restore_the_terminal(terminal, screen, name):
    screen("mutex_normal")
    os.kill(terminal.child_pid(), getattr(signal, name))
    check_sane(terminal)
    assert terminal.exit_status() in (0, 1)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE"])
def test_crash_restores_the_terminal(terminal, screen, name):
    # Without a report of a sanitizer, which would scroll the mark away.
    screen("mutex_normal", ASAN_OPTIONS="handle_segv=0:handle_sigbus=0:handle_sigfpe=0",
           UBSAN_OPTIONS="handle_segv=0:handle_sigbus=0:handle_sigfpe=0")
    os.kill(terminal.child_pid(), getattr(signal, name))
    check_sane(terminal)
    assert terminal.exit_status() == 128 + getattr(signal, name)


def sampling_thread(pid):
    """The thread of lock-top that is not its first one (nor a sanitizer's)."""
    tids = [int(tid) for tid in os.listdir(f"/proc/{pid}/task") if int(tid) != pid]
    return max(tids)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS"])
def test_crash_of_the_sampling_thread_restores_the_terminal(terminal, screen, name):
    screen("mutex_normal", ASAN_OPTIONS="handle_segv=0:handle_sigbus=0",
           UBSAN_OPTIONS="handle_segv=0:handle_sigbus=0")
    pid = terminal.child_pid()
    sig = getattr(signal, name)
    assert ctypes.CDLL(None).syscall(TGKILL[os.uname().machine], pid, sampling_thread(pid), sig) == 0
    check_sane(terminal)
    assert terminal.exit_status() == 128 + sig


def test_ignored_signals_stay_ignored(terminal, screen):
    terminal.type("trap '' USR1 TERM")
    screen("mutex_normal")
    for name in ("SIGUSR1", "SIGTERM", "SIGUSR1"):
        os.kill(terminal.child_pid(), getattr(signal, name))
    time.sleep(0.5)
    assert terminal.alternate() and "icanon" not in terminal.stty()
    terminal.keys("h")
    terminal.wait(lambda s: "Keys on every page" in s)
    terminal.keys("F10")
    check_sane(terminal)
    assert terminal.exit_status() == 0


def test_suspend_and_resume(terminal, screen):
    screen("mutex_normal")
    terminal.keys("C-z")
    assert "Stopped" in check_sane(terminal)
    terminal.type("fg")
    terminal.wait(is_up)
    assert terminal.alternate() and "icanon" not in terminal.stty()
    terminal.keys("q")
    check_sane(terminal)


def test_killed_target(terminal, screen):
    load = screen("mutex_normal")
    load.kill()
    load.process.wait()
    text = check_sane(terminal)
    assert re.search(rf"process {load.pid} \(\S+\) has exited", text), text
    assert terminal.exit_status() == 0


def test_target_ends_behind_a_paused_screen(terminal, screen):
    load = screen("mutex_normal")
    terminal.keys("p")
    terminal.wait(lambda s: s.startswith("PAUSED"))
    load.kill()
    load.process.wait()
    terminal.wait(lambda s: s.startswith("PAUSED, the target has ended"), 30)
    terminal.keys("p")
    assert "has exited" in check_sane(terminal)


def test_closed_terminal_ends_it(workload, lock_top, wait_for):
    load = workload("mutex_normal")
    with TmuxScreen() as t:
        # A leak check cannot run where the terminal has gone.
        t.run(f"{shlex.quote(lock_top)} -p {load.pid}", ASAN_OPTIONS="detect_leaks=0")
        t.wait(lambda s: "F10Quit" in s)
        pid = t.child_pid()
    wait_for(lambda: not alive(pid), "lock-top to end with its terminal")


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("term", ["dumb", "unknown-xyz", "unknown", ""])
def test_terminal_without_a_screen_gets_text(terminal, lock_top, workload, term):
    load = workload("mutex_normal")
    terminal.type(f"echo {MARK}")
    terminal.run(f"{shlex.quote(lock_top)} -p {load.pid} -d 1 -n 1", TERM=term)
    text = terminal.wait(lambda s: str(load.truth["holder_tid"]) in s, 30)
    assert "F10Quit" not in text
    check_sane(terminal)
    assert terminal.exit_status() == 0

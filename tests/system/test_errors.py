"""What goes wrong is told in plain words, with the right exit status."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from conftest import environment

NOBODY = 65534
CONTROL = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]")


@pytest.fixture
def unprivileged(lock_top, run_text):
    """unprivileged(ARG...) runs lock-top as a user who may not look at root's processes."""
    if os.geteuid() != 0:
        yield run_text
        return
    place = Path(tempfile.mkdtemp(dir="/tmp", prefix="lock-top-"))
    place.chmod(0o755)
    copy = place / "lock-top"
    shutil.copy(lock_top, copy)
    copy.chmod(0o755)

    def run(*args, **more):
        return run_text(
            *args,
            program=copy,
            env=environment(LSAN_OPTIONS=None),  # names a file that may be out of reach
            cwd="/",
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            **more,
        )

    yield run
    shutil.rmtree(place)


def message(done):
    """What stands on stderr: at least one whole line, nothing on stdout."""
    text = done.stderr.decode()
    assert text.startswith("lock-top: ") and text.endswith("\n"), text
    assert done.stdout == b""
    return text


def test_process_1_as_an_unprivileged_user(unprivileged):
    text = message(unprivileged("-p", 1, status=(3,)))
    assert re.search(r"\b1\b", text)
    assert re.search(r"permi|root|user|CAP_SYS_PTRACE", text), text


def test_process_of_another_user(unprivileged, workload):
    if os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")
    target = workload("mutex_normal")
    text = message(unprivileged("-p", target.pid, status=(3,)))
    assert str(target.pid) in text
    assert re.search(r"root|user|uid|CAP_SYS_PTRACE", text), text


def test_no_such_process(run_text):
    limit = int(Path("/proc/sys/kernel/pid_max").read_text())
    absent = 999999 if not Path("/proc/999999").exists() else limit - 1
    text = message(run_text("-p", absent, status=(3,)))
    assert str(absent) in text


def test_no_process_of_that_name(run_text):
    text = message(run_text("-c", "no-such-name-at", status=(3,)))
    assert "no-such-name-at" in text


def test_no_such_command(run_text):
    text = message(run_text("-n", 1, "--", "/nonexistent/command", status=(3,)))
    assert "/nonexistent/command" in text


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["-p", "abc"],
        ["-p", ""],
        ["-p", "0"],
        ["-p", "-5"],
        ["-p", "1,"],
        ["-p", "99999999999999999999"],
        ["-p", "1", "-d", "0"],
        ["-p", "1", "-d", "-1"],
        ["-p", "1", "-d", "nan"],
        ["-p", "1", "-d", "1x"],
        ["-p", "1", "-n", "0"],
        ["-p", "1", "-n", "-1"],
        ["-p", "1", "--rate", "0"],
        ["-p", "1", "--rate", "1001"],
        ["-p", "1", "--budget", "0"],
        ["-p", "1", "--stacks", "some"],
        ["-p", "1", "--stop", "always"],
        ["-p", "1", "--names", "/nonexistent/names"],
        ["-p", "1", "--signatures", "/nonexistent/signatures"],
        ["-p", "1", "-o", "nosuch"],
        ["-p", "1", "--no-such-option"],
        ["-p", "1", "-Z"],
        ["-p"],
        ["-p", "1", "stray"],
        ["--"],
    ],
    ids=" ".join,
)
def test_wrong_command_line(run_text, args):
    text = message(run_text(*args, status=(2,)))
    wrong = args[-1] if len(args) > 1 else ""
    if wrong and not wrong.startswith("-"):
        assert wrong in text, text


@pytest.mark.parametrize("option, line", [("--names", "nameless"), ("--signatures", "maybe f")])
def test_wrong_line_of_a_file_is_named(run_text, tmp_path, option, line):
    """Before anything is started: the command would leave a mark."""
    file, mark = tmp_path / "file", tmp_path / "mark"
    file.write_text(f"# a comment\n\n{line}\n", encoding="utf-8")
    text = message(run_text(option, file, "--", "touch", mark, status=(2,)))
    assert option in text and str(file) in text and "line 3" in text
    assert not mark.exists()


def test_unknown_option_is_named(run_text):
    assert "no-such-option" in message(run_text("-p", 1, "--no-such-option", status=(2,)))


def test_unknown_sort_column_lists_the_columns(run_text):
    text = message(run_text("-p", os.getpid(), "-s", "nosuch", status=(2,)))
    assert "nosuch" in text
    if "-s help" in text:  # told where to find them: as good as the list itself
        text = run_text("-s", "help").stdout.decode()
    for name in ("wait", "10s", "busy", "holder", "lock"):
        assert re.search(rf"\b{name}\b", text), text


@pytest.mark.parametrize("mode", [["-b"], ["--json"]], ids=["text", "json"])
def test_reader_goes_away(lock_top, workload, mode):
    """As with | head -1: no message, and lock-top does not run on."""
    target = workload("mutex_normal")
    process = subprocess.Popen(
        [lock_top, *mode, "-p", str(target.pid), "-d", "0.2"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    try:
        assert process.stdout.readline()
        process.stdout.close()
        process.wait(10)
        assert process.stderr.read() == b""
        assert process.returncode in (0, -13, 141)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize("mode", [["-b"], ["--json"]], ids=["text", "json"])
def test_full_disk(run_text, workload, mode):
    target = workload("mutex_normal")
    with open("/dev/full", "wb") as full:
        done = run_text(
            *mode, "-p", target.pid, "-n", 2, "-d", 0.2, status=(1,), stdout=full
        )
    assert re.search(r"stdout|output|write|space", done.stderr.decode()), done.stderr


# Names made to break whoever prints them -------------------------------------------------------


@pytest.fixture
def hostile(workload):
    return workload("hostile_names")


def check_tame(raw):
    assert not CONTROL.search(raw), CONTROL.findall(raw)
    raw.decode("utf-8")
    assert not re.search("[\u0080-\u009f\u202a-\u202e\u2066-\u2069]", raw.decode("utf-8"))


def test_hostile_names_in_text(hostile, run_text):
    raw = run_text("-b", "-p", hostile.pid, "-n", 2, "-d", 0.3).stdout
    check_tame(raw)
    text = raw.decode()
    assert str(hostile.truth["holder_tid"]) in text
    assert "h\\x1b]0" in text
    header = [line for line in text.splitlines() if line.startswith("lock-top  ")]
    assert len(header) == 2
    assert all("a\\x1b[5m\\nb\\x80" in line for line in header), header


def test_hostile_names_in_ascii_text(hostile, run_text):
    raw = run_text("-b", "--ascii", "-p", hostile.pid, "-n", 1, "-d", 0.3).stdout
    check_tame(raw)
    assert all(byte < 0x80 for byte in raw)


def test_hostile_names_in_json(hostile, run_text):
    raw = run_text("--json", "-p", hostile.pid, "-n", 2, "-d", 0.3).stdout
    check_tame(raw)
    assert raw.count(b"\n") == 2


def test_hostile_names_are_told_apart(hostile, run_json):
    last = run_json("-p", hostile.pid, "-n", 2, "-d", 0.3)[-1]
    row = last["locks"][0]
    names = {w["tid"]: w["comm"] or "" for w in row["waiter_threads"]}
    assert sorted(names) == sorted(hostile.truth["waiter_tids"])
    assert [names[tid] for tid in hostile.truth["waiter_tids"]] == [
        "\\x1b[31mred\\x1b[2J",
        "two\\nlines\\n",
        "\\xff\\xfe\\xc3(",
        ") R 1 1 (",
        "",
    ]
    assert row["holders"][0]["tid"] == hostile.truth["holder_tid"]


def test_hostile_names_in_messages(hostile, watch):
    watcher = watch("-p", hostile.pid, "-d", 0.3)
    assert watcher.next() is not None
    hostile.kill()
    hostile.process.wait()
    watcher.rest()
    said = watcher.stderr().encode()
    assert str(hostile.pid).encode() in said
    check_tame(said)


@pytest.mark.parametrize(
    "args",
    [
        ["\033[31mword"],
        ["-p", "\033[31m1"],
        ["-d", "\033[31m1", "-p", "1"],
        ["-s", "\033[31mwait", "-c", "x"],
        ["-o", "\033[31mwait", "-c", "x"],
        ["--\033[31mword"],
        ["-c", "\033[31mword"],
        ["--", "\033[31mword"],
    ],
)
def test_words_of_the_command_line_do_not_steer_the_terminal(lock_top, args):
    done = subprocess.run([lock_top, *args], capture_output=True, timeout=20, stdin=subprocess.DEVNULL)
    assert done.returncode in (2, 3)
    assert b"\x1b" not in done.stderr + done.stdout
    assert b"[31m" in done.stderr

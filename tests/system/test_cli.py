"""The command line, the batch text and the names of the JSON."""

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from conftest import ROOT, WORKLOADS, check_holder, environment, process_of, row_at

SELF = {
    "cpu_pct", "rss_kb", "sweep_hz", "probe_hz", "samples", "stops", "stop_us_max", "unreadable",
    "vanished", "degraded",
}  # fmt: skip
PROCESS = {
    "pid", "comm", "threads", "cpu_cores", "cpus_allowed", "rss_kb", "voluntary_per_s",
    "involuntary_per_s", "minflt_per_s", "majflt_per_s", "states", "throttle",
}  # fmt: skip
STATES = {
    "running", "runq", "lock", "filelock", "sync", "net", "pipe", "disk", "kernel", "sleep",
    "stopped", "other",
}  # fmt: skip
LOCK = {
    "id", "class", "kind", "confidence", "name", "site", "pid", "address", "path", "waiters",
    "waiters_avg_1s", "waiters_avg_10s", "waiters_avg_60s", "waiters_max", "wait_share", "busy",
    "wait_ms", "wait_ms_p99", "wait_ms_max", "contended_per_s", "acquired_per_s", "hold_us",
    "ceiling_per_s", "model_wait_ms", "holders", "waiter_threads", "stacks", "history",
    "held",
}  # fmt: skip
STACK = {"role", "count", "share", "pid", "tid", "complete", "presumed", "note", "frames"}
FRAME = {"name", "into", "module", "offset", "file", "line"}
CHAIN = {"root", "end", "confidence", "detail", "depth", "blocked", "cycle", "path", "text"}
THREAD = {"pid", "tid", "comm", "state", "age_ms", "lock", "stack"}
HOLDER = {
    "pid", "tid", "comm", "mode", "state", "detail", "confidence", "age_ms", "waits_for",
}  # fmt: skip
WAITER = {"pid", "tid", "comm", "mode", "age_ms", "blocked_by"}


@pytest.fixture
def contended(workload):
    return workload("mutex_normal")


# JSON ------------------------------------------------------------------------------------------


def test_json_has_the_promised_names(contended, run_json):
    before = datetime.now(timezone.utc)
    last = run_json("-p", contended.pid, "-n", 2, "-d", 0.5)[-1]
    assert last["schema"] == "lock-top/1"
    when = datetime.strptime(last["time"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    assert abs((when - before).total_seconds()) < 30
    assert last["host"]["name"] == os.uname().nodename
    assert last["host"]["kernel"] == os.uname().release
    assert last["host"]["cpus"] == os.sysconf("SC_NPROCESSORS_ONLN")
    assert SELF <= set(last["self"])
    process = process_of(last, contended.pid)
    assert PROCESS <= set(process)
    assert STATES == set(process["states"])
    assert process["comm"] == "mutex_normal"
    row = row_at(last, contended.truth["address"])
    assert LOCK <= set(row)
    assert HOLDER <= set(row["holders"][0])
    assert WAITER <= set(row["waiter_threads"][0])
    assert {"chains", "findings", "verdict", "threads"} <= set(last)
    assert last["threads"] is None  # not asked for


def test_json_has_the_promised_names_of_stacks(contended, run_json):
    last = run_json("-p", contended.pid, "-n", 3, "-d", 0.5, "--stacks", "all")[-1]
    row = row_at(last, contended.truth["address"])
    assert {stack["role"] for stack in row["stacks"]} == {"waiter", "holder", "profile"}
    for stack in row["stacks"]:
        assert STACK <= set(stack)
        assert all(FRAME <= set(frame) for frame in stack["frames"])
        assert all(re.fullmatch("0x[0-9a-f]+", frame["offset"]) for frame in stack["frames"])
    assert CHAIN <= set(last["chains"][0])
    assert {"pid", "tid", "comm", "state"} <= set(last["chains"][0]["root"])
    assert {"pid", "tid", "comm", "state", "lock", "confidence"} <= set(last["chains"][0]["path"][0])
    assert last["chains"][0]["root"]["tid"] == contended.truth["holder_tid"]
    assert sorted(thread["tid"] for thread in last["threads"]) == sorted(
        int(tid) for tid in os.listdir(f"/proc/{contended.pid}/task")
    )
    assert all(THREAD <= set(thread) for thread in last["threads"])
    waiter = next(t for t in last["threads"] if t["tid"] == contended.truth["waiter_tids"][0])
    assert waiter["lock"] == row["id"] and waiter["state"] == "lock"


def test_json_without_stacks(contended, run_json):
    last = run_json("-p", contended.pid, "-n", 2, "-d", 0.3, "--stacks", "off")[-1]
    assert row_at(last, contended.truth["address"])["stacks"] is None
    assert last["threads"] is None and last["self"]["stops"] == 0


def test_text_with_all_stacks(contended, run_text):
    text = run_text("-b", "-p", contended.pid, "-n", 2, "-d", 1, "--stacks", "all").stdout.decode()
    last = text[text.rindex("lock-top  ") :]
    for tid in os.listdir(f"/proc/{contended.pid}/task"):
        assert re.search(rf"^(\d+ threads: )?(\d+ )*{tid} .*\n  #0  ", last, re.M), last
    assert re.search(r"^5 threads: (\d+ ){5}\S+ lock up to \S+ for mutex .*\n  #0  ", last, re.M), last
    assert re.search(r"^  #\d+ +\S*pthread_mutex_lock\+0x[0-9a-f]+  libc", last, re.M), last
    assert "Waiters by stack" in last and "Stack of the holder" in last


def test_names_that_the_user_gives(contended, run_json, tmp_path):
    file = tmp_path / "names"
    file.write_text(f"# by address\n{contended.truth['address']} the big lock\n", encoding="utf-8")
    last = run_json("-p", contended.pid, "-n", 2, "-d", 0.5, "--names", file)[-1]
    assert row_at(last, contended.truth["address"])["name"] == "the big lock"


def test_json_figures_are_in_their_ranges(contended, run_json):
    snapshots = run_json("-p", contended.pid, "-n", 3, "-d", 1)
    row = row_at(snapshots[-1], contended.truth["address"])
    assert row["pid"] == contended.pid
    assert row["wait_share"] == pytest.approx(5 / 7, abs=0.02)
    assert row["busy"] == pytest.approx(1, abs=0.02)
    assert row["waiters_avg_10s"] == pytest.approx(5, abs=0.1)
    assert row["waiters_avg_60s"] == pytest.approx(5, abs=0.1)
    # Nobody got the lock in all that time: what rests on hand-overs is not known.
    assert row["hold_us"] is None
    assert row["history"] and set(row["history"]) == {5}
    process = process_of(snapshots[-1], contended.pid)
    assert process["cpu_cores"] < 0.1
    assert process["cpus_allowed"] == len(os.sched_getaffinity(contended.pid))
    assert process["rss_kb"] > 0
    ids = [row_at(s, contended.truth["address"])["id"] for s in snapshots]
    assert len(set(ids)) == 1


def test_refreshes_come_at_their_time(contended, run_json):
    snapshots = run_json("-p", contended.pid, "-n", 5, "-d", 0.5)
    assert len(snapshots) == 5
    times = [s["elapsed_s"] for s in snapshots]
    assert times == sorted(times)
    # Never early; late only as far as this machine is busy.
    assert all(b - a > 0.3 for a, b in zip(times, times[1:]))


@pytest.mark.alone
def test_rate_is_kept(contended, run_json):
    snapshots = run_json("-p", contended.pid, "-n", 3, "-d", 1, "--rate", 5)
    reached = [s["self"]["sweep_hz"] for s in snapshots[1:]]
    assert 2 < sum(reached) / len(reached) < 6.5  # sweeps come at random moments


@pytest.mark.alone
def test_busy_threads_are_running(workload, run_json):
    target = workload("hammer", "threads", 2, "hold", 200)
    last = run_json("-p", target.pid, "-n", 3, "-d", 0.5)[-1]
    process = process_of(last, target.pid)
    assert process["cpu_cores"] > 0.3
    busy = process["states"]["running"] + process["states"]["runq"] + process["states"]["lock"]
    assert busy == pytest.approx(2, abs=0.3)


# Text ------------------------------------------------------------------------------------------


def test_batch_text(contended, run_text):
    text = run_text("-b", "-p", contended.pid, "-n", 3, "-d", 0.3).stdout.decode()
    refreshes = re.findall(r"^lock-top  .*$", text, re.M)
    assert len(refreshes) == 3
    assert all(f"mutex_normal[{contended.pid}]" in line for line in refreshes)
    assert all("7 threads" in line for line in refreshes)
    rows = [line for line in text.splitlines() if f" {contended.truth['holder_tid']} sleep" in line]
    assert rows, text
    last = [row for row in rows if row.split()[0] == "5"]
    assert last, rows
    assert str(contended.truth["holder_tid"]) in last[-1]
    assert "mutex" in last[-1]


def test_batch_text_names_the_code(contended, run_text):
    text = run_text("-b", "-p", contended.pid, "-n", 2, "-d", 1.5).stdout.decode()
    last = text[text.rindex("lock-top  ") :]
    assert re.search(r"^    waiters come through: \S+( < \S+)* \(5 of 5\)$", last, re.M), last
    assert "pthread_mutex_lock" in last and "start_thread" not in last
    assert re.search(r"^    holders were seen in: \d+ % sleep \S+( < \S+)*$", last, re.M), last
    assert len(re.findall(r"^    ", last, re.M)) <= 3 + len(re.findall(r"^    \d", last, re.M))


def test_text_is_the_default_where_stdout_is_no_terminal(contended, run_text):
    done = run_text("-p", contended.pid, "-n", 1, "-d", 0.3)
    assert done.stdout.startswith(b"lock-top  ")
    assert b"\x1b" not in done.stdout


@pytest.mark.parametrize(
    "changes",
    [
        {"TERM": None},
        {"TERM": "no-such-terminal"},
        {"TERM": "dumb"},
        {"LC_ALL": "xx_YY.UTF-8"},
        {"LC_ALL": "C"},
        {"HOME": None, "PATH": "/nonexistent", "LANG": None},
    ],
    ids=str,
)
def test_batch_needs_no_environment(contended, run_text, changes):
    done = run_text("-b", "-p", contended.pid, "-n", 1, "-d", 0.3, env=environment(**changes))
    assert b"lock-top  " in done.stdout
    assert b"\x1b" not in done.stdout
    assert done.stderr == b""


def test_columns(contended, run_text):
    text = run_text(
        "-b", "-p", contended.pid, "-n", 2, "-d", 0.3, "-o", "lock,wait"
    ).stdout.decode()
    header = [line.split() for line in text.splitlines() if line.split()[:1] == ["LOCK"]]
    assert header and all(words == ["LOCK", "WAIT"] for words in header), text
    assert "KIND" not in text


def test_list_of_columns(run_text):
    text = run_text("-o", "help").stdout.decode()
    for name in ("wait", "1s", "10s", "60s", "busy", "kind", "holder", "lock"):
        assert re.search(rf"^\s*{name}\b", text, re.M), text


# A command of its own --------------------------------------------------------------------------


def test_starts_a_command_and_takes_it_along(run_text, wait_for):
    sleep = shutil.which("sleep")
    done = run_text("--json", "-n", 2, "-d", 0.3, "--", sleep, "100")
    snapshots = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(snapshots) == 2
    process = snapshots[-1]["processes"][0]
    assert process["comm"] == "sleep"
    assert process["states"]["sleep"] == pytest.approx(1, abs=0.1)
    wait_for(lambda: not os.path.exists(f"/proc/{process['pid']}"), "the command's end", 5)


def test_ends_with_its_command(run_text):
    done = run_text("-b", "-d", 0.2, "--", shutil.which("sleep"), "0.5", timeout=10)
    assert b"sleep" in done.stdout


# A futex word at the end of a page, and a page behind it that nobody ever fills in: whoever reads
# around the word hangs in the kernel for as long as this process lives.
UNREADABLE = """
import ctypes, mmap, platform, struct, time
calls = {"x86_64": (323, 202), "aarch64": (282, 98)}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.PAGESIZE
pages = mmap.mmap(-1, 2 * page, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
base = ctypes.addressof(ctypes.c_char.from_buffer(pages))
pages[page - 4:page] = struct.pack("=I", 2)
fd = libc.syscall(calls[0], 0o2000000)
api = ctypes.create_string_buffer(struct.pack("=QQQ", 0xAA, 0, 0))
region = ctypes.create_string_buffer(struct.pack("=QQQQ", base + page, page, 1, 0))
if fd < 0 or libc.ioctl(fd, 0xC018AA3F, api) or libc.ioctl(fd, 0xC020AA00, region):
    raise SystemExit(77)
while True:
    libc.syscall(calls[1], ctypes.c_void_p(base + page - 4), 128, 2, None)
"""


def test_ends_its_command_though_the_sampling_hangs(lock_top, wait_for):
    process = subprocess.Popen(
        [lock_top, "-b", "-d", "0.2", "--", sys.executable, "-c", UNREADABLE],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(ASAN_OPTIONS="detect_leaks=0"),  # what hangs is left behind
    )
    tasks = Path(f"/proc/{process.pid}/task")

    def hangs():
        return process.poll() is not None or any(
            (task / "wchan").read_text() == "handle_userfault" for task in tasks.iterdir()
        )

    wait_for(hangs, "the sampling thread to hang")
    if process.poll() is not None:
        pytest.skip(f"no such memory can be made here: {process.stderr.read().decode()}")
    children = [int(pid) for t in tasks.iterdir() for pid in (t / "children").read_text().split()]
    process.terminate()
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert b"left behind" in errors and b"ending " in errors, errors
    assert children
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children), "its command's end")


def test_options_of_the_command_are_its_own(run_text):
    done = run_text("-b", "-n", 1, "-d", 0.2, "--", shutil.which("sleep"), "--help", timeout=10)
    assert b"lock-top: unknown" not in done.stderr


# Help ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(run_text, option):
    done = run_text(option)
    text = done.stdout.decode()
    assert done.stderr == b""
    assert text.lower().startswith("usage: lock-top")
    for word in ("-p", "--pid", "-c", "--json", "--rate", "--budget", "-d", "-n", "-V"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_version(run_text, option):
    text = run_text(option).stdout.decode()
    version = re.search(r"^VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.M).group(1)
    assert text.startswith(f"lock-top {version}")
    assert "proc" in text  # the library behind the list of processes


# The demo --------------------------------------------------------------------------------------


def test_demo(lock_top, tmp_path):
    """contrib/demo.sh as `make demo` calls it, with a build directory."""
    build = tmp_path / "build"
    build.mkdir()
    (build / "lock-top").symlink_to(lock_top)
    (build / "workloads").symlink_to(WORKLOADS)
    done = subprocess.run(
        [ROOT / "contrib" / "demo.sh", build],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment(),
        timeout=60,
        check=False,
    )
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    found = re.search(r"demo\[(\d+)\]", text)
    assert found, text
    assert not os.path.exists(f"/proc/{found.group(1)}")
    assert len(re.findall(r"^lock-top  ", text, re.M)) == 3
    row = [line for line in text.splitlines() if re.match(r" *\d+ .* mutex .*worker", line)]
    assert row, text
    assert re.search(r"cache_lock|0x[0-9a-f]+", row[-1]), row


def test_demo_ends_when_its_starter_is_gone(workload, run_json):
    target = workload("demo", "--seconds", 60)
    last = run_json("-p", target.pid, "-n", 3, "-d", 0.5)[-1]
    row = row_at(last, target.truth["address"])
    assert row["kind"] == "mutex"
    assert row["waiters_avg_1s"] > 2
    if row["holders"] and row["holders"][0]["tid"]:
        assert row["holders"][0]["comm"] == "worker"
    target.process.stdin.close()
    assert target.process.wait(5) == 0


def test_demo_ends_on_sigterm(workload):
    target = workload("demo")
    target.process.terminate()
    assert target.process.wait(5) == 0


def test_holder_is_named_with_what_it_does(contended, run_json):
    row = row_at(run_json("-p", contended.pid, "-n", 2, "-d", 0.5)[-1], contended.truth["address"])
    check_holder(row, contended.truth["holder_tid"], "sleep", "nanosleep")
    holder = row["holders"][0]
    assert holder["pid"] == contended.pid
    assert holder["mode"] in (None, "exclusive")
    assert holder["age_ms"] is None or holder["age_ms"] > 0
    assert holder["waits_for"] is None

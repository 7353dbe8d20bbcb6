"""Attempts at file locks that do not wait, counted by the kernel's tracepoints.

tracefs is mounted, or hidden, for lock-top alone, in a mount namespace of its own: nobody else sees
it, and nothing of it is left."""

import os
import shutil
import subprocess

import pytest

from conftest import Watcher, check_clean, environment

TRACEFS = "/sys/kernel/tracing"
COUNTED = f"{TRACEFS}/events/filelock/flock_lock_inode/id"
PARANOID = "/proc/sys/kernel/perf_event_paranoid"

MOUNT = f"test -e {COUNTED} || mount -t tracefs nodev {TRACEFS}"
HIDE = (
    f"mount -t tmpfs none {TRACEFS} && "
    "{ ! test -e /sys/kernel/debug || mount -t tmpfs none /sys/kernel/debug; }"
)


def in_namespace(setup, *check):
    """The beginning of a command that sees the mounts that SETUP makes; skips the test where they,
    or CHECK with them, cannot be."""
    if not shutil.which("unshare"):
        pytest.skip("unshare is not installed")
    prefix = ["unshare", "--mount", "sh", "-c", f'{{ {setup}; }} && exec "$@"', "sh"]
    done = subprocess.run([*prefix, *check], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no mounts of our own, or no such tracepoints here: {done.stderr.strip()}")
    return prefix


@pytest.fixture
def tracefs():
    return in_namespace(MOUNT, "test", "-e", COUNTED)


@pytest.fixture
def no_tracefs():
    return in_namespace(HIDE, "test", "!", "-e", COUNTED)


@pytest.fixture
def watch_in(lock_top):
    """watch_in(PREFIX, ARG...) starts lock-top --json behind PREFIX."""
    running = []

    def start(prefix, *args):
        running.append(Watcher([*prefix, lock_top, "--json", *map(str, args)]))
        return running[-1]

    yield start
    for one in running:
        one.close()


def stat(load):
    load.send("stat")
    return load.read_truth()


def counted(snapshot):
    """The row of a lock whose attempts are counted."""
    for row in snapshot["locks"]:
        if row["kind"] == "flock" and row["refused_share"] is not None:
            return row
    return None


@pytest.mark.alone
def test_share_of_refused_attempts(tracefs, workload, watch_in, tmp_path):
    load = workload(
        "flock_lab", "workers", 8, "mode", "try", "hold", 8, "think", 2, "file", tmp_path / "lock"
    )
    pids = ",".join(map(str, load.truth["pids"]))
    watcher = watch_in(tracefs, "-p", pids, "--events", "-d", 0.5)
    watcher.until(counted, "counted attempts")
    before = stat(load)
    start = watcher.snapshots[-1]["elapsed_s"]
    watcher.until(lambda s: s["elapsed_s"] > start + 6, "six seconds more")
    after = stat(load)
    refused = after["refused"] - before["refused"]
    attempts = refused + after["rounds"] - before["rounds"]
    # A search that finds it free at that moment leaves it out until the next.
    rows = [row for s in watcher.snapshots if s["elapsed_s"] > start and (row := counted(s))]
    assert len(rows) >= 6
    share = sum(row["refused_share"] for row in rows) / len(rows)
    rate = sum(row["attempts_per_s"] for row in rows) / len(rows)
    assert share == pytest.approx(refused / attempts, abs=0.02)
    assert rate == pytest.approx(attempts / (after["at"] - before["at"]), rel=0.1)
    assert rows[0]["waiters"] == 0 and rows[0]["only_held"]
    verdicts = [s["verdict"] for s in watcher.snapshots]
    assert any("attempts a second" in text and "refused" in text for text in verdicts)


@pytest.mark.alone
def test_who_waits_is_counted_once_and_not_refused(tracefs, workload, watch_in, tmp_path):
    load = workload("flock_lab", "workers", 4, "hold", 5, "file", tmp_path / "lock")
    pids = ",".join(map(str, load.truth["pids"]))
    watcher = watch_in(tracefs, "-p", pids, "--events", "-d", 0.5)
    watcher.until(counted, "counted attempts")
    before = stat(load)
    start = watcher.snapshots[-1]["elapsed_s"]
    watcher.until(lambda s: s["elapsed_s"] > start + 4, "four seconds more")
    after = stat(load)
    assert after["waits"] > before["waits"]
    rows = [row for s in watcher.snapshots if s["elapsed_s"] > start and (row := counted(s))]
    assert len(rows) >= 4
    assert all(row["refused_share"] == 0 for row in rows)
    rate = sum(row["attempts_per_s"] for row in rows) / len(rows)
    taken = (after["rounds"] - before["rounds"]) / (after["at"] - before["at"])
    assert rate == pytest.approx(taken, rel=0.1)
    assert not reasons(watcher.snapshots[-1])


def reasons(seen):
    return [text for text in seen["self"]["degraded"] if "--events" in text]


def test_without_tracefs_it_says_why_and_goes_on(no_tracefs, workload, watch_in):
    load = workload("idle_pool")
    watcher = watch_in(no_tracefs, "-p", load.truth["pid"], "--events", "-n", 2, "-d", 0.3)
    seen = watcher.rest()[-1]
    (why,) = reasons(seen)
    assert "tracefs is not mounted (mount -t tracefs nodev /sys/kernel/tracing)" in why
    assert seen["verdict"].startswith("no contention")


def test_without_the_capability_it_says_why_and_goes_on(tracefs, workload, watch_in):
    with open(PARANOID) as setting:
        if int(setting.read()) <= 0:
            pytest.skip("everybody may count events of the whole machine here")
    drop = ["setpriv", "--bounding-set=-perfmon,-sys_admin"]
    if subprocess.run([*drop, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("setpriv cannot take these capabilities away here")
    load = workload("idle_pool")
    watcher = watch_in([*tracefs, *drop], "-p", load.truth["pid"], "--events", "-n", 2, "-d", 0.3)
    seen = watcher.rest()[-1]
    (why,) = reasons(seen)
    assert "CAP_PERFMON" in why and "kernel.perf_event_paranoid" in why
    assert seen["verdict"].startswith("no contention")


def test_without_the_option_nothing_is_said(no_tracefs, workload, watch_in):
    load = workload("idle_pool")
    watcher = watch_in(no_tracefs, "-p", load.truth["pid"], "-n", 1, "-d", 0.3)
    assert reasons(watcher.rest()[-1]) == []


def test_another_user_is_told_why_and_it_goes_on(tracefs, lock_top):
    nobody = ["setpriv", "--reuid=65534", "--clear-groups"]
    if os.stat(TRACEFS).st_mode & 0o007 and os.path.exists(COUNTED):
        pytest.skip("everybody may read tracefs here")
    sleeper = subprocess.Popen([*nobody, "sleep", "60"])
    try:
        done = subprocess.run(
            [*tracefs, *nobody, lock_top, "-p", str(sleeper.pid), "--events", "-b", "-n", "1"],
            capture_output=True,
            text=True,
            env=environment(),
            check=False,
        )
        if done.returncode in (126, 127):
            pytest.skip("another user cannot run lock-top where it lies")
        check_clean(done.returncode, done.stderr, (0,))
        assert "--events: tracepoints may not be read: run as root" in done.stdout
    finally:
        sleeper.kill()
        sleeper.wait()

"""Attempts at file locks that do not wait, counted by the kernel's tracepoints."""

import os
import subprocess

import pytest

from conftest import check_clean

TRACEFS = "/sys/kernel/tracing"
COUNTED = f"{TRACEFS}/events/filelock/flock_lock_inode/id"


@pytest.fixture
def tracefs():
    """Mounts it where it is not, and takes it away again."""
    mounted = False
    if not os.path.exists(COUNTED):
        done = subprocess.run(
            ["mount", "-t", "tracefs", "nodev", TRACEFS], capture_output=True, check=False
        )
        mounted = done.returncode == 0
    if not os.path.exists(COUNTED):
        pytest.skip("no tracefs with tracepoints of file locks here, or not permitted to mount it")
    yield
    if mounted:
        subprocess.run(["umount", "-l", TRACEFS], check=True)


def stat(load):
    load.send("stat")
    return load.read_truth()


@pytest.mark.alone
def test_share_of_refused_attempts(tracefs, workload, watch, tmp_path):
    load = workload(
        "flock_lab", "workers", 8, "mode", "try", "hold", 8, "think", 2, "file", tmp_path / "lock"
    )
    pids = ",".join(map(str, load.truth["pids"]))
    watcher = watch("-p", pids, "--events", "-d", 1)
    watcher.until(lambda s: counted(s) is not None, "counted attempts")
    before = stat(load)
    start = watcher.snapshots[-1]["elapsed_s"]
    watcher.until(lambda s: s["elapsed_s"] > start + 6, "six seconds more")
    after = stat(load)
    refused = after["refused"] - before["refused"]
    attempts = refused + after["rounds"] - before["rounds"]
    # A search that finds it free at that moment leaves it out until the next.
    rows = [row for s in watcher.snapshots if s["elapsed_s"] > start and (row := counted(s))]
    assert len(rows) >= 3
    share = sum(row["refused_share"] for row in rows) / len(rows)
    rate = sum(row["attempts_per_s"] for row in rows) / len(rows)
    assert share == pytest.approx(refused / attempts, abs=0.02)
    assert rate == pytest.approx(attempts / (after["at"] - before["at"]), rel=0.1)
    assert rows[0]["waiters"] == 0 and rows[0]["only_held"]
    verdicts = [s["verdict"] for s in watcher.snapshots]
    assert any("attempts a second" in text and "refused" in text for text in verdicts)


def counted(snapshot):
    for row in snapshot["locks"]:
        if row["kind"] == "flock" and row["refused_share"] is not None:
            return row
    return None


@pytest.mark.alone
def test_without_tracefs_it_says_why_and_goes_on(workload, run_json):
    if os.path.exists(COUNTED):
        pytest.skip("tracefs is mounted here")
    load = workload("idle_pool")
    seen = run_json("-p", load.truth["pid"], "--events", "-n", 2, "-d", 0.3)[-1]
    assert any("--events" in text and "tracefs" in text for text in seen["self"]["degraded"])
    assert seen["verdict"].startswith("no contention")


def test_not_permitted_says_why_and_goes_on(lock_top):
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    sleeper = subprocess.Popen(["setpriv", "--reuid=65534", "--clear-groups", "sleep", "60"])
    try:
        done = subprocess.run(
            ["setpriv", "--reuid=65534", "--clear-groups", lock_top]
            + ["-p", str(sleeper.pid), "--events", "-b", "-n", "1"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 126:
            pytest.skip("another user cannot run lock-top where it lies")
        check_clean(done.returncode, done.stderr, (0,))
        assert "--events" in done.stdout and "root" in done.stdout
    finally:
        sleeper.kill()
        sleeper.wait()

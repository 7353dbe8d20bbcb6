"""Whole-machine targets: by user, by file, all; what they cost."""

import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from conftest import SANITIZED, PATIENCE, wait_until

POOL = """
import ctypes, os, sys, threading
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(1, 9)
        idle = threading.Event()
        for _ in range(int(sys.argv[2]) - 1):
            threading.Thread(target=idle.wait, daemon=True).start()
        signal = __import__("signal")
        signal.pause()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def pool():
    """pool(N, M): N idle processes of M threads each; returns their parent."""
    running = []

    def start(processes, threads):
        made = subprocess.Popen(
            [sys.executable, "-c", POOL, str(processes), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        running.append(made)
        assert made.stdout.readline() == b"ready\n"
        children = f"/proc/{made.pid}/task/{made.pid}/children"
        wait_until(lambda: count_threads(children) == processes * threads, "all threads")
        return made

    yield start
    for made in running:
        made.stdin.close()
        made.wait()
        made.stdout.close()


def count_threads(children):
    with open(children, encoding="ascii") as listed:
        pids = listed.read().split()
    return sum(len(os.listdir(f"/proc/{pid}/task")) for pid in pids)


@pytest.mark.alone
@pytest.mark.skipif(SANITIZED, reason="a sanitizer build is slower than the bounds on time and CPU allow")
def test_300_processes_within_the_budget_and_in_time(pool, watch):
    pool(300, 10)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    watcher = watch("-a", "-d", 1, "-n", 30)
    times = []
    while watcher.next() is not None:
        times.append(time.monotonic() - watcher.started)
    watcher.finish()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    last = watcher.snapshots[-1]
    assert len(last["processes"]) >= 300
    assert sum(process["threads"] for process in last["processes"]) >= 3000
    # 5 % by default, the start included; a tenth more for what one look costs at the end.
    assert used <= 0.055 * times[-1], (used, times[-1])
    assert len(times) == 30
    late = [at - (i + 1) for i, at in enumerate(times)]
    assert max(late) - min(late) < 0.7, late


def test_processes_of_a_user_come_and_go(watch, lock_top):
    if os.geteuid() != 0:
        pytest.skip("only root can start processes of another user")
    begin = lambda: subprocess.Popen(["setpriv", "--reuid=64999", "--clear-groups", "sleep", "600"])
    running = [begin()]
    try:
        watcher = watch("-u", "64999", "-d", 0.3)
        watcher.until(lambda s: pids_of(s) == {running[0].pid}, "the first")
        running.append(begin())
        at = time.monotonic()
        watcher.until(lambda s: running[1].pid in pids_of(s), "the second")
        assert time.monotonic() - at < 2 + 1  # found within 2 s, then shown
        running[0].kill()
        running[0].wait()
        watcher.until(lambda s: pids_of(s) == {running[1].pid}, "the second alone")
    finally:
        for one in running:
            one.kill()
            one.wait()


def pids_of(snapshot):
    return {process["pid"] for process in snapshot["processes"]}


def test_unknown_user(lock_top):
    done = subprocess.run([lock_top, "-u", "no-such-user"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no user 'no-such-user'" in done.stderr


def test_user_without_processes(lock_top):
    done = subprocess.run([lock_top, "-u", "64998"], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "has no processes" in done.stderr


def test_file_that_is_not_there(lock_top, tmp_path):
    done = subprocess.run([lock_top, "-f", tmp_path / "x"], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "No such file" in done.stderr


def test_who_locks_a_file_is_followed(watch, tmp_path):
    lock = tmp_path / "the.lock"
    lock.touch()
    running = []

    def begin():
        running.append(subprocess.Popen(["flock", lock, "sleep", "600"]))
        return running[-1]

    watcher = watch("-f", lock, "-d", 0.3)
    try:
        seen = watcher.until(lambda s: s["elapsed_s"] > 0.5, "a look at nobody")
        assert seen["processes"] == [] and "nobody" in seen["verdict"]
        holder, waiter = begin(), None
        watcher.until(lambda s: holder.pid in pids_of(s), "the holder")
        waiter = begin()
        at = time.monotonic()
        watcher.until(lambda s: waiter.pid in pids_of(s), "the waiter")
        assert time.monotonic() - at < 2 + 1
        seen = watcher.until(lambda s: any(r["waiters"] for r in s["locks"]), "it waits")
        (row,) = [row for row in seen["locks"] if row["kind"] == "flock"]
        assert row["path"] == str(lock)
        assert [w["pid"] for w in row["waiter_threads"]] == [waiter.pid]
        end_group(waiter)
        end_group(holder)
        watcher.until(lambda s: not pids_of(s) - {-1} or all_ended(s), "nobody again")
        assert watcher.process.poll() is None
    finally:
        for one in running:
            end_group(one)


def all_ended(snapshot):
    return all(process["threads"] == 0 for process in snapshot["processes"])


def end_group(flock):
    """flock(1) and the sleep that it started."""
    if flock.poll() is not None:
        return
    children = f"/proc/{flock.pid}/task/{flock.pid}/children"
    with open(children, encoding="ascii") as listed:
        for pid in listed.read().split():
            os.kill(int(pid), signal.SIGKILL)
    flock.kill()
    flock.wait(PATIENCE)


@pytest.mark.parametrize("scene", ["inherit", "ofd"])
def test_file_whose_taker_the_kernel_does_not_name(scene, workload, watch, tmp_path):
    truth = workload("filelock_scene", "scene", scene, "file", tmp_path / "the.lock").truth
    watch("-f", truth["path"], "-d", 0.3).until(
        lambda s: set(truth["holder_pids"]) <= pids_of(s), "who has the descriptor"
    )

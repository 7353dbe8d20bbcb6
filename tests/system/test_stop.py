"""Stopping threads does no harm: whatever happens to lock-top, no thread stays stopped, and no
call of the target ends because of it."""

import os
import random
import signal
import subprocess
import time

import pytest

from conftest import SANITIZED, environment, plain_speed_only

KILLS = 40 if SANITIZED else 200


def thread_states(pid):
    """{TID: (state, tracer)} as the kernel tells them."""
    states = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/status", encoding="utf-8", errors="replace") as status:
            lines = dict(line.split(":", 1) for line in status if ":" in line)
        states[int(tid)] = (lines["State"].split()[0], int(lines["TracerPid"]))
    return states


def check_all_free(pid):
    states = thread_states(pid)
    held = {t: s for t, s in states.items() if s[0] in "tT" or s[1] != 0}
    assert not held, held


def ask(target):
    target.send("stat")
    return target.read_truth()


def stops_of(snapshot):
    return snapshot["self"]["stops"]


def needs_ptrace(snapshots):
    """Where ptrace is forbidden, as in some containers, no thread is ever stopped."""
    if snapshots and all(stops_of(s) == 0 for s in snapshots):
        said = " ".join(snapshots[-1]["self"]["degraded"])
        if "ptrace" in said or "not permitted" in said:
            pytest.skip(f"threads may not be stopped here: {said}")


# 1. lock-top is killed ------------------------------------------------------------------------


def test_running_holders_are_stopped(workload, watch):
    """What the next test stands on: with these options lock-top does stop threads, all the time."""
    target = workload("counters")
    watcher = watch("-p", target.pid, "-d", 0.5, "--stacks", "all")
    watcher.until(lambda s: needs_ptrace(watcher.snapshots[5:]) or stops_of(s) >= 5, "5 stops")
    before = stops_of(watcher.snapshots[-1])
    watcher.until(lambda s: stops_of(s) >= before + 5, "5 more stops")
    watcher.interrupt()
    check_all_free(target.pid)


class Attached:
    """Tells whether a thread is attached at this moment; fast, for that is a matter of 0.1 ms."""

    def __init__(self, pid, tids):
        self.files = [os.open(f"/proc/{pid}/task/{tid}/status", os.O_RDONLY) for tid in tids]

    def now(self):
        return any(b"TracerPid:\t0\n" not in os.pread(fd, 4096, 0) for fd in self.files)

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.now():
                return True
        return False

    def close(self):
        for fd in self.files:
            os.close(fd)


# A sanitizer build takes longer until it first stops anybody.
SIGHT = 1.3 if SANITIZED else 0.6


def test_killed_again_and_again(workload, lock_top, run_json):
    """By turns at any moment from its start on, and at the very moment that it holds a thread."""
    target = workload("counters")
    needs_ptrace(run_json("-p", target.pid, "-d", 0.2, "-n", 10, "--stacks", "all"))
    attached = Attached(target.pid, target.truth["tids"])
    chance = random.Random(1)
    before = ask(target)["rounds"]
    held = 0
    for n in range(KILLS):
        watcher = subprocess.Popen(
            [lock_top, "--json", "-p", str(target.pid), "-d", "0.2", "--stacks", "all"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
        if n % 2:
            time.sleep(chance.uniform(0.02, 0.3))
        else:
            held += attached.wait(SIGHT)
        watcher.send_signal(signal.SIGKILL)
        watcher.wait()
        check_all_free(target.pid)
    attached.close()
    print(f"{held} of {KILLS} times at the sight of an attached thread")
    after = wait_for_growth(target, before)
    assert all(a > b for a, b in zip(after, before)), (before, after)
    assert held >= 5, held  # a loaded machine lets us see few of them


def wait_for_growth(target, before, patience=10.0):
    """The counters once each is above what it was now, not only since the beginning."""
    now = ask(target)["rounds"]
    assert all(n >= b for n, b in zip(now, before))
    end = time.monotonic() + patience
    while time.monotonic() < end:
        later = ask(target)["rounds"]
        if all(x > n for x, n in zip(later, now)):
            return later
        time.sleep(0.01)
    pytest.fail(f"a thread stands still: {now}, {patience} s later {later}")


# 2. calls that a stop would disturb ------------------------------------------------------------


def disturbed(stat):
    return [c for c in stat["calls"] if c["eintr"] or c["short"] or c["returned"]]


def check_undisturbed(stat):
    assert not disturbed(stat), disturbed(stat)


@pytest.mark.parametrize("stacks", [(), ("--stacks", "all")], ids=["default", "all"])
def test_no_call_is_disturbed(workload, watch, stacks):
    """Threads sit in every such call while others, which hold locks and run, are stopped; one of
    those is on its way into such a call again and again."""
    target = workload("eintr")
    assert len([c for c in target.truth["calls"] if not c["absent"]]) > 40
    watcher = watch("-p", target.pid, "-d", 0.5, "-n", 14, *stacks)
    snapshots = watcher.rest(60)
    check_undisturbed(ask(target))
    check_all_free(target.pid)
    needs_ptrace(snapshots)
    assert stops_of(snapshots[-1]) > 0
    for snapshot in snapshots:
        assert snapshot["self"]["stop_us_max"] is None or snapshot["self"]["stops"] > 0


@plain_speed_only
def test_budget_of_stops(workload, watch):
    """At most 20 in a second, by default."""
    target = workload("eintr")
    snapshots = watch("-p", target.pid, "-d", 1, "-n", 6, "--stacks", "all").rest(60)
    for earlier, later in zip(snapshots, snapshots[1:]):
        seconds = later["elapsed_s"] - earlier["elapsed_s"]
        assert stops_of(later) - stops_of(earlier) <= 20 * (seconds + 1)


def test_no_stop_where_it_is_forbidden(workload, watch):
    target = workload("eintr")
    snapshots = watch(
        "-p", target.pid, "-d", 0.5, "-n", 6, "--stacks", "all", "--stop", "never"
    ).rest(60)
    assert all(stops_of(s) == 0 for s in snapshots)
    assert all(s["self"]["stop_us_max"] is None for s in snapshots)
    check_undisturbed(ask(target))


# 3. targets that are stopped already ------------------------------------------------------------


def test_group_stop_stays_in_force(workload, watch, wait_for):
    """A process that its user has stopped (Ctrl-Z) stays so, and goes on when told to."""
    target = workload("counters")
    watcher = watch("-p", target.pid, "-d", 0.2, "--stacks", "all")
    watcher.until(lambda s: needs_ptrace(watcher.snapshots[20:]) or stops_of(s) > 0, "a stop")
    for _ in range(5):
        os.kill(target.pid, signal.SIGSTOP)
        wait_for(lambda: all(s[0] == "T" for s in thread_states(target.pid).values()), "all in T")
        watcher.next()
        watcher.next()
        assert all(s[0] == "T" for s in thread_states(target.pid).values())
        os.kill(target.pid, signal.SIGCONT)
        wait_for_growth(target, ask(target)["rounds"])
        watcher.next()
    watcher.interrupt()
    check_all_free(target.pid)


def test_somebody_else_traces_it(workload, watch, tmp_path):
    """gdb, strace and the like keep their target; lock-top goes on without stops."""
    strace = "/usr/bin/strace"
    if not os.access(strace, os.X_OK):
        pytest.skip("no strace")
    target = workload("counters")
    tracer = subprocess.Popen(
        [strace, "-f", "-e", "trace=none", "-o", str(tmp_path / "out"), "-p", str(target.pid)],
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 20
        while not all(s[1] == tracer.pid for s in thread_states(target.pid).values()):
            if tracer.poll() is not None or time.monotonic() > end:
                pytest.skip("strace cannot attach here")
            time.sleep(0.01)
        snapshots = watch("-p", target.pid, "-d", 0.2, "-n", 8, "--stacks", "all").rest(60)
        assert all(stops_of(s) == 0 for s in snapshots)
        assert all(s[1] == tracer.pid for s in thread_states(target.pid).values())
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait(20)
    wait_for_growth(target, ask(target)["rounds"])

"""Targets that are killed, become another program or change while they are watched."""

import os
import signal
import time

import pytest

from conftest import check_holder, has_waiters, new_workload, row_at, rows_at


@pytest.mark.parametrize("reaped", [True, False], ids=["reaped", "zombie"])
def test_target_is_killed(workload, watch, reaped):
    target = workload("mutex_normal")
    watcher = watch("-p", target.pid, "-d", 0.5)
    assert watcher.next() is not None
    target.kill()
    killed = time.monotonic()
    if reaped:
        target.process.wait()
    watcher.rest()
    assert time.monotonic() - killed < 3
    assert str(target.pid) in watcher.stderr()


def test_one_of_two_targets_is_killed(workload, watch):
    a, b = workload("mutex_normal"), workload("mutex_recursive")
    watcher = watch("-p", f"{a.pid},{b.pid}", "-d", 0.2)
    watcher.until(lambda s: len(s["processes"]) == 2, "both processes")
    a.kill()
    a.process.wait()
    after = watcher.until(
        lambda s: a.pid not in [p["pid"] for p in s["processes"]], "only the living process"
    )
    assert has_waiters(b.truth["address"], 5)(after)
    b.kill()
    b.process.wait()
    watcher.rest()


def test_service_is_restarted(workload, watch):
    """By name: a successor that began moments before the last process ended is watched on."""
    old = workload("two_locks")
    watcher = watch("-c", "two_locks", "-d", 0.2)
    assert watcher.next() is not None
    new = workload("two_locks")
    old.kill()
    old.process.wait()
    watcher.until(lambda s: [p["pid"] for p in s["processes"]] == [new.pid], "only the successor")
    new.kill()
    new.process.wait()
    watcher.rest()


def test_target_becomes_another_program(workload, watch):
    target = workload("execer")
    old = target.truth["address"]
    watcher = watch("-p", target.pid, "-d", 0.2)
    watcher.until(has_waiters(old, 5), "the first program's lock")
    target.send("exec mutex_recursive")
    new = target.read_truth()
    assert new["pid"] == target.pid

    def changed(snapshot):
        return has_waiters(new["address"], 5)(snapshot) and not has_waiters(old, 5)(snapshot)

    watcher.until(changed, "the second program's lock alone")
    watcher.next()
    row = row_at(watcher.next(), new["address"])
    assert row["kind"] == "mutex-recursive"
    check_holder(row, new["holder_tid"], "pipe", "read")
    watcher.interrupt()


def test_threads_come_and_go_at_1000_a_second(workload, watch):
    target = workload("thread_churn")
    truth = target.truth
    watcher = watch("-p", target.pid, "-n", 5, "-d", 1)
    snapshots = watcher.rest()
    assert len(snapshots) == 5
    for snapshot in snapshots[1:]:
        row = row_at(snapshot, truth["address"])
        assert row["waiters"] == 5
        assert row["waiters_avg_1s"] == pytest.approx(5, abs=0.1)
        check_holder(row, truth["holder_tid"], "sleep")
    assert snapshots[-1]["self"]["unreadable"] == 0


def test_200_short_lived_targets(workload, watch):
    lasting = workload("mutex_pshared")
    watcher = watch("-c", "mutex_pshared", "-d", 0.5)
    watcher.until(has_waiters(lasting.truth["address"], 5), "the lasting process")
    for _ in range(50):
        batch = [new_workload("mutex_pshared") for _ in range(4)]
        for one in batch:
            one.start()
        for one in batch:
            one.end()
    last = watcher.until(lambda s: len(s["processes"]) == 1, "the lasting process alone")
    row = row_at(last, lasting.truth["address"], lasting.pid)
    assert row["waiters"] == 5
    check_holder(row, lasting.truth["holder_tid"], "sleep")
    watcher.interrupt()


def test_holder_dies_with_the_lock_still_taken(workload, watch, tmp_path):
    """The process of the holder goes; the other one waits for ever."""
    target = workload("pshared_file", "file", tmp_path / "shared")
    second = target.truth["pids"][1]
    watcher = watch("-p", ",".join(map(str, target.truth["pids"])), "-d", 0.2)
    watcher.until(lambda s: [r["waiters"] for r in s["locks"]] == [10], "10 waiters")
    os.kill(second, signal.SIGKILL)
    watcher.until(
        lambda s: len(s["processes"]) == 1 and [r["waiters"] for r in s["locks"]] == [5],
        "the first process alone",
    )
    watcher.interrupt()


def test_lock_top_is_killed(workload, watch, run_json):
    """Whatever happens to lock-top, the target goes on as before."""
    target = workload("mutex_normal")
    watcher = watch("-p", target.pid, "-d", 0.2)
    assert watcher.next() is not None
    watcher.process.kill()
    watcher.process.wait()
    with open(f"/proc/{target.pid}/status", encoding="utf-8") as status:
        lines = status.read()
    assert "TracerPid:\t0\n" in lines
    assert "State:\tT" not in lines and "State:\tt" not in lines
    target.send("release")
    target.send("quit")
    assert target.process.wait(5) == 0


def test_interrupt_ends_well(workload, watch):
    target = workload("mutex_normal")
    watcher = watch("-p", target.pid, "-d", 0.5)
    assert watcher.next() is not None
    watcher.interrupt()
    assert rows_at(watcher.snapshots[-1], target.truth["address"])


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP], ids=["TERM", "HUP"])
def test_other_signals_end_it_at_once(workload, watch, sig):
    target = workload("mutex_normal")
    watcher = watch("-p", target.pid, "-d", 0.5)
    assert watcher.next() is not None
    watcher.process.send_signal(sig)
    while watcher.next() is not None:
        pass
    watcher.finish(5, status=(0, 128 + sig, -sig))

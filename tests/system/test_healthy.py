"""Processes in which nothing is wrong, and what watching them costs."""

import os
import time

import pytest

from conftest import PATIENCE, locks_of_class, plain_speed_only, process_of, row_at

CLASSES_OF_CONTENTION = ("lock", "filelock", "kernel")


@pytest.fixture
def idle(workload):
    return workload("idle_pool")


def test_idle_pool_is_no_contention(idle, run_json):
    last = run_json("-p", idle.pid, "-n", 2, "-d", 1)[-1]
    for name in CLASSES_OF_CONTENTION:
        assert locks_of_class(last, name) == []
    assert "no contention" in last["verdict"].lower()
    states = process_of(last, idle.pid)["states"]
    assert states["sync"] == pytest.approx(200, abs=0.5)
    assert states["sleep"] == pytest.approx(50, abs=0.5)
    assert states["net"] == pytest.approx(20, abs=0.5)
    assert sum(states.values()) == pytest.approx(idle.truth["threads"], abs=0.1)


def test_idle_pool_is_listed_as_one_condition_variable(idle, run_json):
    last = run_json("-p", idle.pid, "-n", 2, "-d", 0.5)[-1]
    row = row_at(last, idle.truth["address"])
    assert (row["class"], row["kind"], row["waiters"]) == ("sync", "cond", 200)
    assert [h for h in row["holders"] if h["tid"]] == []


def test_idle_pool_is_one_quiet_line_of_text(idle, run_text):
    text = run_text("-b", "-p", idle.pid, "-n", 2, "-d", 0.5).stdout.decode()
    refresh = text.split("lock-top  ")[-1]
    assert "no contention" in refresh
    folded = [line for line in refresh.splitlines() if line.startswith("sync:")]
    assert len(folded) == 1
    assert "200" in folded[0] and "cond" in folded[0]
    assert idle.truth["address"] not in refresh


@plain_speed_only
@pytest.mark.alone
def test_2000_idle_threads_cost_little(workload, watch):
    target = workload("idle_pool", "cond", 2000, "sleep", 0, "net", 0)
    watcher = watch("-b", "-p", target.pid, "-n", 10, "-d", 1)
    while watcher.next() is not None:
        pass
    _, status, usage = os.wait4(watcher.pid, 0)
    wall = time.monotonic() - watcher.started
    watcher.process.returncode = os.waitstatus_to_exitcode(status)
    watcher.finish()

    settled = [s["self"]["cpu_pct"] for s in watcher.snapshots if s["elapsed_s"] > 2]
    assert len(settled) >= 6
    assert sum(settled) / len(settled) < 5
    assert 100 * (usage.ru_utime + usage.ru_stime) / wall < 5
    last = watcher.snapshots[-1]
    assert process_of(last, target.pid)["states"]["sync"] == pytest.approx(2000, abs=1)


@plain_speed_only
def test_first_refresh_of_2000_threads_within_a_second(workload, watch):
    target = workload("idle_pool", "cond", 2000, "sleep", 0, "net", 0)
    watcher = watch("-p", target.pid, "-d", 0.2)
    first = watcher.next()
    took = time.monotonic() - watcher.started
    assert first is not None, watcher.stderr()
    assert took < 1
    assert process_of(first, target.pid)["threads"] == target.truth["threads"]


@plain_speed_only
@pytest.mark.alone
def test_own_cost_is_told_truly(workload, watch):
    target = workload("idle_pool", "cond", 500, "sleep", 0, "net", 0)
    watcher = watch("-p", target.pid, "-n", 5, "-d", 1)
    while watcher.next() is not None:
        pass
    _, status, usage = os.wait4(watcher.pid, 0)
    wall = time.monotonic() - watcher.started
    watcher.process.returncode = os.waitstatus_to_exitcode(status)
    told = [s["self"]["cpu_pct"] for s in watcher.snapshots]
    true = 100 * (usage.ru_utime + usage.ru_stime) / wall
    # The start (reading maps and the like) falls outside of the refreshes.
    assert sum(told) / len(told) == pytest.approx(true, abs=1.5)
    assert all(s["self"]["rss_kb"] > 0 for s in watcher.snapshots)


def test_released_lock_leaves_the_list(workload, watch):
    target = workload("mutex_normal")
    watcher = watch("-p", target.pid, "-d", 0.2)
    watcher.until(
        lambda s: [r["waiters"] for r in locks_of_class(s, "lock")] == [5], "5 waiters"
    )
    target.send("release")
    watcher.until(
        lambda s: all(r["waiters"] == 0 for r in s["locks"])
        and process_of(s, target.pid)["threads"] == 1,
        "no waiter left",
        PATIENCE,
    )
    watcher.interrupt()

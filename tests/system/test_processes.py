"""Several processes, processes that share a lock, and processes in odd states."""

import ctypes
import os
import shutil
import signal
from pathlib import Path

import pytest

from conftest import (
    check_holder,
    has_waiters,
    locks_of_class,
    process_of,
    row_at,
    rows_at,
)


def comma(*pids):
    return ",".join(map(str, pids))


def no_aslr():
    """In the child: both processes then have their locks at equal addresses."""
    ctypes.CDLL(None).personality(0x0040000)


def test_two_locks_in_one_process_keep_apart(workload, run_json):
    target = workload("two_locks")
    last = run_json("-p", target.pid, "-n", 2, "-d", 0.5)[-1]
    assert len(locks_of_class(last, "lock")) == 2
    for lock in target.truth["locks"]:
        row = row_at(last, lock["address"])
        assert row["waiters"] == 5
        check_holder(row, lock["holder_tid"], "sleep", "nanosleep")


def test_equal_addresses_in_two_processes_keep_apart(workload, run_json):
    a = workload("mutex_normal", preexec_fn=no_aslr)
    b = workload("mutex_normal", "waiters", 3, preexec_fn=no_aslr)
    last = run_json("-p", comma(a.pid, b.pid), "-n", 2, "-d", 0.5)[-1]
    assert len(locks_of_class(last, "lock")) == 2
    for target, waiters in ((a, 5), (b, 3)):
        row = row_at(last, target.truth["address"], target.pid)
        assert row["waiters"] == waiters
        check_holder(row, target.truth["holder_tid"], "sleep")
        assert row["holders"][0]["pid"] == target.pid
        assert process_of(last, target.pid)["states"]["lock"] == pytest.approx(waiters, abs=0.1)
    assert len({row["id"] for row in last["locks"]}) == 2


@pytest.fixture
def shared(workload, tmp_path):
    return workload("pshared_file", "file", tmp_path / "shared")


def test_shared_mutex_of_two_processes_is_one_lock(shared, run_json):
    truth = shared.truth
    last = run_json("-p", comma(*truth["pids"]), "-n", 3, "-d", 0.5)[-1]
    assert len(last["locks"]) == 1, last["locks"]
    row = last["locks"][0]
    assert (row["class"], row["kind"], row["pid"]) == ("lock", "mutex", None)
    assert row["path"] == truth["path"]
    assert row["waiters"] == 10
    assert {w["tid"] for w in row["waiter_threads"]} == set(
        truth["waiter_tids"] + truth["second_tids"]
    )
    check_holder(row, truth["holder_tid"], "pipe", "read")
    assert row["holders"][0]["pid"] == truth["holder_pid"]


def test_shared_mutex_watched_in_its_holders_process(shared, run_json):
    truth = shared.truth
    row = run_json("-p", truth["pids"][0], "-n", 3, "-d", 0.5)[-1]["locks"][0]
    assert row["waiters"] == 5
    assert row["path"] == truth["path"]
    check_holder(row, truth["holder_tid"], "pipe", "read")


def test_holder_in_a_process_that_is_not_watched(shared, run_json):
    truth = shared.truth
    last = run_json("-p", truth["pids"][1], "-n", 4, "-d", 0.5)[-1]
    assert [p["pid"] for p in last["processes"]] == [truth["pids"][1]]
    row = last["locks"][0]
    assert row["waiters"] == 5
    check_holder(row, truth["holder_tid"], "pipe", "read")
    assert row["holders"][0]["pid"] == truth["holder_pid"]


def test_tids_of_a_pid_namespace_are_translated(workload, watch):
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or not unshare:
        pytest.skip("a PID namespace needs root and unshare(1)")
    inner = Path(workload("mutex_normal").command[0])
    try:
        outer = workload(unshare, "--pid", "--fork", "--mount-proc", "--kill-child", inner)
    except pytest.fail.Exception as refused:
        pytest.skip(f"no PID namespace here: {refused}")
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
    pid = int(children[0])
    tids = {ns_pid(tid): tid for tid in map(int, os.listdir(f"/proc/{pid}/task"))}
    assert outer.truth["pid"] == 1

    watcher = watch("-p", pid, "-n", 3, "-d", 0.5)
    row = row_at(watcher.rest()[-1], outer.truth["address"])
    check_holder(row, tids[outer.truth["holder_tid"]], "sleep")
    assert row["holders"][0]["pid"] == pid
    seen = {w["tid"] for w in row["waiter_threads"]}
    assert seen == {tids[tid] for tid in outer.truth["waiter_tids"]}


def ns_pid(tid):
    for line in Path(f"/proc/{tid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return tid


def test_zombie_leader(workload, run_json):
    target = workload("zombie_leader")
    truth = target.truth
    last = run_json("-p", target.pid, "-n", 3, "-d", 0.5)[-1]
    row = row_at(last, truth["address"])
    assert (row["kind"], row["waiters"]) == ("mutex", 5)
    check_holder(row, truth["holder_tid"], "sleep")
    assert process_of(last, target.pid)["states"]["lock"] == pytest.approx(5, abs=0.1)


def test_stopped_target(workload, run_json, wait_for):
    target = workload("mutex_normal")
    os.kill(target.pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{target.pid}/task")
    wait_for(
        lambda: all(") T " in (t / "stat").read_text() for t in tasks.iterdir()), "the stop"
    )
    last = run_json("-p", target.pid, "-n", 2, "-d", 0.5)[-1]
    states = process_of(last, target.pid)["states"]
    assert states["stopped"] == pytest.approx(target.truth["threads"], abs=0.1), states
    os.kill(target.pid, signal.SIGCONT)


def test_timed_waits_that_were_restarted(workload, run_json, wait_for):
    """After a stop the kernel shows a timed wait as restart_syscall."""
    target = workload("mutex_timed")
    truth = target.truth
    os.kill(target.pid, signal.SIGSTOP)
    tasks = [Path(f"/proc/{target.pid}/task/{tid}") for tid in truth["waiter_tids"]]
    wait_for(lambda: all(") T " in (t / "stat").read_text() for t in tasks), "the stop")
    os.kill(target.pid, signal.SIGCONT)
    wait_for(lambda: all(") S " in (t / "stat").read_text() for t in tasks), "the restart")
    row = row_at(run_json("-p", target.pid, "-n", 2, "-d", 0.5)[-1], truth["address"])
    assert (row["kind"], row["waiters"]) == ("mutex", 5)
    check_holder(row, truth["holder_tid"])


def test_waits_that_are_restarted_while_watched(workload, watch):
    target = workload("mutex_timed")
    address = target.truth["address"]
    watcher = watch("-p", target.pid, "-d", 0.2)
    watcher.until(has_waiters(address, 5), "5 waiters")
    os.kill(target.pid, signal.SIGSTOP)
    watcher.until(
        lambda s: process_of(s, target.pid)["states"]["stopped"] > 6.9, "a stopped process"
    )
    os.kill(target.pid, signal.SIGCONT)
    watcher.until(
        lambda s: process_of(s, target.pid)["states"]["lock"] > 4.9
        and has_waiters(address, 5)(s),
        "5 waiters again",
    )
    watcher.interrupt()


def test_target_is_left_as_it_was(workload, run_json):
    """No thread of the target ran, was stopped or lost its place because of lock-top."""
    target = workload("mutex_recursive")

    def traces():
        return {
            tid: Path(f"/proc/{target.pid}/task/{tid}/schedstat").read_text().split()[2]
            for tid in target.truth["waiter_tids"] + [target.truth["holder_tid"]]
        }

    before = traces()
    last = run_json("-p", target.pid, "-n", 3, "-d", 0.5)[-1]
    assert traces() == before
    assert last["self"]["stops"] == 0
    assert rows_at(last, target.truth["address"])


def test_by_name(workload, run_json):
    a, b = workload("mutex_errorcheck"), workload("mutex_errorcheck", "waiters", 2)
    last = run_json("-c", "mutex_errorchec", "-n", 2, "-d", 0.5)[-1]  # a name has 15 bytes
    pids = {p["pid"] for p in last["processes"]}
    assert {a.pid, b.pid} <= pids
    assert row_at(last, a.truth["address"], a.pid)["waiters"] == 5
    assert row_at(last, b.truth["address"], b.pid)["waiters"] == 2


def test_by_pattern(workload, run_json):
    target = workload("mutex_adaptive")
    last = run_json("-c", "mutex_adap*", "-n", 2, "-d", 0.5)[-1]
    assert row_at(last, target.truth["address"], target.pid)["waiters"] == 5


def test_a_thread_id_stands_for_its_process(workload, run_json):
    target = workload("mutex_normal")
    tid = target.truth["waiter_tids"][0]
    last = run_json("-p", tid, "-n", 2, "-d", 0.5)[-1]
    assert [p["pid"] for p in last["processes"]] == [target.pid]
    assert row_at(last, target.truth["address"])["waiters"] == 5

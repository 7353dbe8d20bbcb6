"""What lock-top promises of every process, whatever it runs."""

import os
import threading

import pytest

from system_tests import conftest as system

process_of = system.process_of
wait_until = system.wait_until

CLASSES = {"lock", "filelock", "kernel", "sync"}


def state_of(pid, tid):
    """The state letter of a thread, or None when it is gone."""
    try:
        with open(f"/proc/{pid}/task/{tid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return None


def tids_of(pid):
    try:
        return {int(name) for name in os.listdir(f"/proc/{pid}/task")}
    except OSError:
        return set()


def status_of(pid):
    """The fields of a process's status, none when it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except OSError:
        return {}


def threads_of(pid):
    return int(status_of(pid)["Threads"])


def comms_of(pid):
    """TID by thread name."""
    comms = {}
    for tid in tids_of(pid):
        try:
            with open(f"/proc/{pid}/task/{tid}/comm", encoding="utf-8") as file:
                comms[file.read().rstrip("\n")] = tid
        except OSError:
            pass
    return comms


def children_of(pid):
    children = []
    for tid in tids_of(pid):
        with open(f"/proc/{pid}/task/{tid}/children", encoding="ascii") as file:
            children += map(int, file.read().split())
    return children


def waiters_for_file(path):
    """How many wait for a lock on this file, by the kernel's list."""
    inode = os.stat(path).st_ino
    with open("/proc/locks", encoding="ascii") as file:
        return sum("->" in line and f":{inode} " in line for line in file)


def check_filelock(snapshot, pid, share=1):
    assert process_of(snapshot, pid)["states"]["filelock"] == pytest.approx(share, abs=0.1)


class Guard:
    """Looks, while lock-top does, whether a thread of the processes stands still or is traced for
    longer than a stack takes, and remembers which threads there were."""

    def __init__(self, pids):
        self.pids = pids
        self.tids = {pid: tids_of(pid) for pid in pids}
        self.offences = []
        self.stopped = set()  # at the last look: a stop for a stack is over before the next
        self.looks = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def look(self):
        stopped = set()
        for pid in self.pids:
            now = tids_of(pid)
            self.tids[pid] |= now
            for tid in now:
                state = state_of(pid, tid)
                if state in ("T", "t"):
                    stopped.add(f"{pid}/{tid} in state {state}")
            if now and status_of(pid).get("TracerPid", "0") != "0":
                stopped.add(f"{pid} is traced")
        self.offences += sorted(stopped & self.stopped)
        self.stopped = stopped
        self.looks += 1

    def watch(self):
        while not self.over.is_set():
            self.look()
            self.over.wait(0.02)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.look()

    def check(self):
        assert self.looks > 10
        assert self.offences == []


def check_holder(row, holder, guard):
    """Never somebody who is no thread of a process that is watched, and never, in programs that
    work, one who waits for what it holds."""
    assert holder["waits_for"] != row["id"], row
    if holder["tid"] is None:
        assert holder["pid"] is None and holder["confidence"] != "confirmed", row
    else:
        assert holder["tid"] in guard.tids[holder["pid"]], row
        assert holder["state"] != "gone", row


def check_always(snapshot, guard):
    assert snapshot["schema"] == "lock-top/1"
    assert snapshot["self"]["stops"] <= 20 * (snapshot["elapsed_s"] + 1)
    assert snapshot["self"]["unreadable"] == 0
    assert not any(chain["cycle"] for chain in snapshot["chains"])
    assert {p["pid"] for p in snapshot["processes"]} <= set(guard.pids)
    assert all(f["severity"] != "critical" for f in snapshot["findings"] or [])
    for process in snapshot["processes"]:
        states = process["states"].values()
        assert all(share >= 0 for share in states), process
        assert sum(states) == pytest.approx(process["threads"], abs=0.05), process
    for row in snapshot["locks"]:
        assert row["class"] in CLASSES
        assert len(row["waiter_threads"]) == min(row["waiters"], 256), row
        for waiter in row["waiter_threads"]:
            assert waiter["tid"] in guard.tids[waiter["pid"]], row
        for holder in row["holders"]:
            check_holder(row, holder, guard)


def waited_now(snapshot, *classes):
    """The rows of these classes for which somebody waits now."""
    return [r for r in snapshot["locks"] if r["class"] in classes and r["waiters"] > 0]


def check_calm(snapshot):
    """Nobody waits for a lock, and that is what it says."""
    assert waited_now(snapshot, "lock", "filelock", "kernel") == []
    assert snapshot["verdict"].startswith("no contention"), snapshot["verdict"]


def check_idle(observe, *pids):
    """A server that nobody uses: all of it is calm, and the threads are those of the kernel."""
    for _ in range(5):
        before = {pid: threads_of(pid) for pid in pids}
        snapshots = observe(*pids)
        if before == {pid: threads_of(pid) for pid in pids}:
            break
    else:
        pytest.fail("the threads of an idle server did not settle")
    for snapshot in snapshots:
        check_calm(snapshot)
    last = snapshots[-1]
    assert {p["pid"]: p["threads"] for p in last["processes"]} == before
    return last


def waiting_tids(snapshot, *classes):
    """The threads that wait for something of these classes now."""
    return {w["tid"] for row in waited_now(snapshot, *classes) for w in row["waiter_threads"]}


def check_parked(snapshots, tids):
    """These threads sleep on words of their own, or on a semaphore, and it is not known that it
    is for a lock: they are `sync`."""
    for snapshot in snapshots:
        assert set(tids) <= waiting_tids(snapshot, "sync")
        assert not set(tids) & waiting_tids(snapshot, "lock", "filelock", "kernel")


def check_monitor(snapshots, tids, site=None):
    """These threads, and no others, wait for one lock, though each sleeps on a word of its own:
    the call site shows it. (The first snapshots may come before the stacks.)"""
    for snapshot in snapshots:
        assert set(tids) <= waiting_tids(snapshot, "sync", "lock")
    last = snapshots[-1]
    rows = [r for r in waited_now(last, "lock")
            if set(tids) & {w["tid"] for w in r["waiter_threads"]}]  # fmt: skip
    assert len(rows) == 1, rows
    (row,) = rows
    assert (row["kind"], row["waiters"]) == ("monitor", len(set(tids))), row
    assert {waiter["tid"] for waiter in row["waiter_threads"]} == set(tids)
    system.check_no_holder(row)
    if site:
        assert site in (row["site"] or "") + (row["name"] or ""), row
    assert sum(stack["count"] for stack in system.stacks_of(row)) == row["waiters"]
    assert not last["verdict"].startswith("no contention"), last["verdict"]
    return row

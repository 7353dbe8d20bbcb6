"""Deadlocks: every real one, at every look; never one that is none."""

import json
import subprocess
import tempfile

import pytest

from conftest import (
    check_clean,
    cycles_of,
    environment,
    lock_by_id,
    new_workload,
    path_tids,
    process_of,
    row_at,
)

SCANS = 400
# A program without deadlock, in which one look at all threads often draws a cycle that never was;
# and one in which cycles form, but dissolve by themselves after 2 ms.
INNOCENT = {"ordered": [], "with timeouts": ["timed", 8]}


class Scans:
    """lock-top's snapshots of a workload that goes on, written to a file: a pipe would hold the
    one back while another is read."""

    def __init__(self, lock_top, *words):
        self.load = new_workload(*words).start()
        self.truth = self.load.truth
        self.begun = self.rounds()
        self.output, self.errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        command = [lock_top, "--json", "-p", str(self.load.pid), "--rate", "50", "-d", "0.1"]
        command += ["-n", str(SCANS + 10), "--budget", "100"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.errors,
            env=environment(),
        )

    def rounds(self):
        if "lock_order" not in str(self.load.command[0]):
            return None
        self.load.send("stat")
        return self.load.read_truth()["rounds"]

    def collect(self):
        self.process.wait(200)
        self.ended = self.rounds()
        self.errors.seek(0)
        check_clean(self.process.returncode, self.errors.read().decode(errors="replace"), (0,))
        self.output.seek(0)
        self.snapshots = [json.loads(line) for line in self.output]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.output.close()
        self.errors.close()
        self.load.end()


@pytest.fixture(scope="module")
def scans(lock_top):
    """All of them beside each other, for the sake of time."""
    running = {}
    try:
        running["abba"] = Scans(lock_top, "abba", "behind", 3)
        for name, args in INNOCENT.items():
            running[name] = Scans(lock_top, "lock_order", *args)
        for one in running.values():
            one.collect()
        yield running
    finally:
        for one in running.values():
            one.close()


def test_a_real_deadlock_is_told_at_every_look(scans):
    truth, snapshots = scans["abba"].truth, scans["abba"].snapshots
    proven = next(i for i, s in enumerate(snapshots) if cycles_of(s))
    assert proven <= 10, "it takes 50 ms to prove"
    told = [s for s in snapshots[proven:] if len(cycles_of(s)) == 1]
    assert len(told) == len(snapshots) - proven >= SCANS
    for snapshot in told:
        (cycle,) = cycles_of(snapshot)
        assert sorted(path_tids(cycle)) == sorted(truth["cycle_tids"])
        assert "deadlock" in snapshot["verdict"].lower()


def test_a_deadlock_names_its_threads_and_locks(scans):
    truth, last = scans["abba"].truth, scans["abba"].snapshots[-1]
    ab, ba = truth["cycle_tids"]
    rows = [row_at(last, lock["address"]) for lock in truth["locks"]]
    (cycle,) = cycles_of(last)
    assert (cycle["end"], cycle["depth"]) == ("cycle", 2)
    # "blocked" counts the cycle's own threads, and those behind them.
    assert cycle["blocked"] in (2, 5)
    wants = {link["tid"]: link["lock"] for link in cycle["path"]}
    assert wants == {ab: rows[1]["id"], ba: rows[0]["id"]}
    assert {link["comm"] for link in cycle["path"]} == {"ab", "ba"}
    assert cycle["root"]["tid"] == min(ab, ba)
    for row, lock in zip(rows, truth["locks"]):
        assert [holder["tid"] for holder in row["holders"]] == [lock["holder_tid"]]
        assert row["name"].startswith("locks"), row
    assert [row["waiters"] for row in rows] == [4, 1]
    for word in ("ab", "ba", str(ab), str(ba)):
        assert word in cycle["text"], cycle
    # Those queued behind are told too, and not as part of the cycle.
    assert "3" in last["verdict"] or cycle["blocked"] == 5 or any(
        not chain["cycle"] and chain["blocked"] >= 3 for chain in last["chains"]
    ), last["chains"]


@pytest.mark.parametrize("name", INNOCENT)
def test_never_a_deadlock_that_is_none(scans, name):
    snapshots = scans[name].snapshots
    assert len(snapshots) >= SCANS
    false = [s for s in snapshots if cycles_of(s) or "deadlock" in s["verdict"].lower()]
    assert len(false) == 0, (len(false), false[0]["chains"])
    # It did work all the time, and its locks were waited for.
    assert scans[name].ended - scans[name].begun > 10 * SCANS
    waiting = [process_of(s, scans[name].load.pid)["states"]["lock"] for s in snapshots[10:]]
    assert sum(waiting) / len(waiting) > 5


def test_a_longer_cycle(workload, run_json):
    target = workload("abba", "threads", 5, "behind", 1)
    truth = target.truth
    last = run_json("-p", target.pid, "-n", 3, "-d", 0.5)[-1]
    (cycle,) = cycles_of(last)
    assert cycle["depth"] == 5
    tids = path_tids(cycle)
    assert sorted(tids) == sorted(truth["cycle_tids"])
    # Around: each waits for the lock that the next one holds.
    holders = {
        row_at(last, lock["address"])["id"]: lock["holder_tid"] for lock in truth["locks"]
    }
    for i, link in enumerate(cycle["path"]):
        assert holders[link["lock"]] == tids[(i + 1) % 5], cycle
        assert lock_by_id(last, link["lock"])["holders"][0]["tid"] == holders[link["lock"]]

"""Locks on files, between processes: who waits, who holds, in which order, to what end."""

import os

import pytest

from conftest import Watcher, cycles_of, new_workload, path_tids, row_at

WAITS = ("-d", 0.3, "--budget", 30)


def rows_of(snapshot, kind):
    return [row for row in snapshot["locks"] if row["kind"] == kind]


def one_row(snapshot, kind):
    (row,) = rows_of(snapshot, kind)
    return row


def has_holder(kind):
    """Who holds is searched for in a thread of its own: it takes some looks."""

    def known(snapshot):
        rows = rows_of(snapshot, kind)
        return rows and rows[0]["holders"] and snapshot["elapsed_s"] > 1

    return known


@pytest.fixture
def scene(workload, watch, tmp_path):
    """scene(NAME, KIND): the truth of filelock_scene, and the first snapshot that names a holder."""

    def look(name, kind, condition=None):
        truth = workload("filelock_scene", "scene", name, "file", tmp_path / "the.lock").truth
        watcher = watch("-p", ",".join(map(str, truth["waiter_pids"])), *WAITS)
        return truth, watcher.until(condition or has_holder(kind), f"a holder ({name})")

    return look


def told(snapshot):
    parts = [snapshot["verdict"]]
    parts += [chain["text"] for chain in snapshot["chains"]]
    parts += [holder["detail"] or "" for row in snapshot["locks"] for holder in row["holders"]]
    return "\n".join(parts)


# Who waits for whom -----------------------------------------------------------------------------


def test_queue_of_depth_three(scene):
    truth, seen = scene("queue", "posix", lambda s: has_holder("posix")(s) and depth(s) == 3)
    row = one_row(seen, "posix")
    assert (row["waiters"], row["queue_depth"]) == (3, 3), row
    assert (row["class"], row["confidence"], row["path"]) == ("filelock", "confirmed", truth["path"])
    assert row["range"] == {"start": 0, "end": 9}
    (holder,) = row["holders"]
    assert holder["pid"] == holder["tid"] == truth["holder_pids"][0]
    assert (holder["mode"], holder["state"], holder["confidence"]) == (
        "exclusive",
        "sleep",
        "confirmed",
    )
    waiters = {waiter["pid"]: waiter for waiter in row["waiter_threads"]}
    first, second, third = truth["waiter_pids"]
    assert [waiters[pid]["level"] for pid in (first, second, third)] == [1, 2, 3]
    assert [waiters[pid]["behind"] for pid in (first, second, third)] == [None, first, second]
    assert [waiters[pid]["blocked_by"] for pid in (first, second, third)] == [
        "hard",
        "soft",
        "soft",
    ]
    (chain,) = seen["chains"]
    assert (chain["root"]["pid"], chain["blocked"]) == (truth["holder_pids"][0], 3)


def depth(snapshot):
    rows = rows_of(snapshot, "posix")
    return rows[0]["queue_depth"] if rows else None


def test_deleted_file_and_a_holder_in_recv(scene):
    truth, seen = scene("deleted", "flock", lambda s: f":{truth_port(s)}" in told(s))
    row = one_row(seen, "flock")
    assert (row["waiters"], row["deleted"], row["path"]) == (5, True, truth["path"])
    (holder,) = row["holders"]
    assert (holder["pid"], holder["state"]) == (truth["holder_pids"][0], "net")
    assert f"tcp 127.0.0.1:{truth['port']}" in holder["detail"]
    assert "(deleted)" in seen["verdict"], seen["verdict"]


def truth_port(snapshot):
    """The port of the loopback that is named, or one that is not: "-"."""
    text = told(snapshot)
    at = text.find("127.0.0.1:")
    return text[at + 10 :].split()[0] if at >= 0 else "-"


def test_locker_was_killed_and_its_child_has_the_descriptor(scene):
    truth, seen = scene("inherit", "flock", lambda s: "has exited" in told(s))
    (holder,) = one_row(seen, "flock")["holders"]
    assert holder["pid"] == truth["holder_pids"][0]
    assert os.readlink(f"/proc/{holder['pid']}/fd/{holder['fd']}") == truth["path"]
    assert holder["confidence"] == "confirmed"
    assert f"original locker {truth['taker']}, which has exited" in holder["detail"]
    assert not os.path.exists(f"/proc/{truth['taker']}")


def test_process_that_waits_for_itself(scene):
    truth, seen = scene("self", "flock", lambda s: cycles_of(s))
    (cycle,) = cycles_of(seen)
    assert (cycle["depth"], path_tids(cycle)) == (1, truth["waiter_pids"])
    assert "SELF-DEADLOCK" in seen["verdict"] and "another descriptor" in seen["verdict"]


def test_two_processes_in_a_deadlock(scene):
    truth, seen = scene("abba", "flock", lambda s: cycles_of(s))
    (cycle,) = cycles_of(seen)
    assert (cycle["depth"], set(path_tids(cycle))) == (2, set(truth["waiter_pids"]))
    assert cycle["confidence"] == "confirmed"
    assert "DEADLOCK 2 threads" in seen["verdict"]


def test_ofd_lock_of_a_process_and_its_child(scene):
    truth, seen = scene("ofd", "ofd", lambda s: len(holders_of(s, "ofd")) == 2)
    row = one_row(seen, "ofd")
    assert {holder["pid"] for holder in row["holders"]} == set(truth["holder_pids"])
    assert all(holder["confidence"] == "confirmed" for holder in row["holders"])
    assert cycles_of(seen) == []


def holders_of(snapshot, kind):
    rows = rows_of(snapshot, kind)
    return rows[0]["holders"] if rows else []


def test_readers_are_all_named(scene):
    truth, seen = scene("readers", "posix", lambda s: len(holders_of(s, "posix")) == 2)
    row = one_row(seen, "posix")
    assert row["range"] == {"start": 100, "end": 199}
    assert {holder["pid"] for holder in row["holders"]} == set(truth["holder_pids"])
    assert {holder["mode"] for holder in row["holders"]} == {"shared"}


def test_bytes_of_sqlite_have_names(scene):
    truth, seen = scene("sqlite", "posix")
    row = one_row(seen, "posix")
    assert row["name"] == "the.lock RESERVED"
    assert "RESERVED" in seen["verdict"]
    assert row["holders"][0]["pid"] == truth["holder_pids"][0]


def test_poller_cannot_be_seen_and_that_is_said(workload, watch, tmp_path):
    """The one that retries is watched; who holds is not."""
    truth = workload("filelock_scene", "scene", "poller", "file", tmp_path / "the.lock").truth
    holder, poller = truth["holder_pids"]
    seen = watch("-p", poller, *WAITS).until(
        lambda s: any(row["only_held"] and row["holders"] for row in s["locks"]), "the held lock"
    )
    row = one_row(seen, "flock")
    assert (row["waiters"], row["only_held"], row["path"]) == (0, True, truth["path"])
    assert [one["pid"] for one in row["holders"]] == [holder]
    assert seen["verdict"].startswith("no contention"), seen["verdict"]
    assert "cannot be seen" in seen["verdict"] and "LOCK_NB" in seen["verdict"]


def test_chain_across_processes(workload, watch, tmp_path):
    truth = workload("chain_across", "file", tmp_path / "the.lock").truth
    seen = watch("-p", truth["pid"], *WAITS).until(
        lambda s: any(c["depth"] == 2 and "127.0.0.1" in (c["detail"] or "") for c in s["chains"]),
        "the whole chain",
    )
    (chain,) = seen["chains"]
    assert path_tids(chain) == [*truth["tids"], truth["holder_pid"]]
    assert chain["root"]["pid"] == truth["holder_pid"] and chain["root"]["state"] == "net"
    assert (chain["end"], chain["blocked"], chain["confidence"]) == ("outside", 2, "confirmed")
    assert f"recvfrom fd 5 tcp 127.0.0.1:{truth['port']}" in chain["detail"]
    mutex = row_at(seen, truth["address"])
    flock = one_row(seen, "flock")
    assert [link["lock"] for link in chain["path"]] == [mutex["id"], flock["id"], None]


# The laboratory: how long, how busy -------------------------------------------------------------


class Lab:
    """flock_lab under lock-top: what its workers' own clocks and what lock-top say of one span."""

    def __init__(self, start, lock_top, file, *words):
        self.load = start("flock_lab", "file", file, *words)
        pids = ",".join(map(str, self.load.truth["pids"]))
        self.before = self.stat()
        self.watcher = Watcher([lock_top, "-p", pids, "--json", "-d", "1", "--rate", "150", "--budget", "30"])

    def stat(self):
        self.load.send("stat")
        return self.load.read_truth()

    def result(self, seconds):
        """The snapshot after SECONDS, and the truth of that time."""
        last = self.watcher.until(lambda s: s["elapsed_s"] >= seconds, "the end", seconds + 60)
        after = self.stat()
        truth = {key: after[key] - self.before[key] for key in after}
        self.watcher.close()
        return last, truth


@pytest.fixture(scope="module")
def labs(lock_top, tmp_path_factory):
    """All at once: their workers sleep nearly all of the time."""
    running = []

    def start(name, *words):
        running.append(new_workload(name, *words).start())
        return running[-1]

    arms = {
        "holder": ("workers", 2, "hold", 50, "others", 0),
        "2": ("workers", 2),
        "4": ("workers", 4),
        "8": ("workers", 8),
        "shared": ("workers", 8, "mode", "shared", "hold", 10),
    }
    files = tmp_path_factory.mktemp("labs")
    made = {arm: Lab(start, lock_top, files / arm, *words) for arm, words in arms.items()}
    yield {arm: lab.result(60) for arm, lab in made.items()}
    for lab in made.values():
        lab.watcher.close()
    for one in running:
        one.end()


def wait_of(truth):
    """Mean of those that waited, ms."""
    return truth["waited_s"] / truth["waits"] * 1e3


@pytest.mark.alone
@pytest.mark.parametrize("workers", [2, 4, 8])
def test_waits_climb_with_the_workers(labs, workers):
    seen, truth = labs[str(workers)]
    row = one_row(seen, "flock")
    assert row["wait_ms"] == pytest.approx(wait_of(truth), rel=0.15), truth
    hold = truth["held_s"] / truth["rounds"] * 1e3
    assert row["wait_ms"] > (workers - 1) * hold * 0.6, (row, truth)
    assert row["contended_per_s"] == pytest.approx(truth["waits"] / truth["at"], rel=0.2), truth


@pytest.mark.alone
def test_slow_holder_makes_its_waiter_wait_as_long(labs):
    seen, truth = labs["holder"]
    row = one_row(seen, "flock")
    assert row["wait_ms"] == pytest.approx(wait_of(truth), rel=0.10), truth


@pytest.mark.alone
def test_shared_lockers_never_wait(labs):
    seen, truth = labs["shared"]
    # What their clocks call waiting is then only the time until they get a CPU.
    assert truth["rounds"] > 100 and truth["waits"] < truth["rounds"] / 100
    assert all(row["waiters_avg_60s"] == 0 for row in rows_of(seen, "flock")), seen["locks"]


@pytest.mark.alone
def test_exclusive_lockers_keep_it_busy(labs):
    seen, _ = labs["8"]
    assert one_row(seen, "flock")["busy"] >= 0.97

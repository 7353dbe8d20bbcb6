"""Every kind of lock, with 5 waiters that stay: what lock-top says against what is true."""

import pytest

from conftest import (
    PATIENCE,
    Observation,
    check_holder,
    check_no_holder,
    compiled,
    locks_of_class,
    new_workload,
    observe_all,
    process_of,
    rows_at,
)

# Workload and arguments; "-m32" asks for an i386 build of it.
SITUATIONS = [
    "mutex_normal",
    "mutex_recursive",
    "mutex_errorcheck",
    "mutex_adaptive",
    "mutex_c11",
    "mutex_pshared",
    "mutex_timed",
    "mutex_clock",
    "mutex_robust",
    "mutex_pi",
    "mutex_robust_pi",
    "libc_stdio",
    "libc_stdio file 1",
    "libc_tz",
    "loader",
    "cond",
    "cond split 1",
    "cond_timed",
    "rwlock_reader_behind_writer",
    "rwlock_writer_behind_writer",
    "rwlock_writer_behind_readers",
    "rwlock_recursive_read",
    "sem",
    "barrier",
    "barrier_round2",
    "once",
    "join",
    "waitv",
    "futex_wait455",
    "bare_futex",
    "bare_futex rust 1",
    "mutex_normal -m32",
    "mutex_recursive -m32",
    "mutex_robust -m32",
    "rwlock_reader_behind_writer -m32",
    "cond -m32",
    "sem -m32",
]

# Kinds that may be told apart only by the calls on the stack: what the memory alone also allows.
ALSO = {
    "libc_stdio file 1": {"futex-lock"},  # a stream's lock on the heap
    "loader": {"libc"},  # a real mutex, but the C library's own
}


def build_32bit(name, tmp):
    """Builds a workload as an i386 program; skips where the compiler cannot."""
    return compiled(f"{name}.c", tmp / f"{name}-32", "-m32", "-O2")


def situation_of(words, tmp):
    """A function that begins to observe it."""
    name, *args = words.split()

    def make():
        if args == ["-m32"]:
            return new_workload(build_32bit(name, tmp))
        return new_workload(name, *args)

    return lambda: Observation(make, "-n", 3, "-d", 1)


@pytest.fixture(scope="module")
def observations(lock_top, tmp_path_factory):
    """Runs the situations in batches; gives {situation: Observation}."""
    tmp = tmp_path_factory.mktemp("kinds")
    yield from observe_all(lock_top, {words: situation_of(words, tmp) for words in SITUATIONS})


@pytest.fixture(params=SITUATIONS)
def situation(request, observations):
    """(situation, truth, snapshots); skipped or failed here where it could not be made."""
    return request.param, *observations[request.param].result()


def rows_of(truth, snapshot):
    """The rows of the situation's objects, one list for each object."""
    return [rows_at(snapshot, address) for address in truth["addresses"]]


def the_rows(truth, snapshots):
    found = rows_of(truth, snapshots[-1])
    assert all(found), f"no row for one of {truth['addresses']}: {snapshots[-1]['locks']}"
    return [rows[0] for rows in found]


def test_listed_once_with_its_waiters(situation):
    _, truth, snapshots = situation
    assert len(snapshots) == 3
    for snapshot in snapshots:
        assert [len(rows) for rows in rows_of(truth, snapshot)] == [1] * len(truth["addresses"])
        # Nothing else is waited for in these programs.
        assert len(snapshot["locks"]) == len(truth["addresses"]), snapshot["locks"]
    for row in the_rows(truth, snapshots):
        assert row["waiters"] == truth["waiters"]
        spread = 0.02 * truth["waiters"]
        assert abs(row["waiters_avg_1s"] - truth["waiters"]) <= spread
        assert row["waiters_max"] == truth["waiters"]


def test_kind_and_class(situation):
    name, truth, snapshots = situation
    for row in the_rows(truth, snapshots):
        assert row["kind"] in {truth["kind"]} | ALSO.get(name, set())
        assert row["class"] == truth["class"]


def test_waiting_threads(situation):
    _, truth, snapshots = situation
    threads = [t for row in the_rows(truth, snapshots) for t in row["waiter_threads"]]
    modes = dict(zip(truth["waiter_tids"], truth["modes"]))
    assert {t["tid"] for t in threads} == set(modes)
    assert len(threads) == len(modes)
    for thread in threads:
        assert thread["pid"] == truth["pid"]
        # Two refreshes lie between the first look and the last.
        assert 1500 < thread["age_ms"] < 1000 * PATIENCE
        if truth["kind"] == "rwlock":
            assert thread["mode"] == modes[thread["tid"]], thread


def test_holder(situation):
    name, truth, snapshots = situation
    for row in the_rows(truth, snapshots):
        if truth["holder_tid"]:
            check_holder(row, truth["holder_tid"], truth["holder_state"], truth["holder_call"])
        elif truth["class"] == "lock" and truth["kind"] != "libc":
            check_no_holder(row)


def test_never_a_wrong_holder(situation):
    _, truth, snapshots = situation
    for snapshot in snapshots:
        for rows in rows_of(truth, snapshot):
            named = {h["tid"] for row in rows for h in row["holders"]} - {None}
            assert named <= set(truth["true_holder_tids"]), rows


def test_states_are_a_partition(situation):
    _, truth, snapshots = situation
    process = process_of(snapshots[-1], truth["pid"])
    states = process["states"]
    assert process["threads"] == truth["threads"]
    assert sum(states.values()) == pytest.approx(truth["threads"], abs=0.05)
    blocked = truth["waiters"] * len(truth["addresses"])
    assert states[truth["class"]] == pytest.approx(blocked, abs=0.1), states


def test_verdict_cries_wolf_for_locks_only(situation):
    _, truth, snapshots = situation
    quiet = "no contention" in snapshots[-1]["verdict"]
    assert quiet == (truth["class"] == "sync"), snapshots[-1]["verdict"]
    assert bool(locks_of_class(snapshots[-1], "sync")) == (truth["class"] == "sync")


@pytest.mark.parametrize("name", ["flock", "fcntl"])
def test_file_locks_are_seen(name, workload, run_json, tmp_path):
    target = workload(name, "file", tmp_path / "locked")
    last = run_json("-p", target.pid, "-n", 3, "-d", 0.5)[-1]
    assert process_of(last, target.pid)["states"]["filelock"] == pytest.approx(5, abs=0.1)
    assert locks_of_class(last, "lock") == []
    assert "no contention" not in last["verdict"]
    for row in last["locks"]:  # one at most, and then a true one
        assert (row["kind"], row["class"]) == (target.truth["kind"], "filelock")
        assert (row["path"], row["waiters"]) == (target.truth["path"], 5)
        assert {h["tid"] for h in row["holders"]} - {None} <= set(target.truth["true_holder_tids"])

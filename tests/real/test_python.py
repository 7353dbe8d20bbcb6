"""CPython: locks are semaphores, the GIL is a condition variable."""

import pytest

from promises import check_calm, check_parked, process_of


@pytest.fixture
def script(program, python, programs):
    return lambda *args: program([python, programs / "contended.py", *args])


def test_contended_lock(script, observe):
    target = script("lock", 5)
    snapshots = observe(target.pid)
    check_parked(snapshots, target.truth["tids"])
    for snapshot in snapshots:
        check_calm(snapshot)
        assert process_of(snapshot, target.pid)["threads"] == 6
        assert process_of(snapshot, target.pid)["states"]["sync"] == pytest.approx(5, abs=0.1)
    target.send("release")
    assert target.read_truth() == {"gone": 5}


def test_fight_for_the_interpreter(script, observe):
    target = script("gil", 4)
    for snapshot in observe(target.pid)[1:]:
        states = process_of(snapshot, target.pid)["states"]
        # One computes; the others wait for it, or for a CPU where others have these.
        active = states["running"] + states["runq"]
        assert active > 0.3 and states["sync"] > 0.3, states
        assert active + states["sync"] + states["lock"] == pytest.approx(4, abs=0.2)
        assert snapshot["verdict"].startswith("no contention"), snapshot["verdict"]
    target.send("release")
    assert target.read_truth() == {"gone": 4}


def test_killed(script, check_death):
    check_death(script("lock", 3))

"""A JVM: its threads sleep each on a word of its own, for monitors as for want of work."""

import pytest

from promises import check_calm, check_monitor, check_parked, comms_of, threads_of, waited_now


@pytest.fixture(scope="module")
def classes(find, run, programs, tmp_path_factory):
    path = tmp_path_factory.mktemp("java")
    run([find("javac"), "-J-XX:-UsePerfData", "-d", path, programs / "Contended.java"], timeout=120)
    return path


@pytest.fixture
def jvm(find, program, classes):
    def start(blocked, idle, parked=0):
        # A heap of fixed size, and no file in /tmp that a killed JVM would leave.
        options = ["-Xmx64m", "-Xms64m", "-XX:-UsePerfData"]
        return program([find("java"), *options, "-cp", classes, "Contended", blocked, idle, parked])

    return start


def named(comms, prefix):
    return [tid for comm, tid in comms.items() if comm.startswith(prefix)]


def test_idle_executor(jvm, observe):
    target = jvm(0, 8)
    idle = named(comms_of(target.pid), "idle-")
    assert len(idle) == 8
    for snapshot in observe(target.pid):
        check_calm(snapshot)
    check_parked([snapshot], idle)
    target.send("release")
    assert target.read_truth() == {"got": 0}


def test_contended_monitor(jvm, observe):
    target = jvm(6, 4)
    comms = comms_of(target.pid)
    blocked = named(comms, "blocked-")
    assert len(blocked) == 6
    snapshots = observe(target.pid)
    row = check_monitor(snapshots, blocked)
    check_parked(snapshots, named(comms, "idle-"))
    assert len(waited_now(snapshots[-1], "lock")) == 1
    # The JVM knows what is not to be seen from outside: whose monitor it is.
    assert "jcmd" in f"{snapshots[-1]['verdict']} {row['holders'][0]['detail']}"
    for snapshot in snapshots:
        (process,) = snapshot["processes"]
        assert abs(process["threads"] - threads_of(target.pid)) <= 2  # the compiler's come and go
    target.send("release")
    assert target.read_truth() == {"got": 6}


def test_parked_threads(jvm, observe):
    """Whether a parked thread wants a lock or work is known to the JVM only."""
    target = jvm(0, 4, 6)
    comms = comms_of(target.pid)
    parked = named(comms, "parked-")
    assert len(parked) == 6
    snapshots = observe(target.pid)
    check_parked(snapshots, parked + named(comms, "idle-"))
    for snapshot in snapshots:
        check_calm(snapshot)
    target.send("release")
    assert target.read_truth() == {"got": 6}


def test_killed(jvm, check_death):
    check_death(jvm(2, 2))

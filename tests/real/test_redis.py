"""Redis: one thread that works, and a few that wait for background work."""

import pytest

from promises import check_calm, check_idle, process_of, waited_now


@pytest.fixture
def redis(find, serve, run, tmp_path):
    server, client, socket = find("redis-server"), find("redis-cli"), tmp_path / "s"

    def start(*options):
        def ask(*words):
            return run([client, "-s", socket, *words]).strip()

        command = [server, "--port", 0, "--unixsocket", socket, "--save", "", "--dir", tmp_path]
        instance = serve([*command, *options], socket.exists)
        instance.ask = ask
        instance.socket = socket
        return instance

    return start


def test_idle(redis, observe):
    server = redis()
    check_idle(observe, server.pid)
    assert server.ask("PING") == "PONG"


def test_benchmark(redis, find, serve, observe):
    server = redis()
    serve([find("redis-benchmark"), "-s", server.socket, "-c", 50, "-l", "-q", "-t", "set,get"])
    for snapshot in observe(server.pid)[1:]:
        # It is the one working thread: no lock can be in its way.
        assert snapshot["verdict"].startswith("no contention"), snapshot["verdict"]
    assert server.ask("SET", "k", "v") == "OK"


def test_io_threads_without_work(redis, observe):
    """Redis parks idle I/O threads in a pthread mutex each, which the main thread holds. Whoever
    knows the function sees that they lack work, not a lock."""
    server = redis("--io-threads", 4)
    snapshots = observe(server.pid, n=4)
    for snapshot in snapshots[1:]:
        check_calm(snapshot)
    states = process_of(snapshots[-1], server.pid)["states"]
    assert states["lock"] < 0.1, states
    assert sum(row["waiters"] for row in waited_now(snapshots[-1], "sync")
               if row["site"] == "IOThreadMain") == 3  # fmt: skip
    assert server.ask("PING") == "PONG"


def test_killed(redis, check_death):
    check_death(redis())

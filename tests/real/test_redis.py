"""Redis: one thread that works, and a few that wait for background work."""

import pytest

from promises import check_idle, process_of, waited_now


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


def test_io_threads_wait_for_mutexes_of_the_main_thread(redis, observe):
    """Redis parks idle I/O threads in a pthread mutex each, which the main thread holds. That is
    waiting for locks, and told as such; who holds them, and that it is idle, tells the rest."""
    server = redis("--io-threads", 4)
    for snapshot in observe(server.pid):
        rows = waited_now(snapshot, "lock")
        assert [(row["kind"], row["waiters"]) for row in rows] == [("mutex", 1)] * 3
        for row in rows:
            (holder,) = row["holders"]
            assert (holder["tid"], holder["confidence"]) == (server.pid, "confirmed"), row
            assert holder["state"] in ("net", "running", "runq")
        assert process_of(snapshot, server.pid)["states"]["lock"] == pytest.approx(3, abs=0.05)
    assert server.ask("PING") == "PONG"


def test_killed(redis, check_death):
    check_death(redis())

"""PHP: processes that wait for the lock of a session's file."""

import os
import signal
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from promises import check_filelock, check_idle, children_of, wait_until, waiters_for_file

SESSION = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def php(find):
    return [find("php"), "-n"]  # without the configuration of this machine


@pytest.fixture
def site(php, serve, programs, free_port, tmp_path):
    """The built-in server: five processes that answer."""
    url = f"http://127.0.0.1:{free_port}"

    def get(path, timeout=60):
        request = urllib.request.Request(url + path, headers={"Cookie": f"PHPSESSID={SESSION}"})
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.read().decode()

    def serves():
        try:
            return get("/", 5) == "served"
        except OSError:
            return False

    options = ["-d", f"session.save_path={tmp_path}", "-S", url.removeprefix("http://")]
    environment = {**os.environ, "PHP_CLI_SERVER_WORKERS": "4"}
    server = serve([*php, *options, programs / "session.php"], serves, env=environment)
    server.get = get
    server.workers = children_of(server.pid)
    yield server
    # They do not end with their parent; while that has not ended, their PIDs are theirs.
    for worker in children_of(server.pid):
        os.kill(worker, signal.SIGTERM)


def test_idle(site, observe):
    assert len(site.workers) == 4
    check_idle(observe, site.pid, *site.workers)
    assert site.get("/") == "served"


@pytest.mark.alone
def test_waiters_for_a_session(site, observe, tmp_path):
    held = tmp_path / "held"
    others = len(site.workers)  # the first process answers as well
    with ThreadPoolExecutor(1 + others) as pool:
        answers = [pool.submit(site.get, f"/hold?file={held}")]
        try:
            wait_until(held.exists, "the session to be held")
            file = tmp_path / f"sess_{SESSION}"
            for n in range(others):  # a process may take two connections: one after another
                answers.append(pool.submit(site.get, "/want"))
                wait_until(lambda: waiters_for_file(file) == n + 1, "one more to want it")
            for snapshot in observe(site.pid, *site.workers):
                waiting = [p for p in snapshot["processes"] if p["states"]["filelock"] > 0.9]
                assert len(waiting) == others
                (row,) = [row for row in snapshot["locks"] if row["waiters"]]
                assert (row["kind"], row["path"], row["waiters"]) == ("flock", str(file), others)
                assert f"flock on {file}" in snapshot["verdict"], snapshot["verdict"]
            assert [one["pid"] in [site.pid, *site.workers] for one in row["holders"]] == [True]
        finally:
            held.unlink(missing_ok=True)
        assert [answer.result(30) for answer in answers] == ["served"] * (1 + others)


def test_waiters_for_a_file(php, program, programs, observe, tmp_path):
    file = tmp_path / "lock"
    command = [*php, programs / "flock.php", file]
    holder = program(command)
    assert holder.read_truth() == {"got": True}
    waiters = [program(command) for _ in range(4)]
    wait_until(lambda: waiters_for_file(file) == 4, "the waiters for the file")
    for snapshot in observe(holder.pid, *(waiter.pid for waiter in waiters)):
        check_filelock(snapshot, holder.pid, 0)
        for waiter in waiters:
            check_filelock(snapshot, waiter.pid)
    (row,) = [row for row in snapshot["locks"] if row["waiters"]]
    assert (row["kind"], row["path"], row["waiters"]) == ("flock", str(file), 4)
    assert [one["pid"] for one in row["holders"]] == [holder.pid]
    holder.end()
    wait_until(lambda: waiters_for_file(file) == 3, "one to get it")
    for waiter in waiters:  # one after another they would all have their turn
        waiter.kill()


def test_new_process_is_picked_up(php, serve, check_arrival):
    def sleeper():
        return serve([*php, "-r", "sleep(100);"]).pid

    first = sleeper()
    assert first
    check_arrival("php", sleeper)


def test_killed(php, serve, check_death):
    check_death(serve([*php, "-r", "sleep(100);"]))

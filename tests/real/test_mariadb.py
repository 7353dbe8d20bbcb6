"""MariaDB: pthread mutexes, locks of InnoDB's own, pools, and waiters that sleep each alone."""

import os
import subprocess

import pytest

from promises import (
    Guard,
    check_always,
    check_idle,
    check_monitor,
    process_of,
    status_of,
    wait_until,
    waited_now,
)

ROW_WAITERS = 31


def own_temporary(path):
    """The environment of a server whose user may not write where the tests do."""
    return {**os.environ, "TMPDIR": str(path)}


@pytest.fixture(scope="module")
def installed(find, run, place):
    """A data directory with the system tables: (path, user)."""
    find("mariadbd")
    path, user = place("m", "mysql")
    command = [find("mariadb-install-db"), "--no-defaults", f"--datadir={path / 'd'}"]
    command += ["--auth-root-authentication-method=normal", "--skip-test-db"]
    run([*command, f"--user={user}"] if user else command, env=own_temporary(path))
    return path, user


class Client:
    def __init__(self, run, program, socket):
        self.run = run
        self.command = [program, "--no-defaults", "-uroot", "-S", str(socket)]

    def query(self, text):
        return self.run([*self.command, "-N", "-e", text]).strip()

    def serves(self):
        return subprocess.run(
            [*self.command, "-e", "SELECT 1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=30,
        ).returncode == 0


@pytest.fixture
def start(installed, find, serve, run):
    """start(OPTION...) starts a server and waits until it serves."""
    path, user = installed
    client = Client(run, find("mariadb"), path / "d" / "s")
    command = [find("mariadbd"), "--no-defaults", f"--datadir={path / 'd'}", "--skip-networking"]
    command += [f"--socket={path / 'd' / 's'}", f"--pid-file={path / 'd' / 'p'}"]
    command += [f"--user={user}"] if user else []

    def begin(*options):
        server = serve([*command, *options], client.serves, env=own_temporary(path))
        server.client = client
        return server

    return begin


@pytest.fixture
def mariadb(start):
    return start()


@pytest.fixture
def slap(find, serve):
    """slap(SERVER, OPTION...) runs queries from several sessions until the test ends."""

    def begin(server, *options):
        program = find("mariadb-slap", "mysqlslap")
        command = [program, *server.client.command[1:], "--number-of-queries=100000000"]
        serve([*command, *options])
        sessions = int(options[0].partition("=")[2])
        count = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'root'"
        wait_until(lambda: int(server.client.query(count)) > sessions, "the sessions")

    return begin


def test_idle(mariadb, installed, observe):
    if installed[1]:  # it has changed its user, and may be watched nevertheless
        assert status_of(mariadb.pid)["Uid"].split()[0] != "0"
    check_idle(observe, mariadb.pid)
    assert mariadb.client.query("SELECT 6 * 7") == "42"


def test_16_sessions_of_short_queries(mariadb, slap, observe):
    mariadb.client.query("DROP DATABASE IF EXISTS mysqlslap")
    slap(mariadb, "--concurrency=16", "--auto-generate-sql", "--auto-generate-sql-load-type=mixed")
    last = observe(mariadb.pid, n=4)[-1]
    assert process_of(last, mariadb.pid)["threads"] >= 16
    assert mariadb.client.query("SELECT 6 * 7") == "42"


def test_mutex_of_the_binary_log(start, slap, watch):
    """Commits are written to the binary log one after another, under a pthread mutex."""
    server = start("--log-bin", "--sync-binlog=1")
    server.client.query("CREATE OR REPLACE DATABASE t; CREATE TABLE t.t (v INT)")
    slap(server, "--concurrency=16", "--query=INSERT INTO t.t VALUES (1)")

    def named(snapshot):
        return [
            row
            for row in waited_now(snapshot, "lock")
            if row["kind"].startswith("mutex")
            and row["confidence"] == "confirmed"
            and row["waiters_avg_1s"] >= 0.1
            and row["holders"]
            and row["holders"][0]["confidence"] == "confirmed"
        ]

    with Guard([server.pid]) as guard:
        watcher = watch("-p", server.pid, "-d", 0.1)
        seen = watcher.until(named, "a mutex with waiters and its holder")
        for _ in range(10):
            assert watcher.next() is not None, watcher.stderr()
        watcher.interrupt()
    guard.check()
    for snapshot in watcher.snapshots:
        check_always(snapshot, guard)
    for row in named(seen):
        waiters = {waiter["tid"] for waiter in row["waiter_threads"]}
        assert row["holders"][0]["tid"] not in waiters
        assert row["busy"] is None or row["busy"] > 0.1


@pytest.fixture
def session(mariadb, talk):
    return talk([*mariadb.client.command, "-N", "--unbuffered"])


def test_waiters_for_a_row_lock(mariadb, session, serve, observe):
    query = mariadb.client.query
    query("CREATE OR REPLACE DATABASE t; CREATE TABLE t.t (id INT PRIMARY KEY, v INT);"
          "INSERT INTO t.t VALUES (1, 0)")
    assert session.say("BEGIN; UPDATE t.t SET v = v + 1 WHERE id = 1; SELECT 'held';") == "held"
    waiters = [
        serve([*mariadb.client.command, "-e", "UPDATE t.t SET v = v + 1 WHERE id = 1"])
        for _ in range(ROW_WAITERS)
    ]
    waits = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'"
    wait_until(lambda: query(waits).split()[-1] == str(ROW_WAITERS), "the row lock's waiters")
    tids = query("SELECT TID FROM information_schema.PROCESSLIST WHERE INFO LIKE 'UPDATE%'")
    assert len(tids.split()) == ROW_WAITERS
    snapshots = observe(mariadb.pid, n=4)
    check_monitor(snapshots, list(map(int, tids.split())))
    assert [row["kind"] for row in waited_now(snapshots[-1], "lock")] == ["monitor"]

    assert session.say("COMMIT; SELECT 'done';") == "done"
    for waiter in waiters:
        assert waiter.process.wait(30) == 0
    assert query("SELECT v FROM t.t") == str(ROW_WAITERS + 1)


def test_waiters_for_a_user_lock(mariadb, session, serve, observe):
    query = mariadb.client.query
    assert session.say("SELECT GET_LOCK('lock-top', 0);") == "1"
    waiters = [
        serve([*mariadb.client.command, "-e", "SELECT GET_LOCK('lock-top', 60)"])
        for _ in range(3)
    ]
    wait_until(
        lambda: query("SELECT COUNT(*) FROM information_schema.PROCESSLIST"
                      " WHERE STATE = 'User lock'") == "3",
        "the user lock's waiters",
    )
    tids = query("SELECT TID FROM information_schema.PROCESSLIST WHERE STATE = 'User lock'")
    check_monitor(observe(mariadb.pid), list(map(int, tids.split())), "MDL_wait::timed_wait")
    assert session.say("SELECT RELEASE_LOCK('lock-top');") == "1"
    for waiter in waiters:
        assert waiter.process.wait(30) == 0


def test_killed(mariadb, check_death):
    check_death(mariadb)

"""MariaDB: pthread mutexes, locks of InnoDB's own, pools, and waiters that sleep each alone."""

import subprocess

import pytest

from promises import (
    check_idle,
    check_parked,
    process_of,
    settle,
    status_of,
    tids_of,
    wait_until,
    waited_now,
)

ROW_WAITERS = 6


@pytest.fixture(scope="module")
def installed(find, run, place):
    """A data directory with the system tables: (path, user)."""
    find("mariadbd")
    path, user = place("m", "mysql")
    command = [find("mariadb-install-db"), "--no-defaults", f"--datadir={path / 'd'}"]
    command += ["--auth-root-authentication-method=normal", "--skip-test-db"]
    run([*command, f"--user={user}"] if user else command)
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
def mariadb(installed, find, serve, run):
    path, user = installed
    client = Client(run, find("mariadb"), path / "d" / "s")
    command = [find("mariadbd"), "--no-defaults", f"--datadir={path / 'd'}", "--skip-networking"]
    command += [f"--socket={path / 'd' / 's'}", f"--pid-file={path / 'd' / 'p'}"]
    server = serve([*command, f"--user={user}"] if user else command, client.serves)
    server.client = client
    return server


@pytest.fixture
def slap(mariadb, find, serve):
    """slap(OPTION...) runs queries from several sessions until the test ends."""

    def start(*options):
        program = find("mariadb-slap", "mysqlslap")
        command = [program, *mariadb.client.command[1:], "--number-of-queries=100000000"]
        serve([*command, *options])
        sessions = int(options[0].partition("=")[2])
        wait_until(
            lambda: int(mariadb.client.query(
                "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'root'"
            )) > sessions,
            "the sessions",
        )

    return start


def test_idle(mariadb, observe):
    check_idle(observe, mariadb.pid)
    assert mariadb.client.query("SELECT 6 * 7") == "42"


def test_16_sessions_of_short_queries(mariadb, slap, observe):
    mariadb.client.query("DROP DATABASE IF EXISTS mysqlslap")
    slap("--concurrency=16", "--auto-generate-sql", "--auto-generate-sql-load-type=mixed")
    last = observe(mariadb.pid, n=4)[-1]
    assert process_of(last, mariadb.pid)["threads"] >= 16
    assert mariadb.client.query("SELECT 6 * 7") == "42"


def test_mutex_of_the_monitor(mariadb, slap, observe):
    """SHOW ENGINE INNODB STATUS is written under one pthread mutex."""
    slap("--concurrency=8", "--query=SHOW ENGINE INNODB STATUS")

    def named(snapshots):
        return [
            row
            for snapshot in snapshots
            for row in waited_now(snapshot, "lock")
            if row["kind"].startswith("mutex")
            and row["confidence"] == "confirmed"
            and row["waiters_avg_1s"] >= 0.5
            and row["holders"]
            and row["holders"][0]["confidence"] == "confirmed"
        ]

    snapshots = settle(
        lambda: observe(mariadb.pid, n=10, delay=0.2), named, "a mutex and its holder"
    )
    for row in named(snapshots):
        waiters = {waiter["tid"] for waiter in row["waiter_threads"]}
        assert row["holders"][0]["tid"] in tids_of(mariadb.pid) - waiters


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
    wait_until(
        lambda: query("SELECT COUNT(*) FROM information_schema.INNODB_TRX"
                      " WHERE trx_state = 'LOCK WAIT'") == str(ROW_WAITERS),
        "the row lock's waiters",
    )
    tids = query("SELECT TID FROM information_schema.PROCESSLIST WHERE INFO LIKE 'UPDATE%'")
    assert len(tids.split()) == ROW_WAITERS
    check_parked(observe(mariadb.pid), map(int, tids.split()))

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
    check_parked(observe(mariadb.pid), map(int, tids.split()))
    assert session.say("SELECT RELEASE_LOCK('lock-top');") == "1"
    for waiter in waiters:
        assert waiter.process.wait(30) == 0


def test_runs_as_its_own_user(mariadb, installed):
    """The tests are to cover a process that has changed its user, where they may."""
    if installed[1] is None:
        pytest.skip("not root: the server runs as the user of the tests")
    assert status_of(mariadb.pid)["Uid"].split()[0] != "0"


def test_killed(mariadb, check_death):
    check_death(mariadb)

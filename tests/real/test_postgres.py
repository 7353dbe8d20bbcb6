"""PostgreSQL: a process for each session; locks in shared memory, waiters in epoll."""

import signal
import subprocess

import pytest

from promises import check_idle, children_of, process_of, wait_until, waited_now

ROW_WAITERS = 4


class Cluster:
    """Where it lies, and how to speak to it."""

    def __init__(self, find, run, place):
        self.path, self.user = place("p", "postgres")
        self.data = self.path / "d"
        self.server = find("postgres")
        self.psql = [find("psql"), "-X", "-h", self.path, "-d", "postgres", "-At"]
        self.run = run
        if self.user:
            self.psql += ["-U", self.user]

    def query(self, text):
        return self.run([*self.psql, "-c", text]).strip()

    def serves(self):
        return subprocess.run(
            [*self.psql, "-c", "SELECT 1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=30,
        ).returncode == 0


@pytest.fixture(scope="module")
def cluster(find, run, place, as_user):
    made = Cluster(find, run, place)
    command = [find("initdb"), "-D", made.data, "-A", "trust", "-N", "--locale=C", "-E", "UTF8"]
    run(command, cwd="/", **as_user(made.user))
    return made


@pytest.fixture
def postgres(cluster, serve, as_user):
    """SIGINT is its fast shutdown: sessions are ended, shared memory is removed."""
    server = serve(
        [cluster.server, "-D", cluster.data, "-k", cluster.path, "-c", "listen_addresses="],
        cluster.serves,
        end_signal=signal.SIGINT,
        **as_user(cluster.user),
    )
    server.query = cluster.query
    return server


@pytest.fixture
def session(postgres, cluster, talk):
    """session() opens one that stays."""
    return lambda: talk([*cluster.psql, "-q"])


def test_idle(postgres, observe):
    wait_until(lambda: len(children_of(postgres.pid)) >= 4, "the background processes")
    check_idle(observe, postgres.pid, *children_of(postgres.pid))
    assert postgres.query("SELECT 6 * 7") == "42"


def test_pgbench(postgres, cluster, find, serve, run, observe):
    pgbench = [find("pgbench"), *cluster.psql[2:4]]
    if cluster.user:
        pgbench += ["-U", cluster.user]
    run([*pgbench, "-i", "-q", "-s", "1", "postgres"])
    serve([*pgbench, "-n", "-c", "8", "-T", "300", "postgres"])
    count = "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'pgbench'"
    wait_until(lambda: postgres.query(count) == "8", "the sessions of pgbench")
    snapshots = observe(postgres.pid, *children_of(postgres.pid), n=4)
    assert len(snapshots[-1]["processes"]) >= 9
    assert postgres.query("SELECT 6 * 7") == "42"


def test_waiters_for_a_row_lock(postgres, session, observe):
    """They wait in epoll for their latch: nothing in that call shows a lock, but the functions that
    called it do. Each process has a row of its own."""
    postgres.query("DROP TABLE IF EXISTS t")
    postgres.query("CREATE TABLE t AS SELECT 1 AS id, 0 AS v")
    update = "UPDATE t SET v = v + 1 WHERE id = 1"
    holder = session()
    assert holder.say(f"BEGIN; {update}; SELECT 'held';") == "held"
    waiters = [session() for _ in range(ROW_WAITERS)]
    pids = [int(waiter.say("SELECT pg_backend_pid();")) for waiter in waiters]
    for waiter in waiters:
        waiter.send(f"{update}; SELECT 'done';")
    count = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    wait_until(lambda: postgres.query(count) == str(ROW_WAITERS), "the row lock's waiters")
    last = observe(postgres.pid, *pids, n=4)[-1]
    rows = waited_now(last, "lock", "filelock", "kernel")
    assert sorted(row["pid"] for row in rows) == sorted(pids)
    for row in rows:
        assert (row["class"], row["kind"], row["waiters"]) == ("lock", "monitor", 1), row
        assert row["site"] == "ProcSleep", row
        assert process_of(last, row["pid"])["states"]["lock"] > 0.5
    assert not last["verdict"].startswith("no contention"), last["verdict"]

    assert holder.say("COMMIT; SELECT 'done';") == "done"
    for waiter in waiters:
        assert waiter.line() == "done"
    assert postgres.query("SELECT v FROM t") == str(ROW_WAITERS + 1)


def test_new_backend_is_picked_up(postgres, session, check_arrival):
    check_arrival("postgres", lambda: int(session().say("SELECT pg_backend_pid();")))


def test_backend_ends_while_watched(postgres, session, watch):
    client = session()
    backend = int(client.say("SELECT pg_backend_pid();"))
    watcher = watch("-p", backend, "-d", 0.3)
    assert watcher.next() is not None, watcher.stderr()
    client.end()
    watcher.rest(10)
    assert str(backend) in watcher.stderr()
    assert postgres.query("SELECT 6 * 7") == "42"


def test_killed(postgres, check_death):
    """By the signal on which it lets go of everything at once, and still removes its shared
    memory."""
    check_death(postgres, signal.SIGQUIT)

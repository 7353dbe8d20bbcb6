"""Fixtures of the tests against real servers and runtimes.

Each test starts what it watches as an instance of its own, with its own directory and a socket in
it or a free port of the loopback, and ends it by PID. What is not installed is skipped, or, with
LOCK_TOP_REAL=1, missing.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from promises import Guard, check_always
from system_tests import conftest as system

lock_top = system.lock_top
watch = system.watch
run_json = system.run_json
run_text = system.run_text

pytest_configure = system.pytest_configure

DEMANDED = os.environ.get("LOCK_TOP_REAL") == "1"
PLACES = [
    *os.environ["PATH"].split(":"),
    "/usr/sbin",
    "/usr/local/sbin",
    *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True),
    *sorted(map(str, Path("/usr").glob("pgsql-*/bin")), reverse=True),
]
PROGRAMS = Path(__file__).with_name("programs")


def find(*names):
    """The path of the first of these programs that is installed."""
    for name in names:
        path = shutil.which(name, path=":".join(PLACES))
        if path:
            return path
    reason = f"{names[0]} is not installed"
    if DEMANDED:
        pytest.fail(f"{reason}; contrib/deps.sh --test --real installs it")
    pytest.skip(reason)


@pytest.fixture(scope="session", name="find")
def find_fixture():
    return find


@pytest.fixture(scope="session")
def programs():
    return PROGRAMS


def service_user(*names):
    """Who a server runs as that refuses root: None where the tests are not root's."""
    if os.geteuid() != 0:
        return None
    known = {user.pw_name for user in pwd.getpwall()}
    return next((name for name in (*names, "nobody") if name in known), None)


def make_reachable(path):
    """Lets another user pass through to PATH: directories of tests are closed to others."""
    top = Path(tempfile.gettempdir())
    for part in (path, *path.parents):
        if part != top and top not in part.parents:
            break
        if not part.stat().st_mode & 1:
            part.chmod(part.stat().st_mode | 0o011)


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """place(NAME, USER...) makes a directory that the first of these users owns: (path, user)."""

    def make(name, *users):
        path = tmp_path_factory.mktemp(name)
        user = service_user(*users)
        if user:
            make_reachable(path)
            shutil.chown(path, user, pwd.getpwnam(user).pw_gid)
        return path, user

    return make


@pytest.fixture(scope="session", name="as_user")
def as_user_fixture():
    return as_user


def as_user(user):
    """Arguments of Popen that start a program as this user; none for None."""
    if user is None:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


class Server:
    """A running server, or a client that makes its load."""

    def __init__(self, command, end_signal=signal.SIGTERM, **popen):
        self.command = [str(word) for word in command]
        self.end_signal = end_signal
        self.output = tempfile.TemporaryFile()
        popen = {"stdin": subprocess.DEVNULL, "stdout": self.output, **popen}
        self.process = subprocess.Popen(self.command, stderr=self.output, cwd="/", **popen)
        self.pid = self.process.pid

    def said(self):
        self.output.seek(0)
        return self.output.read().decode(errors="replace")[-4000:]

    def wait_ready(self, ready):
        def state():
            if self.process.poll() is not None:
                pytest.fail(f"{self.command}: status {self.process.returncode}\n{self.said()}")
            return ready()

        system.wait_until(state, f"{self.command[0]} to serve", 60)
        return self

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(self.end_signal)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()
        self.output.close()


@pytest.fixture
def serve():
    """serve(COMMAND, READY) starts a server and waits until READY(); it ends with the test."""
    running = []

    def start(command, ready=lambda: True, **popen):
        running.append(Server(command, **popen))
        return running[-1].wait_ready(ready)

    yield start
    for one in reversed(running):
        one.end()


class Session(Server):
    """A client that stays connected, and is told what to do line by line."""

    def __init__(self, command, **popen):
        super().__init__(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **popen)

    def send(self, text):
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def line(self):
        line = system.read_line(self.process.stdout, system.PATIENCE).decode().strip()
        assert line, f"{self.command}: no answer\n{self.said()}"
        return line

    def say(self, text):
        self.send(text)
        return self.line()


@pytest.fixture
def talk():
    """talk(COMMAND) starts a client as a Session; it ends with the test."""
    running = []

    def start(command, **popen):
        running.append(Session(command, bufsize=0, **popen))
        return running[-1]

    yield start
    for one in reversed(running):
        one.end()


@pytest.fixture
def program():
    """program(COMMAND) starts a program that says the truth as JSON, like the workloads."""
    running = []

    def start(command, **popen):
        running.append(system.Workload(command, **popen))
        return running[-1].start()

    yield start
    for one in reversed(running):
        one.end()


def run(command, timeout=60, **popen):
    """A command that must succeed; its standard output."""
    done = subprocess.run(
        [str(word) for word in command],
        stdin=popen.pop("stdin", subprocess.DEVNULL),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
        text=True,
        **popen,
    )
    assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="session", name="run")
def run_fixture():
    return run


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def comma(pids):
    return ",".join(map(str, pids))


@pytest.fixture
def observe(run_json, run_text):
    """observe(PID...) watches the processes for two seconds as JSON and once as text, checks all
    that must hold of any process, and returns the snapshots."""

    def look(*pids, n=3, delay=0.7):
        with Guard(pids) as guard:
            snapshots = run_json("-p", comma(pids), "-n", n, "-d", delay)
            text = run_text("-b", "-p", comma(pids), "-n", 1, "-d", 0.5).stdout.decode()
        guard.check()
        assert len(snapshots) == n
        for snapshot in snapshots:
            check_always(snapshot, guard)
        assert "CRITICAL" not in text
        return snapshots

    return look


@pytest.fixture
def check_death(watch):
    """check_death(SERVER) kills it while lock-top watches: lock-top says so and ends well."""

    def check(server, number=signal.SIGKILL):
        watcher = watch("-p", server.pid, "-d", 0.3)
        assert watcher.next() is not None, watcher.stderr()
        server.process.send_signal(number)
        server.process.wait(30)
        watcher.rest(10)
        assert str(server.pid) in watcher.stderr()

    return check


@pytest.fixture
def check_arrival(watch):
    """check_arrival(NAME, START) watches by name, calls START, which begins a process of that
    name and returns its PID, and expects to see it within 3 s."""

    def check(name, start):
        watcher = watch("-c", name, "-d", 0.2)
        first = watcher.next()
        assert first is not None, watcher.stderr()
        pid = start()
        assert pid not in [p["pid"] for p in first["processes"]]
        seen = watcher.until(
            lambda s: pid in [p["pid"] for p in s["processes"]], f"new process {pid}", 3
        )
        assert system.process_of(seen, pid)["comm"] == name
        watcher.interrupt()

    return check


@pytest.fixture(scope="session")
def python():
    return sys.executable

"""Fixtures of the system tests: lock-top as a user runs it, against workloads that say the truth.

LOCK_TOP            the program (default build/lock-top)
LOCK_TOP_WORKLOADS  directory of the workload programs (default build/workloads)
LOCK_TOP_SAN        set: the program is a sanitizer build, whose speed and size say nothing
CC, CXX             compilers for workloads that a test builds in a way of its own
"""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCK_TOP = Path(os.environ.get("LOCK_TOP", ROOT / "build" / "lock-top")).absolute()
SOURCES = ROOT / "tests" / "workloads"
WORKLOADS = Path(os.environ.get("LOCK_TOP_WORKLOADS", ROOT / "build" / "workloads")).absolute()
SANITIZED = bool(os.environ.get("LOCK_TOP_SAN"))



def pytest_configure(config):
    config.addinivalue_line("markers", "alone: of what is used of the machine: runs by itself")


# Generous: a loaded machine must not fail a test that is about truth, not speed.
PATIENCE = 30.0
EXIT_SKIP = 77

REPORTS = re.compile(r"Sanitizer|runtime error:|LeakSanitizer|Assertion|BUG")

plain_speed_only = pytest.mark.skipif(
    SANITIZED, reason="a sanitizer build is slower than the bounds on time and CPU allow"
)


def wait_until(condition, what, timeout=PATIENCE):
    """The first true value of condition(), asked again and again; fails when there is none."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            pytest.fail(f"waited {timeout} s for {what}")
        time.sleep(0.01)


def read_line(stream, timeout):
    """One line from an unbuffered binary pipe, or what came before it ended or time was up."""
    end = time.monotonic() + timeout
    line = b""
    while not line.endswith(b"\n"):
        left = end - time.monotonic()
        if left <= 0 or not select.select([stream], [], [], left)[0]:
            break
        byte = os.read(stream.fileno(), 1)
        if not byte:
            break
        line += byte
    return line


class Lines:
    """The lines of a binary pipe, read in big pieces: those of --stacks all are long."""

    def __init__(self, stream):
        self.fd = stream.fileno()
        self.buffer = bytearray()

    def next(self, timeout):
        """One line, or what came before the pipe ended or time was up."""
        end = time.monotonic() + timeout
        seen = 0
        while (at := self.buffer.find(b"\n", seen)) < 0:
            seen = len(self.buffer)
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                return b""
            piece = os.read(self.fd, 1 << 16)
            if not piece:
                break
            self.buffer += piece
        length = at + 1 if at >= 0 else len(self.buffer)
        line = bytes(self.buffer[:length])
        del self.buffer[:length]
        return line


class Workload:
    """A running workload; .truth is what it said of itself."""

    def __init__(self, command, **popen):
        self.command = [str(word) for word in command]
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            bufsize=0,
            **popen,
        )
        self.pid = self.process.pid
        self.truth = None

    def start(self):
        """Waits for the situation to stand; skips the test where this machine cannot make it."""
        line = read_line(self.process.stdout, PATIENCE)
        if line.endswith(b"\n"):
            self.truth = json.loads(line)
            return self
        if line == b"" and self.process.poll() is None:
            try:
                self.process.wait(1)
            except subprocess.TimeoutExpired:
                pass
        if self.process.returncode == EXIT_SKIP:
            pytest.skip(f"{Path(self.command[0]).name}: {self.said()}")
        pytest.fail(f"{self.command}: no line, status {self.process.returncode}: {self.said()}")

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip()

    def send(self, line):
        self.process.stdin.write(line.encode() + b"\n")

    def read_truth(self):
        """The next line, for commands that are answered."""
        self.truth = json.loads(read_line(self.process.stdout, PATIENCE))
        return self.truth

    def kill(self):
        self.process.send_signal(signal.SIGKILL)

    def end(self):
        self.process.send_signal(signal.SIGCONT)  # a test may have left it stopped
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


@pytest.fixture(scope="session")
def lock_top():
    if not os.access(LOCK_TOP, os.X_OK):
        pytest.fail(f"{LOCK_TOP} is not there; build it with: make all workloads")
    return str(LOCK_TOP)


def new_workload(name, *args, **popen):
    path = name if os.path.isabs(str(name)) else WORKLOADS / name
    if not os.access(path, os.X_OK):
        pytest.fail(f"{path} is not there; build it with: make all workloads")
    return Workload([path, *args], **popen)


@pytest.fixture
def workload():
    """workload(NAME, ARG...) starts one and waits for its truth; all end with the test."""
    running = []

    def start(name, *args, **popen):
        running.append(new_workload(name, *args, **popen))
        return running[-1].start()

    yield start
    for one in reversed(running):
        one.end()


def compiled(source, path, *flags, compiler=None):
    """Builds tests/workloads/SOURCE at PATH; skips the test where the compiler cannot."""
    cxx = str(source).endswith(".cc")
    compiler = compiler or os.environ.get("CXX" if cxx else "CC") or ("g++" if cxx else "gcc")
    if not shutil.which(compiler.split()[0]):
        pytest.skip(f"{compiler} is not installed")
    standard = [] if cxx else ["-std=gnu11", "-D_GNU_SOURCE"]
    command = [*compiler.split(), *standard, "-pthread", "-o", path, SOURCES / source, *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{compiler} cannot build {source} {' '.join(flags)}: {done.stderr[:300]}")
    return path


@pytest.fixture(scope="session", name="compile")
def compile_fixture(tmp_path_factory):
    """compile(SOURCE, FLAG...) builds a workload, once for all tests, and returns its path."""
    built = {}

    def build(source, *flags, compiler=None, name=None):
        key = (str(source), flags, compiler, name)
        if key not in built:
            path = tmp_path_factory.mktemp("built") / (name or Path(source).stem)
            built[key] = compiled(source, path, *flags, compiler=compiler)
        return built[key]

    return build


class Observation:
    """A situation under lock-top, begun early and looked at when its turn comes.

    make() starts the workload; AFTER, with the workload, is done when the situation stands.
    lock-top ends by itself after what OPTIONS say, or it is ended at the first snapshot, the
    FEWEST-th at least, of which SETTLED is true."""

    def __init__(self, make, *options, after=None, settled=None, fewest=1):
        self.options = options
        self.after = after
        self.settled = settled
        self.fewest = fewest
        self.load = self.watcher = self.outcome = None
        try:
            self.load = make()
        except BaseException as outcome:  # pytest's own skip and failure: told by the test
            self.outcome = outcome

    def watch(self, lock_top):
        if self.outcome:
            return
        try:
            self.load.start()
            if self.after:
                self.after(self.load)
            command = [lock_top, "-p", str(self.load.truth["pid"]), "-b", "--json"]
            self.watcher = Watcher([*command, *map(str, self.options)])
        except BaseException as outcome:
            self.outcome = outcome

    def collect(self, timeout=PATIENCE):
        if self.outcome or not self.watcher:
            return
        try:
            if self.settled:
                self.watcher.until(self.is_settled, "all that was waited for", timeout)
                self.watcher.interrupt()
            else:
                self.watcher.rest(timeout)
        except BaseException as outcome:
            self.outcome = outcome

    def is_settled(self, snapshot):
        return len(self.watcher.snapshots) >= self.fewest and self.settled(snapshot)

    def close(self):
        if self.watcher:
            self.watcher.close()
        if self.load:
            self.load.end()

    def result(self):
        """(truth, snapshots); skips or fails here where the situation could not be made."""
        if self.outcome:
            raise self.outcome
        return self.load.truth, self.watcher.snapshots


def observe_all(lock_top, situations, at_once=6):
    """Observes SITUATIONS, {key: function that returns an Observation}, some beside each other
    for the sake of time. Yields {key: Observation}, once."""
    seen = {}
    keys = list(situations)
    try:
        for first in range(0, len(keys), at_once):
            batch = keys[first : first + at_once]
            for key in batch:
                seen[key] = situations[key]()
            for key in batch:
                seen[key].watch(lock_top)
            for key in batch:
                seen[key].collect()
                seen[key].close()
        yield seen
    finally:
        for one in seen.values():
            one.close()


def environment(**changes):
    """The environment for lock-top: ours with changes; None removes a variable."""
    env = {**os.environ, "NO_COLOR": "1"}
    if SANITIZED:
        known = Path(__file__).with_name("lsan.supp")
        env["LSAN_OPTIONS"] = f"suppressions={known}:print_suppressions=0"
    env.update((k, v) for k, v in changes.items() if v is not None)
    for name in (k for k, v in changes.items() if v is None):
        env.pop(name, None)
    return env


class Watcher:
    """lock-top running in the background with --json."""

    def __init__(self, command, env=None, **popen):
        self.errors = tempfile.TemporaryFile()
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            bufsize=0,
            env=env or environment(),
            **popen,
        )
        self.pid = self.process.pid
        self.lines = Lines(self.process.stdout)
        self.snapshots = []

    def next(self, timeout=PATIENCE):
        """The next snapshot, or None when there are no more."""
        line = self.lines.next(timeout)
        if not line.endswith(b"\n"):
            return None
        self.snapshots.append(json.loads(line.decode()))
        return self.snapshots[-1]

    def until(self, condition, what, timeout=PATIENCE):
        """The first snapshot for which condition(snapshot) is true."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            snapshot = self.next(end - time.monotonic())
            if snapshot is None:
                break
            if condition(snapshot):
                return snapshot
        pytest.fail(f"no snapshot with {what}; {self.stderr()}\nlast: {self.snapshots[-1:]}")

    def rest(self, timeout=PATIENCE):
        """All snapshots to the end; checks that lock-top ended by itself, and well."""
        end = time.monotonic() + timeout
        while self.next(max(0.0, end - time.monotonic())) is not None:
            pass
        self.finish(max(0.1, end - time.monotonic()))
        return self.snapshots

    def finish(self, timeout=PATIENCE, status=(0,)):
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"lock-top did not end: {self.stderr()}")
        check_clean(self.process.returncode, self.stderr(), status)

    def interrupt(self):
        """Ends it as Ctrl-C does; it must end well."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        while self.lines.next(PATIENCE):
            pass
        self.finish(status=(0, 130, -signal.SIGINT))

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def check_clean(status, stderr, allowed):
    assert not REPORTS.search(stderr), stderr
    assert status in allowed, f"exit status {status}: {stderr}"


@pytest.fixture
def watch(lock_top):
    """watch(ARG...) starts lock-top --json in the background."""
    running = []

    def start(*args, **popen):
        running.append(Watcher([lock_top, "--json", *map(str, args)], **popen))
        return running[-1]

    yield start
    for one in running:
        one.close()


@pytest.fixture
def run_json(watch):
    """run_json(ARG...) runs lock-top --json to its end and returns all its snapshots."""

    def run(*args, timeout=PATIENCE, **popen):
        return watch(*args, **popen).rest(timeout)

    return run


@pytest.fixture
def run_text(lock_top):
    """run_text(ARG...) runs lock-top to its end: a CompletedProcess with bytes."""

    def run(*args, status=(0,), timeout=PATIENCE, env=None, program=None, **popen):
        done = subprocess.run(
            [program or lock_top, *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=popen.pop("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
            timeout=timeout,
            env=env or environment(),
            **popen,
        )
        check_clean(done.returncode, done.stderr.decode(errors="replace"), status)
        return done

    return run


@pytest.fixture
def wait_for():
    return wait_until


# What a snapshot says ------------------------------------------------------------------------


def rows_at(snapshot, address, pid=None):
    """The rows of the lock list at this address ("0x..")."""
    return [
        row
        for row in snapshot["locks"]
        if row["address"] is not None
        and int(row["address"], 16) == int(address, 16)
        and (pid is None or row["pid"] == pid)
    ]


def row_at(snapshot, address, pid=None):
    """The one row at this address; there must be exactly one."""
    rows = rows_at(snapshot, address, pid)
    assert len(rows) == 1, f"{len(rows)} rows at {address}: {snapshot['locks']}"
    return rows[0]


def locks_of_class(snapshot, name):
    return [row for row in snapshot["locks"] if row["class"] == name]


def process_of(snapshot, pid):
    found = [p for p in snapshot["processes"] if p["pid"] == pid]
    assert len(found) == 1, snapshot["processes"]
    return found[0]


def has_waiters(address, n):
    """A condition for Watcher.until: N threads wait at ADDRESS now."""
    return lambda snapshot: any(r["waiters"] == n for r in rows_at(snapshot, address))


def check_holder(row, tid, state=None, call=None):
    """The row names exactly this holder, surely, and what it does."""
    assert len(row["holders"]) == 1, row["holders"]
    holder = row["holders"][0]
    assert holder["tid"] == tid, holder
    assert holder["confidence"] == "confirmed", holder
    if state:
        assert holder["state"] == state, holder
    if call:
        assert call in holder["detail"], holder


def check_no_holder(row):
    """The row says that this kind of lock does not tell who holds it."""
    assert len(row["holders"]) == 1, row["holders"]
    holder = row["holders"][0]
    assert holder["tid"] is None, holder
    assert holder["pid"] is None, holder
    assert holder["confidence"] == "unknown", holder
    assert "not recorded" in holder["detail"], holder


def lock_by_id(snapshot, lock_id):
    (row,) = [row for row in snapshot["locks"] if row["id"] == lock_id]
    return row


def stacks_of(row, role="waiter"):
    return [stack for stack in row["stacks"] or [] if stack["role"] == role]


def names_of(stack):
    """The functions of a stack, innermost first; None where one has no name."""
    return [frame["name"] for frame in stack["frames"]]


def thread_of(snapshot, tid):
    (thread,) = [thread for thread in snapshot["threads"] if thread["tid"] == tid]
    return thread


def stands_in(part, whole):
    """PART is a run of consecutive elements of WHOLE."""
    return any(whole[i : i + len(part)] == part for i in range(len(whole)))


def path_tids(chain):
    return [link["tid"] for link in chain["path"]]


def cycles_of(snapshot):
    return [chain for chain in snapshot["chains"] if chain["cycle"]]

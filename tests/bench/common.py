"""What every benchmark needs: workloads that tell their truth, lock-top attached to them, CPU
time of a process, medians."""
import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import termios
import threading
import time


class BenchError(Exception):
    """The measurement could not be made; the text says why."""


class Lines:
    """Lines of JSON from a pipe, each waited for with a deadline."""

    def __init__(self, proc, name):
        self.proc, self.name, self.buffer = proc, name, b""

    def next(self, timeout):
        deadline = time.monotonic() + timeout
        fd = self.proc.stdout.fileno()
        while b"\n" not in self.buffer:
            if not select.select([fd], [], [], max(0, deadline - time.monotonic()))[0]:
                raise BenchError("%s says nothing for %g s" % (self.name, timeout))
            data = os.read(fd, 1 << 20)
            if not data:
                raise BenchError("%s ended with status %s" % (self.name, self.proc.wait()))
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)


class Workload:
    """A program of tests/workloads: prints what is true about it as one line of JSON, obeys
    commands on stdin, and ends when that is closed. Arguments are given by name."""

    def __init__(self, build, name, **args):
        path = os.path.join(build, "workloads", name)
        try:
            self.proc = subprocess.Popen([path] + [str(x) for pair in args.items() for x in pair],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        except OSError as e:
            raise BenchError("cannot start %s: %s" % (path, e.strerror))
        self.pid = self.proc.pid
        self.lines = Lines(self.proc, name)
        self.truth = self.lines.next(30)

    def ask(self, command):
        """Its answer to a command."""
        try:
            self.proc.stdin.write(command.encode() + b"\n")
        except BrokenPipeError:
            raise BenchError("%s ended with status %s" % (self.lines.name, self.proc.wait()))
        return self.lines.next(10)

    def close(self):
        with contextlib.suppress(OSError):
            self.proc.stdin.close()
        end(self.proc, 3)
        self.proc.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def end(proc, patience):
    """Waits for PROC; ends it when it does not end by itself."""
    for sig in (None, signal.SIGTERM, signal.SIGKILL):
        if sig is not None:
            proc.send_signal(sig)
        try:
            return proc.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    return proc.wait()


@contextlib.contextmanager
def attached(build, pid, *options, stdout=subprocess.DEVNULL):
    """lock-top watching PID at default rates while the block runs."""
    proc = subprocess.Popen([os.path.join(build, "lock-top"), "-p", str(pid), "--json"] +
                            list(options), stdin=subprocess.DEVNULL, stdout=stdout)
    try:
        yield proc
        if proc.poll() not in (None, 0):
            raise BenchError("lock-top ended with status %d" % proc.returncode)
    finally:
        if proc.poll() is None:
            proc.send_signal(signal.SIGTERM)
        end(proc, 5)
        if proc.stdout:
            proc.stdout.close()


@contextlib.contextmanager
def screen(build, pid):
    """lock-top's live screen on PID, on a terminal of 24x80; the descriptor to read it from."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    proc = subprocess.Popen([os.path.join(build, "lock-top"), "-p", str(pid)], stdin=its, stdout=its,
                            stderr=its, start_new_session=True,
                            env=dict(os.environ, TERM="xterm-256color"))
    os.close(its)
    try:
        yield ours
    finally:
        proc.send_signal(signal.SIGTERM)
        # What it still writes must go somewhere, or it cannot end.
        drain = threading.Thread(target=read_all, args=(ours,))
        drain.start()
        end(proc, 5)
        drain.join()
        os.close(ours)


def read_all(fd):
    with contextlib.suppress(OSError):  # EIO: the other side is closed
        while os.read(fd, 1 << 16):
            pass


def cpu_seconds(pid):
    """User and system time of all threads of a living process so far."""
    with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine():
    """What the figures were taken on."""
    model = None
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        for text in f:
            if text.lower().startswith(("model name", "cpu model", "hardware")):
                model = text.split(":", 1)[1].strip()
                break
    return {"kernel": os.uname().release, "arch": os.uname().machine,
            "cpus": len(os.sched_getaffinity(0)), "cpu": model,
            "load": [round(x, 2) for x in os.getloadavg()]}


median = statistics.median

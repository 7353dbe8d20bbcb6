"""Programs that lock files: flock(1), dpkg, git, sqlite3; who waits, who holds."""

import os
import signal
import subprocess

import pytest

from promises import check_calm, wait_until

LOOK = ("-d", 0.3, "--budget", 30)
LOCKER = """
import fcntl, sys, time
f = open(sys.argv[1], "w")
fcntl.lockf(f, fcntl.LOCK_EX)
time.sleep(600)
"""


@pytest.fixture
def start():
    """start(WORD...) runs a program; it and what it started end with the test."""
    running = []

    def begin(*words):
        running.append(
            subprocess.Popen(
                list(map(str, words)),
                stdin=subprocess.PIPE,  # what reads it waits
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )
        return running[-1]

    yield begin
    for one in reversed(running):
        try:
            os.killpg(one.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        one.wait()
        one.stdin.close()


def file_rows(snapshot, path):
    return [row for row in snapshot["locks"] if row["path"] == str(path) and row["waiters"]]


def holders(snapshot, path):
    return {holder["pid"] for row in file_rows(snapshot, path) for holder in row["holders"]}


def test_queue_of_flock(find, start, watch, tmp_path):
    lock = tmp_path / "job.lock"
    flock = find("flock")
    first = start(flock, lock, "sleep", 600)
    watcher = watch("-f", lock, *LOOK)
    watcher.until(lambda s: first.pid in {p["pid"] for p in s["processes"]}, "the holder")
    others = [start(flock, lock, "true") for _ in range(4)]
    seen = watcher.until(
        lambda s: sum(row["waiters"] for row in file_rows(s, lock)) == 4
        and first.pid in holders(s, lock),
        "four that wait",
    )
    (row,) = file_rows(seen, lock)
    assert row["kind"] == "flock"
    assert {waiter["pid"] for waiter in row["waiter_threads"]} == {one.pid for one in others}
    # The program that flock(1) started has inherited the descriptor.
    assert len(row["holders"]) == 2
    assert str(lock) in seen["verdict"] or any(str(lock) in c["text"] for c in seen["chains"])


def test_two_that_want_the_lock_of_apt(find, start, watch, tmp_path):
    """As apt-get does it: fcntl on an empty file, the second one waits."""
    python = find("python3")
    lock = tmp_path / "lock-frontend"
    first = start(python, "-c", LOCKER, lock)
    wait_until(lock.exists, "the lock's file")
    watcher = watch("-f", lock, *LOOK)
    watcher.until(lambda s: first.pid in {p["pid"] for p in s["processes"]}, "the first")
    second = start(python, "-c", LOCKER, lock)
    seen = watcher.until(lambda s: first.pid in holders(s, lock), "the second waits")
    (row,) = file_rows(seen, lock)
    assert (row["kind"], row["range"]) == ("posix", None)
    assert [waiter["pid"] for waiter in row["waiter_threads"]] == [second.pid]
    assert row["holders"][0]["confidence"] == "confirmed"


def test_dpkg_keeps_its_lock(find, start, watch, tmp_path):
    """dpkg takes its lock without waiting: a second one is refused, and none is seen blocked."""
    dpkg = find("dpkg")
    admin = tmp_path / "dpkg"
    for name in ("info", "updates", "triggers"):
        (admin / name).mkdir(parents=True)
    for name in ("status", "available", "diversions", "statoverride"):
        (admin / name).touch()
    lock = admin / "lock-frontend"
    lock.touch()
    python = find("python3")
    holder = start(python, "-c", LOCKER, lock)
    watcher = watch("-f", lock, *LOOK)
    watcher.until(lambda s: holder.pid in {p["pid"] for p in s["processes"]}, "the holder")
    refused = subprocess.run(
        [dpkg, f"--admindir={admin}", "--configure", "-a"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode != 0 and "lock" in refused.stderr, refused.stderr
    seen = watcher.until(lambda s: s["elapsed_s"] > 1, "one look more")
    assert file_rows(seen, lock) == []
    assert seen["verdict"].startswith("no contention"), seen["verdict"]


def test_lock_of_git_is_none_of_the_kernel(find, start, watch, tmp_path):
    """git makes a file index.lock and never waits: nothing is to be told."""
    git = find("git")
    subprocess.run([git, "init", "-q", tmp_path], check=True)
    (tmp_path / ".git" / "index.lock").touch()
    (tmp_path / "file").write_text("x")
    refused = subprocess.run(
        [git, "-C", tmp_path, "add", "file"], capture_output=True, text=True, check=False
    )
    assert refused.returncode != 0 and "index.lock" in refused.stderr
    reader = start(git, "-C", tmp_path, "fast-import")
    seen = watch("-p", reader.pid, *LOOK).until(lambda s: s["elapsed_s"] > 1, "some looks")
    check_calm(seen)
    assert [row for row in seen["locks"] if row["class"] == "filelock"] == []

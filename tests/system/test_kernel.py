"""Sleeps inside the kernel: a lock that several share, a frozen group."""

import os
from pathlib import Path

import pytest

LOOK = ("-d", 0.3, "--budget", 30)


def test_writers_of_one_file_share_the_lock_of_its_inode(workload, watch, tmp_path):
    truth = workload("inode_lock", "file", tmp_path / "data", "threads", 8).truth
    seen = watch("-p", truth["pid"], *LOOK).until(
        lambda s: [row for row in s["locks"] if row["kind"] == "kernel"], "a lock in the kernel"
    )
    row = [row for row in seen["locks"] if row["kind"] == "kernel"][0]
    assert (row["class"], row["confidence"]) == ("kernel", "likely")
    assert row["name"].split(" of ")[0] in ("inode lock", "journal"), row
    assert row["holders"] == []  # the kernel does not tell


class Group:
    """A control group of its own, of version 2 or 1."""

    def __init__(self, path, freeze, on, off):
        self.path, self.file, self.on, self.off = path, path / freeze, on, off

    def take(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))

    def freeze(self, frozen):
        self.file.write_text(self.on if frozen else self.off)


def groups():
    name = f"lock-top-test-{os.getpid()}"
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        yield Group(Path(root) / name, "cgroup.freeze", "1", "0")
    yield Group(Path("/sys/fs/cgroup/freezer") / name, "freezer.state", "FROZEN", "THAWED")


@pytest.fixture(params=["version 2", "version 1"])
def group(request):
    wanted = "cgroup.freeze" if request.param == "version 2" else "freezer.state"
    for one in groups():
        if one.file.name != wanted:
            continue
        try:
            one.path.mkdir()
        except OSError:
            continue
        if not one.file.exists():
            one.path.rmdir()
            continue
        yield one
        one.freeze(False)
        for pid in (one.path / "cgroup.procs").read_text().split():
            (one.path.parent / "cgroup.procs").write_text(pid)
        one.path.rmdir()
        return
    pytest.skip(f"no control group of {request.param} can be made here")


def test_frozen_is_said_and_so_is_its_end(group, workload, watch):
    truth = workload("mutex_normal").truth
    group.take(truth["pid"])
    watcher = watch("-p", truth["pid"], *LOOK)
    watcher.until(lambda s: any(row["class"] == "lock" for row in s["locks"]), "the mutex")
    group.freeze(True)
    seen = watcher.until(lambda s: s["processes"][0]["frozen"], "it is frozen")
    (process,) = seen["processes"]
    assert "frozen" in seen["verdict"] and str(truth["pid"]) in seen["verdict"], seen["verdict"]
    seen = watcher.until(
        lambda s: s["processes"][0]["states"]["stopped"] > process["threads"] - 0.1,
        "all of its threads are stopped",
    )
    group.freeze(False)
    seen = watcher.until(lambda s: not s["processes"][0]["frozen"], "it goes on")
    assert "frozen" not in seen["verdict"]

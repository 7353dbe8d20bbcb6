"""Stacks of blocked threads against gdb's: 12 programs, each built in 4 ways."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import SANITIZED
from gdbstacks import compare

PROGRAMS = {
    "mutex_normal": [],
    "mutex_pi": [],
    "cond_timed": [],
    "rwlock_recursive_read": [],
    "sem": [],
    "barrier": [],
    "join": [],
    "once": [],
    "libc_stdio": [],
    "loader": [],
    "stacks": [],
    "idle_pool": ["cond", 6, "sleep", 4, "net", 4],
}
BUILDS = {
    "O0": ["-O0", "-g"],
    "O2": ["-O2", "-g"],
    "frame pointers": ["-O2", "-g", "-fno-omit-frame-pointer"],
    "static": ["-O2", "-g", "-static"],
}
if SANITIZED:  # the same code, only slower
    BUILDS = {"O2": BUILDS["O2"]}


@pytest.mark.parametrize("build", BUILDS)
def test_as_gdb_sees_them(compile, workload, watch, capsys, build):
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = pool.map(lambda name: compile(f"{name}.c", *BUILDS[build]), PROGRAMS)
    targets = {
        name: workload(program, *PROGRAMS[name]).pid for name, program in zip(PROGRAMS, built)
    }
    total, each = compare(watch, targets)
    with capsys.disabled():
        print(f"\n    {total.line(build)}")
    assert all(figures["threads"] >= 2 for figures in each.values()), each
    total.check(build)

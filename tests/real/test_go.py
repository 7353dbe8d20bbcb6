"""Go: goroutines wait where the kernel cannot see it; what sleeps are threads without work."""

import os

import pytest

from promises import threads_of


@pytest.fixture(scope="module")
def contended(find, run, programs, tmp_path_factory):
    path = tmp_path_factory.mktemp("go")
    env = {**os.environ, "GOCACHE": str(path / "cache"), "GOPATH": str(path / "path")}
    env |= {"GO111MODULE": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "", "CGO_ENABLED": "0"}
    binary = path / "contended"
    run([find("go"), "build", "-o", binary, programs / "contended.go"], timeout=170, env=env)
    return binary


def test_contended_mutex(program, contended, observe):
    target = program([contended])
    for snapshot in observe(target.pid)[1:]:
        assert snapshot["verdict"].startswith("no contention"), snapshot["verdict"]
        (process,) = snapshot["processes"]
        assert abs(process["threads"] - threads_of(target.pid)) <= 2
    target.send("stop")
    answer = target.read_truth()
    assert answer["under"] == answer["beside"] > 0


def test_killed(program, contended, check_death):
    target = program([contended])
    check_death(target)

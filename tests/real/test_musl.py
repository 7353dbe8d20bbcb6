"""Programs of musl, where locks look otherwise than in glibc: static, so that no library is
mapped by whose name it could be known."""

import pytest

from promises import waiting_tids
from system_tests import conftest as system

SOURCES = system.ROOT / "tests" / "workloads"


@pytest.fixture(scope="module")
def built(find, run, tmp_path_factory):
    path = tmp_path_factory.mktemp("musl")
    options = ["-static", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-pthread"]

    def build(name):
        run([find("musl-gcc"), *options, "-o", path / name, SOURCES / f"{name}.c"])
        return path / name

    return build


@pytest.mark.parametrize("name", ["mutex_normal"])
def test_mutex(built, program, observe, name):
    target = program([built(name)])
    for snapshot in observe(target.pid):
        row = system.row_at(snapshot, target.truth["address"])
        assert (row["class"], row["kind"], row["waiters"]) == ("lock", "mutex", 5)
        system.check_no_holder(row)


@pytest.mark.parametrize("name", ["cond", "sem", "idle_pool"])
def test_hand_over_is_no_contention(built, program, observe, name):
    target = program([built(name)])
    for snapshot in observe(target.pid):
        assert waiting_tids(snapshot, "lock") == set()
        assert snapshot["verdict"].startswith("no contention"), snapshot["verdict"]

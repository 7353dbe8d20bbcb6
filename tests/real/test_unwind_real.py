"""Stacks of the threads of servers and runtimes, as packaged, against gdb's."""

import pytest

from promises import wait_until
from system_tests import gdbstacks
from test_java import classes, jvm  # noqa: F401 (fixtures)
from test_mariadb import installed, mariadb, start  # noqa: F401 (fixtures)
from test_python import script  # noqa: F401 (fixture)
from test_redis import redis  # noqa: F401 (fixture)

SLEEPERS = 8


@pytest.fixture
def database(mariadb, serve):  # noqa: F811
    """A server with sessions that sleep in the middle of a query, one of them with a user lock
    that the others of a kind want."""
    for query in ["SELECT SLEEP(100)"] * SLEEPERS + ["SELECT GET_LOCK('u', 60), SLEEP(100)"] * 3:
        serve([*mariadb.client.command, "-e", query])
    count = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'User %'"
    wait_until(
        lambda: int(mariadb.client.query(count)) == SLEEPERS + 3, "the sessions' queries"
    )
    return mariadb


def test_as_gdb_sees_them(database, redis, script, jvm, watch, capsys):  # noqa: F811
    targets = {
        "mariadbd": database.pid,
        "redis-server": redis("--io-threads", 4).pid,
        "python3": script("lock", 6).pid,
        "java": jvm(6, 4, 4).pid,
    }
    total, each = gdbstacks.compare(watch, targets)
    with capsys.disabled():
        for label, figures in each.items():
            print(f"\n    {figures.line(label)}", end="")
        print(f"\n    {total.line('all')}")
    assert each["mariadbd"]["threads"] > SLEEPERS and each["java"]["threads"] > 14
    total.check("all")

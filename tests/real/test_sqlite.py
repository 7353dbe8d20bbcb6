"""SQLite: writers do not wait for the file's lock, they sleep and try again."""

import pytest

from promises import check_calm, process_of

WRITERS, ROWS = 4, 50


@pytest.fixture
def shell(find, talk, tmp_path):
    program, path = find("sqlite3"), tmp_path / "db"

    def start():
        return talk([program, "-batch", path])

    return start


def test_writers_of_one_database(shell, observe, watch):
    holder = shell()
    assert holder.say("CREATE TABLE t (v); BEGIN IMMEDIATE; SELECT 'held';") == "held"
    writers = [shell() for _ in range(WRITERS)]
    for writer in writers:
        assert writer.say(".timeout 60000\nSELECT 'ready';") == "ready"
        for row in range(ROWS):
            writer.send(f"INSERT INTO t VALUES ({row});")
        writer.send("SELECT 'done';")

    snapshots = observe(holder.pid, *(writer.pid for writer in writers))
    for snapshot in snapshots[1:]:
        check_calm(snapshot)
        assert process_of(snapshot, holder.pid)["states"]["pipe"] == pytest.approx(1, abs=0.1)
        for writer in writers:
            sleeping = process_of(snapshot, writer.pid)["states"]["sleep"]
            assert sleeping == pytest.approx(1, abs=0.2)

    # They cannot be seen to wait, but who holds what they have open can.
    seen = watch("-p", writers[0].pid, "-d", 0.3).until(
        lambda s: any(row["only_held"] for row in s["locks"]), "the lock that is held"
    )
    rows = [row for row in seen["locks"] if row["only_held"]]
    assert {row["name"] for row in rows} >= {"db RESERVED"}, rows
    assert {one["pid"] for row in rows for one in row["holders"]} == {holder.pid}
    assert "cannot be seen" in seen["verdict"], seen["verdict"]

    assert holder.say("COMMIT; SELECT 'free';") == "free"
    observe(*(writer.pid for writer in writers))
    for writer in writers:
        assert writer.line() == "done"
    assert holder.say("SELECT COUNT(*) FROM t;") == str(WRITERS * ROWS)

"""Names of locks and functions, wherever they live: data, heap, stacks, libraries, deleted files,
containers, other languages."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import (
    Workload,
    check_holder,
    names_of,
    row_at,
    rows_at,
    stacks_of,
    thread_of,
)

LOOK = ("-n", 3, "-d", 0.3, "--budget", 50)


# Where a lock lies ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def places(compile, lock_top, tmp_path_factory):
    """{place: (what is expected, row)}"""
    library = compile("extra/lock_library.c", "-shared", "-fPIC", "-O2", name="liblock.so")
    file = tmp_path_factory.mktemp("places") / "shared-data"
    program = compile("lock_places.c", "-O2", "-g")
    target = Workload([program, "library", library, "file", file])
    try:
        target.start()
        done = subprocess.run(
            [lock_top, "--json", "-p", str(target.pid), *map(str, LOOK)],
            capture_output=True, timeout=60, check=True,
        )  # fmt: skip
        snapshot = json.loads(done.stdout.splitlines()[-1])
        rows = {lock["place"]: (lock, rows_at(snapshot, lock["address"]))
                for lock in target.truth["locks"]}  # fmt: skip
        yield target.truth, rows
    finally:
        target.end()


@pytest.mark.parametrize("place", ["data", "bss", "array", "library"])
def test_symbol(places, place):
    lock, (row,) = places[1][place]
    assert row["name"] == lock["name"]


def test_static_variable_of_a_function(places):
    lock, (row,) = places[1]["static local"]
    assert re.fullmatch(lock["name"] + r"(\.\d+)?", row["name"]), row["name"]


@pytest.mark.parametrize("place", ["heap", "main stack"])
def test_place(places, place):
    lock, (row,) = places[1][place]
    assert row["name"].startswith(lock["name"]), row["name"]


def test_stack_of_another_thread(places):
    _, (row,) = places[1]["thread stack"]
    assert "stack" in row["name"] and str(places[0]["holder_tid"]) in row["name"], row["name"]


def test_anonymous_memory_has_no_name(places):
    _, (row,) = places[1]["anonymous"]
    assert row["name"] is None
    assert row["site"] in ("waiter", "wl_thread_main")  # a call at the end may be a jump


def test_mapped_file(places):
    lock, (row,) = places[1]["file"]
    assert row["path"].endswith("/shared-data")
    assert row["name"] is None or row["name"].endswith(lock["name"]), row["name"]


def test_names_that_the_user_gives(workload, run_json, tmp_path):
    target = workload("two_locks")
    names = tmp_path / "names"
    names.write_text("# ours\nmutexes shop cache\n*+0x28* shop index\n")
    last = run_json("-p", target.pid, *LOOK, "--names", names)[-1]
    given = [row_at(last, lock["address"])["name"] for lock in target.truth["locks"]]
    assert given == ["shop cache", "shop index"]


# Files that are not where they were ----------------------------------------------------------


def test_deleted_program(compile, workload, run_json, tmp_path):
    program = shutil.copy(compile("stacks.c", "-O2", "-g"), tmp_path / "deleted")
    target = workload(program)
    os.unlink(program)
    last = run_json("-p", target.pid, *LOOK, "--stacks", "all")[-1]
    row = row_at(last, target.truth["address"])
    assert row["name"] == "mutex"
    stack = thread_of(last, target.truth["stacks"][0]["tid"])["stack"]
    assert stack["complete"]
    assert {"level1", "level6", "plain"} <= set(names_of(stack))
    assert "deleted" in {frame["module"] for frame in stack["frames"]}


def test_deleted_library(compile, workload, run_json, tmp_path):
    built = compile("extra/lock_library.c", "-shared", "-fPIC", "-O2", name="liblock.so")
    library = shutil.copy(built, tmp_path / "libgone.so")
    target = workload(compile("lock_places.c", "-O2", "-g"), "library", library)
    os.unlink(library)
    (lock,) = [lock for lock in target.truth["locks"] if lock["place"] == "library"]
    row = row_at(run_json("-p", target.pid, *LOOK)[-1], lock["address"])
    assert row["name"] == lock["name"]


def test_debug_information_in_a_file_of_its_own(compile, workload, run_json, tmp_path):
    """Stripped, with a link to FILE.debug beside it, as packages have it."""
    if not shutil.which("objcopy"):
        pytest.skip("objcopy is not installed")
    program = Path(shutil.copy(compile("stacks.c", "-O2", "-g"), tmp_path / "split"))
    debug = tmp_path / "split.debug"
    for command in (
        ["objcopy", "--only-keep-debug", program, debug],
        ["objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", program],
    ):
        subprocess.run(command, check=True, cwd=tmp_path)
    target = workload(program)
    last = run_json("-p", target.pid, *LOOK, "--stacks", "all")[-1]
    stack = thread_of(last, target.truth["stacks"][0]["tid"])["stack"]
    assert {"level1", "level6", "plain"} <= set(names_of(stack)), names_of(stack)
    assert row_at(last, target.truth["address"])["name"] == "mutex"


def test_stripped_program_gets_no_wrong_names(compile, workload, run_json, tmp_path):
    if not shutil.which("strip"):
        pytest.skip("strip is not installed")
    program = shutil.copy(compile("stacks.c", "-O2", "-g"), tmp_path / "bare")
    subprocess.run(["strip", "--strip-all", program], check=True)
    target = workload(program)
    last = run_json("-p", target.pid, *LOOK, "--stacks", "all")[-1]
    for thread in target.truth["stacks"]:
        stack = thread_of(last, thread["tid"])["stack"]
        own = [frame for frame in stack["frames"] if frame["module"] == "bare"]
        assert len(own) >= 2 and all(frame["name"] is None for frame in own), own
        assert all(int(frame["offset"], 16) > 0 for frame in own)
        assert stack["complete"], names_of(stack)
    row = row_at(last, target.truth["address"])
    assert row["name"] is None or row["name"].startswith("bare+0x"), row["name"]


# C++ -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [["-O0", "-g"], ["-O2"]], ids=["O0", "O2"])
def test_cxx_names_are_demangled(compile, workload, run_json, flags):
    target = workload(compile("extra/cxx_names.cc", *flags))
    last = run_json("-p", target.pid, *LOOK)[-1]
    row = row_at(last, target.truth["address"])
    assert (row["kind"], row["waiters"]) == ("mutex", 3)
    assert re.fullmatch(r"shop::Store<.*string.*>::guard", row["name"]), row["name"]
    check_holder(row, target.truth["holder_tid"])
    (stack,) = stacks_of(row)
    assert any(re.match(r"shop::Store<.*>::put\b", name or "") for name in names_of(stack)), stack
    # Not std::mutex::lock and its like: these belong to the lock library.
    assert re.match(r"shop::Store<.*>::put\b", row["site"]), row["site"]
    (holder,) = stacks_of(row, "holder")
    assert any("close_for_ever" in (name or "") for name in names_of(holder)), holder


# Containers ----------------------------------------------------------------------------------


def needs_root(*programs):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")


def children_of(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ns_ids(pid):
    """{TID inside: TID here}"""
    found = {}
    for tid in map(int, os.listdir(f"/proc/{pid}/task")):
        for line in Path(f"/proc/{pid}/task/{tid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                found[int(line.split()[-1])] = tid
    return found


def start_in(workload, *command):
    """Starts it; skips where this machine does not let us."""
    try:
        return workload(*command)
    except pytest.fail.Exception as refused:
        pytest.skip(f"{command[0]}: {refused}")


UNSHARE = ("--pid", "--fork", "--mount-proc", "--kill-child")


def test_pid_namespace(compile, workload, run_json):
    """Holders have the TID that is valid here, chains too."""
    needs_root("unshare")
    program = compile("loader_chain.c", "-O2", "-g")
    outer = start_in(workload, shutil.which("unshare"), *UNSHARE, program)
    truth = outer.truth
    (pid,) = children_of(outer.pid)
    ids = ns_ids(pid)
    assert truth["pid"] == 1
    last = run_json("-p", pid, *LOOK)[-1]
    inner, outermost = row_at(last, truth["inner"]), row_at(last, truth["outer"])
    check_holder(inner, ids[truth["profiler_tid"]], "sleep", "nanosleep")
    check_holder(outermost, ids[truth["opener_tid"]], "lock")
    assert inner["holders"][0]["comm"] == "profiler"
    assert outermost["holders"][0]["comm"] == "opener"
    assert last["chains"][0]["root"]["tid"] == ids[truth["profiler_tid"]]
    (holder,) = stacks_of(inner, "holder")
    assert "sleep_in_callback" in names_of(holder)


def libraries_of(program):
    """Paths of the dynamic linker and the libraries of a program: [(name, path)]."""
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    found = []
    for line in text.splitlines():
        match = re.match(r"\s*(?:(\S+) => )?(/\S+) \(", line)
        if match:
            found.append((match[1] or os.path.basename(match[2]), match[2]))
    return found


# The kernel shows the paths of a chroot as from outside, those of another root file system as
# from inside.
WAYS = {
    "chroot": 'exec chroot "$0" "$1"',
    "pivot_root": 'cd "$0" && pivot_root . old && exec "$1"',
}


def enter(tree, program, way="chroot", proc="--bind /proc"):
    """The command that runs PROGRAM of TREE as its root, with a /proc that only it sees."""
    needs_root("unshare", way)
    for name in ("proc", "old"):
        (tree / name).mkdir(exist_ok=True)
    script = f'mount --bind "$0" "$0" && mount {proc} "$0/proc" && {WAYS[way]}'
    return [shutil.which("unshare"), "--mount", "sh", "-c", script, tree, program]


@pytest.fixture
def tree(compile, tmp_path):
    """A tree with a program /own/inside, whose C library lies at a path that is not there
    outside."""
    needs_root("ldd")
    tree = tmp_path / "tree"
    lib = tree / "own" / "lib"
    lib.mkdir(parents=True)
    found = libraries_of(compile("stacks.c", "-O2", "-g"))
    for name, path in found:
        shutil.copy(os.path.realpath(path), lib / name)
    linker = next(name for name, path in found if name.startswith("ld"))
    options = [f"-Wl,--dynamic-linker=/own/lib/{linker}", "-Wl,-rpath,/own/lib"]
    shutil.copy(compile("stacks.c", "-O2", "-g", *options, name="inside"), tree / "own")
    return tree


def check_inside(last, truth, tids):
    row = row_at(last, truth["address"])
    assert (row["kind"], row["name"], row["waiters"]) == ("mutex", "mutex", truth["waiters"])
    assert row["confidence"] == "confirmed"
    for expected in truth["stacks"]:
        stack = thread_of(last, tids[expected["tid"]])["stack"]
        names = names_of(stack)
        assert stack["complete"], names
        assert set(expected["names"].split()) <= set(names), names
        assert any("pthread_mutex_lock" in (name or "") for name in names), names
        assert {"inside"} < {frame["module"] for frame in stack["frames"]}


@pytest.mark.parametrize("way", WAYS)
def test_root_with_a_c_library_of_its_own(tree, workload, run_json, way):
    target = start_in(workload, *enter(tree, "/own/inside", way))
    assert not Path("/own").exists()
    last = run_json("-p", target.pid, *LOOK, "--stacks", "all")[-1]
    check_inside(last, target.truth, {tid: tid for tid in ns_ids(target.pid).values()})


@pytest.mark.parametrize("way", WAYS)
def test_root_in_a_pid_namespace(tree, workload, run_json, way):
    unshare, *rest = enter(tree, "/own/inside", way, "-t proc proc")
    target = start_in(workload, unshare, "--pid", "--fork", "--kill-child", *rest)
    (pid,) = children_of(target.pid)
    last = run_json("-p", pid, *LOOK, "--stacks", "all")[-1]
    assert target.truth["pid"] == 1
    check_inside(last, target.truth, ns_ids(pid))


def test_musl_in_a_chroot(compile, workload, run_json, tmp_path):
    needs_root("musl-gcc")
    linkers = sorted(Path("/lib").glob("ld-musl-*.so.1"))
    if not linkers:
        pytest.skip("the musl library is not there")
    tree = tmp_path / "tree"
    (tree / "lib").mkdir(parents=True)
    shutil.copy(linkers[0].resolve(), tree / "lib" / linkers[0].name)
    program = compile("stacks.c", "-O2", "-g", compiler="musl-gcc", name="inside")
    shutil.copy(program, tree / "inside")
    target = start_in(workload, *enter(tree, "/inside"))
    last = run_json("-p", target.pid, *LOOK, "--stacks", "all")[-1]
    row = row_at(last, target.truth["address"])
    assert (row["class"], row["name"]) == ("lock", "mutex")
    for expected in target.truth["stacks"]:
        names = names_of(thread_of(last, expected["tid"])["stack"])
        assert expected["names"].split()[0] in names, names

"""Stacks: what stands in them against what the source says, however the program was built."""

import os
from pathlib import Path

import pytest

from conftest import (
    Observation,
    Workload,
    names_of,
    observe_all,
    row_at,
    stacks_of,
    stands_in,
    thread_of,
)

BUILDS = {
    "O0": ["-O0", "-g"],
    "O2": ["-O2", "-g"],
    "frame pointers": ["-O2", "-g", "-fno-omit-frame-pointer"],
    "static": ["-O2", "-g", "-static"],
    "stripped of debug information": ["-O2"],
    "compressed debug information": ["-O2", "-g", "-gz"],
}
LOOK = ("--stacks", "all", "-n", 3, "-d", 0.3, "--budget", 50)


@pytest.fixture(scope="module")
def observed(lock_top, compile):
    def begin(flags):
        return lambda: Observation(lambda: Workload([compile("stacks.c", *flags)]), *LOOK)

    yield from observe_all(lock_top, {name: begin(flags) for name, flags in BUILDS.items()})


@pytest.fixture(params=BUILDS)
def build(request, observed):
    truth, snapshots = observed[request.param].result()
    return request.param, truth, snapshots[-1]


def test_all_functions_in_their_order(build):
    name, truth, last = build
    for expected in truth["stacks"]:
        stack = thread_of(last, expected["tid"])["stack"]
        names = names_of(stack)
        innermost = names.index("level1")
        assert any("pthread_mutex_lock" in (n or "") for n in names[:innermost]), names
        words = expected["names"].split()
        if words[1] in ("compare", "on_signal"):  # the C library's own frames stand in between
            assert [n for n in names if n in words] == words, (name, names)
        else:
            assert stands_in(words, names), (name, words, names)
        assert expected["outermost"] in names, (name, names)


def test_to_the_start_of_the_thread(build):
    name, truth, last = build
    cut = [t for t in truth["stacks"] if not thread_of(last, t["tid"])["stack"]["complete"]]
    assert cut == [], (name, [names_of(thread_of(last, t["tid"])["stack"]) for t in cut])
    assert thread_of(last, truth["pid"])["stack"]["complete"], "the first thread"
    assert "main" in names_of(thread_of(last, truth["pid"])["stack"])


def test_depth_of_a_recursion(build):
    _, truth, last = build
    (deep,) = [t["tid"] for t in truth["stacks"] if "recursion" in t["names"]]
    assert names_of(thread_of(last, deep)["stack"]).count("recursion") == 30


def test_lines_of_the_source(build):
    name, truth, last = build
    (frame,) = [
        frame
        for frame in thread_of(last, truth["stacks"][0]["tid"])["stack"]["frames"]
        if frame["name"] == "level3"
    ]
    if name == "stripped of debug information":
        assert (frame["file"], frame["line"]) == (None, None)
        return
    assert os.path.basename(frame["file"]) == "stacks.c"
    source = (Path(__file__).resolve().parents[1] / "workloads" / "stacks.c").read_text()
    line = source.splitlines()[frame["line"] - 1]
    assert "level2(a * b)" in line, line


def test_offsets_name_the_place_in_the_file(build):
    _, truth, last = build
    for expected in truth["stacks"]:
        for frame in thread_of(last, expected["tid"])["stack"]["frames"]:
            assert int(frame["offset"], 16) > 0
            assert frame["name"] is None or frame["into"] is not None, frame
            assert frame["name"] is None or frame["into"] < 1 << 16, frame


def test_grouped_by_stack_in_the_row(build):
    _, truth, last = build
    row = row_at(last, truth["address"])
    stacks = stacks_of(row)
    assert sum(stack["count"] for stack in stacks) == row["waiters"] == truth["waiters"]
    assert all(stack["count"] == 1 for stack in stacks)  # all different
    assert {stack["tid"] for stack in stacks} == set(truth["waiter_tids"])
    assert sum(stack["share"] for stack in stacks) == pytest.approx(1, abs=0.02)
    assert row["name"] == "mutex"


def test_threads_of_one_stack_are_counted_together(workload, run_json):
    target = workload("mutex_normal", "waiters", 7)
    last = run_json("-p", target.pid, "-n", 3, "-d", 0.5)[-1]
    row = row_at(last, target.truth["address"])
    (stack,) = stacks_of(row)
    assert (stack["count"], stack["complete"]) == (7, True)
    assert stack["share"] == pytest.approx(1)
    assert "wl_mutex_wait" in names_of(stack)
    assert row["site"] == "wl_mutex_wait"
    (holder,) = stacks_of(row, "holder")
    assert (holder["tid"], holder["complete"]) == (target.truth["holder_tid"], True)
    assert "wl_mutex_hold" in names_of(holder)
    assert stacks_of(row, "profile"), row["stacks"]


def test_where_the_holder_is_most_of_the_time(workload, run_json):
    """The holder of a convoy: it sleeps in one function while others wait."""
    target = workload("demo", "--seconds", 60)
    last = run_json("-p", target.pid, "-n", 8, "-d", 0.5, "--budget", 50)[-1]
    row = row_at(last, target.truth["address"])
    assert row["name"] == "cache_lock"
    profile = stacks_of(row, "profile")
    assert profile == sorted(profile, key=lambda stack: -stack["count"])
    assert sum(stack["share"] for stack in profile) <= 1.01
    asleep = sum(s["share"] for s in profile if {"cache_get", "worker"} & set(names_of(s)))
    assert asleep > 0.5, profile
    assert any("nanosleep" in (n or "") for n in names_of(profile[0])), profile[0]


def test_holder_that_computes_is_stopped_for_its_stack_within_the_budget(workload, run_json):
    target = workload("hammer", "threads", 4, "hold", 2000000)
    snapshots = run_json("-p", target.pid, "-n", 4, "-d", 1)
    row = row_at(snapshots[-1], target.truth["address"])
    profile = stacks_of(row, "profile")
    assert any("work" in names_of(stack) or "hammer" in names_of(stack) for stack in profile), row
    own = snapshots[-1]["self"]
    assert 0 < own["stops"] <= 21 * (snapshots[-1]["elapsed_s"] + 1)
    assert own["stop_us_max"] > 0


def test_no_stop_when_none_is_wanted(workload, run_json):
    target = workload("hammer", "threads", 4, "hold", 2000000)
    last = run_json("-p", target.pid, "-n", 3, "-d", 1, "--stop", "never", "--stacks", "all")[-1]
    assert last["self"]["stops"] == 0
    running = [t for t in last["threads"] if t["state"] == "running"]
    assert all(t["stack"]["frames"] == [] and t["stack"]["note"] for t in running), running


def test_off(workload, run_json):
    target = workload("mutex_normal")
    last = run_json("-p", target.pid, "-n", 2, "-d", 0.5, "--stacks", "off")[-1]
    assert not last.get("threads")
    assert all(not row["stacks"] for row in last["locks"])


def test_text_of_all_threads(workload, run_text):
    target = workload("stacks")
    text = run_text("-b", "-p", target.pid, "--stacks", "all", "-n", 2, "-d", 1).stdout.decode()
    for name in ("level6", "variable_frame", "on_alternate", "compare", "main"):
        assert name in text, text
    assert all(str(tid) in text for tid in target.truth["waiter_tids"])


# Code without a file -------------------------------------------------------------------------


@pytest.fixture
def jit(workload):
    target = workload("jit")
    yield target
    Path(f"/tmp/perf-{target.pid}.map").unlink(missing_ok=True)


def test_names_from_a_perf_map(jit, run_json):
    last = run_json("-p", jit.pid, "-n", 3, "-d", 0.5, "--stacks", "all")[-1]
    for tid in jit.truth["waiter_tids"]:
        stack = thread_of(last, tid)["stack"]
        names = names_of(stack)
        inner = "LazyCompile:*take shop.js:12"
        assert stands_in(["called_back", inner], names), names
        frame = stack["frames"][names.index(inner)]
        assert frame["module"] is None and frame["into"] == 6, frame
        # By the frame pointers of the generated code.
        assert stands_in([inner, "LazyCompile:*serve shop.js:34"], names), names
        assert stack["complete"], names


def test_generated_code_without_a_map(jit, run_json):
    Path(f"/tmp/perf-{jit.pid}.map").unlink()
    last = run_json("-p", jit.pid, "-n", 3, "-d", 0.5, "--stacks", "all")[-1]
    names = names_of(thread_of(last, jit.truth["waiter_tids"][0])["stack"])
    assert "called_back" in names
    assert names[names.index("called_back") + 1] is None, names


def test_library_that_took_the_place_of_another(compile, workload, watch):
    """No name of a library that was unloaded is given to the code that lies there now."""
    libraries = [
        compile("extra/plugin.c", "-shared", "-fPIC", "-O2", f"-DINNER=inner_{which}",
                name=f"lib{which}.so")
        for which in ("first", "second")
    ]  # fmt: skip
    target = workload("plugin_swap", "first", libraries[0], "second", libraries[1])
    watcher = watch("-p", target.pid, "-d", 0.2, "--stacks", "all")

    def names(snapshot, tid):
        found = [t for t in snapshot["threads"] if t["tid"] == tid]
        return names_of(found[0]["stack"]) if found else []

    watcher.until(lambda s: "inner_first" in names(s, target.truth["tid"]), "the first library")
    target.send("swap")
    swapped = target.read_truth()
    seen = []

    def second(snapshot):
        seen.append(names(snapshot, swapped["tid"]))
        return "inner_second" in seen[-1]

    watcher.until(second, "the second library")
    assert not any("inner_first" in names for names in seen), seen

"""Situations that people had to diagnose by hand: what lock-top says of each.

Asserted is the substance: who waits for whom, to what end, and how surely that is known. Of the
sentences only the words that carry it.
"""

import os
import shutil

import pytest

from conftest import (
    Observation,
    check_holder,
    cycles_of,
    locks_of_class,
    lock_by_id,
    names_of,
    new_workload,
    observe_all,
    path_tids,
    process_of,
    row_at,
    stacks_of,
    wait_until,
)
from gdbstacks import Elf

LOOK = ("-d", 0.5, "--budget", 50)

# Name: workload and its arguments.
CASES = {
    "self-deadlock": ["self_deadlock", "waiters", 1],
    "self-deadlock, others behind": ["self_deadlock", "waiters", 4],
    "chain into a condition variable": ["chain_cond"],
    "owner ended": ["owner_gone", "waiters", 3],
    "held across fork": ["fork_held"],
    "malloc in a signal handler": ["malloc_signal"],
    "robust": ["mutex_robust"],
    "robust, inherited": ["robust_heir"],
    "priority inheritance": ["mutex_pi"],
    "robust priority inheritance": ["mutex_robust_pi"],
    "recursive read": ["rwlock_recursive_read"],
    "main joins": ["main_joins"],
    "localtime": ["storm", "call", "localtime"],
    "localtime, held": ["libc_tz"],
    "stdout nobody reads": ["stdio_full_pipe", "waiters", 7],
    "loader, callback": ["loader"],
    "loader, chain": ["loader_chain"],
    "malloc": ["storm", "call", "malloc"],
    "malloc, held": ["malloc_held"],
    "pool on a condition variable": ["cond"],
    "pool on a semaphore": ["sem"],
    "joins": ["join"],
    "mixed pool": ["idle_pool"],
}


def stacks_have_names(snapshot):
    """Stacks and names come some time after the waiters, later on a busy machine."""
    return all(
        any(names_of(stack))
        for row in snapshot["locks"]
        if row["waiters"]
        for stack in stacks_of(row)
    )


@pytest.fixture(scope="module")
def cases(lock_top, tmp_path_factory):
    def begin(words):
        # Two seconds at least, for what must have stood for some time.
        return lambda: Observation(
            lambda: new_workload(*words), *LOOK, settled=stacks_have_names, fewest=4
        )

    situations = {name: begin(words) for name, words in CASES.items()}
    file = tmp_path_factory.mktemp("cases") / "shared"
    situations["owner's process ended"] = begin(["owner_gone", "waiters", 3, "file", file])
    yield from observe_all(lock_top, situations)


@pytest.fixture
def case(cases):
    """case(NAME): the truth and the last snapshot."""

    def get(name):
        truth, snapshots = cases[name].result()
        return truth, snapshots[-1]

    return get


def the_chain(snapshot):
    """The first chain; there must be one."""
    assert snapshot["chains"], snapshot
    return snapshot["chains"][0]


def told(snapshot, *more):
    """All that it says in sentences, in lower case."""
    texts = [snapshot["verdict"], *more]
    texts += [chain[key] for chain in snapshot["chains"] for key in ("text", "detail")]
    texts += [holder["detail"] for row in snapshot["locks"] for holder in row["holders"]]
    return "\n".join(text for text in texts if text).lower()


def no_deadlock(snapshot):
    assert cycles_of(snapshot) == []
    assert "deadlock" not in told(snapshot), told(snapshot)


# A lock that its waiter holds itself ---------------------------------------------------------


@pytest.mark.parametrize("name", ["self-deadlock", "self-deadlock, others behind"])
def test_self_deadlock(case, name):
    truth, last = case(name)
    (owner,) = truth["true_holder_tids"]
    (cycle,) = cycles_of(last)
    assert (cycle["end"], cycle["depth"], path_tids(cycle)) == ("cycle", 1, [owner])
    row = row_at(last, truth["address"])
    assert cycle["path"][0]["lock"] == row["id"]
    assert row["waiters"] == truth["waiters"]
    assert [holder["tid"] for holder in row["holders"]] == [owner]
    assert "deadlock" in last["verdict"].lower() and str(owner) in last["verdict"]
    assert "pause_workers" in names_of(stacks_of(row)[0]) or truth["waiters"] > 1


def test_malloc_in_a_signal_handler_that_interrupted_malloc(case):
    truth, last = case("malloc in a signal handler")
    row = row_at(last, truth["address"])
    assert (row["class"], row["kind"], row["waiters"]) == ("lock", "libc", 1)
    (stack,) = stacks_of(row)
    names = names_of(stack)
    assert "on_crash" in names and "work" in names[names.index("on_crash") :], names
    text = told(last)
    assert "handler" in text and "malloc" in text, text
    # The lock records nobody: what the stack suggests is not told as proven.
    assert all(holder["confidence"] != "confirmed" for holder in row["holders"]), row
    assert cycles_of(last) == []
    chain = the_chain(last)
    assert (chain["end"], chain["confidence"]) == ("cycle", "likely"), chain
    assert path_tids(chain) == truth["waiter_tids"] and "likely" in chain["text"], chain


# A chain that is no cycle --------------------------------------------------------------------


def test_chain_ends_in_a_condition_variable(case):
    truth, last = case("chain into a condition variable")
    no_deadlock(last)
    row = row_at(last, truth["address"])
    check_holder(row, truth["holder_tid"])
    joined = lock_by_id(last, row["holders"][0]["waits_for"])
    assert (joined["kind"], joined["class"]) == ("join", "sync")
    chain = the_chain(last)
    assert chain["end"] == "hand-off"
    assert chain["root"]["tid"] == truth["logger_tid"]
    assert chain["root"]["comm"] == "logger"
    assert chain["blocked"] == truth["waiters"] + 1
    assert path_tids(chain)[-2:] == [truth["holder_tid"], truth["logger_tid"]]
    assert path_tids(chain)[0] in truth["waiter_tids"]
    assert "cond" in f"{chain['text']} {chain['detail']}".lower(), chain


def test_main_in_pthread_join(case):
    truth, last = case("main joins")
    no_deadlock(last)
    row = row_at(last, truth["address"])
    assert (row["kind"], row["class"], row["waiters"]) == ("join", "sync", 1)
    assert locks_of_class(last, "lock") == []
    assert "no contention" in last["verdict"]
    # Whom it waits for is no holder of a lock, but the thread that must end.
    roots = [c["root"]["tid"] for c in last["chains"] if path_tids(c)[0] == truth["pid"]]
    assert truth["joined_tid"] in roots + [holder["tid"] for holder in row["holders"]]


def test_loader_callback_that_sleeps(case):
    truth, last = case("loader, callback")
    (row,) = locks_of_class(last, "lock")
    check_holder(row, truth["holder_tid"], "sleep", "nanosleep")
    assert row["kind"] in ("mutex-recursive", "libc")
    holder = stacks_of(row, "holder")[0]
    assert "sleep_here" in names_of(holder), holder
    assert all("dl_iterate_phdr" in names_of(stack) for stack in stacks_of(row)), row


def test_chain_through_both_locks_of_the_loader(case):
    truth, last = case("loader, chain")
    no_deadlock(last)
    inner, outer = row_at(last, truth["inner"]), row_at(last, truth["outer"])
    check_holder(inner, truth["profiler_tid"], "sleep", "nanosleep")
    check_holder(outer, truth["opener_tid"], "lock")
    assert outer["holders"][0]["waits_for"] == inner["id"]
    assert (inner["waiters"], outer["waiters"]) == (1, truth["waiters"])
    chain = the_chain(last)
    assert (chain["end"], chain["depth"]) == ("outside", 2)
    assert chain["root"]["tid"] == truth["profiler_tid"]
    assert chain["blocked"] == truth["waiters"] + 1
    assert "nanosleep" in chain["detail"]
    assert "sleep_in_callback" in names_of(stacks_of(inner, "holder")[0])
    assert all("dlopen" in names_of(stack) for stack in stacks_of(outer)), outer


# A holder that is not there ------------------------------------------------------------------


def check_gone(truth, last):
    no_deadlock(last)
    (owner,) = truth["true_holder_tids"]
    row = row_at(last, truth["address"], truth["pid"] if truth["path"] is None else None)
    assert row["waiters"] == truth["waiters"]
    for holder in row["holders"]:
        assert holder["tid"] in (owner, None), holder
        assert holder["confidence"] != "confirmed", holder
    return row, owner


def test_owner_ended(case):
    truth, last = case("owner ended")
    _, owner = check_gone(truth, last)
    chain = the_chain(last)
    assert (chain["end"], chain["blocked"]) == ("gone", truth["waiters"])
    assert str(owner) in told(last)
    assert any(word in told(last) for word in ("gone", "no longer", "ended", "no thread"))
    assert "no contention" not in last["verdict"]


def test_owner_of_a_shared_mutex_ended_with_its_process(case):
    truth, last = case("owner's process ended")
    row, owner = check_gone(truth, last)
    assert row["path"] == truth["path"]
    # It may live in a PID namespace that cannot be seen, so it is not said to be gone for sure.
    assert str(owner) in told(last)


def test_held_across_fork(case):
    truth, last = case("held across fork")
    no_deadlock(last)
    row = row_at(last, truth["address"])
    assert row["waiters"] == 1
    text = told(last)
    assert "fork" in text, text
    assert str(truth["parent"]) in text or str(truth["owner_tid"]) in text, text
    for holder in row["holders"]:
        assert holder["confidence"] != "confirmed", holder
        assert holder["tid"] in (truth["owner_tid"], None), holder
    assert the_chain(last)["end"] == "gone"
    assert [p["pid"] for p in last["processes"]] == [truth["pid"]]


def test_free_word_with_sleepers(workload, watch):
    """After a lost wake-up: said when it has stood for long, never before that."""
    target = workload("missed_wake", "waiters", 3)
    truth = target.truth
    target.send("lose")
    assert target.read_truth() == {"lost": True}
    watcher = watch("-p", target.pid, "-d", 0.5)

    def suspicious(snapshot):
        return "wake" in told(snapshot)

    first = watcher.next()
    assert first is not None and not suspicious(first), first["verdict"]
    last = watcher.until(suspicious, "a suspicion of a lost wake-up", 60)
    row = row_at(last, truth["address"])
    assert (row["waiters"], row["held"]) == (3, False), row
    assert [h for h in row["holders"] if h["tid"] is not None] == []
    assert last["elapsed_s"] >= 2
    assert last["self"]["stops"] == 0
    no_deadlock(last)
    target.send("release")
    watcher.until(lambda s: not suspicious(s), "the end of it")
    watcher.interrupt()


# Words that name their owner in a way of their own -------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["robust", "robust, inherited", "priority inheritance", "robust priority inheritance"],
)
def test_owner_in_the_lock_word(case, name):
    truth, last = case(name)
    row = row_at(last, truth["address"])
    assert row["kind"] == truth["kind"]
    check_holder(row, truth["holder_tid"], "sleep", "nanosleep")
    chain = the_chain(last)
    assert (chain["end"], chain["root"]["tid"]) == ("outside", truth["holder_tid"])
    assert (chain["blocked"], chain["depth"]) == (truth["waiters"], 1)
    no_deadlock(last)


def test_recursive_read_behind_a_writer(cases):
    truth, snapshots = cases["recursive read"].result()
    for snapshot in snapshots:
        row = row_at(snapshot, truth["address"])
        assert "kthreadd" not in str(snapshot["locks"])
        named = {holder["tid"] for holder in row["holders"]} - {None}
        assert named <= set(truth["true_holder_tids"]), row
        assert all(holder["confidence"] != "confirmed" for holder in row["holders"]), row
        # Nobody can prove who reads: no cycle is claimed.
        assert cycles_of(snapshot) == []
    assert (row["kind"], row["waiters"]) == ("rwlock", truth["waiters"])
    modes = {waiter["tid"]: waiter["mode"] for waiter in row["waiter_threads"]}
    assert modes == dict(zip(truth["waiter_tids"], truth["modes"]))
    assert list(modes.values()).count("exclusive") == 1
    details = " ".join(holder["detail"] for holder in row["holders"])
    assert "reader" in details and "not recorded" in details, row
    assert the_chain(snapshots[-1])["end"] == "unnamed"


# Locks inside the C library ------------------------------------------------------------------


def own_libc():
    """The file of the C library that programs run with here, as ours."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = [line.split()[-1] for line in maps]
    return next((path for path in paths if os.path.basename(path).startswith("libc.so")), None)


@pytest.fixture(scope="module")
def libc_knows():
    """libc_knows(FUNCTION): the C library's symbols, with those of its debug package where that is
    installed, have this internal name."""
    libc = own_libc()
    elf = Elf(libc) if libc else None

    def knows(function):
        return elf is not None and any(function in names for _, names in elf.names.values())

    return knows


def check_time_zone_name(row, libc_knows):
    """Only internal functions are on these stacks: nothing tells what the lock is without them."""
    if libc_knows("__tz_convert"):
        assert "tz" in row["name"].lower() or "time zone" in row["name"].lower(), row
        assert row["name"].count("tzset_lock") <= 1, row
    else:
        assert row["name"].startswith("libc.so.6+0x"), row


def one_libc_row(last):
    (row,) = [r for r in locks_of_class(last, "lock") if r["waiters_avg_10s"] > 0]
    assert row["kind"] == "libc", row
    # Free at this moment, or held by somebody unknown.
    assert all(holder["tid"] is None for holder in row["holders"]), row
    return row


def test_localtime_storm(case, libc_knows):
    truth, last = case("localtime")
    row = one_libc_row(last)
    check_time_zone_name(row, libc_knows)
    assert row["waiters_avg_1s"] > 0.5, row
    assert row["site"] in ("format_time", "caller"), row
    assert "no contention" not in last["verdict"]
    assert process_of(last, truth["pid"])["voluntary_per_s"] > 100


def test_time_zone_file_that_blocks(case, libc_knows):
    truth, last = case("localtime, held")
    row = row_at(last, truth["address"])
    check_time_zone_name(row, libc_knows)
    if libc_knows("__tz_convert"):  # to which localtime_r jumps
        assert all("__tz_convert" in names_of(stack) for stack in stacks_of(row)), row
    assert {h["tid"] for h in row["holders"]} <= {None, *truth["true_holder_tids"]}


def test_stdout_that_nobody_reads(case):
    truth, last = case("stdout nobody reads")
    no_deadlock(last)
    row = row_at(last, truth["address"])
    assert (row["kind"], row["waiters"]) == ("libc", 7)
    assert "stdio" in row["name"].lower() or "stdout" in row["name"].lower(), row
    (holder,) = row["holders"]
    assert holder["tid"] == truth["true_holder_tids"][0], holder
    assert holder["comm"] == "printer"
    assert holder["state"] == "pipe"
    assert "write" in holder["detail"] and "fd 1" in holder["detail"], holder
    assert "pipe:" in holder["detail"], holder
    chain = the_chain(last)
    assert (chain["end"], chain["blocked"]) == ("outside", 7)
    assert "write" in chain["detail"]


def test_malloc_storm(case):
    truth, last = case("malloc")
    row = one_libc_row(last)
    assert "malloc" in row["name"].lower() or "arena" in row["name"].lower(), row
    assert row["site"] in ("allocate", "caller"), row
    assert "no contention" not in last["verdict"]
    assert process_of(last, truth["pid"])["voluntary_per_s"] > 100


def test_malloc_lock_that_is_held(case):
    truth, last = case("malloc, held")
    row = row_at(last, truth["address"])
    assert (row["kind"], row["waiters"]) == ("libc", truth["waiters"])
    assert "malloc" in row["name"].lower() or "arena" in row["name"].lower(), row
    assert row["site"] == "waiter"
    assert {h["tid"] for h in row["holders"]} <= {None, *truth["true_holder_tids"]}
    assert "no contention" not in last["verdict"]


@pytest.fixture
def musl_storm(compile, workload):
    if not shutil.which("musl-gcc"):
        pytest.skip("musl-gcc is not installed")
    program = compile("storm.c", "-static", "-O2", compiler="musl-gcc", name="storm_musl")
    return workload(program, "call", "malloc")


def test_malloc_storm_of_musl(musl_storm, run_json):
    """Its waits are too short for most looks to see a sleeper."""
    truth = musl_storm.truth
    last = run_json("-p", truth["pid"], "-n", 4, *LOOK)[-1]
    rows = [r for r in locks_of_class(last, "lock") if r["waiters_avg_10s"] > 0]
    assert {row["kind"] for row in rows} <= {"libc", "futex-lock", "mutex"}, rows
    assert all(holder["tid"] is None for row in rows for holder in row["holders"]), rows
    assert all("malloc" in row["name"] for row in rows if row["kind"] == "libc"), rows
    process = process_of(last, truth["pid"])
    assert process["voluntary_per_s"] > 20 and process["cpu_cores"] > 0.1, process
    states = process["states"]
    assert states["running"] + states["runq"] + states["lock"] > 6, states


# What is no contention -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["pool on a condition variable", "pool on a semaphore", "mixed pool", "joins"]
)
def test_pools_are_neither_contention_nor_deadlock(cases, name):
    _, snapshots = cases[name].result()
    for snapshot in snapshots:
        assert cycles_of(snapshot) == []
        for kind in ("lock", "filelock", "kernel"):
            assert locks_of_class(snapshot, kind) == []
        assert "no contention" in snapshot["verdict"]
        assert "deadlock" not in snapshot["verdict"]


def test_nothing_was_stopped_for_threads_that_sleep(cases):
    """All of these wait for what sleeps: everything is told without stopping a thread."""
    for name in ("self-deadlock", "chain into a condition variable", "owner ended", "robust",
                 "recursive read", "loader, chain", "mixed pool"):
        _, snapshots = cases[name].result()
        assert snapshots[-1]["self"]["stops"] == 0, name


def test_waits_for_nothing_after_release(workload, watch):
    """Chains go when their reason goes."""
    target = workload("loader_chain")
    watcher = watch("-p", target.pid, "-d", 0.2)
    watcher.until(lambda s: s["chains"] and s["chains"][0]["depth"] == 2, "the chain")
    target.send("release")
    watcher.until(lambda s: s["chains"] == [], "no chain")
    wait_until(lambda: len(os.listdir(f"/proc/{target.pid}/task")) == 1, "the threads' end")
    watcher.interrupt()

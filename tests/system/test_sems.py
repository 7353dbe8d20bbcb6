"""System V semaphores: as a lock, and as a hand-off."""

LOOK = ("-d", 0.3, "--budget", 30)


def sem_rows(snapshot, truth):
    return [row for row in snapshot["locks"] if row["name"] == f"set {truth['set']}[{truth['num']}]"]


def test_taken_with_undo_is_a_lock(workload, watch):
    truth = workload("sysv_sem", "use", "lock").truth
    pids = ",".join(map(str, truth["waiter_pids"]))
    seen = watch("-p", pids, *LOOK).until(
        lambda s: s["elapsed_s"] > 1 and (sem_rows(s, truth) or [{}])[0].get("holders"),
        "who operated on it last",
    )
    (row,) = sem_rows(seen, truth)
    assert (row["class"], row["kind"], row["waiters"]) == ("lock", "sysv-sem", 5)
    (holder,) = row["holders"]
    assert (holder["pid"], holder["state"]) == (truth["holder_pid"], "sleep")
    # Who took it is not recorded: it is told as a hint.
    assert holder["confidence"] == "unknown" and "a hint" in holder["detail"]
    assert "value 0" in holder["detail"]
    assert "semaphore set" in seen["verdict"] and "a hint" in seen["verdict"]
    assert all(process["states"]["lock"] > 0.5 for process in seen["processes"])


def test_without_undo_it_is_a_hand_off(workload, watch):
    truth = workload("sysv_sem", "use", "hand-off").truth
    pids = ",".join(map(str, truth["waiter_pids"]))
    seen = watch("-p", pids, *LOOK).until(
        lambda s: s["elapsed_s"] > 1 and sem_rows(s, truth), "the semaphore"
    )
    (row,) = sem_rows(seen, truth)
    assert (row["class"], row["kind"], row["waiters"]) == ("sync", "sem", 5)
    assert row["holders"] == [] and seen["chains"] == []
    assert seen["verdict"].startswith("no contention")

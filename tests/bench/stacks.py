"""stacks: what one stack costs, and beside it eu-stack and gdb on the same target."""
import json
import os
import shutil
import subprocess
import time

from common import BenchError, Workload

THREADS = 100
TARGET_10_US, TARGET_40_US, TARGET_FIRST_MS = 15.0, 45.0, 5.0


def stack_cost(ctx, what):
    program = os.path.join(ctx.build, "bench", "stack_cost")
    try:
        run = subprocess.run([program, str(what)], stdout=subprocess.PIPE, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as e:
        raise BenchError("%s: %s" % (program, e))
    return json.loads(run.stdout)


def seconds_of(command):
    """How long a command takes that stops its target all the while; None where it is not there."""
    if not shutil.which(command[0]):
        return None
    began = time.monotonic()
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, timeout=300, check=False)
    return time.monotonic() - began


def beside(pid):
    others = {
        "eu-stack": ["eu-stack", "-p", str(pid)],
        "gdb": ["gdb", "-nx", "-batch", "-p", str(pid), "-ex", "thread apply all bt"],
    }
    return {name: seconds_of(command) for name, command in others.items()}


def show(label, value, target, unit):
    print("  %-34s %8.2f %s (target %g)" % (label, value, unit, target), flush=True)


def run(ctx):
    print("stacks: copy and walk of a sleeping thread, median; nothing is stopped", flush=True)
    own = stack_cost(ctx, "CHILD")
    deep = sorted((t for t in own["threads"] if t["complete"]), key=lambda t: t["frames"])[-2:]
    if len(deep) < 2 or [t["frames"] for t in deep] != [10, 40]:
        raise BenchError("expected stacks of 10 and 40 frames, got %s" % own["threads"])
    show("10 frames, warm", deep[0]["warm_us"], TARGET_10_US, "us")
    show("40 frames, warm", deep[1]["warm_us"], TARGET_40_US, "us")
    show("first stack in a process", own["first_stack_ms"], TARGET_FIRST_MS, "ms")
    print("  names of these 40 frames: first %.0f us, then %.1f us; never while a thread is stopped"
          % (deep[1]["first_names_us"], deep[1]["warm_names_us"]), flush=True)
    with Workload(ctx.build, "idle_pool", cond=THREADS, sleep=0, net=0) as load:
        same = stack_cost(ctx, load.pid)
        times = beside(load.pid)
    took = sum(t["warm_us"] + t["first_names_us"] for t in same["threads"]) / 1e6
    took += same["first_stack_ms"] / 1e3
    print("  %d threads, all with names: %.1f ms here, nothing stopped" %
          (len(same["threads"]), took * 1e3), flush=True)
    for name, seconds in times.items():
        if seconds is None:
            print("  %s is not installed" % name, flush=True)
        else:
            print("  %-8s %8.0f ms, the target stopped for most of it" % (name, seconds * 1e3),
                  flush=True)
    return {"own": own, "same_target": same, "same_target_s": took, "others_s": times}

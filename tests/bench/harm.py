"""harm: throughput of a hammered mutex with lock-top attached against without.

A pair is a run of short slices, with lock-top and without in turn: the machine's own ups and
downs last longer than a slice and fall on both halves alike. In the slices without, lock-top is
stopped (SIGSTOP): it does nothing then, and need not start anew for each slice.
"""
import contextlib
import os
import signal
import time

from common import Workload, attached, median

TARGET = 0.98
THREADS = 8


def arguments(parser):
    parser.add_argument("--pairs", type=int, default=5, help="harm: pairs of each sort (5)")
    parser.add_argument("--slices", type=int, default=12, help="harm: slices of each half (12)")
    parser.add_argument("--seconds", type=float, default=0.5, help="harm: length of a slice (0.5)")


class Clocked:
    """Acquisitions and time of one half, summed over its slices."""

    def __init__(self):
        self.acquired = self.ns = 0

    def slice(self, load, seconds):
        first = load.ask("stat")
        time.sleep(seconds)
        last = load.ask("stat")
        self.acquired += last["acquired"] - first["acquired"]
        self.ns += last["at_ns"] - first["at_ns"]

    def rate(self):
        return 1e9 * self.acquired / self.ns


def pair(ctx, load, watch, swapped):
    """Acquisitions per second of both halves; the first is the watched one where WATCH."""
    halves = Clocked(), Clocked()
    with attached(ctx.build, load.pid, "-n", "100000") if watch else \
            contextlib.nullcontext() as lock_top:
        for n in range(2 * ctx.args.slices):
            on = ((n + 1) // 2 + swapped) % 2 == 0  # A B B A A B B A
            if lock_top:
                os.kill(lock_top.pid, signal.SIGCONT if on else signal.SIGSTOP)
            time.sleep(0.1)
            halves[not on].slice(load, ctx.args.seconds)
        if lock_top:
            os.kill(lock_top.pid, signal.SIGCONT)
    return halves[0].rate(), halves[1].rate()


def show(kind, n, with_, without):
    print("  pair %d  %-7s  %10.0f/s against %10.0f/s  ratio %.4f" %
          (n, kind, with_, without, with_ / without), flush=True)


def run(ctx):
    print("harm: %d threads on one mutex, %d pairs of 2 x %d slices of %g s, in turn" %
          (THREADS, ctx.args.pairs, ctx.args.slices, ctx.args.seconds), flush=True)
    ratios = {"watched": [], "nothing": []}
    rows = []
    with Workload(ctx.build, "hammer", threads=THREADS) as load:
        Clocked().slice(load, 1)  # warm-up
        for n in range(1, ctx.args.pairs + 1):
            for kind in ("watched", "nothing"):
                with_, without = pair(ctx, load, kind == "watched", n % 2 == 0)
                show(kind, n, with_, without)
                ratios[kind].append(with_ / without)
                rows.append({"kind": kind, "pair": n, "with": with_, "without": without})
    result = {"threads": THREADS, "slices": ctx.args.slices, "seconds": ctx.args.seconds,
              "pairs": rows,
              "median_ratio": median(ratios["watched"]),
              "median_ratio_nothing": median(ratios["nothing"]),
              "spread_nothing": [min(ratios["nothing"]), max(ratios["nothing"])],
              "target": TARGET}
    result["met"] = result["median_ratio"] >= TARGET
    print("  median ratio %.4f with lock-top attached (wanted: at least %.2f, %s); "
          "nothing against nothing %.4f (%.4f to %.4f)" %
          (result["median_ratio"], TARGET, "met" if result["met"] else "NOT met",
           result["median_ratio_nothing"], *result["spread_nothing"]), flush=True)
    return result

"""harm: throughput of a hammered mutex with lock-top attached against without."""
import time

from common import Workload, attached, median

TARGET = 0.98
THREADS = 8


def arguments(parser):
    parser.add_argument("--pairs", type=int, default=7, help="harm: pairs of each sort (7)")
    parser.add_argument("--seconds", type=float, default=4, help="harm: length of one half (4)")


def rate(load, seconds):
    """Acquisitions per second of LOAD over the next SECONDS."""
    first = load.ask("stat")
    time.sleep(seconds)
    last = load.ask("stat")
    return 1e9 * (last["acquired"] - first["acquired"]) / (last["at_ns"] - first["at_ns"])


def half(ctx, load, watch):
    """One half of a pair. Both halves begin with the same pause, so that they differ in nothing
    but lock-top."""
    if not watch:
        time.sleep(0.5)
        return rate(load, ctx.args.seconds)
    with attached(ctx.build, load.pid, "-n", "1000"):
        time.sleep(0.5)
        return rate(load, ctx.args.seconds)


def pair(ctx, load, watch, swapped):
    """Rates (first of the ratio: the half that is watched where WATCH)."""
    if swapped:
        without = half(ctx, load, False)
        with_ = half(ctx, load, watch)
    else:
        with_ = half(ctx, load, watch)
        without = half(ctx, load, False)
    return with_, without


def show(kind, n, with_, without):
    print("  pair %d  %-7s  %10.0f/s against %10.0f/s  ratio %.4f" %
          (n, kind, with_, without, with_ / without), flush=True)


def run(ctx):
    print("harm: %d threads on one mutex, %d pairs of 2 x %g s, order alternated" %
          (THREADS, ctx.args.pairs, ctx.args.seconds), flush=True)
    ratios = {"watched": [], "nothing": []}
    rows = []
    with Workload(ctx.build, "hammer", threads=THREADS) as load:
        half(ctx, load, False)  # warm-up
        for n in range(1, ctx.args.pairs + 1):
            for kind in ("watched", "nothing"):
                with_, without = pair(ctx, load, kind == "watched", n % 2 == 0)
                show(kind, n, with_, without)
                ratios[kind].append(with_ / without)
                rows.append({"kind": kind, "pair": n, "with": with_, "without": without})
    result = {"threads": THREADS, "seconds": ctx.args.seconds, "pairs": rows,
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

"""cost: what lock-top itself uses while it watches an idle pool."""
import os
import select
import subprocess
import time

from common import BenchError, Lines, Workload, attached, cpu_seconds, screen

POOLS = (16, 1000, 2000)
TARGET_PCT, TARGET_FIRST_S = 5.0, 1.0


def arguments(parser):
    parser.add_argument("--cost-seconds", type=float, default=10,
                        help="cost: length of one measurement (10)")


def first_refresh(ctx, pid):
    """Seconds from the start of lock-top until its screen shows what it saw."""
    began = time.monotonic()
    with screen(ctx.build, pid) as terminal:
        seen = b""
        while b"sync" not in seen:
            if not select.select([terminal], [], [], 30)[0]:
                raise BenchError("the screen stays empty for 30 s")
            try:
                seen += os.read(terminal, 1 << 16)
            except OSError:
                raise BenchError("lock-top ended before it showed its screen")
        return time.monotonic() - began


def measure(ctx, threads):
    with Workload(ctx.build, "idle_pool", cond=threads, sleep=0, net=0) as load:
        first = first_refresh(ctx, load.pid)
        with attached(ctx.build, load.pid, stdout=subprocess.PIPE) as proc:
            lines = Lines(proc, "lock-top")
            lines.next(30)
            start, cpu = time.monotonic(), cpu_seconds(proc.pid)
            shots = []
            while time.monotonic() - start < ctx.args.cost_seconds:
                shots.append(lines.next(30))
            took, used = time.monotonic() - start, cpu_seconds(proc.pid) - cpu
    own = [s["self"] for s in shots]
    return {"threads": shots[-1]["processes"][0]["threads"], "first_s": first, "seconds": took,
            "cpu_s": used, "cpu_pct": 100 * used / took,
            "cpu_pct_shown": sum(s["cpu_pct"] or 0 for s in own) / len(own),
            "sweep_hz": sum(s["sweep_hz"] or 0 for s in own) / len(own),
            "probe_hz": sum(s["probe_hz"] or 0 for s in own) / len(own),
            "rss_kb": own[-1]["rss_kb"], "degraded": own[-1]["degraded"]}


def run(ctx):
    print("cost: lock-top at default settings on an idle pool", flush=True)
    print("  threads  first  seconds    cpu s   cpu%  shown%  sweeps/s  probes/s    rss", flush=True)
    rows = []
    for threads in POOLS:
        row = measure(ctx, threads)
        rows.append(row)
        print("  %7d  %4.2fs  %7.1f  %7.2f  %5.2f  %6.2f  %8.1f  %8.1f  %4.0fM" %
              (row["threads"], row["first_s"], row["seconds"], row["cpu_s"], row["cpu_pct"],
               row["cpu_pct_shown"], row["sweep_hz"], row["probe_hz"], row["rss_kb"] / 1024),
              flush=True)
        for text in row["degraded"]:
            print("           " + text, flush=True)
    worst, slowest = max(r["cpu_pct"] for r in rows), max(r["first_s"] for r in rows)
    met = worst < TARGET_PCT and slowest <= TARGET_FIRST_S
    print("  at most %.2f %% of a CPU, first screen within %.2f s (wanted: under %g %% and %g s, %s)"
          % (worst, slowest, TARGET_PCT, TARGET_FIRST_S, "met" if met else "NOT met"), flush=True)
    return {"rows": rows, "target_pct": TARGET_PCT, "target_first_s": TARGET_FIRST_S, "met": met}

#!/usr/bin/env python3
"""Runs the benchmarks of this directory against a build and prints their figures.

Every other file here with a function run(ctx) is a benchmark, named as its file: it prints what
it measured and returns it as a value for JSON. It may add options in arguments(parser).
"""
import argparse
import importlib
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ORDER = ["harm", "cost"]  # first; others follow by name

sys.dont_write_bytecode = True
sys.path.insert(0, HERE)

from common import BenchError, machine  # noqa: E402


class Context:
    """What a benchmark is given."""

    def __init__(self, args):
        self.args = args
        self.build = os.path.abspath(args.build)


def benchmarks():
    names = sorted(f[:-3] for f in os.listdir(HERE) if f.endswith(".py"))
    names.sort(key=lambda n: ORDER.index(n) if n in ORDER else len(ORDER))
    modules = {n: importlib.import_module(n) for n in names if n != "bench"}
    return {n: m for n, m in modules.items() if hasattr(m, "run")}


def parse(modules):
    parser = argparse.ArgumentParser(description="lock-top's benchmarks")
    parser.add_argument("--build", default="build", help="build directory (build)")
    parser.add_argument("--only", help="just these, with commas: %s" % ", ".join(modules))
    parser.add_argument("--output", help="file for the figures (BUILD/bench.json)")
    for module in modules.values():
        if hasattr(module, "arguments"):
            module.arguments(parser)
    args = parser.parse_args()
    args.only = args.only.split(",") if args.only else list(modules)
    unknown = [n for n in args.only if n not in modules]
    if unknown:
        parser.error("no such benchmark: %s" % ", ".join(unknown))
    return args


def main():
    modules = benchmarks()
    args = parse(modules)
    ctx = Context(args)
    host = machine()
    print("machine: Linux %(kernel)s %(arch)s, %(cpus)d CPUs, %(cpu)s, load %(load)s" % host,
          flush=True)
    results, failed = {}, False
    for name in args.only:
        try:
            results[name] = modules[name].run(ctx)
        except BenchError as e:
            print("  %s not measured: %s" % (name, e), flush=True)
            failed = True
    output = args.output or os.path.join(ctx.build, "bench.json")
    with open(output, "w", encoding="utf-8") as f:
        json.dump({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": host,
                   "results": results}, f, indent=1)
        f.write("\n")
    print("figures: %s" % os.path.relpath(output), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

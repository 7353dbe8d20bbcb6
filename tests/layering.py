#!/usr/bin/env python3
"""Proves that the source tree flows one way.

    layering.py ROOT [BUILD]       check the tree at ROOT, and the objects in BUILD if given
    layering.py --self-test ROOT   check that every rule can fail, on broken copies of ROOT

Prints one line per rule, "ok - RULE" or "not ok - RULE", with the offences indented below.
Exit 0 only when every rule holds.

The SRC_* lines of the Makefile are the list of levels: a module NAME in one of them owns
src/NAME.c and src/NAME.h, and may include headers of its own level or of one above it.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

# Files without a .c of their own, and tables: the module to whose level they belong.
OWNED_BY = {
    "compiler.h": "err",
    "hash.h": "xalloc",
    "filefacts.h": "filelocks",
    "calls.def": "syscalls",
    "calls_nr.inc": "syscalls",  # generated
    "syscalls_table.h": "syscalls",
    "options.def": "options",
    "source.h": "source_proc",
    "states.def": "snapshot",
    "kinds.def": "snapshot",
    "columns.def": "column",
    "signatures.def": "signature",
    "apis.def": "signature_api",
    "wrappers.def": "signature_api",
    "model_internal.h": "model",
    "render.h": "render_text",
}

MAX_LINES, MAX_MAIN = 600, 150
PTRACE_FILES = {"tracer.c"}

# What no object of the model may call: I/O, clocks, and the modules that do either.
IMPURE = re.compile(
    r"^(?:__)?(?:"
    r"(?:open|openat)(?:64)?(?:_2)?|creat|(?:f|fd)?open(?:dir)?(?:64)?|freopen(?:64)?|"
    r"p?readv?2?(?:64)?(?:_chk)?|p?writev?2?(?:64)?|readlink(?:at)?(?:_chk)?|"
    r"(?:f?l?stat(?:at|x)?(?:64)?)|access|ioctl|socket|connect|popen|system|getenv|secure_getenv|"
    r"printf(?:_chk)?|puts|putchar|perror|"
    r"process_vm_(?:read|write)v|ptrace|"
    r"clock_(?:gettime|mono|wall|process_cpu|thread_cpu)|gettimeofday|time|nanosleep|usleep|"
    r"clock_nanosleep|poll|ppoll|select|rand|random|getpid|gethostname|uname|sysconf|"
    r"procfs_(?:open|slurp|reread|readlink|list)\w*|remote_\w+|caps_\w+|target_\w+|sampler_\w+|"
    r"source_\w+|inspect(?:or|ion)_\w+|looker_\w+|tracer_\w+|space_\w+|symbol_\w+|stack_unwind)$"
)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def strip_comments(text):
    """C text without comments; string literals stay, line numbers stay."""
    def blank(m):
        s = m.group(0)
        return s if s[0] in "\"'" else "\n" * s.count("\n") or " "
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text,
                  flags=re.S)


def includes(path):
    return re.findall(r'^[ \t]*#[ \t]*include[ \t]*([<"][^>"\n]+[>"])', read(path), flags=re.M)


class Tree:
    def __init__(self, root):
        self.root = root
        self.levels, self.rank = [], {}
        makefile = re.sub(r"\\\n", " ", read(os.path.join(root, "Makefile")))
        for name, mods in re.findall(r"^SRC_(\w+)[ \t]*[:?]?=[ \t]*(.*)$", makefile, flags=re.M):
            for mod in mods.split():
                self.rank[mod] = len(self.levels)
            self.levels.append(name)
        if len(self.levels) < 2:
            raise SystemExit("layering: no SRC_* lines in %s/Makefile" % root)

    def files(self, top, *exts):
        d = os.path.join(self.root, top)
        return sorted(f for f in os.listdir(d) if f.endswith(exts))

    def level(self, name):
        """Rank of a file of src/; None where nothing says what it belongs to."""
        stem = name.rsplit(".", 1)[0]
        if name == "main.c":
            return len(self.levels)
        return self.rank.get(OWNED_BY.get(name, stem))

    def modules(self, level):
        at = self.levels.index(level)
        return [m for m, r in self.rank.items() if r == at]


# Rules on the source: each yields offences -------------------------------------------------


def rule_modules(t):
    """every file of src/ stands in the Makefile's levels"""
    for name in t.files("src", ".c", ".h", ".def"):
        if t.level(name) is None:
            yield "src/%s: no level" % name
    for mod in t.rank:
        if not os.path.exists(os.path.join(t.root, "src", mod + ".c")):
            yield "src/%s.c: named in the Makefile, does not exist" % mod


def rule_includes(t):
    """src/ includes only its own level and those above"""
    for name in t.files("src", ".c", ".h", ".def"):
        own = t.level(name)
        for inc in includes(os.path.join(t.root, "src", name)):
            if inc[0] == "<" or "/" in inc:
                continue
            other = t.level(inc[1:-1])
            if other is None:
                yield "src/%s includes %s, which has no level" % (name, inc)
            elif own is not None and other > own:
                yield "src/%s (%s) includes %s (%s)" % (
                    name, t.levels[own], inc, (t.levels + ["MAIN"])[other])


def rule_no_ui(t):
    """src/ never includes ui/ or curses, main.c but ui/ui.h"""
    for name in t.files("src", ".c", ".h", ".def"):
        for inc in includes(os.path.join(t.root, "src", name)):
            if name == "main.c" and inc == '"../ui/ui.h"':
                continue
            if "ui/" in inc or "/" in inc and inc[0] == '"' or \
               re.search(r"curses|term(?:cap)?\.h|panel\.h", inc):
                yield "src/%s includes %s" % (name, inc)


def rule_ptrace(t):
    """ptrace is called in src/tracer.c only"""
    for top in ("src", "ui"):
        for name in t.files(top, ".c", ".h"):
            if top == "src" and name in PTRACE_FILES:
                continue
            text = strip_comments(read(os.path.join(t.root, top, name)))
            for n, line in enumerate(text.split("\n"), 1):
                if re.search(r"\bptrace\s*\(|\bSYS_ptrace\b|\b__NR_ptrace\b", line):
                    yield "%s/%s:%d" % (top, name, n)


def rule_sizes(t):
    """no file over 600 lines, main.c under 150"""
    for top in ("src", "ui"):
        for name in t.files(top, ".c", ".h", ".def"):
            n = read(os.path.join(t.root, top, name)).count("\n")
            limit = MAX_MAIN - 1 if (top, name) == ("src", "main.c") else MAX_LINES
            if n > limit:
                yield "%s/%s: %d lines, at most %d" % (top, name, n, limit)


RULES = [rule_modules, rule_includes, rule_no_ui, rule_ptrace, rule_sizes]

# Rules on the objects ------------------------------------------------------------------------


def nm(*args):
    """Symbol names that nm prints."""
    p = subprocess.run(("nm",) + args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if p.returncode != 0:
        raise RuntimeError("nm %s: %s" % (" ".join(args), p.stderr.strip()))
    return {line.split()[-1].split("@")[0] for line in p.stdout.splitlines()
            if len(line.split()) >= 2 and not line.endswith(":")}


def curses_symbols(build):
    """What the ncurses libraries behind build/lock-top define."""
    out = subprocess.run(("ldd", os.path.join(build, "lock-top")), stdout=subprocess.PIPE,
                         text=True, check=True).stdout
    libs = re.findall(r"=> (\S*lib(?:ncurses|tinfo)\S*)", out)
    if not libs:
        raise RuntimeError("build/lock-top is not linked with ncurses")
    syms = set().union(*(nm("-D", "--defined-only", lib) for lib in libs))
    if "newterm" not in syms or len(syms) < 100:
        raise RuntimeError("symbols of ncurses not found in %s" % " ".join(libs))
    return {s for s in syms if not s.startswith("_") or s.startswith("_nc_")}


def rule_archive(t, build, curses):
    """no object of src/ refers to curses"""
    lib = os.path.join(build, "liblocktop.a")
    wanted = nm("-u", lib) - nm("--defined-only", lib)
    for sym in sorted(wanted & curses):
        yield "liblocktop.a needs %s" % sym


def rule_state(t, build, curses):
    """ui/state does not refer to curses"""
    for sym in sorted(nm("-u", os.path.join(build, "ui", "state.o")) & curses):
        yield "ui/state.o needs %s" % sym


def rule_pure(t, build, _curses):
    """the model calls no I/O and no clock"""
    for mod in t.modules("MODEL"):
        for sym in sorted(nm("-u", os.path.join(build, "src", mod + ".o"))):
            if IMPURE.match(sym):
                yield "src/%s.o needs %s" % (mod, sym)


OBJECT_RULES = [rule_archive, rule_state, rule_pure]


def report(rule, offences):
    print("%s - %s" % ("not ok" if offences else "ok", rule.__doc__))
    for o in offences:
        print("    " + o)
    return not offences


def check(root, build):
    t = Tree(root)
    good = [report(rule, list(rule(t))) for rule in RULES]
    if build:
        for rule in OBJECT_RULES:
            try:
                offences = list(rule(t, build, curses_symbols(build)))
            except (RuntimeError, OSError, subprocess.CalledProcessError) as e:
                offences = [str(e)]
            good.append(report(rule, offences))
    return all(good)


# Self-test: one breach at a time in a copy; exactly its rule must fail --------------------------


def prepend(name, text):
    def breach(root):
        path = os.path.join(root, name)
        old = read(path) if os.path.exists(path) else ""
        with open(path, "w", encoding="utf-8") as f:
            f.write(text + old)
    return breach


def rename_out_of_makefile(root):
    path = os.path.join(root, "Makefile")
    text = read(path)
    with open(path, "w", encoding="utf-8") as f:
        f.write(re.sub(r"^(SRC_BASE.*) clock\b", r"\1", text, count=1, flags=re.M))


BREACHES = [
    (rule_includes, "base includes the model", prepend("src/fmt.c", '#include "snapshot.h"\n')),
    (rule_includes, "a header of the model includes a renderer",
     prepend("src/window.h", '#include "render.h"\n')),
    (rule_includes, "the sampler includes a table of the model",
     prepend("src/sampler.c", '#  include "kinds.def"\n')),
    (rule_no_ui, "src/ includes ui/", prepend("src/column.c", '#include "../ui/ui.h"\n')),
    (rule_no_ui, "src/ includes curses", prepend("src/render_text.c", "#include <ncurses.h>\n")),
    (rule_ptrace, "ptrace outside the tracer",
     prepend("src/remote.c", "static void f(void) { ptrace (0); }\n")),
    (rule_sizes, "a file too long", prepend("src/fmt.c", "\n" * (MAX_LINES + 1))),
    (rule_sizes, "main.c too long", prepend("src/main.c", "\n" * MAX_MAIN)),
    (rule_modules, "a file of no level", prepend("src/stray.c", "\n")),
    (rule_modules, "a module missing in the Makefile", rename_out_of_makefile),
]
IMPURE_EXAMPLES = ["open", "openat", "read", "__read_chk", "pread64", "write", "fopen", "time",
                   "clock_gettime", "clock_mono", "process_vm_readv", "gettimeofday",
                   "procfs_slurp", "remote_read"]
PURE_EXAMPLES = ["qsort", "memcpy", "__snprintf_chk", "strtoul", "readable", "timer",
                 "procfs_parse_stat", "window_add", "snapshot_free"]


def self_test(root):
    failures = 0
    for rule, what, breach in BREACHES:
        with tempfile.TemporaryDirectory(prefix="lock-top-layering.") as tmp:
            shutil.copy(os.path.join(root, "Makefile"), tmp)
            for top in ("src", "ui"):
                shutil.copytree(os.path.join(root, top), os.path.join(tmp, top))
            before = list(rule(Tree(tmp)))
            breach(tmp)
            caught = len(list(rule(Tree(tmp)))) > len(before)
        print("%s - caught: %s" % ("ok" if caught else "not ok", what))
        failures += not caught
    wrong = [s for s in IMPURE_EXAMPLES if not IMPURE.match(s)] + \
            [s for s in PURE_EXAMPLES if IMPURE.match(s)]
    print("%s - caught: a model that does I/O" % ("not ok" if wrong else "ok"))
    for s in wrong:
        print("    " + s)
    return not failures and not wrong


def main(argv):
    if len(argv) == 3 and argv[1] == "--self-test":
        return 0 if self_test(argv[2]) else 1
    if len(argv) not in (2, 3) or argv[1].startswith("-"):
        sys.stderr.write(__doc__)
        return 2
    return 0 if check(argv[1], argv[2] if len(argv) == 3 else None) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))

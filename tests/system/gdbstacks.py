"""lock-top's stacks against gdb's, of the same frozen moment.

Both look at a process that is stopped by SIGSTOP. A frame counts as equal when both give the same
function, by the same name or by another name of the same address in the symbol table (poll and
__poll). Frames are matched by their address in the file.
"""

import bisect
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

DUMP = Path(__file__).with_name("gdb_dump.py")
SUFFIX = re.compile(r"(\.(constprop|isra|part|cold|lto_priv|llvm|ipa|nonalias|clone)(\.\d+)?)+$")


def plain_name(name):
    """Without parameters, version and the suffixes of a compiler's own clones."""
    if name is None:
        return None
    name = re.sub(r" \[clone [^]]*\]", "", name.split("@")[0])
    depth, cut = 0, len(name)
    for i in range(len(name) - 1, -1, -1):  # the last parameter list, if that is how it ends
        depth += {")": 1, "(": -1}.get(name[i], 0)
        if depth == 0:
            if name[i] == "(" and i > 0:
                cut = i
            if name[i] == "(" or i < len(name) - len(" const volatile &&"):
                break
    shorter = name[:cut]
    return SUFFIX.sub("", shorter if not shorter.endswith("operator") else name)


class Elf:
    """What is needed of an ELF file: where it is loaded, and all names of its functions."""

    def __init__(self, path):
        self.data = Path(path).read_bytes()
        self.loads, self.build_id, self.names = [], None, {}
        if self.data[:5] != b"\x7fELF\x02":
            return
        self.read_programs()
        symbols = self.read_symbols(self.data)
        debug = self.build_id and Path(
            f"/usr/lib/debug/.build-id/{self.build_id[:2]}/{self.build_id[2:]}.debug"
        )
        if debug and debug.exists():
            symbols += self.read_symbols(debug.read_bytes())
        for value, size, name in symbols:
            self.names.setdefault(value, [0, set()])
            entry = self.names[value]
            entry[0] = max(entry[0], size)
            entry[1].add(name)
        self.starts = sorted(self.names)

    def read_programs(self):
        offset, = struct.unpack_from("<Q", self.data, 32)
        size, count = struct.unpack_from("<HH", self.data, 54)
        for i in range(count):
            kind, _, start, vaddr, _, filesz, _, _ = struct.unpack_from(
                "<IIQQQQQQ", self.data, offset + i * size
            )
            if kind == 1:
                self.loads.append((start, vaddr, filesz))
            elif kind == 4:
                self.read_notes(self.data[start : start + filesz])

    def read_notes(self, notes):
        at = 0
        while at + 12 <= len(notes):
            namesz, descsz, kind = struct.unpack_from("<III", notes, at)
            desc = at + 12 + (namesz + 3) // 4 * 4
            if kind == 3 and notes[at + 12 : at + 15] == b"GNU":
                self.build_id = notes[desc : desc + descsz].hex()
            at = desc + (descsz + 3) // 4 * 4

    @staticmethod
    def read_symbols(data):
        """[(value, size, name)] of the functions in .symtab and .dynsym."""
        found = []
        offset, = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        header = struct.Struct("<IIQQQQIIQQ")
        sections = [header.unpack_from(data, offset + i * size) for i in range(count)]
        for _, kind, _, _, start, length, link, _, _, _ in sections:
            if kind not in (2, 11):
                continue
            strings = sections[link][4]
            for name, info, _, index, value, symsize in struct.iter_unpack(
                "<IBBHQQ", data[start : start + length]
            ):
                if info & 15 in (2, 10) and index:
                    end = data.index(b"\0", strings + name)
                    text = data[strings + name : end].decode(errors="replace")
                    found.append((value, symsize, text))
        return found

    def vaddr_of(self, offset):
        for start, vaddr, filesz in self.loads:
            if start <= offset < start + filesz:
                return offset - start + vaddr
        return None

    def names_at(self, vaddr):
        """All names of the function that has this address."""
        at = bisect.bisect_right(self.starts, vaddr) - 1 if self.names else -1
        while at >= 0 and self.starts[at] + (1 << 20) > vaddr:
            size, names = self.names[self.starts[at]]
            if vaddr < self.starts[at] + size or (size == 0 and vaddr == self.starts[at]):
                return names
            at -= 1
        return set()


_files = {}


class Space:
    """What a process has mapped: PC to (name of the file, address in the file)."""

    def __init__(self, pid):
        self.maps = []
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            fields = line.split(None, 5)
            if len(fields) == 6 and fields[5].startswith("/"):
                start, end = (int(x, 16) for x in fields[0].split("-"))
                self.maps.append((start, end, int(fields[2], 16), fields[5], pid))

    def find(self, pc):
        """(name of the file or None, address there, the file or None)."""
        for start, end, offset, path, _ in self.maps:
            if start <= pc < end:
                if path not in _files:
                    _files[path] = Elf(path) if os.path.exists(path) else None
                elf = _files[path]
                vaddr = elf and elf.vaddr_of(pc - start + offset)
                return os.path.basename(path), vaddr, elf
        return None, pc, None


class Figures(Counter):
    """threads, complete, gdb_frames, found, both, equal, exact; .odd has what was unequal."""

    def __init__(self):
        super().__init__()
        self.odd = []
        self.cut = []

    def share(self, part, whole):
        return self[part] / self[whole] if self[whole] else 0.0

    def line(self, label):
        return (
            f"{label}: {self['complete']} of {self['threads']} blocked threads complete"
            f" ({100 * self.share('complete', 'threads'):.1f} %),"
            f" {self['equal']} of {self['both']} frames named as by gdb"
            f" ({100 * self.share('equal', 'both'):.2f} %, to the letter"
            f" {100 * self.share('exact', 'both'):.2f} %),"
            f" {self['found']} of gdb's {self['gdb_frames']} frames"
        )

    def check(self, label):
        assert self["threads"] > 0 and self["both"] > 0, self.line(label)
        assert self.share("complete", "threads") >= 0.98, (self.line(label), self.cut[:10])
        assert self.share("equal", "both") >= 0.99, (self.line(label), self.odd[:20])


# One frozen moment ---------------------------------------------------------------------------


def state_of(pid, tid):
    stat = Path(f"/proc/{pid}/task/{tid}/stat").read_bytes()
    return stat.rpartition(b")")[2].split()[0].decode()


def tids_of(pid):
    return sorted(int(tid) for tid in os.listdir(f"/proc/{pid}/task"))


def freeze(pids, timeout=20):
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + timeout
    while any(state_of(pid, tid) not in "TZX" for pid in pids for tid in tids_of(pid)):
        assert time.monotonic() < end, "the processes do not stop"
        time.sleep(0.01)


def blocked_threads(pid):
    """Those that are in a system call."""
    found = []
    for tid in tids_of(pid):
        call = Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()[0]
        if call.lstrip("-").isdigit() and int(call) >= 0:
            found.append(tid)
    return found


def gdb_stacks(pid):
    command = [shutil.which("gdb"), "-nx", "-batch", "-iex", "set auto-load no"]
    command += ["-iex", "set debuginfod enabled off", "-p", str(pid), "-x", str(DUMP)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=240, check=False,
        env={**os.environ, "DEBUGINFOD_URLS": ""},
    )  # fmt: skip
    for line in done.stdout.decode(errors="replace").splitlines():
        if line.startswith("STACKS "):
            return {int(tid): frames for tid, frames in json.loads(line[7:]).items()}
    pytest.fail(f"gdb: {done.stderr.decode(errors='replace')[-2000:]}")


def our_stacks(watch, pids, wanted):
    """{(pid, tid): stack} once every wanted thread has one, or no more come."""
    watcher = watch("-p", ",".join(map(str, pids)), "-d", 0.5, "--stacks", "all", "--budget", 100)
    best, since = {}, 0
    while since < 8:
        snapshot = watcher.next()
        assert snapshot is not None, watcher.stderr()
        now = {(t["pid"], t["tid"]): t["stack"] for t in snapshot["threads"] or []}
        complete = sum(stack["complete"] for stack in now.values())
        since = 0 if complete > sum(s["complete"] for s in best.values()) else since + 1
        if complete >= sum(s["complete"] for s in best.values()):
            best = now
        if all(best.get(key, {}).get("complete") for key in wanted):
            break
    assert snapshot["self"]["stops"] == 0
    watcher.interrupt()
    return best


def demangled(names):
    filt = shutil.which("c++filt")
    if not filt or not names:
        return set(names)
    text = "\n".join(names)
    done = subprocess.run([filt], input=text, capture_output=True, text=True, check=True)
    return set(names) | set(done.stdout.splitlines())


def same(ours, theirs, names):
    """Whether two names mean the same function: NAMES are all that it has."""
    if ours in theirs:
        return True
    plain = {plain_name(name) for name in theirs}
    if plain_name(ours) in plain:
        return True
    known = {plain_name(name) for name in demangled(names)}
    return plain_name(ours) in known and bool(plain & known)


def compare_thread(figures, label, space, ours, theirs):
    figures["gdb_frames"] += len(theirs)
    by_place = {}
    for pc, name, symbol in theirs:
        module, vaddr, elf = space.find(pc)
        by_place.setdefault((module, vaddr), (pc, name, symbol, elf))
    for frame in ours["frames"]:
        there = by_place.get((frame["module"], int(frame["offset"], 16)))
        if not there:
            continue
        figures["found"] += 1
        pc, name, symbol, elf = there
        if frame["name"] is None or name is None:
            continue
        figures["both"] += 1
        figures["exact"] += frame["name"] == name
        vaddr = int(frame["offset"], 16)
        names = elf.names_at(vaddr) | elf.names_at(vaddr - 1) if elf else set()
        if same(frame["name"], {n for n in (name, symbol) if n}, names):
            figures["equal"] += 1
        else:
            figures.odd.append((label, hex(pc), frame["module"], frame["name"], name))


def compare(watch, targets):
    """TARGETS: {label: pid}. Stops them, asks lock-top and gdb, lets them go; the Figures of all,
    and of each by label."""
    if not shutil.which("gdb"):
        pytest.skip("gdb is not installed")
    pids = list(targets.values())
    total, each = Figures(), {}
    try:
        freeze(pids)
        wanted = {(pid, tid) for pid in pids for tid in blocked_threads(pid)}
        stacks = our_stacks(watch, pids, wanted)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            dumps = dict(zip(pids, pool.map(gdb_stacks, pids)))
        for label, pid in targets.items():
            figures = each[label] = Figures()
            space, theirs = Space(pid), dumps[pid]
            for key in sorted(key for key in wanted if key[0] == pid):
                ours = stacks.get(key, {"complete": False, "frames": [], "note": "missing"})
                figures["threads"] += 1
                figures["complete"] += ours["complete"]
                if not ours["complete"]:
                    frames = [(f["name"], f["module"], f["offset"]) for f in ours["frames"]]
                    figures.cut.append((label, key[1], ours.get("note"), frames))
                compare_thread(figures, label, space, ours, theirs.get(key[1], []))
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    for figures in each.values():
        total.update(figures)
        total.odd += figures.odd
        total.cut += figures.cut
    return total, each

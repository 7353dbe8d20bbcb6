"""Runs inside gdb: prints one JSON line {TID: [[PC, NAME, SYMBOL], ...]} of the attached process.

NAME is what a backtrace shows for a real frame (those of inlined functions and of calls that were
made as jumps are left out: gdb infers them from debug information), SYMBOL what the symbol table
has for that address.
"""

import json

import gdb


def symbol_at(pc):
    try:
        text = gdb.execute(f"info symbol {pc:#x}", to_string=True)
    except gdb.error:
        return None
    if text.startswith("No symbol"):
        return None
    return text.rsplit(" in section ", 1)[0].split(" + ")[0].strip()


def frames():
    found = []
    frame = gdb.newest_frame()
    while frame is not None and len(found) < 64:
        if frame.type() in (gdb.NORMAL_FRAME, gdb.SIGTRAMP_FRAME):
            # Of a caller: the call itself, not where it goes on, which may be another function.
            exact = not found or frame.type() == gdb.SIGTRAMP_FRAME or below_handler
            found.append([frame.pc(), frame.name(), symbol_at(frame.pc() - (not exact))])
            below_handler = frame.type() == gdb.SIGTRAMP_FRAME
        try:
            frame = frame.older()
        except gdb.error:
            break
    return found


stacks = {}
for thread in gdb.selected_inferior().threads():
    thread.switch()
    try:
        stacks[thread.ptid[1]] = frames()
    except gdb.error:
        stacks[thread.ptid[1]] = []
print("STACKS " + json.dumps(stacks))

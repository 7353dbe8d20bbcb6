"""contended.py lock|gil N - N threads that wait for a threading.Lock, or that fight for the GIL.

Says so as JSON. "release" on stdin lets them go, and the answer says how many went.
"""

import json
import sys
import threading
import time

N = int(sys.argv[2])
lock = threading.Lock()
released = threading.Event()
barrier = threading.Barrier(N + 1)
gone = []


def want():
    barrier.wait()
    with lock:
        gone.append(threading.get_native_id())


def compute():
    barrier.wait()
    while not released.is_set():
        sum(range(1000))
    gone.append(threading.get_native_id())


def say(**truth):
    print(json.dumps(truth), flush=True)


def asleep(tid):
    with open(f"/proc/self/task/{tid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] == b"S"


run = {"lock": want, "gil": compute}[sys.argv[1]]
lock.acquire()
threads = [threading.Thread(target=run, daemon=True) for _ in range(N)]
for thread in threads:
    thread.start()
barrier.wait()
tids = [thread.native_id for thread in threads]
if run is want:
    while not all(asleep(tid) for tid in tids):
        time.sleep(0.01)
say(tids=tids)
if sys.stdin.readline() == "release\n":
    released.set()
    lock.release()
    for thread in threads:
        thread.join()
    say(gone=len(gone))
    sys.stdin.readline()

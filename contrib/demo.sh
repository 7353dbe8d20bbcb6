#!/usr/bin/env bash
# demo.sh BUILD - starts BUILD/workloads/demo, a small service that contends for one lock, and
# opens BUILD/lock-top on it: the live screen on a terminal, three refreshes as text elsewhere.
# Ends exactly the process it started; its exit status is lock-top's.
set -u

if [ $# -ne 1 ]; then
    echo "usage: contrib/demo.sh BUILD" >&2
    exit 2
fi
build=$1

# The demo ends with its stdin too, so nothing is left even when this script is killed.
coproc SERVICE { exec "$build/workloads/demo" --seconds 3600; }
pid=$SERVICE_PID

stop_service() {
    trap - EXIT INT TERM HUP
    kill -TERM "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
}
trap stop_service EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# Its first line says that threads wait for the lock by now.
if ! IFS= read -r -t 30 _ <&"${SERVICE[0]}"; then
    echo "demo.sh: $build/workloads/demo did not start" >&2
    exit 1
fi

if [ -t 0 ] && [ -t 1 ]; then
    "$build/lock-top" -p "$pid"
else
    "$build/lock-top" -p "$pid" -b -n 3 -d 1
fi

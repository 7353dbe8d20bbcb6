#!/usr/bin/env bash
# run.sh [--real] - builds lock-top in every variant and runs all tests.
#
# Nothing stops the run: every stage is tried and everything is counted. Full output is shown
# only of what failed. The last line is "N passed, N failed" (and ", N skipped" where something
# was). Exit 0 when nothing failed and something passed.
#
# --real      also demand the tests against real servers and runtimes (tests/real); without it
#             those whose server is installed run as well, the others say why they do not
# STAGES=...  only these stages: build unit layers docs system real
set -u
export LC_ALL=C.UTF-8
cd "$(dirname "$0")/.." || exit 1
root=$PWD

real=0
for arg in "$@"; do
    case $arg in
    --real) real=1 ;;
    *)
        echo "usage: tests/run.sh [--real]" >&2
        exit 2
        ;;
    esac
done
stages=${STAGES:-build unit layers docs system real}

asan_build=build/san-address-undefined
tsan_build=build/san-thread
tsan_units=(unit_monitor unit_inspector unit_netfile)
unit_timeout=60
pytest_timeout=${PYTEST_TIMEOUT:-900}

# A mark in the environment of everything that the tests start: it finds what is left running.
mark=LOCK_TOP_TEST_RUN=$$-$(date +%s)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/lock-top-test.XXXXXX") || exit 1
passed=0 failed=0 skipped=0
: >"$tmp/failures"
: >"$tmp/skips"

# Processes that still carry the mark.
leftover() {
    local d pid
    for d in /proc/[0-9]*; do
        pid=${d#/proc/}
        if tr '\0' '\n' <"$d/environ" 2>/dev/null | grep -qx "$mark"; then
            echo "$pid $(tr '\0' ' ' <"$d/cmdline" 2>/dev/null)"
        fi
    done 2>/dev/null
}

end_leftover() {
    local pid
    leftover | while read -r pid _; do
        kill -KILL "$pid" 2>/dev/null
    done
}

cleanup() {
    end_leftover
    rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Counting ------------------------------------------------------------------------------------

pass() {
    passed=$((passed + ${1:-1}))
}

# fail NAME [LOG] [COUNT]
fail() {
    failed=$((failed + ${3:-1}))
    echo "$1" >>"$tmp/failures"
    echo "    FAILED: $1"
    if [ -n "${2:-}" ] && [ -s "$2" ]; then
        sed 's/^/    | /' "$2"
    fi
}

# skip REASON [COUNT]
skip() {
    skipped=$((skipped + ${2:-1}))
    printf '%s\t%s\n' "${2:-1}" "$1" >>"$tmp/skips"
}

wanted() {
    case " $stages " in
    *" $1 "*) return 0 ;;
    esac
    return 1
}

stage_begin() {
    stage_name=$1
    stage_start=$SECONDS
    stage_passed=$passed stage_failed=$failed stage_skipped=$skipped
    echo "== $stage_name"
}

stage_end() {
    local out
    out="   $((passed - stage_passed)) passed, $((failed - stage_failed)) failed"
    [ "$skipped" -eq "$stage_skipped" ] || out="$out, $((skipped - stage_skipped)) skipped"
    echo "$out ($((SECONDS - stage_start)) s)"
}

# Runs a command in the environment that tests see, and nothing else of ours.
clean_env() {
    env -i PATH="$PATH" HOME="${HOME:-/}" TMPDIR="$tmp" LC_ALL=C.UTF-8 TERM=xterm-256color \
        PYTHONDONTWRITEBYTECODE=1 ASAN_OPTIONS=exitcode=99:detect_stack_use_after_return=1 \
        LSAN_OPTIONS=suppressions=$root/tests/system/lsan.supp:print_suppressions=0 \
        UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 TSAN_OPTIONS=exitcode=99 "$mark" "$@"
}

# Runs a command so that a signal to this script is acted on at once, not when it has ended.
# Job control keeps SIGINT from being ignored in what is started.
limited() {
    set -m
    "$@" &
    set +m
    wait $!
}

# Make, unimpressed by the make that called us.
plain_make() {
    env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u CC -u SAN -u BUILD -u V \
        make --no-print-directory -j"$(nproc)" "$@"
}

# Builds --------------------------------------------------------------------------------------

# build NAME MAKE-ARGUMENT... : one counted check.
build() {
    local name=$1 log=$tmp/build.log
    shift
    if limited plain_make "$@" </dev/null >"$log" 2>&1; then
        pass
    else
        fail "build: $name" "$log"
        return 1
    fi
}

build_all() {
    have_plain=0 have_asan=0 have_tsan=0
    build gcc all unit workloads && have_plain=1
    if command -v clang >/dev/null; then
        build clang CC=clang all
    else
        skip "build with clang: clang is not installed"
    fi
    build "gcc, SAN=address,undefined" SAN=address,undefined all unit && have_asan=1
    if [ -e tests/unit_monitor.c ]; then
        build "gcc, SAN=thread" SAN=thread "${tsan_units[@]/#/$tsan_build/tests/}" && have_tsan=1
    fi
}

check_install() {
    local dest=$tmp/dest log=$tmp/install.log left
    if ! plain_make install DESTDIR="$dest" prefix=/usr >"$log" 2>&1; then
        fail "make install" "$log"
    elif [ ! -x "$dest/usr/bin/lock-top" ] || [ ! -s "$dest/usr/share/man/man1/lock-top.1" ]; then
        find "$dest" >"$log"
        fail "make install: a file is missing" "$log"
    elif ! plain_make uninstall DESTDIR="$dest" prefix=/usr >"$log" 2>&1; then
        fail "make uninstall" "$log"
    else
        left=$(find "$dest" -type f)
        if [ -n "$left" ]; then
            echo "$left" >"$log"
            fail "make uninstall leaves files" "$log"
        else
            pass
        fi
    fi
}

# Unit tests ----------------------------------------------------------------------------------

# Adds up what a cmocka program printed: "passed failed skipped".
cmocka_counts() {
    awk '/^\[       OK \]/ { ok++ }
         /^ *[0-9]+ FAILED TEST\(S\)/ { bad += $1 }
         /^\[  SKIPPED \] .*test\(s\)/ { for (i = 1; i < NF; i++) if ($(i + 1) ~ /^test/) sk += $i }
         END { print ok + 0, bad + 0, sk + 0 }' "$1"
}

cmocka_failed() {
    awk '/^\[  FAILED  \]/ && !/test\(s\)/ && !seen[$4]++ { printf "%s%s", gap, $4; gap = " " }' "$1"
}

# Which tests skipped themselves, and what was printed on the way (cmocka knows no reasons).
cmocka_skipped() {
    awk '/^\[ RUN      \]/ { said = ""; next }
         /^\[  SKIPPED \]/ && !/test\(s\)/ && !seen[$4]++ { printf "%s%s%s", gap, $4, said; gap = ", " }
         !/^\[/ && NF { said = " (" $0 ")" }' "$1"
}

# unit LABEL PROGRAM [WRAPPER...]
unit() {
    local label=$1 prog=$2 log=$tmp/unit.log name rc ok bad sk
    shift 2
    name="$(basename "$prog")$label"
    limited clean_env timeout -k 5 "$unit_timeout" "$@" "$prog" </dev/null >"$log" 2>&1
    rc=$?
    read -r ok bad sk <<<"$(cmocka_counts "$log")"
    pass "$ok"
    if [ "$rc" -eq 124 ] || [ "$rc" -eq 137 ]; then
        fail "$name: no end within $unit_timeout s" "$log" $((bad + 1))
    elif [ "$bad" -gt 0 ]; then
        fail "$name: $(cmocka_failed "$log")" "$log" "$bad"
    elif [ "$rc" -ne 0 ]; then
        fail "$name: exit status $rc" "$log"
    elif [ "$((ok + sk))" -eq 0 ]; then
        fail "$name: ran no test" "$log"
    fi
    [ "$sk" -eq 0 ] || skip "$name: $(cmocka_skipped "$log")" "$sk"
}

units() {
    local dir=$1 label=$2 src
    for src in tests/unit_*.c; do
        [ -e "$src" ] || continue
        src=${src##*/}
        unit "$label" "$dir/tests/${src%.c}"
    done
}

# unit_tsan NAME
unit_tsan() {
    local prog=$tsan_build/tests/$1
    if clean_env "$prog" </dev/null 2>&1 | grep -q 'unexpected memory mapping'; then
        # Too much address randomisation for this gcc's runtime.
        if setarch -R true 2>/dev/null; then
            unit " (tsan)" "$prog" setarch -R
        else
            skip "$1 (tsan): the sanitizer cannot place its memory here"
        fi
    else
        unit " (tsan)" "$prog"
    fi
}

# Scripts that print "ok - ..." / "not ok - ..." / "skip - ..." ---------------------------------

# lines NAME COMMAND...
lines() {
    local name=$1 log=$tmp/lines.log rc ok bad line
    shift
    limited clean_env timeout -k 5 120 "$@" </dev/null >"$log" 2>&1
    rc=$?
    ok=$(grep -c '^ok - ' "$log")
    bad=$(grep -c '^not ok - ' "$log")
    pass "$ok"
    while IFS= read -r line; do
        skip "$name: ${line#skip - }"
    done < <(grep '^skip - ' "$log")
    if [ "$bad" -gt 0 ]; then
        grep -v -e '^ok - ' -e '^skip - ' "$log" >"$log.bad"
        fail "$name: $bad check(s)" "$log.bad" "$bad"
    elif [ "$rc" -ne 0 ] || [ "$ok" -eq 0 ]; then
        fail "$name: exit status $rc" "$log"
    fi
}

# pytest --------------------------------------------------------------------------------------

choose_python() {
    for python in python3 /usr/bin/python3; do
        if "$python" -c 'import pytest' 2>/dev/null; then
            return 0
        fi
    done
    python=
    return 1
}

# Reads a JUnit file: "passed failed", then a line "F NAME" per failed and "S REASON" per skipped
# test.
junit_counts() {
    "$python" - "$1" <<'PY'
import sys
import xml.etree.ElementTree as ET

ok, failed, reasons = 0, [], []
for case in ET.parse(sys.argv[1]).iter("testcase"):
    skip = case.find("skipped")
    if case.find("failure") is not None or case.find("error") is not None:
        failed.append(case.get("name") or case.get("classname") or "?")
    elif skip is not None:
        reasons.append(" ".join((skip.get("message") or "no reason given").split()))
    else:
        ok += 1
print(ok, len(failed))
for name in failed:
    print("F", name)
for reason in reasons:
    print("S", reason)
PY
}

# Most tests wait for something to happen, so several files are run at once where pytest can; tests
# of what is used of the machine ("alone") follow by themselves.
parallel() {
    "$python" -c 'import xdist' 2>/dev/null
}

# suite LABEL DIRECTORY BUILD [NAME=VALUE...] : runs the tests there.
suite() {
    if parallel; then
        part "$@" -- -n $(($(nproc) + 1)) --dist loadfile -m 'not alone'
        part "$@" -- -m alone
    else
        part "$@" --
    fi
}

# part LABEL DIRECTORY BUILD [NAME=VALUE...] -- [OPTION...] : one run of pytest.
part() {
    local label=$1 dir=$2 dest=$3 log=$tmp/pytest.log xml=$tmp/junit.xml counts rc ok bad left reason
    local vars=()
    shift 3
    while [ "$1" != -- ]; do
        vars+=("$1")
        shift
    done
    shift
    rm -f "$xml"
    limited clean_env LOCK_TOP="$root/$dest/lock-top" LOCK_TOP_WORKLOADS="$root/build/workloads" \
        "${vars[@]}" timeout -k 10 "$pytest_timeout" "$python" -m pytest -p no:cacheprovider -v -ra \
        --tb=short --durations=5 --junitxml="$xml" "$@" "$dir" </dev/null >"$log" 2>&1
    rc=$?
    if [ "$rc" -eq 5 ]; then # no such tests there
        [ "${1:-}" = -m ] || fail "$label: no test found in $dir" "$log"
        return
    fi
    if ! counts=$(junit_counts "$xml" 2>/dev/null); then
        if [ "$rc" -eq 124 ] || [ "$rc" -eq 137 ]; then
            fail "$label: no end within $pytest_timeout s" "$log"
        else
            fail "$label: pytest ended with status $rc" "$log"
        fi
        return
    fi
    sed -i '/ PASSED /d' "$log"
    read -r ok bad <<<"$counts"
    pass "$ok"
    while IFS= read -r reason; do
        skip "$label: $reason"
    done < <(sed -n 's/^S //p' <<<"$counts")
    if [ "$bad" -gt 0 ]; then
        fail "$label: $(sed -n 's/^F //p' <<<"$counts" | paste -sd ' ')" "$log" "$bad"
    elif [ "$rc" -ne 0 ]; then
        fail "$label: pytest ended with status $rc" "$log"
    else
        sed -n '/slowest/,/^[^0-9]*$/p' "$log" | sed -n 's/^\([0-9.]*s\) call *\(.*\)/    slow: \1 \2/p'
    fi
    left=$(leftover)
    if [ -n "$left" ]; then # perhaps just ending
        sleep 1
        left=$(leftover)
    fi
    if [ -n "$left" ]; then
        echo "$left" >"$log"
        fail "$label: processes left running" "$log"
        end_leftover
    else
        pass
    fi
}

has_tests() {
    find "$1" -name 'test_*.py' 2>/dev/null | grep -q .
}

# The run -------------------------------------------------------------------------------------

have_plain=1 have_asan=1 have_tsan=1
if wanted build; then
    stage_begin "build"
    build_all
    [ "$have_plain" -eq 1 ] && check_install
    stage_end
elif ! plain_make all workloads </dev/null >"$tmp/build.log" 2>&1; then
    fail "build" "$tmp/build.log"
    have_plain=0
fi

if wanted unit; then
    stage_begin "unit tests"
    if [ "$have_plain" -eq 1 ]; then
        units build ""
    fi
    stage_end
    stage_begin "unit tests, address and undefined-behaviour sanitizers"
    if [ "$have_asan" -eq 1 ]; then
        units "$asan_build" " (asan)"
    fi
    stage_end
    if [ "$have_tsan" -eq 1 ]; then
        stage_begin "unit tests where threads meet, thread sanitizer"
        for name in "${tsan_units[@]}"; do
            unit_tsan "$name"
        done
        stage_end
    fi
fi

if wanted layers; then
    stage_begin "layering"
    if [ "$have_plain" -eq 1 ]; then
        lines layering python3 tests/layering.py "$root" "$root/build"
    else
        lines layering python3 tests/layering.py "$root"
    fi
    lines "layering, on broken copies" python3 tests/layering.py --self-test "$root"
    stage_end
fi

if wanted docs && [ "$have_plain" -eq 1 ]; then
    stage_begin "documents"
    lines documents tests/check_docs.sh build/lock-top
    stage_end
fi

if wanted system || wanted real; then
    if ! choose_python; then
        fail "no python3 with pytest"
        stages=
    fi
fi

if wanted system; then
    if [ "$have_plain" -eq 1 ]; then
        stage_begin "system tests"
        suite system tests/system build
        stage_end
    fi
    if [ "$have_plain" -eq 1 ] && [ "$have_asan" -eq 1 ]; then
        stage_begin "system tests, sanitizers"
        suite "system (asan)" tests/system "$asan_build" LOCK_TOP_SAN=1
        stage_end
    fi
fi

if wanted real && has_tests tests/real && [ "$have_plain" -eq 1 ]; then
    stage_begin "real servers and runtimes"
    suite real tests/real build LOCK_TOP_REAL="$real"
    stage_end
fi

if [ -s "$tmp/skips" ]; then
    echo "== skipped"
    awk -F '\t' '{ n[$2] += $1 } END { for (r in n) printf "   %3d  %s\n", n[r], r }' "$tmp/skips" |
        sort -k2
fi
if [ -s "$tmp/failures" ]; then
    echo "== failed"
    sed 's/^/   /' "$tmp/failures"
fi

summary="$passed passed, $failed failed"
[ "$skipped" -eq 0 ] || summary="$summary, $skipped skipped"
echo "== $SECONDS s"
echo "$summary"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]

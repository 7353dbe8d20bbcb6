"""The completions say what the program takes, and complete what they should."""
import os
import shutil
import subprocess
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FILES = {"bash": "lock-top.bash", "zsh": "_lock-top", "fish": "lock-top.fish"}


def script(shell):
    return os.path.join(ROOT, "contrib", "completion", FILES[shell])


@pytest.fixture(scope="module")
def gen_docs(tmp_path_factory):
    prog = str(tmp_path_factory.mktemp("gen") / "gen_docs")
    subprocess.run(["gcc", "-o", prog, os.path.join(ROOT, "contrib", "gen_docs.c")], check=True,
                   timeout=60)
    return prog


@pytest.mark.parametrize("shell", FILES)
def test_made_from_the_tables(gen_docs, shell):
    want = subprocess.run([gen_docs, shell], check=True, stdout=subprocess.PIPE, text=True,
                          timeout=10).stdout
    with open(script(shell), encoding="utf-8") as f:
        assert f.read() == want, "out of date: run make completion"


def test_generator_refuses(gen_docs):
    for args in ([], ["csh"], ["bash", "zsh"]):
        p = subprocess.run([gen_docs, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           timeout=10)
        assert p.returncode == 2 and not p.stdout


@pytest.mark.parametrize("shell", FILES)
def test_shell_reads_it(shell):
    if not shutil.which(shell):
        pytest.skip(shell + " is not installed")
    subprocess.run([shell, "-n", script(shell)], check=True, timeout=10)


def complete(*words, cwd=None):
    """What bash offers for the last of WORDS."""
    code = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lock_top; '
            'printf "%s\\n" "${COMPREPLY[@]}"')
    p = subprocess.run(["bash", "-c", code, "-", script("bash"), "lock-top", *words], check=True,
                       stdout=subprocess.PIPE, text=True, timeout=10, cwd=cwd)
    return [w for w in p.stdout.split("\n") if w]


def test_bash_options():
    prog = os.environ.get("LOCK_TOP", os.path.join(ROOT, "build", "lock-top"))
    text = subprocess.run([prog, "--help"], check=True, stdout=subprocess.PIPE, text=True,
                          timeout=10).stdout
    told = {w.rstrip(",") for line in text.split("\n") if line.startswith("  ")
            for w in line[:24].split() if w.startswith("-")}
    assert told == set(complete("-")) and "--pid" in told and "-V" in told
    assert complete("-b", "--js") == ["--json"]
    assert complete("--del") == ["--delay"]


def test_bash_values():
    pid = str(os.getpid())
    assert pid in complete("-p", pid)
    assert "1," + pid in complete("--pid", "1," + pid)
    assert "share" in complete("-s", "")
    assert complete("-o", "wait,sha") == ["wait,share"]
    assert complete("--columns", "=", "sha") == ["share"]
    assert "wait" in complete("--columns", "=")
    assert complete("-d", "") == []
    assert complete("--stacks", "") == ["off", "auto", "all"]
    assert complete("--stop", "=", "ne") == ["never", "needed"]


def test_bash_files(tmp_path):
    (tmp_path / "my locks.txt").touch()
    (tmp_path / "$(touch x)").touch()
    assert complete("--names", "my", cwd=str(tmp_path)) == ["my locks.txt"]
    assert complete("--signatures", "=", "$", cwd=str(tmp_path)) == ["$(touch x)"]
    assert not (tmp_path / "x").exists()


def test_bash_command_behind_dashes():
    assert "bash" in complete("--", "bas")
    assert "share" not in complete("--", "ls", "-o", "sha")


def until_named(pid, name):
    for _ in range(1000):
        with open("/proc/%d/comm" % pid, encoding="utf-8") as f:
            if f.read() == name + "\n":
                return
        time.sleep(0.01)
    pytest.fail("process %d did not become %s" % (pid, name))


def test_bash_does_not_run_names(tmp_path):
    """A process may be named as it likes: its name is text."""
    prog = tmp_path / "a $(touch x)"
    shutil.copy("/bin/sleep", str(prog))
    with subprocess.Popen([str(prog), "60"]) as child:
        try:
            until_named(child.pid, "a $(touch x)")
            assert complete("-c", "a $", cwd=str(tmp_path)) == [r"a\ \$\(touch\ x\)"]
            complete("-c", "", cwd=str(tmp_path))
        finally:
            child.kill()
    assert not (tmp_path / "x").exists()

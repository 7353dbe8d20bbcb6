"""What the system tests have already: their modules under names of their own."""

import importlib.util
import sys
from pathlib import Path

SYSTEM = Path(__file__).resolve().parents[1] / "system"


def _load(name, alias):
    spec = importlib.util.spec_from_file_location(alias, SYSTEM / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[alias] = module
    spec.loader.exec_module(module)
    return module


conftest = _load("conftest", "system_conftest")
gdbstacks = _load("gdbstacks", "system_gdbstacks")

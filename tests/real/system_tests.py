"""What the system tests have already: their conftest under a name of its own."""

import importlib.util
from pathlib import Path

_PATH = Path(__file__).resolve().parents[1] / "system" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("system_conftest", _PATH)
conftest = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(conftest)

"""Configuration of lit: every `.mlir` file here with a RUN line is a test.

    // RUN: motet opt %s --pipeline canonicalize | filecheck %s
"""

import os
import sys
from pathlib import Path
from typing import Any

import lit.formats

config: Any = globals()["config"]  # lit puts it here before it runs this file

_root = Path(__file__).resolve().parents[2]
_binaries = Path(sys.executable).parent

config.name = "motet"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.excludes = ["Inputs"]
config.test_source_root = str(Path(__file__).parent)
config.test_exec_root = str(_root / "build" / "lit")

# Tests use this tree and this interpreter, whatever PATH says.
config.environment["PYTHONPATH"] = str(_root / "src")
config.environment["PATH"] = os.pathsep.join([str(_binaries), os.environ.get("PATH", "")])
config.substitutions.append((r"(?<![\w./-])motet(?= )", f"{sys.executable} -m motet"))
config.substitutions.append((r"(?<![\w./-])filecheck(?= )", f"{_binaries / 'filecheck'}"))
config.substitutions.append(("%examples", str(_root / "examples")))

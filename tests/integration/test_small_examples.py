"""The small examples: each checks its own answers, and ends with status 0 if they are right."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.conftest import ROOT, environment

EXAMPLES = ROOT / "examples"


def output(*command: str | Path, path: Path | None = None) -> str:
    environ = environment()
    if path is not None:
        environ["PATH"] = os.pathsep.join([str(path), environ.get("PATH", os.defpath)])
    done = subprocess.run([*map(str, command)], env=environ, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_calls_from_an_event_loop() -> None:
    assert "16 calls: equal to numpy" in output(sys.executable, EXAMPLES / "asyncio_calls.py")


def test_tensors_between_torch_and_jax() -> None:
    for module in ("torch", "jax"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}: make frameworks")
    text = output(sys.executable, EXAMPLES / "torch_to_jax.py")
    assert "in JAX without a copy: True" in text and "JAX's arrays: equal to numpy" in text


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is installed")
def test_a_program_in_c_with_exported_code(tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "motet").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m motet "$@"\n')
    (commands / "motet").chmod(0o755)
    text = output(EXAMPLES / "integrator" / "build.sh", tmp_path, path=commands)
    assert "largest difference: below 0.001" in text

"""Memory that cannot be had is one line that says how much was asked for, at every place that asks for it."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.integration.conftest import environment

import motet
from motet import builder as mb

GIB = 1 << 30
# Address space, not memory: enough for the interpreter with numpy, not for the tensors below.
LIMIT = 2 * GIB


def run_limited(*arguments: str | Path, folder: Path, limit: int = LIMIT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "motet", *map(str, arguments)], cwd=folder, text=True, capture_output=True,
        env={**environment(), "MOTET_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"}, timeout=240,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )


def error_of(outcome: subprocess.CompletedProcess[str]) -> str:
    assert outcome.returncode == 1, outcome.stdout[-500:] + outcome.stderr[-2000:]
    (line,) = outcome.stderr.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def asked_for(message: str) -> int:
    found = re.fullmatch(r"device host: not enough memory: ([\d,]+) bytes asked for", message)
    assert found, message
    return int(found[1].replace(",", ""))


def test_input_larger_than_memory(compiled: Path) -> None:
    message = error_of(run_limited("run", "rows.motet", "--input", "300000000x4xf32=1", folder=compiled))
    assert asked_for(message) == 300_000_000 * 4 * 4


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`outer`: a result of 4 n² bytes from an input of 4 n; `sums`: as much in the arena for a result of 4 n."""
    folder = tmp_path_factory.mktemp("growing")
    for name in ("outer", "sums"):
        with mb.Graph("main") as g:
            x = g.input("x", ("n", 1))
            square = mb.exp(x @ mb.transpose(x))
            g.result(square if name == "outer" else mb.softmax(square) @ x)
        motet.compile(g).save(folder / f"{name}.motet")
    return folder


@pytest.mark.parametrize("command", ["run", "bench"])
@pytest.mark.parametrize("name", ["outer", "sums"])
def test_result_or_arena_larger_than_memory(growing: Path, name: str, command: str) -> None:
    outcome = run_limited(command, f"{name}.motet", "--input", "30011x1xf32=1", folder=growing)
    assert asked_for(error_of(outcome)) >= 30011 * 30011 * 4


@pytest.mark.slow
def test_parameters_larger_than_memory(tmp_path: Path) -> None:
    with mb.Graph("main") as g:
        g.result(g.input("x", (1, 8192)) @ g.constant(np.zeros((8192, 8192), np.float32)))
    motet.compile(g).save(tmp_path / "x.motet")
    outcome = run_limited("run", "x.motet", "--input", "1x8192xf32=1", folder=tmp_path, limit=300 << 20)
    assert asked_for(error_of(outcome)) >= 8192 * 8192 * 4


def test_compiler_without_memory_is_one_error(tmp_path: Path, add: Path) -> None:
    outcome = run_limited("compile", add.name, "--no-cache", folder=tmp_path, limit=300 << 20)
    assert "the compiler died with" in error_of(outcome)
    assert [path.name for path in tmp_path.iterdir()] == [add.name]


@pytest.mark.slow
@pytest.mark.parametrize("mebibytes", range(140, 700, 40))
def test_any_limit_is_a_result_or_one_error(growing: Path, mebibytes: int) -> None:
    for name in ("outer", "sums"):
        arguments = ("run", f"{name}.motet", "--input", "6007x1xf32=1")
        outcome = run_limited(*arguments, folder=growing, limit=mebibytes << 20)
        if outcome.returncode:
            error_of(outcome)

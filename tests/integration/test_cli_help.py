"""What the command line says of itself, and that it says it without loading what it does not need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SOURCES = Path(__file__).resolve().parents[2] / "src"
COMMANDS = ("compile", "run", "bench", "devices", "inspect", "generate", "serve", "tune", "export", "c-library", "opt",
            "doctor", "new-device", "new-codegen", "completion", "lab")


def test_help_lists_every_command(motet: Run) -> None:
    outcome = motet("--help")
    assert outcome.returncode == 0
    assert outcome.stderr == ""
    listed = outcome.stdout.split("Commands:")[1]
    assert [line.split()[0] for line in listed.strip().splitlines()] == list(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_teaches_by_examples(motet: Run, command: str) -> None:
    outcome = motet(command, "--help")
    assert outcome.returncode == 0
    assert f"Usage: motet {command} " in outcome.stdout
    examples = outcome.stdout.split("Examples:")[1]
    assert f"motet {command}" in examples


def test_version_is_printed(motet: Run) -> None:
    assert motet("--version").stdout.startswith("motet ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("compile",), ("compile", "x.mlir", "--no-such-option"), ("no-such-command",), ("opt", "x.mlir"),
        ("run", "x.mlir", "--threads", "0"), ("run", "x.mlir", "--threads", "many"),
        ("bench", "x.mlir", "--repeat", "0"),
    ],
    ids=" ".join,
)
def test_wrong_command_line_is_status_2(motet: Run, arguments: tuple[str, ...]) -> None:
    outcome = motet(*arguments)
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert "Traceback" not in outcome.stderr


def modules_after(statement: str) -> set[str]:
    outcome = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"], check=True, text=True,
        capture_output=True, env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )
    return set(outcome.stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import motet", {"numpy", "typer", "rich", "llvmlite", "torch_mlir", "onnx", "motet.compiler"}),
        ("import motet.runtime", {"llvmlite", "torch_mlir", "onnx", "motet.compiler", "typer", "rich", "asyncio"}),
        ("import motet; motet.load; motet.Session", {"llvmlite", "torch_mlir", "onnx", "motet.compiler"}),
        ("from motet.tools.app import make_app; make_app()", {"numpy", "torch_mlir", "rich.console"}),
        ("import motet.compiler.service", {"llvmlite", "torch_mlir", "onnx"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_import_loads_only_what_it_needs(statement: str, absent: set[str]) -> None:
    assert not modules_after(statement) & absent


def test_public_names_are_all_there() -> None:
    import motet

    found: dict[str, Any] = {name: getattr(motet, name) for name in motet.__all__}
    assert all(value is not None for value in found.values())
    assert set(motet.__all__) <= set(dir(motet))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = motet.nonsense  # type: ignore[attr-defined]

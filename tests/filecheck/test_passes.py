"""The tests of passes, `passes/*/NAME.mlir`, in one process: lit would start three for each of them.

Each RUN line is what a shell would run, `motet opt %s --pipeline P | filecheck %s`, and lit runs it too. A pass that
says that it changed nothing must not have changed anything.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import parse_argv_options
from filecheck.parser import Parser

from motet.compiler import stages
from motet.compiler.passes import registry
from motet.compiler.passes.base import Pass
from motet.compiler.passes.running import run_steps

ROOT = Path(__file__).parent / "passes"
MARK = "// RUN:"


def _lines() -> Iterator[tuple[Path, str]]:
    for path in sorted(ROOT.rglob("*.mlir")):
        for line in path.read_text().splitlines():
            if line.startswith(MARK):
                yield path, line.removeprefix(MARK).strip()


def _after(path: Path, pipeline: str) -> str:
    """The text of a file after the passes of `pipeline`, each of which is watched."""
    with stages.opened(path.read_text(), str(path)) as program:
        for step in stages.steps_of(pipeline):
            before = str(program.module)
            changed = run_steps((step,), program)
            if isinstance(step, str) and isinstance(registry.make(step), Pass):
                assert changed or str(program.module) == before, f"{step} changed what it says that it did not"
        return str(program.module)


@pytest.mark.parametrize(("path", "line"), [
    pytest.param(path, line, id=f"{path.relative_to(ROOT)}-{number}") for number, (path, line) in enumerate(_lines())
])
def test_pass(path: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    run, _, check = line.partition(" | ")
    motet, opt, file, flag, pipeline = shlex.split(run)
    assert (motet, opt, file, flag) == ("motet", "opt", "%s", "--pipeline"), line
    options = parse_argv_options([argument.replace("%s", str(path)) for argument in shlex.split(check)])
    text = _after(path, pipeline)
    matcher = Matcher(options, FInput(f"{path.name} after {pipeline}", text), Parser.from_opts(options))
    assert matcher.run() == 0, f"{capsys.readouterr()}\n{text}"

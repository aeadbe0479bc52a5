"""The checks of structure find what they are for; `make lint` and `.ci/run` run them."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks.structure import (
    Check,
    Module,
    backend_imports,
    frontend_imports,
    hidden_misspellings,
    kernel_imports,
    lab_imports,
    many_parameters,
    package_pairs,
    unused,
)

FRONTEND = "motet.compiler.frontends.stablehlo.loading"
CPU, KERNELS = "motet.compiler.codegen.cpu.rows.rows", "motet.compiler.kernels.rows"
GPU = "motet.compiler.codegen.gpu.gemm.plan"


@pytest.mark.parametrize(
    ("check", "name", "text"),
    [
        (backend_imports, CPU, "from motet.compiler.codegen.triton.text.scalars import number"),
        (backend_imports, CPU, "def late():\n    import motet.compiler.codegen.nvvm.emit"),
        (frontend_imports, FRONTEND, "from motet.compiler.placement.place import Place"),
        (lab_imports, FRONTEND, "def late():\n    from motet.lab.space import Point"),
        (lab_imports, "motet.records.database", "import motet.lab"),
        (frontend_imports, FRONTEND, "def late():\n    import motet.compiler.placement.inline_calls"),
        (backend_imports, GPU, "from motet.compiler.codegen.triton.text.writer import Writer"),
        (kernel_imports, KERNELS, "from llvmlite import ir"),
        (hidden_misspellings, "motet.lab", "def __getattr__(name: str) -> object: ..."),
        (kernel_imports, KERNELS, "import triton.language"),
        (kernel_imports, KERNELS, "from motet.compiler.codegen.cpu.gemm.microkernel import Frame"),
    ],
)
def test_forbidden_imports_are_found(check: Check, name: str, text: str) -> None:
    assert list(check([Module(name, Path(), text)]))


@pytest.mark.parametrize(
    ("check", "name", "text"),
    [
        (backend_imports, CPU, "from motet.compiler.codegen.llvm.text import to_llvmlite"),
        (backend_imports, CPU, "from motet.compiler.codegen.cpu.emit.builder import Builder"),
        (lab_imports, "motet.tools.lab.show", "from motet.lab.space import Point"),
        (lab_imports, FRONTEND, "from motet.records.record import Record"),
        (frontend_imports, FRONTEND, "from motet.compiler.passes.running import run_named"),
        (backend_imports, GPU, "from motet.compiler.codegen.gpu.tasks import LoopTask"),
        (kernel_imports, KERNELS, "from motet.compiler.ir._mlir import ir"),
        (hidden_misspellings, "motet.lab", "if not TYPE_CHECKING:\n    def __getattr__(name: str) -> object: ..."),
        (hidden_misspellings, KERNELS, "class Session:\n    def __getattr__(self, name: str) -> object: ..."),
    ],
)
def test_allowed_imports_are_no_findings(check: Check, name: str, text: str) -> None:
    assert not list(check([Module(name, Path(), text)]))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def left(): ...", ["a.left"]),
        ("def left():\n    left()", ["a.left"]),
        ('"""Of left."""\nLEFT = 1\nleft: int = 2', ["a.LEFT", "a.left"]),
        ("class Left: ...\ndef used() -> Left: ...\nTABLE = {'used': 1}\nprint(TABLE)", []),
        ("def used(): ...", ["a.used"]),
        ("@registered\ndef command(): ...", []),
        ("class Fold(Pass):\n    name = 'fold'\n    def run(self): ...", []),
    ],
)
def test_what_nothing_uses_is_found(text: str, found: list[str]) -> None:
    assert list(unused([Module("a", Path(), text)])) == found


@pytest.mark.parametrize("text", ["from a import left", "import a\na.left", "table = {'x': 'a.left'}\nprint(table)"])
def test_uses_in_other_modules_count(text: str) -> None:
    assert list(unused([Module("a", Path(), "def left(): ..."), Module("b", Path(), text)])) == []


def test_more_than_seven_parameters_need_a_reason() -> None:
    function = "def f(a, b, c, d, e, f, g, *, h): ..."
    assert list(many_parameters([Module("a", Path(), function)])) == ["a.f: 8 parameters"]
    assert not list(many_parameters([Module("a", Path(), f"# Parameters: those of the operator.\n{function}")]))
    method = "class A:\n    def f(self, a, b, c, d, e, f, g): ..."
    assert not list(many_parameters([Module("a", Path(), method)]))


def test_packages_that_import_each_other_are_found_however_deep_their_modules_are() -> None:
    modules = [
        Module("motet.compiler.kernels.reader.read", Path(), "def late():\n    import motet.compiler.tuning.given\n"),
        Module("motet.compiler.tuning.given", Path(), "from motet.compiler.kernels.reader.read import read\n"),
        Module("motet.compiler.pipeline", Path(), "import motet.compiler.tuning.given\nimport motet.tools.show\n"),
        Module("motet.tools.show", Path(), "import motet.compiler.pipeline\nimport motet.compiler.tuning.given\n"),
    ]
    assert list(package_pairs(modules)) == ["motet.compiler.kernels and motet.compiler.tuning"]

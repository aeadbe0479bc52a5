"""What the compiler's packages may import of each other, and that the checks of it see a forbidden import."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks.structure import Check, Module, backend_imports, frontend_imports, kernel_imports, read_modules

FRONTEND = "motet.compiler.frontends.stablehlo.loading"
CPU, KERNELS = "motet.compiler.codegen.cpu.rows.rows", "motet.compiler.kernels.rows"
GPU = "motet.compiler.codegen.gpu.gemm.plan"


@pytest.mark.parametrize("check", [backend_imports, frontend_imports, kernel_imports])
def test_packages_import_what_the_architecture_allows(check: Check) -> None:
    assert list(check(read_modules())) == []


@pytest.mark.parametrize(
    ("check", "name", "text"),
    [
        (backend_imports, CPU, "from motet.compiler.codegen.triton.text.scalars import number"),
        (backend_imports, CPU, "def late():\n    import motet.compiler.codegen.nvvm.emit"),
        (frontend_imports, FRONTEND, "from motet.compiler.placement.place import Place"),
        (frontend_imports, FRONTEND, "def late():\n    import motet.compiler.placement.inline_calls"),
        (backend_imports, GPU, "from motet.compiler.codegen.triton.text.writer import Writer"),
        (kernel_imports, KERNELS, "from llvmlite import ir"),
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
        (frontend_imports, FRONTEND, "from motet.compiler.passes.running import run_named"),
        (backend_imports, GPU, "from motet.compiler.codegen.gpu.tasks import LoopTask"),
        (kernel_imports, KERNELS, "from motet.compiler.ir._mlir import ir"),
    ],
)
def test_allowed_imports_are_no_findings(check: Check, name: str, text: str) -> None:
    assert not list(check([Module(name, Path(), text)]))

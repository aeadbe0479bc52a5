"""What code objects for AMD's GPUs say, against LLVM's text of the same code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from motet.compiler.codegen.triton.compile.hsaco import read_resources

pytest.importorskip("triton")

SOURCE = """
import triton
import triton.language as tl


@triton.jit
def kernel(x, y):
    at = tl.arange(0, {size})
    a = tl.load(x + at[:, None] * {size} + at[None, :])
    b = tl.load(y + at[:, None] * {size} + at[None, :])
    tl.store(y + at[:, None] * {size} + at[None, :], tl.dot(a, b))
"""


@pytest.mark.parametrize("size", [32, pytest.param(256, marks=pytest.mark.slow)])
def test_registers_and_spills_are_those_of_the_assembly(tmp_path: Path, size: int) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from motet.compiler.codegen.triton.compile.worker import load

    function = load(SOURCE.format(size=size), "kernel", tmp_path / "kernel.py")
    source = ASTSource(function, {"x": "*fp32", "y": "*fp32"}, {})
    made = triton.compile(source, target=GPUTarget("hip", "gfx942", 64), options={"num_warps": 4})
    found = read_resources(made.asm["hsaco"], "kernel")
    text = made.asm["amdgcn"]
    counts = {key: int(re.search(rf"\.{key}:\s+(\d+)", text)[1]) for key in  # pyright: ignore
              ("vgpr_count", "agpr_count", "private_segment_fixed_size")}
    assert found.registers == counts["vgpr_count"] + counts["agpr_count"] > 0
    assert found.spills == counts["private_segment_fixed_size"]
    assert (found.spills > 0) == (size == 256)


def test_what_is_no_code_object() -> None:
    with pytest.raises(ValueError, match="no 64-bit ELF"):
        read_resources(b"MZ", "kernel")

"""Pieces of concatenations are written by shared functions, to the right places."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.compiler.building import TARGETS, run

from motet.compiler import service
from motet.compiler.codegen.cpu.rows.shared_phases import shared_stage
from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.kernel import Access, Kernel, Stage, Value
from motet.compiler.request import CompileRequest
from motet.compiler.targets.cpu import CpuTarget
from motet.compiler.targets.device_flags import parse_device_flags

DTYPES = {"f32": np.float32, "f64": np.float64, "i8": np.int8, "f16": np.float16}


def program(shapes: list[tuple[int, ...]], axis: int, dtype: str) -> str:
    kinds = ["x".join(map(str, shape)) + f"x{dtype}" for shape in shapes]
    whole = list(shapes[0])
    whole[axis] = sum(shape[axis] for shape in shapes)
    result = f"tensor<{'x'.join(map(str, whole))}x{dtype}>"
    arguments = ", ".join(f"%a{n}: tensor<{kind}>" for n, kind in enumerate(kinds))
    names, types = ", ".join(f"%a{n}" for n in range(len(kinds))), ", ".join(f"tensor<{kind}>" for kind in kinds)
    return f"""func.func @main({arguments}) -> {result} {{
      %r = tensor.concat dim({axis}) {names} : ({types}) -> {result}
      return %r : {result}
    }}"""


CASES = [
    ([(1, 32, 7, 7)] * 5, 1, "f32"), ([(1, 64, 3, 5), *[(1, 32, 3, 5)] * 4], 1, "f32"), ([(3, 5)] * 4, 0, "f32"),
    ([(16, 17)] * 6, 0, "f64"), ([(2, 16)] * 9, 1, "f32"), ([(2, 48, 1)] * 3, 1, "f16"), ([(64, 3)] * 4, 0, "i8"),
    ([(0, 4), (16, 4), (16, 4)], 0, "f32"), ([(1, 1)] * 7, 0, "f32"), ([(31, 33)] * 3, 1, "f32"),
    ([(8, 16), (24, 16), (8, 16), (24, 16)], 0, "f32"),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("shapes", "axis", "dtype"), CASES)
def test_concatenations(shapes: list[tuple[int, ...]], axis: int, dtype: str, target: CpuTarget) -> None:
    random = np.random.default_rng(17)
    inputs = [random.integers(-99, 99, shape).astype(DTYPES[dtype]) for shape in shapes]
    (found,) = run(program(shapes, axis, dtype), inputs, target)
    np.testing.assert_array_equal(found, np.concatenate(inputs, axis))


def stage(source: int, begin: int) -> Stage:
    read = Access(source, (Affine.dim(0), Affine.dim(1)))
    written = Access(3, (Affine.dim(0).plus(begin), Affine.dim(1)))
    return Stage((4, 16), ("parallel", "parallel"), (read,), (written,), (None,), (), (0,))


def test_only_places_as_aligned_as_buffers_share_functions() -> None:
    parts = [Value((4, 16), "f32", "argument", (0, 1))] * 3
    kernel = Kernel("k", (*parts, Value((12, 16), "f32", "result", (0, 1))), (stage(0, 0), stage(1, 4), stage(2, 8)))
    found = [shared_stage(kernel, each) for each in kernel.stages]
    assert found[0] is not None and found[1] is not None and found[0].key == found[1].key
    assert found[1].numbers == (1, 3) and found[1].bases == (0, 4 * 16 * 4)
    narrow = Value((12, 5), "f32", "result", (0, 1))
    assert shared_stage(replace(kernel, values=(*parts, narrow)), stage(1, 4)) is None


def test_equal_pieces_have_one_function() -> None:
    text = program([(1, 32, 7, 7)] * 5, 1, "f32")
    devices = parse_device_flags(["host{cpu=x86-64-v3}"])
    emitted = service.emit(CompileRequest(text, "concat.mlir", devices=devices), "llvm")
    assert emitted.count("define internal void") == 1

"""Kernels write to their results alone: what lies before and behind stays as it is, whatever is left over for the last
vector. `Executable` looks after it in every test; these are the extents at which masks are all that keeps to it."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from llvmlite import ir
from tests.unit.compiler.codegen.cpu.harness import (
    DTYPES,
    FILLING,
    Executable,
    aligned,
    build,
    check_guards,
    compile_llvm,
    levels,
)
from tests.unit.compiler.codegen.cpu.kernels import at, kernel, op, softmax, stage, value

from motet.compiler.codegen.cpu.emit.builder import F16, F32, I1, I8, I16, I32, I64, PTR, Builder
from motet.compiler.codegen.cpu.emit.compute_types import to_storage
from motet.compiler.codegen.cpu.rows import loops
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.targets.cpu import CpuTarget

SIZES = [*range(1, 20), 31, 33, 47, 63, 65, 129, 131]


def masked_store(wide: ir.Type, narrow: ir.Type, lanes: int, active: list[bool], target: CpuTarget) -> Any:
    """An engine whose function `f(to, from)` narrows a vector and stores those lanes."""
    module = ir.Module("store")
    function: Any = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR]), "f")
    b = Builder(function.append_basic_block("entry"))
    vector = b.load_vector(function.args[1], wide, lanes)
    if wide == F32 and narrow == I16:
        stored = to_storage(b, vector, "bf16")
    elif wide == F32:
        stored = b.fptrunc(vector, ir.VectorType(narrow, lanes))
    else:
        stored = b.trunc(vector, ir.VectorType(narrow, lanes))
    b.masked_store(stored, function.args[0], narrow, lanes, ir.Constant(ir.VectorType(I1, lanes), active))
    b.ret_void()
    return compile_llvm(str(module), target)


@pytest.mark.parametrize("target", levels(), ids=lambda target: target.name)
@pytest.mark.parametrize("wide, narrow, source, dtype", [
    (I32, I16, "i4", "i2"), (I32, I8, "i4", "i1"), (I64, I16, "i8", "i2"), (I64, I8, "i8", "i1"),
    (F32, I16, "f4", ml_dtypes.bfloat16), (F32, F16, "f4", "f2"),
], ids=["i32-i16", "i32-i8", "i64-i16", "i64-i8", "f32-bf16", "f32-f16"])
def test_masked_stores_write_the_lanes_of_the_mask_alone(
    wide: ir.Type, narrow: ir.Type, source: str, dtype: Any, target: CpuTarget
) -> None:
    for lanes in (4, 8, 16):
        masks = [[lane == only for lane in range(lanes)] for only in (0, 1, lanes - 1)]
        masks += [[lane < count for lane in range(lanes)] for count in (2, 3, lanes - 1)]
        for active in masks:
            engine = masked_store(wide, narrow, lanes, active, target)
            store = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(engine.get_function_address("f"))
            values = np.arange(1, lanes + 1).astype(source)
            last = max(lane for lane in range(lanes) if active[lane])
            memory = aligned((last + 1) * np.dtype(dtype).itemsize)
            store(memory.ctypes.data, values.ctypes.data)
            check_guards(memory)
            untouched = np.full(memory.nbytes, FILLING, np.uint8).view(dtype)
            wanted = np.where(active[: last + 1], values[: last + 1].astype(dtype), untouched)
            np.testing.assert_array_equal(memory.view(f"u{untouched.itemsize}"), wanted.view(f"u{wanted.itemsize}"))


def converted(rows: int, count: int, source: str, target: str) -> Kernel:
    """Each element in another dtype: what is computed is wider than what is stored."""
    name = {"f": "truncf", "i": "trunci"}[source[0]]
    body = [op(name, 0, dtype=target)]
    return kernel(
        [value((rows, count), source), value((rows, count), target, "result")],
        stage((rows, count), "pp", [at(0, 2, 0, 1)], [at(1, 2, 0, 1)], body),
    )


def compared(count: int) -> Kernel:
    return kernel(
        [value((count,), "f32"), value((count,), "i1", "result")],
        stage((count,), "p", [at(0, 1, 0)], [at(1, 1, 0)], [
            op("arith.constant", dtype="f32", value=0.0), op("cmpf", 0, 2, dtype="i1", predicate="ogt"),
        ]),
    )


def run(made: Executable, x: np.ndarray) -> np.ndarray:
    """The result, which may begin anywhere: behind it there is nothing of it."""
    (first,) = made(x)
    again = made.prepare([x])
    again.move_results(2 * first.itemsize)
    again.run(2)
    (second,) = again.results()
    np.testing.assert_array_equal(first, second)
    return first


@pytest.mark.parametrize("target", levels(), ids=lambda target: target.name)
@pytest.mark.parametrize("source, dtype", [
    ("f32", "f16"), ("f32", "bf16"), ("i32", "i16"), ("i32", "i8"), ("i64", "i16"), ("i64", "i8"),
])
def test_conversions_to_narrow_elements(source: str, dtype: str, target: CpuTarget) -> None:
    for count in SIZES:
        x = (np.random.default_rng(count).standard_normal((1, count)) * 9).astype(DTYPES[source])
        result = run(build(loops.CLASS.generate, converted(1, count, source, dtype), target), x)
        np.testing.assert_array_equal(result, x.astype(DTYPES[dtype]))


@pytest.mark.parametrize("target", levels(), ids=lambda target: target.name)
def test_truth_values(target: CpuTarget) -> None:
    for count in SIZES:
        x = np.random.default_rng(count).standard_normal(count).astype("f4")
        np.testing.assert_array_equal(run(build(loops.CLASS.generate, compared(count), target), x), x > 0)


@pytest.mark.parametrize("target", levels(), ids=lambda target: target.name)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_rows_of_narrow_elements(dtype: str, target: CpuTarget) -> None:
    for count in (1, 2, 9, 16, 17, 33, 49, 65, 129):
        x = np.random.default_rng(count).standard_normal((1, count)).astype(DTYPES[dtype])
        exponentials = np.exp(x.astype("f8") - x.astype("f8").max())
        result = run(build(loops.CLASS.generate, softmax(1, count, dtype), target), x)
        np.testing.assert_allclose(result.astype("f8"), exponentials / exponentials.sum(), rtol=2e-2, atol=1e-3)

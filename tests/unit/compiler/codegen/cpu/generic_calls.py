"""Compiles functions on tensors by the generic path, and calls them."""

from __future__ import annotations

import ctypes
import itertools

import llvmlite.binding as llvm
import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.generic.generic import GenericCode, emit_generic
from motet.compiler.codegen.cpu.objects import ObjectUnit, compile_units, target_machine
from motet.compiler.ir._mlir import ir
from motet.compiler.targets.native import native_target


def emit(text: str, name: str = "main", gathers: bool = True) -> GenericCode:
    context = ir.Context()
    context.allow_unregistered_dialects = True
    with context, ir.Location.unknown():
        module = ir.Module.parse(text)
        before = str(module)
        function = ir.SymbolTable(module.operation)[name].operation
        code = emit_generic(function, "kernel_0", gathers)
        assert str(module) == before
    return code


def result_types(text: str, name: str = "main") -> list[np.dtype]:
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        function = ir.SymbolTable(ir.Module.parse(text).operation)[name]
        kinds = [ir.RankedTensorType(kind) for kind in function.type.results]
        complexes = {"complex<f32>": np.dtype(np.complex64)}
        return [(DTYPES | complexes)[str(kind.element_type)] for kind in kinds]


def evaluate(tasks: Expr, sizes: list[int]) -> int:
    if isinstance(tasks, list):
        assert tasks[0] == "max"
        return max(evaluate(part, sizes) for part in tasks[1:])
    return tasks if isinstance(tasks, int) else sizes[int(tasks[1:])]


def run(
    text: str, inputs: list[np.ndarray], shapes: list[tuple[int, ...]], splits: int = 1
) -> list[np.ndarray]:
    """Call the compiled function with its tasks in `splits` calls, the last first; guards around results."""
    results, status = call(text, inputs, shapes, splits)
    assert not any(status)
    return results


def call(
    text: str, inputs: list[np.ndarray], shapes: list[tuple[int, ...]], splits: int = 1, gathers: bool = True
) -> tuple[list[np.ndarray], list[int]]:
    """What `run` gives, and the status: the number of the check that failed, its index, and its extent."""
    code = emit(text, gathers=gathers)
    (phase,) = code.code.phases
    (data,) = compile_units([ObjectUnit("k", code.code.llvm, optimise=True)], native_target(), 1)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine(native_target()))
    engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    arrays = [np.ascontiguousarray(array).reshape(array.shape) for array in inputs]
    guard = 64
    memory = []
    for shape, dtype in zip(shapes, result_types(text), strict=True):
        memory.append(np.full(int(np.prod(shape)) * dtype.itemsize + 2 * guard, 0xA5, np.uint8))
    workspaces = [np.full(int(str(size)) + 2 * guard, 0xA5, np.uint8) for size in code.code.workspaces]
    pointers = [array.ctypes.data for array in arrays]
    pointers += [block.ctypes.data + guard for block in (*memory, *workspaces)]
    status = np.zeros(4, np.int64)
    pointers += [status.ctypes.data] if code.code.checks else []
    extents = {"argument": [array.shape for array in arrays], "result": shapes}
    sizes = [extents[which][index][axis] for which, index, axis in code.extents]
    tasks = evaluate(phase.tasks, sizes)
    buffers = (ctypes.c_void_p * len(pointers))(*pointers)
    numbers = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
    prototype = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
    )
    function = prototype(engine.get_function_address(phase.symbol))
    bounds = np.linspace(0, tasks, splits + 1).astype(int)
    for begin, end in reversed(list(itertools.pairwise(bounds))):
        if begin < end:
            function(buffers, numbers, int(begin), int(end), None)
    for block in workspaces:
        assert (block[:guard] == 0xA5).all()
        assert (block[len(block) - guard :] == 0xA5).all()
    results = []
    for block, shape, dtype in zip(memory, shapes, result_types(text), strict=True):
        assert (block[:guard] == 0xA5).all()
        assert (block[len(block) - guard :] == 0xA5).all()
        results.append(block[guard : len(block) - guard].view(dtype).reshape(shape))
    return results, status.tolist()[:3]

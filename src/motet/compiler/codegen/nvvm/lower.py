"""Lowers a body (`body.py`) to LLVM IR for NVIDIA's GPUs, by upstream's passes.

    memory and control flow  → affine and linalg expanded, scf to branches
    gpu, math                → nvvm intrinsics and calls of libdevice       (convert-gpu-to-nvvm)
    the rest                 → the LLVM dialect, then its text
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from motet.compiler.codegen.llvm.text import to_llvmlite
from motet.compiler.ir._mlir import ir, run_pipeline, to_llvm_ir
from motet.compiler.ir.translate import source_location
from motet.errors import CompileError, Location

_EXPANDED = ("arith.ceildivui", "arith.ceildivsi", "arith.floordivsi")
_STRUCTURE = (
    "lower-affine,convert-linalg-to-loops,convert-complex-to-standard,scf-parallel-for-to-nested-fors,memref-expand,expand-strided-metadata,"
    "lower-affine,convert-vector-to-scf,convert-scf-to-cf,canonicalize,cse"
)
_REST = "convert-vector-to-llvm,convert-complex-to-llvm,convert-to-llvm,canonicalize,cse,reconcile-unrealized-casts"
_ILLEGAL = re.compile(r"failed to legalize operation '([^']+)'")
# MLIR's atomic operations order all memory system-wide; those of a kernel concern a single address.
_ATOMIC = re.compile(r"^(\s*%\S+ = atomicrmw .*?) acq_rel(?=, align \d+$)", re.MULTILINE)
_EXCHANGE = re.compile(r"^(\s*%\S+ = cmpxchg .*?) acq_rel \w+(?=, align \d+$)", re.MULTILINE)
_CONTRACTED = re.compile(r"( = f(?:add|sub|mul)) (?=(?:<\d+ x )?(?:half|bfloat|float|double)\b)")
_INTERNAL = re.compile(r"^define (?!internal |private )", re.MULTILINE)


def lower_body(container: ir.Operation) -> str:
    """LLVM IR, in llvmlite's version, of the functions of `container`, a `gpu.module` that is rewritten; they are
    internal. Products and sums may be contracted, as GPU compilers do.

    Raises CompileError, with the name of the operation, if one has no lowering.
    """
    place = source_location(container)
    holder = ir.Module.create(loc=container.location)
    holder.body.append(container)
    _run(holder, "gpu.module(inline,symbol-dce)", place)
    if any(operation.name in _EXPANDED for operation in _operations(holder.operation)):
        _run(holder, "gpu.module(arith-expand)", place)
    _run(holder, f"gpu.module({_STRUCTURE})", place)
    _run(holder, "gpu.module(convert-gpu-to-nvvm)", place)
    _run(holder, f"gpu.module({_REST})", place)
    flat = ir.Module.create(loc=container.location)
    for entry in list(holder.body.operations[0].operation.regions[0].blocks[0].operations):
        flat.body.append(entry.operation)
    for operation in _operations(flat.operation):
        if not operation.name.startswith(("llvm.", "nvvm.")):
            raise _no_code(operation.name, source_location(operation))
    return _adapted(to_llvmlite(to_llvm_ir(flat)))


def _adapted(text: str) -> str:
    text = _ATOMIC.sub(r'\1 syncscope("device") monotonic', text)
    text = _EXCHANGE.sub(r'\1 syncscope("device") monotonic monotonic', text)
    return _INTERNAL.sub("define internal ", _CONTRACTED.sub(r"\1 contract ", text))


def _operations(operation: ir.Operation) -> Iterator[ir.Operation]:
    for region in operation.regions:
        for block in region.blocks:
            for entry in block.operations:
                yield entry.operation
                yield from _operations(entry.operation)


def _run(module: ir.Module, pipeline: str, place: Location | None) -> None:
    try:
        run_pipeline(module, pipeline)
    except ir.MLIRError as error:
        raise _failure(error, place) from error


def _failure(error: ir.MLIRError, place: Location | None) -> CompileError:
    for diagnostic in error.error_diagnostics:
        match = _ILLEGAL.search(diagnostic.message)
        found = re.search(r'"([^"]+)":(\d+):(\d+)', str(diagnostic.location))
        where = Location(found[1], int(found[2]), int(found[3])) if found else place
        if match:
            return _no_code(match[1], where)
        return CompileError(f"upstream's lowering for cuda devices fails: {diagnostic.message.splitlines()[0]}", where)
    return CompileError(f"upstream's lowering for cuda devices fails: {' '.join(str(error).split())}", place)


def _no_code(name: str, place: Location | None) -> CompileError:
    return CompileError(
        f"{name}: there is no code for this operation on cuda devices, for these types; place the launch on another "
        "device, such as the host", place,
    )

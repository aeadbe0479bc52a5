"""lower-launches: lowers kernel launches to loops over blocks and threads, and GPU memory to host memory.

    %t = gpu.launch_func async [%s] @m::@k blocks in (%b, %1, %1) threads in (%n, %1, %1) args(%x : …)
      →  scf.for %block = 0 to %b { scf.for %thread = 0 to %n { <the body of @k> } }

Operations run in program order, which is consistent with every order that tokens allow: a token is only waited for by
later operations. Tokens, streams and operations on tokens are therefore removed.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.frontends.gpu.calls import inline_functions
from motet.compiler.frontends.gpu.checks import (
    LAUNCHES,
    axis_of,
    check_function,
    check_sizes,
    computed_with,
    find_kernel,
    segments,
)
from motet.compiler.frontends.gpu.dynamic_memory import WORKGROUP
from motet.compiler.frontends.gpu.host_loops import loop
from motet.compiler.frontends.gpu.keep_launches import keep_launch
from motet.compiler.frontends.gpu.kernels import KernelBody, read_kernel, within
from motet.compiler.frontends.gpu.missing_tokens import check_waits
from motet.compiler.frontends.gpu.threads import Threads
from motet.compiler.frontends.gpu.unroll_loops import unroll_loops
from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import func, ir, run_pipeline
from motet.compiler.ir.create import create
from motet.compiler.passes.base import ModulePass
from motet.errors import CompileError

_FORGOTTEN = ("gpu.wait", "gpu.host_register", "gpu.host_unregister", "gpu.set_default_device")
_STREAM = "!llvm.ptr"
_WORKGROUP_BYTES = 232448  # of one block, at most: 227 KiB, as on compute capability 9.0


@dataclass(frozen=True)
class LowerLaunches(ModulePass):
    """Leaves no operation of the dialect `gpu`. Raises CompileError, at the operation, for launches that no GPU accepts
    and for operations that the host cannot run."""

    name = "lower-launches"

    def run(self, module: ir.Module) -> None:
        _lower_module(module)


def _lower_module(module: ir.Module) -> None:
    for operation in within(module.operation):
        if operation.name in LAUNCHES:
            check_sizes(operation)
    run_pipeline(module, "gpu-kernel-outlining")
    for entry in module.body.operations:
        if isinstance(entry, func.FuncOp):
            check_waits(module, entry.operation)
    inline_functions(module)
    unroll_loops(module)
    functions = [entry for entry in module.body.operations if isinstance(entry, func.FuncOp)]
    for function in functions:
        operations = [op for op in within(function.operation) if op.name.startswith("gpu.")]
        check_function(within(function.operation))
        for operation in operations:
            _lower(module, operation)
        for operation in reversed(operations):
            operation.erase()
        _drop_streams(module, function)
    for entry in list(module.body.operations):
        if entry.operation.name in ("gpu.module", "gpu.binary"):
            entry.operation.erase()
    if "gpu.container_module" in module.operation.attributes:
        del module.operation.attributes["gpu.container_module"]


def _drop_streams(module: ir.Module, function: func.FuncOp) -> None:
    """Erases the arguments of a function that were streams alone. Other functions call it as it was."""
    if any(op.name == "func.call" and str(op.attributes["callee"]) == f"@{function.name.value}"
           for op in within(module.operation)):
        return
    block = function.entry_block
    dropped = [i for i, each in enumerate(block.arguments) if str(each.type) == _STREAM and not list(each.uses)]
    for index in reversed(dropped):
        block.erase_argument(index)
    if dropped and "arg_attrs" in function.attributes:
        kept = [each for i, each in enumerate(ir.ArrayAttr(function.attributes["arg_attrs"])) if i not in dropped]
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(kept)
    kind = ir.FunctionType.get([each.type for each in block.arguments], function.type.results)
    function.attributes["function_type"] = ir.TypeAttr.get(kind)


def _lower(module: ir.Module, operation: ir.Operation) -> None:
    """Creates the replacement of `operation` before it."""
    operands = computed_with(operation)
    match operation.name:
        case "gpu.launch_func":
            kept = keep_launch(module, operation)
            if not kept.known:
                _launch(kept.launch or operation, read_kernel(find_kernel(module, operation)))
            if kept.launch is not None:
                kept.launch.erase()
        case "gpu.alloc":
            sizes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0])}
            memory = create("memref.alloc", [operation.results[0].type], operands, operation, sizes)
            operation.results[0].replace_all_uses_with(memory.result)
        case "gpu.dealloc":
            create("memref.dealloc", [], operands, operation)
        case "gpu.memcpy":
            create("memref.copy", [], operands[::-1], operation)
        case "gpu.memset":
            _fill(operands[0], operands[1], operation)
        case name if name not in _FORGOTTEN:
            raise CompileError(
                f"{name}: this operation is not supported on the host; expected launches, gpu.alloc, gpu.dealloc, "
                "gpu.memcpy, gpu.memset and gpu.wait", locate(operation.location),
            )
        case _:
            pass


def _fill(memory: ir.Value, value: ir.Value, at: ir.Operation) -> None:
    sizes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1])}
    fill = create("linalg.fill", [], [value, memory], at, sizes, regions=1)
    block = fill.regions[0].blocks.append(value.type, value.type, arg_locs=[at.location] * 2)
    ir.Operation.create("linalg.yield", operands=[block.arguments[0]], loc=at.location, ip=ir.InsertionPoint(block))


def _launch(launch: ir.Operation, kernel: KernelBody) -> None:
    parts = segments(launch)
    grid, sizes = ([_index(part[0], launch) for part in parts[begin : begin + 3]] for begin in (1, 4))
    arguments = list(kernel.block.arguments)
    known = dict(zip(arguments[: kernel.arguments], parts[11], strict=True))
    at, ids = launch, dict[int, ir.Value]()
    for axis in (2, 1, 0):
        at, ids[axis] = loop(grid[axis], at, launch.location)
    shared = arguments[kernel.arguments : kernel.arguments + kernel.workgroup]
    _check_workgroup(shared, launch)
    for memory in shared:
        attributes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])}
        known[memory] = create("memref.alloc", [memory.type], [], at, attributes).result
    for entry in kernel.block.operations:
        operation = entry.operation
        if operation.name in ("gpu.block_id", "gpu.block_dim", "gpu.grid_dim"):
            values = {"gpu.block_id": ids, "gpu.block_dim": sizes, "gpu.grid_dim": grid}[operation.name]
            known[operation.results[0]] = values[axis_of(operation)]
        elif WORKGROUP in operation.attributes:
            with ir.InsertionPoint(at):
                known[operation.results[0]] = operation.clone().results[0]
    Threads(sizes, at).run(kernel.block, known, arguments[kernel.arguments + kernel.workgroup :])


def _check_workgroup(memories: list[ir.Value], launch: ir.Operation) -> None:
    total = 0
    for memory in memories:
        kind = ir.MemRefType(memory.type)
        bits = "".join(filter(str.isdigit, str(kind.element_type))) or "64"
        elements = 1
        for extent in kind.shape:
            elements *= extent
        total += elements * max(8, int(bits)) // 8
    if total > _WORKGROUP_BYTES:
        raise CompileError(
            f"{launch.name}: a block needs {total} bytes of workgroup memory; expected at most {_WORKGROUP_BYTES}",
            locate(launch.location),
        )


def _index(value: ir.Value, at: ir.Operation) -> ir.Value:
    """A size as an index; a constant stays a constant."""
    if isinstance(value.type, ir.IndexType):
        return value
    return create("arith.index_cast", [ir.IndexType.get()], [value], at).result

"""Checks launches: the kernel exists, sizes are positive and within GPUs' limits, tokens belong to the same block.

Upstream's verifier checks the number and types of arguments, and that no token waits for itself.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from itertools import pairwise

from motet.compiler.frontends.gpu.spellings import LAUNCH
from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import integer_constant
from motet.compiler.ir.functions import symbol_name
from motet.errors import CompileError

_LOG = logging.getLogger("motet")
AXES = "xyz"
LAUNCHES = ("gpu.launch", "gpu.launch_func")
# CUDA C++ Programming Guide, technical specifications per compute capability (the same from 5.0 to 12.0).
_GRID_LIMITS = (2**31 - 1, 65535, 65535)
_BLOCK_LIMITS = (1024, 1024, 64)
_THREADS = 1024
_TOKEN = "!gpu.async.token"


def segments(launch: ir.Operation) -> list[list[ir.Value]]:
    """The operands of a launch by kind: tokens, 3 grid sizes, 3 block sizes, …"""
    sizes = [0, *ir.DenseI32ArrayAttr(launch.attributes["operandSegmentSizes"])]
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    operands = list(launch.operands)
    return [operands[begin:end] for begin, end in pairwise(ends)]


def stream_of(launch: ir.Operation) -> ir.Value | None:
    """The stream that a launch is put on, `gpu.launch <%s : !llvm.ptr>`: their last kind of operand."""
    part = segments(launch)[-1] if launch.name in LAUNCHES else []
    return part[0] if part else None


def computed_with(operation: ir.Operation) -> list[ir.Value]:
    """The operands of an operation, without the tokens and the stream that order it."""
    operands = list(operation.operands)
    if stream_of(operation) is not None:
        operands.pop()
    return [value for value in operands if not is_token(value)]


def sizes_with(launch: ir.Operation, tokens: int) -> ir.DenseI32ArrayAttr:
    """The numbers of a launch's operands by kind, with so many tokens and without a stream."""
    sizes = [tokens, *(len(part) for part in segments(launch)[1:])]
    return ir.DenseI32ArrayAttr.get(sizes if stream_of(launch) is None else [*sizes[:-1], 0])


def check_function(operations: Sequence[ir.Operation]) -> None:
    """Raises CompileError for tokens from elsewhere and for memory used after it is freed, among the operations of a
    function; warns of memory that is never freed."""
    check_tokens(operations)
    returned = [value for op in operations if op.name == "func.return" for value in op.operands]
    freed = [value for op in operations if op.name == "gpu.dealloc" for value in op.operands]
    for operation in operations:
        if operation.name == "gpu.alloc" and not any(operation.results[0] == value for value in (*returned, *freed)):
            _LOG.warning(
                "%s: gpu.alloc: memory that is never freed; expected a gpu.dealloc of it; it is freed when the "
                "function returns", locate(operation.location) or "gpu.alloc",
            )
    for operation in operations:
        if operation.name == "gpu.dealloc":
            check_freed(operation)


def check_sizes(launch: ir.Operation) -> None:
    """Raises CompileError for static grid or block sizes beyond the limits of GPUs."""
    parts = segments(launch)
    if any(integer_constant(size) != 1 for part in parts[7:10] for size in part):
        raise CompileError(
            f"{launch.name}: clusters of blocks are not supported; expected none", locate(launch.location)
        )
    grid, block = ([integer_constant(part[0]) for part in parts[begin : begin + 3]] for begin in (1, 4))
    for what, sizes, limits in (("grid", grid, _GRID_LIMITS), ("block", block, _BLOCK_LIMITS)):
        for axis, size, limit in zip(AXES, sizes, limits, strict=True):
            if size is not None and not 1 <= size <= limit:
                raise CompileError(
                    f"{launch.name}: the {what} has size {size} in {axis}; expected 1 to {limit}",
                    locate(launch.location),
                )
    threads = math.prod(size for size in block if size is not None)
    if threads > _THREADS:
        raise CompileError(
            f"{launch.name}: a block of {threads} threads; expected at most {_THREADS}", locate(launch.location)
        )


def check_freed(dealloc: ir.Operation) -> None:
    """Raises CompileError if memory is used, in the same block, after `dealloc` has freed it."""
    memory = dealloc.operands[len(dealloc.operands) - 1]
    users = [use.owner.operation for use in memory.uses]
    freed = False
    for entry in dealloc.operation.block.operations:
        operation = entry.operation
        if freed and any(operation == user for user in users):
            raise CompileError(
                f"{operation.name}: memory is used after gpu.dealloc has freed it", locate(operation.location)
            )
        freed = freed or operation == dealloc


def find_kernel(module: ir.Module, launch: ir.Operation) -> ir.Operation:
    """The `gpu.func` that `launch` names. Raises CompileError if the module does not define it."""
    symbol = ir.SymbolRefAttr(launch.attributes["kernel"]).value
    for entry in module.body.operations:
        container = entry.operation
        if container.name == "gpu.module" and symbol_name(container) == symbol[0]:
            for inner in container.regions[0].blocks[0].operations:
                if inner.operation.name == "gpu.func" and symbol_name(inner.operation) == symbol[1]:
                    return inner.operation
    raise CompileError(
        f"{LAUNCH}: kernel @{'::@'.join(symbol)} is not in this file; expected `gpu.module @{symbol[0]}` with "
        f"`gpu.func @{symbol[-1]}`",
        locate(launch.location),
    )


def axis_of(operation: ir.Operation) -> int:
    """The axis of an id or size: 0 for x, 1 for y, 2 for z."""
    written = str(operation.attributes["dimension"])
    return next(axis for axis, letter in enumerate(AXES) if f"dim {letter}>" in written)


def is_token(value: ir.Value) -> bool:
    return str(value.type) == _TOKEN


def check_tokens(operations: Sequence[ir.Operation]) -> None:
    """Raises CompileError for tokens that no operation of `gpu` makes."""
    for operation in operations:
        foreign = [value for value in operation.operands if is_token(value) and _is_foreign(value)]
        handed = not operation.name.startswith("gpu.") and any(map(is_token, operation.results))
        if foreign or handed:
            raise CompileError(
                f"{operation.name}: a token from outside of this function or from a loop or branch; expected tokens of "
                "operations of gpu before it", locate(operation.location),
            )


def _is_foreign(token: ir.Value) -> bool:
    return isinstance(token.owner, ir.Block) or not token.owner.operation.name.startswith("gpu.")

"""Splits a function of loops into tasks, where the outermost loops' iterations do not depend on one another.

    func @f(%a: memref<8x4xf32>, %o: memref<8x4xf32>)      func @f(…, %begin: index, %end: index)
      scf.for %i = 0 to 8 …                                  scf.for %i = %begin to %end …
        … store %v, %o[%i, …]                       →          … store %v, %o[%i, …]
      scf.for %i = 0 to 8 …                                  scf.for %i = %begin to %end …
        … load %o[%i, …] …                                     … load %o[%i, …] …

That is so if whatever any outermost loop writes is accessed by all of them at the loop's own index in its
first dimension alone. Loops over different ranges stop each at its own end.
"""

from __future__ import annotations

from collections.abc import Iterator

from motet.compiler.ir._mlir import arith, ir

Rows = int | tuple[int, int]
"""A number of rows, or the (argument, axis) whose extent it is."""

_NO_EFFECT = ("arith.", "memref.dim", "memref.alloc", "memref.alloca", "memref.dealloc", "memref.get_global",
              "func.return")  # fmt: skip


def split_rows(function: ir.Operation) -> set[Rows] | None:
    """Let `function` run rows `[begin, end)`, two new arguments of type index; None where that cannot be.

    Returns the numbers of rows of its loops: the tasks are as many as the largest.
    """
    block = function.regions[0].blocks[0]
    if len(function.regions[0].blocks) != 1:
        return None
    loops: list[ir.Operation] = []
    for entry in block.operations:
        if entry.operation.name == "scf.for":
            loops.append(entry.operation)
        elif not entry.operation.name.startswith(_NO_EFFECT):
            return None
    ranges = {rows for loop in loops if (rows := _range(loop)) is not None}
    if not loops or any(_range(loop) is None for loop in loops) or not _independent(loops):
        return None
    index = ir.IndexType.get(function.context)
    location = ir.Location.unknown(function.context)
    begin, end = (block.add_argument(index, location) for _ in range(2))
    for loop in loops:
        own = loop.operands[1]
        loop.operands[0] = begin
        with ir.InsertionPoint(loop), loop.location:
            loop.operands[1] = end if len(ranges) == 1 else arith.MinSIOp(end, own).result
    return ranges


def _range(loop: ir.Operation) -> Rows | None:
    """The range of `loop` if it is from 0 by 1, and carries no values."""
    lower, upper, step, *carried = loop.operands
    if carried or _constant(lower) != 0 or _constant(step) != 1:
        return None
    number = _constant(upper)
    if number is not None:
        return number
    if isinstance(upper.owner, ir.Block) or upper.owner.name != "memref.dim":
        return None
    memory, axis = upper.owner.operands
    number = _constant(axis)
    if number is None or not isinstance(memory.owner, ir.Block):
        return None
    return ir.BlockArgument(memory).arg_number, number


def _constant(value: ir.Value) -> int | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    return ir.IntegerAttr(owner.attributes["value"]).value


def _independent(loops: list[ir.Operation]) -> bool:
    accesses = [(loop, access) for loop in loops for access in _operations(loop)]
    written: list[ir.Value] = []
    for _, access in accesses:
        if access.name == "memref.store":
            written.append(access.operands[1])
        elif not access.name.startswith(("memref.load", "arith.", "math.", "scf.for", "scf.if", "scf.yield")):
            return False
    if any(_outer_use(memory) for memory in written):
        return False
    for loop, access in accesses:
        if access.name not in ("memref.load", "memref.store"):
            continue
        memory, *indices = list(access.operands)[access.name == "memref.store" :]
        row = loop.regions[0].blocks[0].arguments[0]
        if memory in written and (not indices or indices[0] != row):
            return False
    return True


def _outer_use(memory: ir.Value) -> bool:
    """Whether `memory` may be reached by another name, or was made in a way that says nothing of that."""
    owner = memory.owner
    if not isinstance(owner, ir.Block) and owner.name not in ("memref.alloc", "memref.alloca"):
        return True
    known = ("memref.load", "memref.store", "memref.dim", "memref.dealloc")
    return any(use.owner.name not in known for use in memory.uses)


def _operations(loop: ir.Operation) -> Iterator[ir.Operation]:
    """All operations within `loop`."""
    found: list[ir.Operation] = []

    def look(operation: ir.Operation) -> ir.WalkResult:
        found.append(operation)
        return ir.WalkResult.ADVANCE

    for entry in loop.regions[0].blocks[0].operations:
        entry.operation.walk(look)
    return iter(found)

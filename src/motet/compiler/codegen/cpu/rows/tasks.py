"""Splits a function of loops into tasks if the iterations of its outermost loops are independent.

    func @f(%a: memref<8x4xf32>, %o: memref<8x4xf32>)      func @f(…, %begin: index, %end: index)
      scf.for %i = 0 to 8 …                                  scf.for %i = %begin to %end …
        … store %v, %o[%i, …]                       →          … store %v, %o[%i, …]
      scf.for %i = 0 to 8 …                                  scf.for %i = %begin to %end …
        … load %o[%i, …] …                                     … load %o[%i, …] …

They are independent if all outermost loops access the memory that any of them writes only within the iteration's own
range of some axis, `[c·i, c·i + c)`, with the same `c`. Loops with different ranges each stop at their own end. If a
loop has `m` iterations for each iteration of another, `m` of them make one task. Memory that an iteration allocates is
private to it.
"""

from __future__ import annotations

from collections.abc import Iterator

from motet.compiler.ir._mlir import arith, ir
from motet.compiler.ir.affine import Affine
from motet.compiler.ir.attributes import integer_constant

Rows = int | tuple[int, int]
"""A number of rows, or the (argument, axis) whose extent it is."""

_WITHIN = ("memref.load", "arith.", "math.", "scf.for", "scf.if", "scf.yield", "cf.assert")
_NO_EFFECT = ("arith.", "memref.dim", "memref.alloc", "memref.alloca", "memref.dealloc", "memref.get_global",
              "func.return", "cf.assert")  # fmt: skip


PRIVATE = "motet.private"  # attribute of memory that is allocated within an iteration of an outermost loop


def mark_private(function: ir.Operation) -> None:
    """Mark memory that `function` allocates within its outermost loops, so that it is recognised after it is
    hoisted."""
    for entry in function.regions[0].blocks[0].operations:
        if entry.operation.name == "scf.for":
            for operation in _operations(entry.operation):
                if operation.name == "memref.alloc":
                    operation.attributes[PRIVATE] = ir.UnitAttr.get(function.context)


def split_rows(function: ir.Operation) -> set[Rows] | None:
    """Make `function` run rows `[begin, end)`, two new arguments of type index; None if its rows are not independent.

    Returns the numbers of rows of its loops; the number of tasks is the largest of them.
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
    if not loops or any(_range(loop) is None for loop in loops):
        return None
    factors = _factors(loops)
    if factors is None:
        return None
    loops = [_tile(loop, factor) for loop, factor in zip(loops, factors, strict=True)]
    ranges = {rows for loop in loops if (rows := _range(loop)) is not None}
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
    """The range of `loop` if it starts at 0 with step 1 and carries no values."""
    lower, upper, step, *carried = loop.operands
    if carried or integer_constant(lower) != 0 or integer_constant(step) != 1:
        return None
    number = integer_constant(upper)
    if number is not None:
        return number
    if isinstance(upper.owner, ir.Block) or upper.owner.name != "memref.dim":
        return None
    memory, axis = upper.owner.operands
    number = integer_constant(axis)
    if number is None or not isinstance(memory.owner, ir.Block):
        return None
    return ir.BlockArgument(memory).arg_number, number


def _factors(loops: list[ir.Operation]) -> list[int] | None:
    """The number of iterations of each loop that make up a task such that tasks are independent; None if there is
    none."""
    stretches = _stretches(loops)
    if stretches is None:
        return None
    ones = [1] * len(loops)
    if _agree(stretches, ones):
        return ones
    numbers = [rows if isinstance(rows := _range(loop), int) else 0 for loop in loops]
    tasks = min(numbers)
    if not tasks or any(number % tasks for number in numbers):
        return None
    factors = [number // tasks for number in numbers]
    return factors if _agree(stretches, factors) else None


# For each memory that is written and each axis along which the iterations of each loop access disjoint ranges: the
# lengths of these ranges, by loop.
Stretches = dict[ir.Value, list[dict[int, int]]]


def _agree(stretches: Stretches, factors: list[int]) -> bool:
    return all(
        any(len({length * factors[loop] for loop, length in axis.items()}) <= 1 for axis in axes)
        for axes in stretches.values()
    )


def _stretches(loops: list[ir.Operation]) -> Stretches | None:
    accesses = [(number, access) for number, loop in enumerate(loops) for access in _operations(loop)]
    written: list[ir.Value] = []
    for _, access in accesses:
        if access.name == "memref.store":
            memory = access.operands[1]
            if memory not in written and not _is_private(memory):
                written.append(memory)
        elif not access.name.startswith(_WITHIN):
            return None
    if any(_outer_use(memory) for memory in written):
        return None
    readers = [_Counters(loop) for loop in loops]
    found: Stretches = {}
    for memory in written:
        axes: list[dict[int, int] | None] = [{} for _ in ir.MemRefType(memory.type).shape]
        for number, access in accesses:
            if access.name not in ("memref.load", "memref.store"):
                continue
            there, *indices = list(access.operands)[access.name == "memref.store" :]
            if there != memory:
                continue
            for axis, index in enumerate(indices):
                lengths = axes[axis]
                length = readers[number].stretch(index)
                if lengths is not None and (length is None or lengths.setdefault(number, length) != length):
                    axes[axis] = None
        found[memory] = [axis for axis in axes if axis is not None]
    return found


def _is_private(memory: ir.Value) -> bool:
    return not isinstance(memory.owner, ir.Block) and PRIVATE in memory.owner.operation.attributes


class _Counters:
    """Indices within one outermost loop as linear expressions; the loop's counter is dimension 0."""

    def __init__(self, loop: ir.Operation) -> None:
        self.values: dict[ir.Value, Affine | None] = {loop.regions[0].blocks[0].arguments[0]: Affine.dim(0)}
        self.extents: dict[int, int] = {0: 1}
        for operation in reversed(list(_operations(loop))):  # outer loops before inner ones
            if operation.name == "scf.for":
                self._add(operation)

    def _add(self, loop: ir.Operation) -> None:
        lower, upper, step = (integer_constant(operand) for operand in list(loop.operands)[:3])
        known = None
        if lower is not None and upper is not None and step is not None and upper > lower:
            dim = len(self.extents)
            self.extents[dim] = -(-(upper - lower) // step)
            known = Affine.dim(dim) * step + Affine((), lower)
        self.values[loop.regions[0].blocks[0].arguments[0]] = known

    def stretch(self, index: ir.Value) -> int | None:
        """c, if `index` is within `[c·i, c·i + c)` in iteration i."""
        linear = self._linear(index)
        if linear is None:
            return None
        length = linear.coefficient(0)
        low, high = (linear - Affine.dim(0) * length).range(self.extents)
        return length if length > 0 and low >= 0 and high < length else None

    def _linear(self, value: ir.Value) -> Affine | None:
        if value not in self.values:
            self.values[value] = self._read(value)
        return self.values[value]

    def _read(self, value: ir.Value) -> Affine | None:
        if isinstance(value.owner, ir.Block):
            return None
        number = integer_constant(value)
        if number is not None:
            return Affine((), number)
        operation = value.owner.operation
        if operation.name not in ("arith.addi", "arith.subi", "arith.muli"):
            return None
        left, right = (self._linear(operand) for operand in operation.operands)
        if left is None or right is None:
            return None
        if operation.name != "arith.muli":
            return left + right if operation.name == "arith.addi" else left - right
        if left.terms and right.terms:
            return None
        return left * right.constant if left.terms else right * left.constant


def _tile(loop: ir.Operation, factor: int) -> ir.Operation:
    """Replace `loop` by one that runs `factor` of its iterations per iteration."""
    rows = _range(loop)
    if factor == 1 or not isinstance(rows, int):
        return loop
    index = ir.IndexType.get(loop.context)
    with ir.InsertionPoint(loop), loop.location:
        zero, one, many, times = (
            arith.ConstantOp(index, number).result for number in (0, 1, rows // factor, factor)
        )
        outer = ir.Operation.create("scf.for", operands=[zero, many, one], regions=1)
    block = outer.regions[0].blocks.append(index, arg_locs=[loop.location])
    with ir.InsertionPoint(block), loop.location:
        first = arith.MulIOp(block.arguments[0], times).result
        inner = ir.Operation.create("scf.for", operands=[zero, times, one], regions=1)
        ir.Operation.create("scf.yield")
    body = loop.regions[0].blocks[0]
    body.append_to(inner.regions[0])
    counter = body.arguments[0]
    with ir.InsertionPoint.at_block_begin(body), loop.location:
        row = arith.AddIOp(first, counter)
    counter.replace_all_uses_except(row.result, row.operation)
    loop.erase()
    return outer


def _outer_use(memory: ir.Value) -> bool:
    """Whether `memory` may be reached by another name, or its allocation does not rule that out."""
    owner = memory.owner
    if not isinstance(owner, ir.Block) and owner.name not in ("memref.alloc", "memref.alloca"):
        return True
    known = ("memref.load", "memref.store", "memref.dim", "memref.dealloc")
    return any(use.owner.name not in known for use in memory.uses)


def _operations(loop: ir.Operation) -> Iterator[ir.Operation]:
    """All operations in `loop`."""
    found: list[ir.Operation] = []

    def look(operation: ir.Operation) -> ir.WalkResult:
        found.append(operation)
        return ir.WalkResult.ADVANCE

    for entry in loop.regions[0].blocks[0].operations:
        entry.operation.walk(look)
    return iter(found)

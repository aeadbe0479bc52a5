"""lower-searches: in the `torch` dialect, lowers searches in sorted sequences to one operation, which bisects.

    torch.operator "torch.aten.searchsorted.Tensor"(%sequence, %x, false, false, none, none)  // of [100]
 →  %y = linalg.generic { 7 times: %sequence[%middle] >= %x ? … }

A NaN, in `x` or in the sequence, is after all that it is compared with, as in PyTorch, step by step.

Source: PyTorch's `aten/src/ATen/native/Bucketization.cpp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.frontends.onnx.tensors import builtin, kind_of, replace
from motet.compiler.frontends.torch import operands
from motet.compiler.ir._mlir import arith, ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.sizes import constant_index, element_at
from motet.compiler.operators.arithmetic import Real, Truth
from motet.compiler.operators.pointwise import Read, clamped, pointwise, size_of

_STEPS = 40  # for sequences whose extent a call decides
_COMPARED = {
    (False, False): arith.CmpIPredicate.sge, (False, True): arith.CmpIPredicate.sgt,
    (True, False): arith.CmpIPredicate.uge, (True, True): arith.CmpIPredicate.ugt,
}  # fmt: skip


@dataclass(frozen=True)
class _Search:
    """A search for places before equal elements, or after them (`right`)."""

    sequence: ir.Value
    right: bool
    unsigned: bool
    end: ir.Value  # the extent of the sequence, which is no part of a point's work

    def place(self, value: ir.Value, line: Sequence[ir.Value]) -> ir.Value:
        """The index where `value` belongs in the line `line`, from 0 to the extent of the sequence."""
        end, extent = self.end, ir.RankedTensorType(self.sequence.type).shape[-1]
        last = create("arith.subi", end.type, [end, constant_index(1)])
        steps = _STEPS if extent == DYNAMIC else extent.bit_length()

        def step(ends: Sequence[ir.Value]) -> Sequence[ir.Value]:
            low, high = ends
            half = create("arith.shrui", low.type, [create("arith.subi", low.type, [high, low]), constant_index(1)])
            middle = create("arith.addi", low.type, [low, half])
            found = element_at(self.sequence, [*line, clamped(middle, last)])
            before = self._is_before(value, found)
            following = create("arith.addi", low.type, [middle, constant_index(1)])
            is_open = Truth(arith.CmpIOp(arith.CmpIPredicate.slt, low, high).result)
            return [_select(is_open & ~before, following, low), _select(is_open & before, middle, high)]

        ends: Sequence[ir.Value] = [constant_index(0), end]
        for _ in range(steps):
            ends = step(ends)
        return ends[0]

    def _is_before(self, value: ir.Value, found: ir.Value) -> Truth:
        """Whether the place of `value` is before the element `found` of the sequence."""
        if isinstance(value.type, ir.IntegerType):
            return Truth(arith.CmpIOp(_COMPARED[self.unsigned, self.right], found, value).result)
        return Real(found) > Real(value) if self.right else Real(found) >= Real(value)


def _lower(operator: ir.Operation) -> None:
    sequence, values = (builtin(operand) for operand in operator.operands[:2])
    kind, made = kind_of(operator.operands[0]), kind_of(operator.results[0])
    if kind is None or made is None:
        return
    outer = len(kind.extents) - 1
    right = bool(operands.constant(operator.operands[3]))
    search = _Search(sequence, right, kind.unsigned, size_of(sequence, outer))
    shape = ir.RankedTensorType(values.type).shape
    result = ir.RankedTensorType.get(shape, made.scalar)
    dynamic = [size_of(values, axis) for axis, extent in enumerate(shape) if extent == DYNAMIC]

    def body(read: Sequence[ir.Value], loops: Sequence[ir.Value]) -> ir.Value:
        return create("arith.index_cast", made.scalar, [search.place(read[0], loops[:outer])])

    replace(operator, pointwise(result, dynamic, [Read(values, range(len(shape)))], body))


def _select(condition: Truth, a: ir.Value, b: ir.Value) -> ir.Value:
    return create("arith.select", a.type, [condition, a, b])


RULES = {"torch.aten.searchsorted.Tensor": _lower}

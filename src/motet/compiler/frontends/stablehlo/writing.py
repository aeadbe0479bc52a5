"""Writes StableHLO as text that replaces one operation; used by the rewrites of this package.

    w = Text(op)                                        %v0 = stablehlo.iota dim = 0 : tensor<4xi64>
    a = w.iota((4,), "i64", 0)                     →    %v1 = stablehlo.add %v0, %v0 : tensor<4xi64>
    w.replace([w.binary("add", a, a)])                  the uses of op's result are %v1's

Shapes are static. Every new operation has the location of the replaced one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.errors import CompileError


@dataclass(frozen=True)
class V:
    """A written value: its name, shape and element type."""

    name: str
    shape: tuple[int, ...]
    element: str

    @property
    def kind(self) -> str:
        return tensor_type(self.shape, self.element)


def tensor_type(shape: Sequence[int], element: str) -> str:
    """A negative size is a dynamic one, as in MLIR's shapes."""
    return f"tensor<{''.join(f'{size}x' if size >= 0 else '?x' for size in shape)}{element}>"


def is_static(op: ir.Operation) -> bool:
    """Whether all tensors of `op` have static shapes."""
    kinds = [value.type for value in (*op.operands, *op.results)]
    return all(isinstance(kind, ir.RankedTensorType) and kind.has_static_shape for kind in kinds)


def require_static(op: ir.Operation) -> None:
    """Raises CompileError unless all tensors of `op` have static shapes."""
    if not is_static(op):
        raise CompileError(f"{op.name}: a dimension has no static size; expected static shapes", locate(op.location))


def dimensions(attribute: ir.Attribute, name: str) -> list[int]:
    """The list `name = [0, 1]` in the text of an attribute of StableHLO; empty if absent."""
    found = re.search(rf"\b{name} = \[([^\]]*)\]", str(attribute))
    return [int(word) for word in found[1].split(",") if word.strip()] if found else []


class StablehloText:
    """Collects operations that replace `op`."""

    def __init__(self, op: ir.Operation) -> None:
        self.op = op
        self.operands = [self._operand(number, value) for number, value in enumerate(op.operands)]
        self._lines: list[str] = []

    def _operand(self, number: int, value: ir.Value) -> V:
        kind = ir.RankedTensorType(value.type)
        return V(f"%operand{number}", tuple(kind.shape), str(kind.element_type))

    def line(self, text: str, shape: Sequence[int], element: str) -> V:
        """Adds an operation with one result; `text` follows the equals sign and includes the type."""
        name = f"%v{len(self._lines)}"
        self._lines.append(f"{name} = {text}")
        return V(name, tuple(shape), element)

    def lines(self, text: str, kinds: Sequence[V]) -> list[V]:
        """Adds an operation with one result for each of `kinds`, of the same types."""
        name = f"%v{len(self._lines)}"
        self._lines.append(f"{name}:{len(kinds)} = {text}")
        return [V(f"{name}#{number}", one.shape, one.element) for number, one in enumerate(kinds)]

    def constant(self, number: float | int | str, shape: Sequence[int], element: str) -> V:
        text = repr(number) if isinstance(number, float) else str(number)
        return self.line(f"stablehlo.constant dense<{text}> : {tensor_type(shape, element)}", shape, element)

    def like_shape(self, a: V, number: ir.Attribute | str, element: str) -> V:
        """A typed number, as a tensor of the shape of `a`, which may be dynamic."""
        kind = tensor_type(a.shape, element)
        return self.line(
            f'"chlo.constant_like"({a.name}) <{{value = {number}}}> : ({a.kind}) -> {kind}', a.shape, element
        )

    def iota(self, shape: Sequence[int], element: str, dimension: int) -> V:
        return self.line(f"stablehlo.iota dim = {dimension} : {tensor_type(shape, element)}", shape, element)

    def binary(self, name: str, a: V, b: V) -> V:
        return self.line(f"stablehlo.{name} {a.name}, {b.name} : {a.kind}", a.shape, a.element)

    def unary(self, name: str, a: V, element: str = "") -> V:
        """Adds an element-wise operation, to another element type if one is given."""
        result = tensor_type(a.shape, element or a.element)
        return self.line(f'"stablehlo.{name}"({a.name}) : ({a.kind}) -> {result}', a.shape, element or a.element)

    def compare(self, direction: str, a: V, b: V) -> V:
        kinds = f"({a.kind}, {b.kind}) -> {tensor_type(a.shape, 'i1')}"
        return self.line(f"stablehlo.compare {direction}, {a.name}, {b.name} : {kinds}", a.shape, "i1")

    def select(self, condition: V, a: V, b: V) -> V:
        text = f"stablehlo.select {condition.name}, {a.name}, {b.name} : {condition.kind}, {a.kind}"
        return self.line(text, a.shape, a.element)

    def convert(self, a: V, element: str) -> V:
        return a if a.element == element else self.unary("convert", a, element)

    def signless(self, a: V) -> V:
        """Unsigned integers as signless ones with the same bits."""
        return self.unary("bitcast_convert", a, a.element[1:]) if a.element.startswith("ui") else a

    def like(self, a: V, element: str) -> V:
        """`a` as `element`, the type before `signless`."""
        return a if a.element == element else self.unary("bitcast_convert", a, element)

    def reshape(self, a: V, shape: Sequence[int]) -> V:
        if tuple(shape) == a.shape:
            return a
        kinds = f"({a.kind}) -> {tensor_type(shape, a.element)}"
        return self.line(f"stablehlo.reshape {a.name} : {kinds}", shape, a.element)

    def transpose(self, a: V, order: Sequence[int]) -> V:
        if list(order) == list(range(len(a.shape))):
            return a
        shape = [a.shape[axis] for axis in order]
        kinds = f"({a.kind}) -> {tensor_type(shape, a.element)}"
        return self.line(f"stablehlo.transpose {a.name}, dims = {list(order)} : {kinds}", shape, a.element)

    def broadcast(self, a: V, shape: Sequence[int], axes: Sequence[int]) -> V:
        kinds = f"({a.kind}) -> {tensor_type(shape, a.element)}"
        return self.line(f"stablehlo.broadcast_in_dim {a.name}, dims = {list(axes)} : {kinds}", shape, a.element)

    def slice(self, a: V, starts: Sequence[int], ends: Sequence[int], strides: Sequence[int] = ()) -> V:
        steps = strides or [1] * len(a.shape)
        ranges = ", ".join(f"{start}:{end}:{step}" for start, end, step in zip(starts, ends, steps, strict=True))
        shape = [max(0, -(-(end - start) // step)) for start, end, step in zip(starts, ends, steps, strict=True)]
        kinds = f"({a.kind}) -> {tensor_type(shape, a.element)}"
        return self.line(f"stablehlo.slice {a.name} [{ranges}] : {kinds}", shape, a.element)

    def along(self, a: V, axis: int, start: int, end: int) -> V:
        """The elements `start` to `end` along one dimension."""
        starts, ends = [0] * len(a.shape), list(a.shape)
        starts[axis], ends[axis] = start, end
        return self.slice(a, starts, ends)

    def concatenate(self, values: Sequence[V], axis: int) -> V:
        shape = list(values[0].shape)
        shape[axis] = sum(value.shape[axis] for value in values)
        names, kinds = ", ".join(v.name for v in values), ", ".join(v.kind for v in values)
        text = f"stablehlo.concatenate {names}, dim = {axis} : ({kinds}) -> {tensor_type(shape, values[0].element)}"
        return self.line(text, shape, values[0].element)

    def reverse(self, a: V, axis: int) -> V:
        return self.line(f"stablehlo.reverse {a.name}, dims = [{axis}] : {a.kind}", a.shape, a.element)

    def dot(self, a: V, b: V, contracted: tuple[int, int]) -> V:
        """The product over one dimension of each; the other dimensions of `a` come first."""
        left, right = contracted
        shape = [*a.shape[:left], *a.shape[left + 1 :], *b.shape[:right], *b.shape[right + 1 :]]
        kinds = f"({a.kind}, {b.kind}) -> {tensor_type(shape, a.element)}"
        text = f"stablehlo.dot_general {a.name}, {b.name}, contracting_dims = [{left}] x [{right}] : {kinds}"
        return self.line(text, shape, a.element)

    def flat(self, a: V) -> V:
        return self.reshape(a, (prod(a.shape),))

    def replace(
        self, results: Sequence[V], finish: Callable[[list[ir.Operation]], None] | None = None
    ) -> list[ir.Operation]:
        """Inserts the written operations before the replaced one, lets `finish` add what text cannot express, and
        erases the replaced one; returns the written operations."""
        operands = ", ".join(f"{value.name}: {value.kind}" for value in self.operands)
        kinds = ", ".join(value.kind for value in results)
        body = "\n".join([*self._lines, f"return {', '.join(value.name for value in results)} : {kinds}"])
        text = f"func.func private @written({operands}) -> ({kinds}) {{\n{body}\n}}"
        module = ir.Module.parse(text, self.op.context)
        block = module.body.operations[0].regions[0].blocks[0]
        for argument, operand in zip(block.arguments, self.op.operands, strict=True):
            argument.replace_all_uses_with(operand)
        *written, last = [entry.operation for entry in block.operations]
        for new in written:
            new.move_before(self.op)
            new.location = self.op.location
        for result, value in zip(self.op.results, list(last.operands), strict=True):
            result.replace_all_uses_with(value)
        last.erase()
        if finish is not None:
            finish(written)
        self.op.erase()
        return written


__all__ = ["StablehloText", "V", "dimensions", "is_static", "require_static", "tensor_type"]

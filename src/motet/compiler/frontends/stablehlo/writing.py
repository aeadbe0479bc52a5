"""Writes StableHLO as text that replaces one operation; used by the rewrites of this package.

    w = Text(op)                                        %v0 = stablehlo.iota dim = 0 : tensor<4xi64>
    a = w.iota((4,), "i64", 0)                     →    %v1 = stablehlo.add %v0, %v0 : tensor<4xi64>
    w.replace([w.binary("add", a, a)])                  the uses of op's result are %v1's

Dynamic extents of operands are `DynamicExtent`s; shapes that contain products of these become operations of computed
extents, such as dynamic_reshape. Every new operation has the location of the replaced one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

from motet.compiler.frontends.locations import locate
from motet.compiler.frontends.stablehlo.extents import DynamicExtent
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
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
        self._lines: list[str] = []
        self.operands = [self._operand(number, value) for number, value in enumerate(op.operands)]

    def _operand(self, number: int, value: ir.Value) -> V:
        kind, name = ir.RankedTensorType(value.type), f"%operand{number}"
        shape = list(kind.shape)
        for axis in range(kind.rank):
            if kind.is_dynamic_dim(axis):
                place = self._number(axis)
                extent = self.line(f"tensor.dim {name}, {place} : {kind}", (), "index").name
                shape[axis] = DynamicExtent(1, (extent,))
        return V(name, tuple(shape), str(kind.element_type))

    def _number(self, number: int) -> str:
        """An extent as a scalar."""
        if not isinstance(number, DynamicExtent):
            return self.line(f"arith.constant {number} : index", (), "index").name
        factors = [*number.names] if number.factor == 1 else [self._number(number.factor), *number.names]
        return reduce(lambda a, b: self.line(f"arith.muli {a}, {b} : index", (), "index").name, factors)

    def _extents(self, shape: Sequence[int]) -> V:
        """A shape as a tensor."""
        names, kind = ", ".join(self._number(size) for size in shape), tensor_type((len(shape),), "index")
        return self.line(f"tensor.from_elements {names} : {kind}", (len(shape),), "index")

    def _shaped(self, name: str, operands: Sequence[V], said: str, shape: Sequence[int], element: str) -> V:
        """Adds the operation `name`, or its variant of computed extents if one is dynamic; `said` follows the
        operands."""
        if any(size < 0 for size in shape):
            name, operands = f"dynamic_{name}", [*operands, self._extents(shape)]
        names, kinds = ", ".join(value.name for value in operands), ", ".join(value.kind for value in operands)
        kind = tensor_type(shape, element)
        signature = f"({kinds}) -> {kind}" if operands else kind
        return self.line(f"stablehlo.{name} {', '.join(filter(None, (names, said)))} : {signature}", shape, element)

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
        """A number, or an extent, as all elements of a tensor."""
        if isinstance(number, DynamicExtent):
            word = self.line(f"arith.index_cast {self._number(number)} : index to {element}", (), element).name
            scalar = self.line(f"tensor.from_elements {word} : {tensor_type((), element)}", (), element)
            return self.broadcast(scalar, shape, [])
        if any(size < 0 for size in shape):
            return self.broadcast(self.constant(number, (), element), shape, [])
        text = repr(number) if isinstance(number, float) else str(number)
        return self.line(f"stablehlo.constant dense<{text}> : {tensor_type(shape, element)}", shape, element)

    def like_shape(self, a: V, number: ir.Attribute | str, element: str) -> V:
        """A typed number, as a tensor of the shape of `a`, which may be dynamic."""
        kind = tensor_type(a.shape, element)
        return self.line(
            f'"chlo.constant_like"({a.name}) <{{value = {number}}}> : ({a.kind}) -> {kind}', a.shape, element
        )

    def iota(self, shape: Sequence[int], element: str, dimension: int) -> V:
        return self._shaped("iota", [], f"dim = {dimension}", shape, element)

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
        return self._shaped("reshape", [a], "", shape, a.element)

    def transpose(self, a: V, order: Sequence[int]) -> V:
        if list(order) == list(range(len(a.shape))):
            return a
        shape = [a.shape[axis] for axis in order]
        kinds = f"({a.kind}) -> {tensor_type(shape, a.element)}"
        return self.line(f"stablehlo.transpose {a.name}, dims = {list(order)} : {kinds}", shape, a.element)

    def broadcast(self, a: V, shape: Sequence[int], axes: Sequence[int]) -> V:
        return self._shaped("broadcast_in_dim", [a], f"dims = {list(axes)}", shape, a.element)

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
        if all(size >= 0 for size in ends):
            return self.slice(a, starts, ends)
        sizes = [*a.shape[:axis], end - start, *a.shape[axis + 1 :]]
        names = ", ".join(self._number(size) if size < 0 else str(size) for size in sizes)
        text = f"tensor.extract_slice {a.name}{starts} [{names}] {[1] * len(sizes)} : {a.kind} to "
        return self.line(text + tensor_type(sizes, a.element), sizes, a.element)

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
            if value.type != result.type:
                with self.op.location, ir.InsertionPoint(self.op):
                    value = create("tensor.cast", result.type, [value])
            result.replace_all_uses_with(value)
        last.erase()
        if finish is not None:
            finish(written)
        self.op.erase()
        return written


__all__ = ["StablehloText", "V", "dimensions", "is_static", "require_static", "tensor_type"]

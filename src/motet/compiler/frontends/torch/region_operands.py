"""Reads the operands of operators that pool regions of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from motet.compiler.frontends.onnx.tensors import builtin, is_used
from motet.compiler.frontends.torch import operands
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.sizes import constant_index, element_at
from motet.compiler.operators.arithmetic import Floats, Real, floats_for
from motet.compiler.operators.pointwise import clamped, pointwise, size_of


@dataclass(frozen=True)
class RegionOperands:
    """An operator over an `image` [N, C, H, W] and `regions` [R, 5], whose results are [R, channels, cells…]. If it
    `is_split`, each cell of a result's channel has a channel of the image."""

    image: ir.Value
    regions: ir.Value
    scale: float
    cells: tuple[int, int]
    is_split: bool

    @staticmethod
    def of(operator: ir.Operation, is_split: bool) -> RegionOperands:
        image, regions = (builtin(operand) for operand in operator.operands[:2])
        scale, (high, wide) = operands.number(operator.operands[2]), map(operands.integer, operator.operands[3:5])
        return RegionOperands(image, regions, scale, (high, wide), is_split)

    @property
    def kind(self) -> ir.Type:
        return ir.RankedTensorType(self.image.type).element_type

    @property
    def floats(self) -> Floats:
        return floats_for(self.kind)

    def pointwise(self, kind: ir.Type, body: Callable[[Sequence[ir.Value]], ir.Value]) -> ir.Value:
        """A result of elements of the type `kind`; `body` writes that of a region, channel and cell."""
        channels = ir.RankedTensorType(self.image.type).shape[1]
        if self.is_split:
            channels //= self.cells[0] * self.cells[1]
        shape = [ir.RankedTensorType(self.regions.type).shape[0], channels, *self.cells]
        sizes = [
            size_of(*of) for of, extent in (((self.regions, 0), shape[0]), ((self.image, 1), channels))
            if extent == DYNAMIC
        ]
        return pointwise(ir.RankedTensorType.get(shape, kind), sizes, [], lambda _, loops: body(loops))

    def number(self, region: ir.Value, column: int) -> Real:
        return self.floats.wide(element_at(self.regions, [region, constant_index(column)]))

    def plane(self, loops: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value]:
        """The image and the channel that a point reads. A region that is of no image reads the first or the last."""
        last = create("arith.subi", ir.IndexType.get(), [size_of(self.image, 0), constant_index(1)])
        return clamped(self.floats.index(self.number(loops[0], 0)), last), self.channel(loops)

    def channel(self, loops: Sequence[ir.Value]) -> ir.Value:
        channel = loops[1]
        if self.is_split:
            for cells, cell in zip(self.cells, loops[2:], strict=True):
                scaled = create("arith.muli", channel.type, [channel, constant_index(cells)])
                channel = create("arith.addi", channel.type, [scaled, cell])
        return channel

    def channels(self, operator: ir.Operation) -> list[ir.Value | None]:
        """The further results of an operator: the channel of the image that each element is from, if it is used."""
        word = ir.IntegerType.get_signless(32)
        return [
            self.pointwise(word, lambda loops: create("arith.index_cast", word, [self.channel(loops)]))
            if is_used(result) else None
            for result in list(operator.results)[1:]
        ]

    def last_elements(self) -> list[ir.Value]:
        """The last row and the last column. Places clamped by them get no check: it would end a loop early."""
        index = ir.IndexType.get()
        return [create("arith.subi", index, [size_of(self.image, axis), constant_index(1)]) for axis in (2, 3)]

    def read(self, plane: Sequence[ir.Value], row: ir.Value, column: ir.Value) -> Real:
        return self.floats.wide(element_at(self.image, [*plane, row, column]))

"""Emits element-wise stages that are fused into tiles held in registers (`kernels/epilogue.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.body import emit_body
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.emit.compute_types import constant, from_storage, to_storage
from motet.compiler.codegen.cpu.gemm.microkernel import (
    MEMORY_TYPES,
    PartialVector,
    TileFrame,
    read_vector,
    write_vector,
)
from motet.compiler.kernels.epilogue import Epilogue
from motet.compiler.kernels.strides import Extent, StridedAccess


@dataclass(frozen=True)
class TileView:
    """A strided access relative to the first element of a tile."""

    dtype: str
    address: ir.Value
    row: Index
    column: Index

    def at(self, f: TileFrame, row: Index, column: Index) -> ir.Value:
        offset = f.iadd(f.imul(row, self.row), f.imul(column, self.column))
        return f.at(self.address, offset, MEMORY_TYPES[self.dtype])


class Views:
    """The accesses of an epilogue (and of an initial value) relative to one tile; vectors that all rows share are
    loaded once."""

    def __init__(
        self, f: TileFrame, places: Sequence[
            StridedAccess
        ], coordinates: Sequence[Index], row: int | None, column: int | None
    ) -> None:
        self.f = f
        self.streaming = False  # whether results are written past the caches
        self._views: dict[StridedAccess, TileView] = {}
        self._shared: dict[tuple[StridedAccess, int, Index | None], ir.Value] = {}
        for place in places:
            self._views[place] = TileView(
                place.dtype, f.address(place, coordinates), _stride(f, place, row), _stride(f, place, column)
            )

    def read(self, place: StridedAccess, row: Index, column: Index, lanes: PartialVector) -> ir.Value:
        """The vector at (`row`, `column`) as stored; read once for all rows of a straight-line tile, whose numbers are
        known, and for rows of a loop that `share` precedes."""
        view = self._views[place]
        key = None
        if isinstance(view.row, int) and view.row == 0 and isinstance(column, int):
            key = (place, column, lanes.count)
            if key in self._shared:
                return self._shared[key]
        value = read_vector(self.f, view.at(self.f, row, column), place.dtype, view.column, lanes)
        if key is not None and isinstance(row, int):
            self._shared[key] = value
        return value

    def share(self, epilogue: Epilogue, columns: Sequence[tuple[int, PartialVector]]) -> None:
        """Read what all rows of a loop that follows have in common, at `columns`."""
        for step in epilogue.steps:
            for read, known in zip(step.reads, step.known, strict=True):
                if known is None and isinstance(read, StridedAccess) and self._views[read].row == 0:
                    for column, lanes in columns:
                        self.read(read, 0, column, lanes)

    def write(self, place: StridedAccess, value: ir.Value, row: Index, column: Index, lanes: PartialVector) -> None:
        view = self._views[place]
        write_vector(self.f, value, view.at(self.f, row, column), place.dtype, view.column, lanes, self.streaming)


def _stride(f: TileFrame, place: StridedAccess, dim: int | None) -> Index:
    return f.extent(place.strides[dim]) if dim is not None else f.extent(Extent(0))


def finish(
    f: TileFrame, epilogue: Epilogue, views: Views, value: ir.Value, row: Index, column: Index, lanes: PartialVector
) -> None:
    """Run every step on `value`, of the compute type of the main stage's dtype, at (`row`, `column`); store the
    results."""
    made = {epilogue.value: value}
    if epilogue.place is not None:
        dtype = epilogue.place.dtype
        views.write(epilogue.place, to_storage(f, value, dtype), row, column, lanes)
    for step in epilogue.steps:
        operands: list[ir.Value] = []
        count = len(step.stage.inputs)
        for position, (read, known) in enumerate(zip(step.reads, step.known, strict=True)):
            if known is not None:
                operands.append(made[known])
            elif isinstance(read, StridedAccess):
                operands.append(from_storage(f, views.read(read, row, column, lanes), read.dtype))
            else:
                output = step.stage.outputs[position - count].value
                operands.append(constant(f.kernel.values[output].dtype, read or 0, lanes.lanes))
        values = emit_body(f, step.stage.body, operands, lanes.lanes, _no_index)
        for (output, place), number in zip(step.writes, step.stage.yields, strict=True):
            made[output] = values[number]
            if place is not None:
                views.write(place, to_storage(f, values[number], place.dtype), row, column, lanes)


def _no_index(dim: int) -> ir.Value:
    raise AssertionError(f"dimension {dim}: bodies that look at indices are not fused here")

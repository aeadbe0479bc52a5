"""The iteration space of attention: scratch memory, blocks of rows, and coordinates, shared by all its functions."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from motet.compiler.codegen.cpu.attention.nest import AttentionNest
from motet.compiler.codegen.cpu.emit.builder import I8, Index, Splat
from motet.compiler.codegen.cpu.gemm.microkernel import LINE, MEMORY_TYPES, TileFrame
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.product import Operand, Product
from motet.compiler.kernels.schedule import AttentionSchedule
from motet.compiler.targets.cpu import CpuTarget


class AttentionMemory:
    """An attention, its schedule, and a thread's scratch memory:

        queries   [rows][depth]               widened
        outputs   [rows][padded columns]      not yet divided by the sums of weights
        maxima    [rows]                      the largest score so far
        sums      [rows][lanes]               of weights so far, by lanes
        factors   [rows of a tile]            by which a block of keys scales earlier outputs
        weights   [rows of a tile][padded keys]
        keys      [panel][depth][score width]
        values    [panel][keys][value width]
    """

    def __init__(self, c: AttentionNest, plan: AttentionSchedule, target: CpuTarget) -> None:
        self.c = c
        self.plan = plan
        self.target = target
        self.module = ir.Module(c.kernel.name)
        self.label = c.kernel.name  # of functions
        self.element: Any = MEMORY_TYPES[c.computed]
        self.vector = ir.VectorType(self.element, plan.lanes)
        self.bytes = item_bytes(c.computed)
        self.product = Product(Operand(0, ()), Operand(1, ()), c.computed)
        self.score_width = plan.score_vectors * plan.lanes
        self.value_width = plan.value_vectors * plan.lanes
        self.padded_keys = -(-plan.keys // self.score_width) * self.score_width
        self.padded_columns = -(-c.columns // self.value_width) * self.value_width
        self.stored: Any = self.element  # of queries, packed keys and packed values
        self.padded_depth = c.depth  # of queries
        known = c.key_count.known
        self.single = len(c.ranges) == 1 and known is not None and known <= plan.keys
        self.sizes = {
            "queries": plan.rows * c.depth, "outputs": plan.rows * self.padded_columns, "maxima": plan.rows,
            "sums": plan.rows * plan.lanes, "factors": plan.tile, "weights": plan.tile * self.padded_keys,
            "keys": self.padded_keys * c.depth if plan.key_mode == "packed" else 0,
            "values": plan.keys * self.padded_columns if plan.pack_values else 0,
        }

    @property
    def scratch_bytes(self) -> int:
        return sum(map(self._lines, self.sizes))

    def _lines(self, name: str) -> int:
        return -(-self.sizes[name] * self.bytes // LINE) * LINE

    def _kind(self, name: str) -> Any:
        return self.stored if name in ("queries", "keys", "values") else self.element

    def scratch(self, f: TileFrame, base: ir.Value, name: str, offset: Index = 0) -> ir.Value:
        """The address of element `offset` of part `name` of the scratch memory at `base`."""
        names = list(self.sizes)
        start = sum(self._lines(each) for each in names[: names.index(name)])
        return f.at(f.at(base, start, I8), offset, self._kind(name))

    def coordinates(self, f: TileFrame, outer: Index) -> list[Index]:
        """The coordinates of problem `outer`; those of other loops are 0."""
        at: list[Index] = [0] * len(self.c.attention.sizes)
        for size, dim in reversed(self.c.outer):
            at[dim] = f.irem(outer, f.extent(size))
            outer = f.idiv(outer, f.extent(size))
        return at

    def at_row(self, f: TileFrame, at: list[Index], row: Index) -> list[Index]:
        """`at` at row `row` of a problem."""
        found = list(at)
        loops = self.c.rows
        for number, (size, dim) in reversed(list(enumerate(loops))):
            found[dim] = f.irem(row, f.extent(size)) if number else row
            row = f.idiv(row, f.extent(size)) if number else row
        return found

    def number(self, value: float) -> ir.Constant:
        return ir.Constant(self.element, value)

    def numbers(self, value: float) -> ir.Constant:
        return Splat(self.vector, value)

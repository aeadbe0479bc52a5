"""Scans: running sums, products and extremes along one dimension.

    %y:2 = tm_tensor.scan dimension(1) inclusive(true) ins(%x) outs(%e, %begin) { %a + %b }
        for each line:  total = x[0];  y[0] = total;  total += x[1];  y[1] = total;  …

If the dimension is the last one, tasks are blocks of lines. Vectors run along a line (`vector_scans.py`); the total of
all vectors before does not wait for the results, so that neighbouring vectors overlap. Of short lines, or where vectors
are not faster, several are scanned together, element by element. Otherwise tasks are strips of neighbouring lines, and
vectors run across the lines; lines beyond whole vectors are lanes of a masked one in the same pass. Sums of f16 and
bf16 are accumulated in f32 and rounded when stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.addressing import Frame
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.emit.combiners import combine, narrowed, widened
from motet.compiler.codegen.cpu.emit.compute_types import (
    Unsupported,
    constant,
    from_storage,
    storage_type,
    to_storage,
    widen,
)
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.codegen.cpu.ext import vector_scans
from motet.compiler.codegen.cpu.task_split import Division
from motet.compiler.kernels.cost import guess, traffic
from motet.compiler.kernels.kernel import Access, Stage, item_bytes
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.linalg_ext import ExtOperand, Line, Whole, line_of
from motet.compiler.kernels.reduction import Reduction, match_reduction
from motet.compiler.kernels.strides import ONE
from motet.compiler.targets.cpu import CpuTarget

_VECTORS = 4  # of neighbouring lines at a time
_LINES = 4  # scanned together along memory, element by element
_VECTOR_LINES = 2  # likewise in vectors
_ALONG, _ACROSS = 1.2, 0.5  # nanoseconds: of an element scanned along memory, and of a vector of neighbouring lines
_VECTOR_ALONG = 4.0  # nanoseconds of a vector along memory


def emit(whole: Whole, target: CpuTarget) -> KernelCode:
    """Raises `Unsupported` unless the scan is an order-independent reduction of one tensor."""
    if whole.inputs[0].value < 0 or whole.results != (0,) or len(whole.yields) != 1:
        raise Unsupported("a scan of this form")
    stage = Stage(("n",), ("reduction",), (Access(0, ()),), (Access(1, ()),), (None,), whole.body, whole.yields)
    each = match_reduction(stage, 0)
    if each is None or each.term != 0:
        raise Unsupported("a scan by an operation whose order matters")
    begin = whole.outputs[1]
    if not whole.inclusive and begin.value < 0 and begin.number is None:
        raise Unsupported("an exclusive scan without an initial value")
    line = line_of(whole.inputs[0].shape, whole.dimension)
    if line.inner == ONE:
        lanes = vector_scans.lanes_along(each, line.length, target)
    else:
        lanes = target.lanes(8 * item_bytes(each.accumulator))
    module = ir.Module(whole.kernel.name)
    f = Frame(module, whole.kernel.name, whole.kernel, {}, {})
    tasks = _ScanEmitter(f, whole, line, each, lanes).run()
    return KernelCode(
        "scan", str(module), (Phase(whole.kernel.name, tasks.tasks),),
        bytes=traffic(whole.kernel),
    )


@dataclass(frozen=True)
class _Strand:
    """Neighbouring lines that one accumulator scans: `line` is the number of the first, `place` that of its first
    element. Of the `lanes` lines, the first `active` exist (None: all)."""

    line: Index
    place: Index
    lanes: int
    active: Index | None = None


@dataclass
class _ScanEmitter:
    f: Frame
    whole: Whole
    line: Line
    each: Reduction
    lanes: int

    def run(self) -> Division:
        f, line = self.f, self.line
        length = guess(line.length)
        if line.inner == ONE:
            point = _ALONG / _LINES if self.lanes == 1 else _VECTOR_ALONG / self.lanes
            division = Division.of([], line.outer, length * point, cut=True)
            division.loop(f, lambda _, first, end: self._lines(first, end))
        else:
            width = _VECTORS * self.lanes
            division = Division.of([line.outer], line.inner, length * _ACROSS / self.lanes, cut=True, multiple=width)
            division.loop(f, lambda indices, first, end: self._columns(indices[0], first, end))
        f.finish()
        return division

    def _lines(self, first: Index, end: Index) -> None:
        """Scan the lines `[first, end)`, which are contiguous."""
        f = self.f
        length = f.extent(self.line.length)
        together, scan = (_LINES, self._scan) if self.lanes == 1 else (_VECTOR_LINES, self._scan_vectors)
        for lines in (together, 1):
            whole = f.iadd(first, f.imul(f.idiv(f.isub(end, first), lines), lines))

            def block(i: Index, _: object, lines: int = lines) -> None:
                numbers = [f.iadd(i, number) for number in range(lines)]
                scan([_Strand(number, f.imul(number, length), 1) for number in numbers], 1)

            f.loop(first, whole, lines, block)
            first = whole

    def _scan_vectors(self, strands: Sequence[_Strand], _step: Index) -> None:
        """Scan contiguous lines in vectors along them."""
        f, lanes = self.f, self.lanes
        length = f.extent(self.line.length)
        whole = f.isub(length, f.irem(length, lanes))

        def vector(i: Index, totals: list[Value], active: Index | None = None) -> list[Value]:
            places = [replace(each, place=f.iadd(each.place, i), lanes=lanes, active=active) for each in strands]
            return [self._vector(place, total) for place, total in zip(places, totals, strict=True)]

        totals = [widen(f, self._begin(strand), lanes) for strand in strands]
        totals = f.loop(0, whole, lanes, vector, totals)
        f.loop(whole, length, lanes, lambda i, carried: vector(i, carried, f.isub(length, whole)), totals)

    def _vector(self, strand: _Strand, total: Value) -> Value:
        """Scan a vector of a line; `total` is that of all elements before, in all lanes. Returns the next."""
        f = self.f
        terms = widened(f, self.each, self._load(self.whole.inputs[0], strand.place, strand))
        found = vector_scans.scanned(f, self.each, terms)
        result = combine(f, self.each, total, found)
        if not self.whole.inclusive:
            result = vector_scans.moved_up(f, total, result)
        self._store(len(f.kernel.values) - 1, strand.place, result, strand)
        return combine(f, self.each, total, vector_scans.last_lane(f, found))

    def _columns(self, outer: Index, first: Index, end: Index) -> None:
        """Scan the lines `[first, end)` of the neighbouring ones with index `outer`."""
        f, width = self.f, _VECTORS * self.lanes
        whole = f.iadd(first, f.imul(f.idiv(f.isub(end, first), width), width))
        f.loop(first, whole, width, lambda i, _: self._vectors(outer, i, _VECTORS, None))
        rest = f.isub(end, whole)
        for vectors in range(1, _VECTORS + 1):
            begin = (vectors - 1) * self.lanes
            if isinstance(rest, int):
                if begin < rest <= begin + self.lanes:
                    active = None if rest == begin + self.lanes else rest - begin
                    self._vectors(outer, whole, vectors, active)
                continue
            above = f.icmp_signed(">", rest, f.index(begin))
            fits = f.and_(above, f.icmp_signed("<=", rest, f.index(begin + self.lanes)))
            count, active = vectors, f.isub(rest, begin)
            f.branches(fits, lambda n=count, a=active: self._vectors(outer, whole, n, a), lambda: None)

    def _vectors(self, outer: Index, inner: Index, vectors: int, active: Index | None) -> None:
        """Scan the lines from `inner` on in `vectors` vectors; `active` is the number of lanes of the last that exist,
        None: all."""
        f = self.f
        behind = f.extent(self.line.inner)
        base, begin = f.imul(f.imul(outer, f.extent(self.line.length)), behind), f.imul(outer, behind)
        strands: list[_Strand] = []
        for number in range(vectors):
            at = f.iadd(inner, number * self.lanes)
            last = active if number == vectors - 1 else None
            strands.append(_Strand(f.iadd(begin, at), f.iadd(base, at), self.lanes, last))
        self._scan(strands, behind)

    def _scan(self, strands: Sequence[_Strand], step: Index) -> None:
        """Scan lines whose elements are `step` apart, element by element."""
        f = self.f
        target = len(f.kernel.values) - 1
        source = self.whole.inputs[0]

        def element(i: Index, totals: list[Value]) -> list[Value]:
            after: list[Value] = []
            moved = f.imul(i, step)
            for strand, total in zip(strands, totals, strict=True):
                at = f.iadd(strand.place, moved)
                term = widened(f, self.each, self._load(source, at, strand))
                after.append(combine(f, self.each, total, term))
                self._store(target, at, after[-1] if self.whole.inclusive else total, strand)
            return after

        f.loop(0, f.extent(self.line.length), 1, element, [self._begin(strand) for strand in strands])

    def _begin(self, strand: _Strand) -> Value:
        """The initial value of the accumulators."""
        f, begin = self.f, self.whole.outputs[1]
        if self.whole.inclusive:
            return constant(self.each.accumulator, self.each.identity, strand.lanes)
        if begin.value < 0:
            return constant(self.each.accumulator, begin.number or 0, strand.lanes)
        return widened(f, self.each, self._load(begin, strand.line, strand))

    def _load(self, operand: ExtOperand, at: Index, strand: _Strand) -> Value:
        f, kind = self.f, storage_type(operand.dtype)
        address = f.at(f.pointer(operand.value), at, kind)
        if strand.active is None:
            return from_storage(f, f.load_vector(address, kind, strand.lanes), operand.dtype)
        mask = f.lane_mask(strand.active, strand.lanes)
        return from_storage(f, f.masked_load(address, kind, strand.lanes, mask), operand.dtype)

    def _store(self, value: int, at: Index, total: Value, strand: _Strand) -> None:
        f, dtype = self.f, self.f.kernel.values[value].dtype
        kind = storage_type(dtype)
        stored = to_storage(f, narrowed(f, self.each, total), dtype)
        address = f.at(f.pointer(value), at, kind)
        if strand.active is None:
            f.store_vector(stored, address, kind)
        else:
            f.masked_store(stored, address, kind, strand.lanes, f.lane_mask(strand.active, strand.lanes))

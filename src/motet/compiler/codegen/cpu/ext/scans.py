"""Scans: running sums, products and extremes along one dimension.

    %y:2 = tm_tensor.scan dimension(1) inclusive(true) ins(%x) outs(%e, %begin) { %a + %b }
        for each line:  total = x[0];  y[0] = total;  total += x[1];  y[1] = total;  …

If the dimension is the last one, tasks are lines; otherwise tasks are strips of neighbouring lines, and vectors run
across the lines. Sums of f16 and bf16 are accumulated in f32 and rounded when stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.addressing import Frame
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.emit.combiners import combine, narrowed, widened
from motet.compiler.codegen.cpu.emit.compute_types import Unsupported, constant, from_storage, storage_type, to_storage
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.codegen.cpu.task_split import Division
from motet.compiler.codegen.kernel_code import KernelCode, Phase
from motet.compiler.kernels.cost import guess, traffic
from motet.compiler.kernels.kernel import Access, Stage, item_bytes
from motet.compiler.kernels.linalg_ext import ExtOperand, Line, Whole, line_of
from motet.compiler.kernels.reduction import Reduction, match_reduction
from motet.compiler.kernels.strides import ONE
from motet.compiler.targets.cpu import CpuTarget

_VECTORS = 4  # of neighbouring lines at a time
_ALONG, _ACROSS = 1.2, 0.5  # nanoseconds: of an element scanned along memory, and of a vector of neighbouring lines


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
    lanes = 1 if line_of(whole.inputs[0].shape, whole.dimension).inner == ONE else target.lanes(
        8 * item_bytes(each.accumulator)
    )
    module = ir.Module(whole.kernel.name)
    f = Frame(module, whole.kernel.name, whole.kernel, {}, {})
    tasks = _ScanEmitter(f, whole, line_of(whole.inputs[0].shape, whole.dimension), each, lanes).run()
    return KernelCode(
        "scan", str(module), (Phase(whole.kernel.name, tasks.tasks),),
        bytes=traffic(whole.kernel),
    )


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
            division = Division.of([line.outer], None, length * _ALONG, cut=False)
        else:
            width = _VECTORS * self.lanes
            division = Division.of([line.outer], line.inner, length * _ACROSS / self.lanes, cut=True, multiple=width)

        def row(indices: list[Index], first: Index, end: Index) -> None:
            if line.inner == ONE:
                self._scan(indices[0], 0, 1, 1)
                return
            done = first
            for vectors, lanes in ((_VECTORS, self.lanes), (1, self.lanes), (1, 1)):
                step = vectors * lanes
                whole = f.iadd(done, f.imul(f.idiv(f.isub(end, done), step), step))
                f.loop(done, whole, step, self._block(indices[0], vectors, lanes))
                done = whole

        division.loop(f, row)
        f.finish()
        return division

    def _block(self, outer: Index, vectors: int, lanes: int) -> Callable[[Index, object], None]:
        def body(j: Index, _: object) -> None:
            self._scan(outer, j, vectors, lanes)

        return body

    def _scan(self, outer: Index, inner: Index, vectors: int, lanes: int) -> None:
        """Scan line `inner` and the following `vectors * lanes` lines, element by element."""
        f = self.f
        length, behind = f.extent(self.line.length), f.extent(self.line.inner)
        base = f.iadd(f.imul(f.imul(outer, length), behind), inner)
        target = len(f.kernel.values) - 1
        source = self.whole.inputs[0]

        def element(i: Index, totals: list[Value]) -> list[Value]:
            place = f.iadd(base, f.imul(i, behind))
            after: list[Value] = []
            for number, total in enumerate(totals):
                at = f.iadd(place, number * lanes)
                term = widened(f, self.each, self._load(source, at, lanes))
                after.append(combine(f, self.each, total, term))
                self._store(target, at, after[-1] if self.whole.inclusive else total)
            return after

        f.loop(0, length, 1, element, [self._begin(outer, inner, number, lanes) for number in range(vectors)])

    def _begin(self, outer: Index, inner: Index, number: int, lanes: int) -> Value:
        """The initial value of the accumulators."""
        f, begin = self.f, self.whole.outputs[1]
        if self.whole.inclusive:
            return constant(self.each.accumulator, self.each.identity, lanes)
        if begin.value < 0:
            return constant(self.each.accumulator, begin.number or 0, lanes)
        at = f.iadd(f.iadd(f.imul(outer, f.extent(self.line.inner)), inner), number * lanes)
        return widened(f, self.each, self._load(begin, at, lanes))

    def _load(self, operand: ExtOperand, at: Index, lanes: int) -> Value:
        f, kind = self.f, storage_type(operand.dtype)
        return from_storage(f, f.load_vector(f.at(f.pointer(operand.value), at, kind), kind, lanes), operand.dtype)

    def _store(self, value: int, at: Index, total: Value) -> None:
        f, dtype = self.f, self.f.kernel.values[value].dtype
        kind = storage_type(dtype)
        stored = to_storage(f, narrowed(f, self.each, total), dtype)
        f.store_vector(stored, f.at(f.pointer(value), at, kind), kind)

"""Scatters: updates written to, or combined with, elements of a tensor at computed indices.

    %y = tm_tensor.scatter {dimension_map = [0, 1]} ins(%updates, %indices) outs(%x) { yield %a }
        phase 0: y = x, unless they share memory                   blocks are tasks
        phase 1: y[indices[0]] = updates[0], y[indices[1]] = …     strips of the windows are tasks, each of which
                                                                   applies all updates one after the other

The window that one index addresses is written in runs: elements that are contiguous in the updates and in the tensor.
Vectors go along a run. Long runs are divided into strips, so that tasks write different elements and every element
combines its updates in their order.

If several updates address one element, the last one wins. Negative indices count from the end. Updates out of bounds
are omitted, and the first of them is an error of the call, unless the user promises that there are none.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.addressing import Frame
from motet.compiler.codegen.cpu.emit.body import evaluate
from motet.compiler.codegen.cpu.emit.builder import I64, Index
from motet.compiler.codegen.cpu.emit.compute_types import (
    Unsupported,
    constant,
    from_storage,
    storage_type,
    to_storage,
    widen,
)
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.codegen.cpu.emit.operations import resize
from motet.compiler.codegen.cpu.task_split import Division
from motet.compiler.kernels.cost import guess, traffic
from motet.compiler.kernels.kernel import ITEM_BITS, Size, item_bytes
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.linalg_ext import ExtOperand, Whole, product
from motet.compiler.kernels.strides import ONE, Extent, memory_strides
from motet.compiler.targets.cpu import CpuTarget

_VECTORS = 4  # copied at a time


def emit(whole: Whole, target: CpuTarget) -> KernelCode:
    """Raises `Unsupported` if an operand is neither a tensor nor a splat."""
    known = all(operand.value >= 0 or operand.number is not None for operand in whole.inputs)
    if not known or whole.results != (0,) or len(whole.yields) != 1:
        raise Unsupported("a scatter of this form")
    module = ir.Module(whole.kernel.name)
    names = (whole.kernel.name, f"{whole.kernel.name}_1")
    copies = _copy(Frame(module, names[0], whole.kernel, {}, {}), whole, target)
    updates = _Updating(Frame(module, names[1], whole.kernel, {}, {}), whole, _lanes(whole, target)).emit()
    return KernelCode(
        "scatter", str(module), (Phase(names[0], copies), Phase(names[1], updates)),
        bytes=traffic(whole.kernel), checks=whole.checks, updates=_shared(whole),
    )


def _shared(whole: Whole) -> tuple[tuple[int, int], ...]:
    """The tensor that is updated may share memory with the result, unless it is also an operand."""
    original = whole.outputs[0].value
    if original < 0 or any(operand.value == original for operand in whole.inputs):
        return ()
    if whole.kernel.values[original].role != "argument":
        return ()
    return ((original, len(whole.kernel.values) - 1),)


def _lanes(whole: Whole, target: CpuTarget) -> int:
    """The number of lanes that the widest type allows that is moved or computed with."""
    dtypes = [whole.outputs[0].dtype, whole.inputs[0].dtype, *(each.dtype for each in whole.body if each.dtype != "i1")]
    return target.lanes(max(max(32, ITEM_BITS[d]) if d in ("f16", "bf16") else ITEM_BITS[d] for d in dtypes))


def _copy(f: Frame, whole: Whole, target: CpuTarget) -> Expr:
    """Copy the input tensor to the result, which the second phase updates."""
    original, result = whole.outputs[0], len(f.kernel.values) - 1
    kind = storage_type(original.dtype)
    lanes = target.lanes(8 * item_bytes(original.dtype))
    division = Division.of(
        [], product(f.kernel.values[result].shape), 0.5 / lanes, cut=True, multiple=_VECTORS * lanes
    )

    def row(_: list[Index], first: Index, end: Index) -> None:
        if original.value >= 0:  # nothing to do if both are the same memory
            same = f.icmp_unsigned("==", f.pointer(original.value), f.pointer(result))
            first = f.select(same, f.index(end), f.index(first))
        done = first
        for step in (_VECTORS * lanes, 1):
            width = min(step, lanes)

            def copy(i: Index, _: object, step: int = step, width: int = width) -> None:
                for number in range(step // width):
                    at = f.iadd(i, number * width)
                    if original.value >= 0:
                        value = f.load_vector(f.at(f.pointer(original.value), at, kind), kind, width)
                    else:
                        number_ = constant(original.dtype, original.number or 0, width)
                        value = to_storage(f, number_, original.dtype)
                    f.store_vector(value, f.at(f.pointer(result), at, kind), kind)

            until = f.iadd(done, f.imul(f.idiv(f.isub(end, done), step), step))
            f.loop(done, until, step, copy)
            done = until

    division.loop(f, row)
    f.finish()
    return division.tasks


@dataclass
class _Updating:
    """Emits the phase that applies the updates."""

    f: Frame
    whole: Whole
    lanes: int

    def __post_init__(self) -> None:
        self.updates, self.indices = self.whole.inputs
        self.number = len(self.f.kernel.values) - 1
        self.result = self.f.kernel.values[self.number]
        self.strides = memory_strides(self.result)
        self.outer, self.run = _runs(self.whole.window, self.result.shape)

    def emit(self) -> Expr:
        f = self.f
        count = product(self.updates.shape[:1])
        runs = product([size for _, size in self.outer])
        cost = guess(count) * guess(runs) * 0.5 / self.lanes
        division = Division.of([], self.run, cost, cut=True, multiple=_VECTORS * self.lanes)
        division.loop(f, lambda _, first, end: self._strip(count, first, end))
        f.finish()
        return division.tasks

    def _strip(self, count: Extent, first: Index, end: Index) -> None:
        """Apply all updates to the elements `[first, end)` of every run."""
        self.f.loop(0, self.f.extent(count), 1, lambda u, _: self._update(u, first, end))

    def _update(self, u: Index, first: Index, end: Index) -> None:
        f = self.f
        there, place = self._place(u)
        if there is None:
            self._window(u, place, first, end)
            return
        with f.if_then(there, likely=True):
            self._window(u, place, first, end)

    def _place(self, u: Index) -> tuple[Value, Index]:
        """Whether update `u` is in bounds (None: it always is), and the offset of its window."""
        f, whole, result = self.f, self.whole, self.result
        depth = f.extent(Extent.of(self.indices.shape[-1]))
        place: Index = 0
        there: Value = None
        for position, axis in enumerate(whole.dimensions):
            given = self._given(self.indices, f.iadd(f.imul(u, depth), position), 1)
            index = resize(f, given, I64, signed=True)
            extent = f.extent(Extent.of(result.shape[axis]))
            size = f.extent(Extent.of(whole.window.get(axis, 1)))
            behind = f.add(index, f.index(extent))
            index = f.select(f.icmp_signed("<", index, f.index(0)), behind, index)
            last = f.isub(extent, size)
            inner = f.and_(f.icmp_signed(">=", index, f.index(0)), f.icmp_signed("<=", index, f.index(last)))
            if whole.checks:
                _tell(f, inner, index, extent)
            there = inner if there is None else f.and_(there, inner)
            place = f.iadd(place, f.imul(index, f.extent(self.strides[axis])))
        return there, place

    def _window(self, u: Index, place: Index, first: Index, end: Index) -> None:
        """Write the window of update `u` at `place`, run by run."""
        f = self.f
        run = f.extent(self.run)
        inside = f.extent(product(self.updates.shape[1:]))

        def level(depth: int, source: Index, at: Index) -> None:
            if depth == len(self.outer):
                base = f.iadd(f.imul(u, inside), f.imul(source, run))
                self._row(base, at, first, end)
                return
            axis, size = self.outer[depth]
            extent, stride = f.extent(Extent.of(size)), f.extent(self.strides[axis])
            f.loop(0, extent, 1, lambda i, _: level(
                depth + 1, f.iadd(f.imul(source, extent), i), f.iadd(at, f.imul(i, stride))
            ))

        level(0, 0, place)

    def _row(self, source: Index, at: Index, first: Index, end: Index) -> None:
        f = self.f
        if self.run == ONE or self.lanes == 1:
            f.loop(first, end, 1, lambda i, _: self._vector(source, at, i, 1, None))
            return
        done = first
        for step in (_VECTORS * self.lanes, self.lanes):
            until = f.isub(end, f.irem(f.isub(end, done), step))
            f.loop(done, until, step, lambda i, _, step=step: self._vectors(source, at, i, step))
            done = until
        f.loop(done, end, self.lanes, lambda i, _: self._vector(source, at, i, self.lanes, f.isub(end, i)))

    def _vectors(self, source: Index, at: Index, i: Index, step: int) -> None:
        for number in range(step // self.lanes):
            self._vector(source, at, self.f.iadd(i, number * self.lanes), self.lanes, None)

    def _vector(self, source: Index, at: Index, i: Index, lanes: int, active: Index | None) -> None:
        """Update `lanes` elements from `i` on, of which the first `active` exist."""
        f, whole, dtype = self.f, self.whole, self.result.dtype
        kind = storage_type(dtype)
        target = f.at(f.pointer(self.number), f.iadd(at, i), kind)
        update = self._given(self.updates, f.iadd(source, i), lanes, active)
        values = {0: update}
        if any(1 in scalar.operands for scalar in whole.body) or whole.yields[0] == 1:
            values[1] = from_storage(f, self._load(target, kind, lanes, active), dtype)
        yielded = evaluate(f, whole.body, 2, values, None, whole.yields)[whole.yields[0]]
        stored = to_storage(f, widen(f, yielded, lanes), dtype)
        if active is None:
            f.store_vector(stored, target, kind)
        else:
            f.masked_store(stored, target, kind, lanes, f.lane_mask(active, lanes))

    def _given(self, operand: ExtOperand, at: Index, lanes: int, active: Index | None = None) -> Value:
        """Elements of an operand, or its number."""
        f = self.f
        if operand.value < 0:
            return constant(operand.dtype, operand.number or 0, lanes)
        item = storage_type(operand.dtype)
        address = f.at(f.pointer(operand.value), at, item)
        return from_storage(f, self._load(address, item, lanes, active), operand.dtype)

    def _load(self, address: Value, kind: ir.Type, lanes: int, active: Index | None) -> Value:
        f = self.f
        if active is None:
            return f.load_vector(address, kind, lanes)
        return f.masked_load(address, kind, lanes, f.lane_mask(active, lanes))


def _runs(window: dict[int, Size], shape: tuple[Size, ...]) -> tuple[list[tuple[int, Size]], Extent]:
    """The outer dimensions of a window, with their extents, and the length of its contiguous runs."""
    outer = list(window.items())
    run = ONE
    while outer:
        axis, size = outer.pop()
        run = run * Extent.of(size)
        if size != shape[axis]:
            break
    return outer, run


def _tell(f: Frame, inside: Value, index: Value, extent: Index) -> None:
    """Record an index out of bounds, with its extent, in the status, unless an error is recorded already."""
    status = f.status()
    first = f.icmp_signed("==", f.load(status, typ=I64, align=8), f.index(0))
    with f.if_then(f.and_(f.not_(inside), first), likely=False):
        for word, value in enumerate((f.index(1), index, f.index(extent))):
            f.store(value, f.at(status, word, I64), align=8)

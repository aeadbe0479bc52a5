"""The class `interleave`: a result that is put together from several tensors, whose elements alternate along rows.

    y[n, f, 2 * q]     = a[n, f, q + 1]        vectors of a:  a0 a1 a2 a3        stored:  a0 b0 a1 b1 a2 b2 a3 b3
    y[n, f, 2 * q + 1] = b[n, f, q]            vectors of b:  b0 b1 b2 b3

Transposed convolutions by phases end with such a kernel. Vectors are read along rows, or along another dimension in
which all tensors are contiguous and then transposed in registers; all phases of a row are stored together, so that
every cache line of the result is written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llvmlite import ir

from motet.compiler.codegen.cpu.conv.emitter import external_bytes, task_loop
from motet.compiler.codegen.cpu.conv.shuffles import alternating
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.gemm.microkernel import MEMORY_TYPES, TileFrame, task_function, transpose
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.kernel import Kernel, Stage, item_bytes
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.schedule import InterleaveSchedule, Reason, lanes_reason
from motet.compiler.kernels.strides import ONE, Extent, StridedAccess, place_of
from motet.compiler.targets.cpu import CpuTarget

_MOST_PHASES = 16  # vectors that are stored together


@dataclass(frozen=True)
class Copy:
    """A stage that copies `count` columns of each row."""

    stage: Stage
    source: StridedAccess
    target: StridedAccess
    count: int


@dataclass(frozen=True)
class Interleave:
    """A kernel read as rows of alternating elements. `groups` are the copies that write the same rows, in the order of
    their first elements. Elements alternate along dimension `column`. Sources are contiguous along `column` or along
    `vector`, which is another dimension if some are, and these are transposed."""

    kernel: Kernel
    groups: tuple[tuple[Copy, ...], ...]
    column: int
    vector: int
    dtype: str

    @property
    def step(self) -> int:
        return len(self.groups[0])

    @property
    def shortest(self) -> int:
        """The least number of elements along the dimensions of a register tile."""
        return min(
            min(copy.count, int(copy.stage.sizes[self.vector])) for group in self.groups for copy in group
        )


# -- matching ------------------------------------------------------------------------------------


def match(kernel: Kernel, target: CpuTarget) -> Interleave | None:
    """Read `kernel` as rows of alternating elements; None if it is not one."""
    places = [_copied(kernel, stage) for stage in kernel.stages]
    copied = [place for place in places if place is not None]
    ranks = {len(stage.sizes) for stage in kernel.stages}
    if len(copied) < 2 or len(copied) != len(places) or len(ranks) != 1:
        return None
    values = {target.value for _, target in copied}
    dims = [d for d, stride in enumerate(copied[0][1].strides) if stride.known is not None and stride.known > 1]
    if len(values) != 1 or not dims or kernel.values[copied[0][1].value].role != "result":
        return None
    dtype = copied[0][1].dtype
    column = min(dims, key=lambda d: copied[0][1].strides[d].factor)
    step = copied[0][1].strides[column].factor
    if dtype not in MEMORY_TYPES or step > _MOST_PHASES or any(
        target.strides[column].known != step or source.dtype != dtype for source, target in copied
    ):
        return None
    last = kernel.values[copied[0][1].value]
    wide = last.shape[last.order[-1]]
    vector = _vector(kernel, copied, column)
    if vector is None or not isinstance(wide, int) or not _covers(kernel, copied, column, wide):
        return None
    groups: dict[int, dict[int, Copy]] = {}
    for stage, (source, written) in zip(kernel.stages, copied, strict=True):
        row, phase = divmod(_first(written), wide)
        groups.setdefault(row, {})[phase] = Copy(stage, source, written, int(stage.sizes[column]))
    if any(sorted(group) != list(range(step)) for group in groups.values()):
        return None
    ordered = tuple(tuple(group[p] for p in range(step)) for group in groups.values())
    if any(not _alike(group, column) for group in ordered):
        return None
    return Interleave(kernel, ordered, column, vector, dtype)


def _copied(kernel: Kernel, stage: Stage) -> tuple[StridedAccess, StridedAccess] | None:
    """What a stage that only copies reads and writes; None for others."""
    if stage.body or len(stage.inputs) != 1 or len(stage.outputs) != 1 or stage.inputs[0].padding is not None:
        return None
    if any(not isinstance(size, int) for size in stage.sizes) or stage.reductions:
        return None
    if kernel.values[stage.inputs[0].value].role not in ("argument", "constant"):
        return None
    source, target = (place_of(kernel, each, len(stage.sizes)) for each in (stage.inputs[0], stage.outputs[0]))
    if source is None or target is None or any(part.known is None for part in target.offset):
        return None
    return source, target


def _vector(kernel: Kernel, copied: Sequence[tuple[StridedAccess, StridedAccess]], column: int) -> int | None:
    """`column` if all sources are contiguous along it, else the dimension along which all others are."""
    rank = len(kernel.stages[0].sizes)
    skewed = [source for source, _ in copied if source.strides[column] != ONE]
    if not skewed:
        return column
    for d in range(rank):
        if d != column and all(source.strides[d] == ONE for source in skewed):
            return d if all(stage.sizes[d] != 1 for stage in kernel.stages) else None
    return None


def _covers(
    kernel: Kernel, copied: Sequence[tuple[StridedAccess, StridedAccess]], column: int, wide: int
) -> bool:
    """Whether elements alternate along the last axis in memory: steps of the other dimensions are whole rows."""
    return all(
        stride.known is not None and stride.factor % wide == 0
        for stage, (_, target) in zip(kernel.stages, copied, strict=True)
        for d, stride in enumerate(target.strides) if d != column and stage.sizes[d] != 1
    )


def _first(place: StridedAccess) -> int:
    return sum(part.factor for part in place.offset)


def _alike(group: Sequence[Copy], column: int) -> bool:
    """Whether copies write the same rows, the first as many columns as the others, or one more."""
    sizes = {tuple(size for d, size in enumerate(copy.stage.sizes) if d != column) for copy in group}
    counts = [copy.count for copy in group]
    same = {copy.target.strides for copy in group}
    return len(sizes) == len(same) == 1 and counts == sorted(counts, reverse=True) and counts[0] - counts[-1] <= 1


# -- schedules -----------------------------------------------------------------------------------


def choose(c: Interleave, target: CpuTarget) -> InterleaveSchedule | None:
    """The longest vectors that the extents allow; None for rows of few elements."""
    most = min(target.lanes(8 * item_bytes(c.dtype)), 16, 1 << (c.shortest.bit_length() - 1))
    return InterleaveSchedule(most) if most >= 4 else None


def check(c: Interleave, schedule: InterleaveSchedule, target: CpuTarget) -> list[Reason]:
    """Why `schedule` is not legal for `c` on `target`; an empty list if it is."""
    most = min(target.lanes(8 * item_bytes(c.dtype)), 16, 1 << (c.shortest.bit_length() - 1))
    return lanes_reason(schedule.lanes, most)


def emit(c: Interleave, schedule: InterleaveSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for rows of alternating elements by `schedule`."""
    return _InterleaveEmitter(c, schedule).run()


CLASS = KernelClass(InterleaveSchedule, match, choose, check, emit)


# -- emission ------------------------------------------------------------------------------------


class _InterleaveEmitter:
    def __init__(self, c: Interleave, plan: InterleaveSchedule) -> None:
        self.c = c
        self.lanes = plan.lanes
        self.element = MEMORY_TYPES[c.dtype]
        self.module = ir.Module(c.kernel.name)

    def run(self) -> KernelCode:
        c = self.c
        phases = tuple(self._group(number, group) for number, group in enumerate(c.groups))
        return KernelCode("interleave", str(self.module), phases, bytes=external_bytes(c.kernel))

    def _group(self, number: int, group: tuple[Copy, ...]) -> Phase:
        """The phase that writes the rows of one group."""
        c, sizes = self.c, group[0].stage.sizes
        name = c.kernel.name if len(c.groups) == 1 else f"{c.kernel.name}_{number}"
        f = task_function(self.module, c.kernel, name)
        dims = [d for d, size in enumerate(sizes) if size != 1 and d not in (c.column, c.vector)]
        blocked = c.vector != c.column  # a task has one block of `lanes` elements along `vector`
        blocks = -(-int(sizes[c.vector]) // self.lanes) if blocked else 1

        def task(f: TileFrame, at: list[Index], block: Index, split: Index, scratch: ir.Value) -> None:
            here = list(at)
            if blocked:  # the last block begins earlier if the extent is not a multiple of the lanes
                here[c.vector] = f.imin(f.imul(block, self.lanes), int(sizes[c.vector]) - self.lanes)
            self._row(f, group, here)

        phase = task_loop(f, [(Extent.of(sizes[d]), d) for d in dims], len(sizes), blocks, 1, task)
        return replace(phase, symbol=name)

    def _row(self, f: TileFrame, group: tuple[Copy, ...], at: list[Index]) -> None:
        """Write one row, or one for each lane if sources are transposed."""
        lanes, step = self.lanes, self.c.step
        count = group[-1].count
        sources = [f.address(copy.source, at) for copy in group]
        target = f.address(group[0].target, at)

        def block(q: Index) -> None:
            read = [self._vectors(f, copy, source, q) for copy, source in zip(group, sources, strict=True)]
            for lane, vectors in enumerate(zip(*read, strict=True)):
                place = f.iadd(f.imul(q, step), f.imul(self._across(f, group[0].target), lane))
                for part, vector in enumerate(alternating(f, list(vectors))):
                    address = f.at(target, f.iadd(place, part * lanes), self.element)
                    f.store_vector(vector, address, self.element)

        f.loop(0, count // lanes, 1, lambda b, _: block(f.imul(b, lanes)))
        if count % lanes:
            block(count - lanes)
        for phase, (copy, source) in enumerate(zip(group, sources, strict=True)):
            if copy.count > count:
                for lane in range(lanes if self.c.vector != self.c.column else 1):
                    self._one(f, copy, source, target, lane, count * step + phase)

    def _across(self, f: TileFrame, place: StridedAccess) -> Index:
        return f.extent(place.strides[self.c.vector]) if self.c.vector != self.c.column else 0

    def _vectors(self, f: TileFrame, copy: Copy, source: ir.Value, q: Index) -> list[ir.Value]:
        """A vector along columns from column `q` on; if sources are transposed, one for each element along `vector`."""
        if self.c.vector == self.c.column:
            return [f.load_vector(f.at(source, q, self.element), self.element, self.lanes)]
        apart, across = (f.extent(copy.source.strides[d]) for d in (self.c.column, self.c.vector))
        if apart == 1:
            return [
                f.load_vector(f.at(source, f.iadd(q, f.imul(across, lane)), self.element), self.element, self.lanes)
                for lane in range(self.lanes)
            ]
        return transpose(f, [
            f.load_vector(f.at(source, f.imul(f.iadd(q, lane), apart), self.element), self.element, self.lanes)
            for lane in range(self.lanes)
        ])

    # Parameters: what is copied from where to where.
    def _one(
        self, f: TileFrame, copy: Copy, source: ir.Value, target: ir.Value, lane: int, column: int
    ) -> None:
        """Copy the last element of a row."""
        place = f.imul(f.extent(copy.source.strides[self.c.column]), copy.count - 1)
        place = f.iadd(place, f.imul(self._across(f, copy.source), lane))
        value = f.load_vector(f.at(source, place, self.element), self.element, 1)
        there = f.iadd(f.imul(self._across(f, copy.target), lane), column)
        f.store_vector(value, f.at(target, there, self.element), self.element)

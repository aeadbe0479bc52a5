"""Functions of a nest, the point at which its code stands, and the division of a loop into whole steps and a rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.addressing import Frame, StridedNest
from motet.compiler.codegen.cpu.emit.builder import I1, I64, Index
from motet.compiler.codegen.cpu.nest.plan import NestPlan
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.strides import ZERO, Extent, StridedAccess

Values = list[Any]


@dataclass(frozen=True)
class NestMemory:
    """Where a nest's values are: the numbers of workspaces, offsets in scratch, and, for values that are stored in
    blocks of a dimension, the elements of a block and the stride of blocks."""

    workspaces: Mapping[int, int]
    scratch: Mapping[int, int]
    blocks: Mapping[int, Mapping[int, tuple[int, int | Extent]]]


class NestFrame(Frame):
    """A function of a nest: a phase, or a tile with `more` arguments, of which the module may have several. `origins`
    are the offsets at which copies in scratch begin."""

    def __init__(
        self, module: ir.Module, name: str, kernel: Kernel, memory: NestMemory, more: Sequence[ir.Type] = ()
    ) -> None:
        super().__init__(module, name, kernel, memory.workspaces, memory.scratch, more)
        for argument in (*self.arguments[:2], self.arguments[4]):  # not reached by the pointers in buffers
            argument.add_attribute("noalias")
        self.memory = memory
        self.origins: dict[int, Index] = {}

    def offset(self, operand: StridedAccess, indices: Sequence[Index]) -> Index:
        """The element offset of `operand` at `indices`, one per dimension."""
        blocks = self.memory.blocks.get(operand.value, {})
        inside = [self.irem(i, blocks[d][0]) if d in blocks else i for d, i in enumerate(indices)]
        result = super().offset(operand, inside)
        for d, (size, stride) in blocks.items():
            step = self.extent(stride) if isinstance(stride, Extent) else stride
            result = self.iadd(result, self.imul(self.idiv(indices[d], size), step))
        return self.isub(result, self.origins.get(operand.value, 0))

    def kept(self, number: int, region: NestPoint, write: Callable[[], None]) -> None:
        """`write()` copy `number` of `region`, unless the previous call in this function had the same."""
        numbers = (0, *region.base, *region.left)  # 0: there was a call

        def make() -> Any:
            place = self.alloca(I64, len(numbers))
            self.store(ir.Constant(I64, -1), self.at(place, 0, I64))
            return place

        place = self._in_entry(("kept", number), make)
        changed: Any = ir.Constant(I1, 0)
        for n, each in enumerate(numbers):
            before = self.load(self.at(place, n, I64), typ=I64, align=8)
            changed = self.or_(changed, self.icmp_signed("!=", before, self.index(each)))
        with self.if_then(changed):
            for n, each in enumerate(numbers):
                self.store(self.index(each), self.at(place, n, I64))
            write()

    def stack(self, name: str, kind: ir.Type, count: int) -> Any:
        """The address of `count` elements on the stack, aligned as buffers are; the same for each use of `name`."""
        def make() -> Any:
            place = self.alloca(kind, count)
            place.align = 64
            return place

        return self._in_entry(("stack", name), make)

    @property
    def more(self) -> Sequence[Any]:
        """The arguments after those of a phase."""
        return self.arguments[5:]

    def inner(self, more: Sequence[ir.Type]) -> NestFrame:
        """A function of the same kernel that this one calls. LLVM must not inline it, so that its registers are
        allocated separately."""
        name = self.module.get_unique_name(f"{self.function.name}_tile")
        inner = NestFrame(self.module, name, self.kernel, self.memory, more)
        inner.function.linkage = "internal"
        inner.function.attributes.add("noinline")
        inner.function.attributes.add("nounwind")
        inner.scales = self.scales
        return inner


@dataclass(frozen=True)
class NestPoint:
    """The loops inside cover `left[d]` elements of dimension `d` from `base[d]` on. If `active` is given, `left` is one
    vector, of which so many lanes exist."""

    base: tuple[Index, ...]
    left: tuple[Index, ...]
    active: Index | None = None

    def moved(self, dim: int, base: Index, left: Index) -> NestPoint:
        """The point with other values for `dim`."""
        return replace(self, base=_put(self.base, dim, base), left=_put(self.left, dim, left))


def _put(items: tuple[Index, ...], position: int, item: Index) -> tuple[Index, ...]:
    return (*items[:position], item, *items[position + 1 :])


def whole_domain(f: Frame, plan: NestPlan) -> NestPoint:
    """The point at which no loop has been entered."""
    return NestPoint(
        tuple(span.begin for span in plan.spans),
        tuple(span.length(f, f.extent(span.size)) for span in plan.spans),
    )


Step = Callable[[Index, Index, Values], Values]


def divided(f: Frame, left: Index, step: int, body: Step, carried: Values) -> Values:
    """`body(offset, elements, carried)` for the steps of a loop over `left` elements: whole steps, then the rest."""
    if isinstance(left, int):
        whole = left - left % step
        carried = f.loop(0, whole, step, lambda i, values: body(i, step, values), carried)
        return body(whole, left % step, carried) if left % step else carried
    whole = left if step == 1 else f.isub(left, f.irem(left, step))
    carried = f.loop(0, whole, step, lambda i, values: body(i, step, values), carried)
    if step == 1:
        return carried
    return f.loop(whole, left, step, lambda i, values: body(i, f.isub(left, i), values), carried)


def interior(f: Frame, nest: StridedNest, point: Sequence[Index], spans: Sequence[Index]) -> Any:
    """Whether all reads of the box of `spans` elements from `point` on are in bounds."""
    result: Any = None
    for bound in (bound for operand in nest.inputs for bound in operand.bounds):
        low: Index = bound.entry.constant
        high: Index = bound.entry.constant
        for dim, coefficient in bound.entry.terms:
            last = f.imul(coefficient, f.iadd(point[dim], f.isub(spans[dim], 1)))
            first = f.imul(coefficient, point[dim])
            if coefficient < 0:
                first, last = last, first
            low, high = f.iadd(low, first), f.iadd(high, last)
        extent = f.index(f.extent(bound.extent))
        inside = f.and_(f.icmp_signed(">=", f.index(low), f.index(0)), f.icmp_signed("<", f.index(high), extent))
        result = inside if result is None else f.and_(result, inside)
    return result


def shifted(operand: StridedAccess, by: Mapping[int, int]) -> StridedAccess:
    """`operand` at an offset of `by[d]` elements of each dimension `d`."""
    if not any(by.values()):
        return operand
    offset = tuple(stride * by[d] for d, stride in enumerate(operand.strides) if by.get(d) and stride != ZERO)
    bounds = tuple(
        replace(bound, entry=bound.entry.plus(sum(c * by.get(d, 0) for d, c in bound.entry.terms)))
        for bound in operand.bounds
    )
    return replace(operand, offset=(*operand.offset, *offset), bounds=bounds)

"""Common refinement of the extents of reshapes: 12x128 collapsed to 1536 and expanded to 4x3x128 is 4x3x128 throughout.

Every axis is cut at some of its divisors: an axis of 1536 with cuts 384 and 128 is 4x3x128. Axes of the same loop have
the same cuts, and reshapes carry cuts from one side to the other, until nothing changes. Axes of extent 1 are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import reassociation_attribute
from motet.compiler.ir.sizes import extent_of

Size = int | None
Axis = tuple[str, int]


class NoRefinement(Exception):
    """The extents have no common refinement, or none that can be expressed."""


@dataclass(frozen=True)
class Reshape:
    """A reshape: `narrow` is `wide` with each of `groups` of its axes collapsed."""

    wide: str
    narrow: str
    groups: list[list[int]]


@dataclass(frozen=True)
class Slice:
    source: str
    result: str
    operation: ir.Operation


@dataclass(frozen=True)
class ReshapedTensor:
    """A tensor in a refined shape: `groups` are the axes of `kind` that each axis of the original becomes."""

    kind: ir.RankedTensorType
    original: ir.RankedTensorType
    groups: tuple[int, ...]


@dataclass
class Extents:
    """The axes of tensors and loops, by name and number."""

    tensors: dict[str, list[Size]] = field(default_factory=dict[str, list[Size]])
    reshapes: list[Reshape] = field(default_factory=list[Reshape])
    slices: list[Slice] = field(default_factory=list[Slice])
    parent: dict[Axis, Axis] = field(default_factory=dict[Axis, Axis])
    cuts: dict[Axis, set[int]] = field(default_factory=dict[Axis, set[int]])
    uncut: list[Axis] = field(default_factory=list[Axis])
    leads: dict[Axis, Axis] = field(default_factory=dict[Axis, Axis])  # axis → the axis with the same outermost part

    def declare(self, name: str, kind: ir.RankedTensorType) -> None:
        self.loops(name, [None if kind.is_dynamic_dim(axis) else kind.shape[axis] for axis in range(kind.rank)])

    def loops(self, name: str, sizes: Sequence[Size]) -> str:
        self.tensors[name] = list(sizes)
        for axis in range(len(sizes)):
            self.parent[name, axis] = (name, axis)
            self.cuts[name, axis] = set()
        return name

    def join(self, a: str, i: int, b: str, j: int) -> None:
        """Records that axis `i` of `a` and axis `j` of `b` have the same cuts."""
        first, second = self._root((a, i)), self._root((b, j))
        if first != second:
            self.parent[second] = first
            self.cuts[first] |= self.cuts.pop(second)

    def _root(self, axis: Axis) -> Axis:
        while self.parent[axis] != axis:
            axis = self.parent[axis]
        return axis

    def lead(self, axis: Axis) -> Axis:
        """The representative of the outermost part of `axis`: equal representatives have equal extents."""
        found = self._root(axis)
        while found in self.leads:
            found = self._root(self.leads[found])
        return found

    def _add(self, axis: Axis, cuts: set[int]) -> bool:
        known = self.cuts[self._root(axis)]
        if cuts <= known:
            return False
        known |= cuts
        return True

    def settle(self) -> None:
        """Carries cuts until nothing changes. Raises NoRefinement."""
        for reshape in self.reshapes:
            for axis, group in enumerate(reshape.groups):
                real = [a for a in group if self.tensors[reshape.wide][a] != 1]
                if len(real) == 1:
                    self.join(reshape.wide, real[0], reshape.narrow, axis)
        for reshape in self.reshapes:
            for axis, group in enumerate(reshape.groups):
                first = next((a for a in group if self.tensors[reshape.wide][a] != 1), None)
                ends = [self.lead((reshape.narrow, axis)), self.lead((reshape.wide, first or 0))]
                if first is not None and ends[0] != ends[1]:
                    self.leads[ends[0]] = ends[1]
        changed = True
        while changed:
            changed = any([*map(self._carry, self.reshapes), *map(self._carry_slice, self.slices)])
        if any(self.cuts[self._root(axis)] for axis in self.uncut):
            raise NoRefinement
        for name, sizes in self.tensors.items():
            for axis, size in enumerate(sizes):
                self._check(self._ordered((name, axis)), size)

    def _ordered(self, axis: Axis) -> list[int]:
        return sorted(self.cuts[self._root(axis)], reverse=True)

    def _check(self, cuts: list[int], size: Size) -> None:
        chain = ([size] if size is not None else []) + cuts
        if any(outer % inner or outer == inner for outer, inner in pairwise(chain)):
            raise NoRefinement

    def _carry(self, reshape: Reshape) -> bool:
        changed = False
        for axis, group in enumerate(reshape.groups):
            real = [a for a in group if self.tensors[reshape.wide][a] != 1]
            if len(real) < 2:
                continue
            below = 1
            narrow = (reshape.narrow, axis)
            for position in reversed(range(len(real))):
                wide = (reshape.wide, real[position])
                size = self.tensors[reshape.wide][real[position]]
                own = {below * cut for cut in self.cuts[self._root(wide)]}
                changed |= self._add(narrow, own | ({below} if position < len(real) - 1 else set()))
                inside = {
                    cut for cut in self.cuts[self._root(narrow)]
                    if cut > below and (size is None or cut < below * size)
                }
                if any(cut % below for cut in inside):
                    raise NoRefinement
                changed |= self._add(wide, {cut // below for cut in inside})
                if size is None:
                    if position:
                        raise NoRefinement
                    break
                below *= size
        return changed

    # -- slices --

    def _carry_slice(self, slice_: Slice) -> bool:
        """Carries cuts across a slice of whole pieces of an axis, which leaves the cuts as they are."""
        changed = False
        for axis, result, offset, size in self._sliced(slice_):
            if result is None:
                if self.cuts[self._root((slice_.source, axis))]:
                    raise NoRefinement
                continue
            pair = ((slice_.source, axis), (slice_.result, result))
            both = self.cuts[self._root(pair[0])] | self.cuts[self._root(pair[1])]
            if any(offset % cut or size % cut for cut in both) or size in both:
                raise NoRefinement
            changed |= self._add(pair[0], both) | self._add(pair[1], both)
        return changed

    def _sliced(self, slice_: Slice) -> list[tuple[int, int | None, int, int]]:
        """For every axis of a slice's source: the corresponding axis of the result, its offset and its extent."""
        attributes = slice_.operation.attributes
        offsets, sizes, strides = (
            list(ir.DenseI64ArrayAttr(attributes[f"static_{name}"])) for name in ("offsets", "sizes", "strides")
        )
        unknown = ir.ShapedType.get_dynamic_size()
        if unknown in offsets or unknown in sizes or any(stride != 1 for stride in strides):
            raise NoRefinement
        result = self.tensors[slice_.result]
        found: list[tuple[int, int | None, int, int]] = []
        position = 0
        for axis, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
            if size == 1:
                taken = None  # dropped or not, an axis of extent 1 is left out
                position += position < len(result) and result[position] == 1
            else:
                while position < len(result) and result[position] == 1:
                    position += 1
                taken, position = position, position + 1
            found.append((axis, taken, offset, size))
        return found

    def slice(self, value: ir.Value, operation: ir.Operation, source: str, result: str) -> ir.Value:
        """The slice on refined extents."""
        offsets: list[int] = []
        sizes: list[int] = []
        kept: list[int] = []
        for axis, taken, offset, size in self._sliced(Slice(source, result, operation)):
            if self.tensors[source][axis] == 1:
                continue
            cuts = self._ordered((source, axis))
            inner = cuts[0] if cuts else 1
            offsets += [offset // inner, *(0 for _ in cuts)]
            parts = [size // inner, *(a // b for a, b in pairwise([*cuts, 1]))]
            sizes += parts
            kept += [part for part in parts if part != 1] if taken is None else parts
        element = ir.RankedTensorType(value.type).element_type
        return ir.Operation.create(
            "tensor.extract_slice", results=[ir.RankedTensorType.get(kept, element)], operands=[value],
            attributes={
                "static_offsets": ir.DenseI64ArrayAttr.get(offsets),
                "static_sizes": ir.DenseI64ArrayAttr.get(sizes),
                "static_strides": ir.DenseI64ArrayAttr.get([1] * len(sizes)),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
            },
        ).results[0]

    # -- concatenations --

    def concatenate(self, result: str, parts: Sequence[str], axis: int) -> None:
        """Records that `result` concatenates `parts` along `axis`, which must stay uncut in all of them."""
        for part in parts:
            for other in range(len(self.tensors[result])):
                if other != axis:
                    self.join(result, other, part, other)
            self.uncut.append((part, axis))
        self.uncut.append((result, axis))

    def with_axis(self, values: Sequence[ir.Value], names: Sequence[str], axis: int) -> list[ir.Value]:
        """Tensors that include axis `axis` of the original ones even if its extent is 1."""
        found: list[ir.Value] = []
        for value, name in zip(values, names, strict=True):
            if self.tensors[name][axis] != 1:
                found.append(value)
                continue
            position = sum(len(self.parts((name, other))) for other in range(axis))
            kind = ir.RankedTensorType(value.type)
            shape = list(kind.shape)
            shape.insert(position, 1)
            groups = _around([a for a in range(len(shape)) if a != position], len(shape))
            found.append(_expand(value, ir.RankedTensorType.get(shape, kind.element_type), groups))
        return found

    def concatenation(self, parts: Sequence[ir.Value], name: str, axis: int, operation: ir.Operation) -> ir.Value:
        position = sum(len(self.parts((name, other))) for other in range(axis))
        kind = self.refined(name, operation.results[0].type).kind
        dim = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), position)
        created = ir.Operation.create("tensor.concat", results=[kind], operands=list(parts), attributes={"dim": dim})
        return created.results[0]

    # -- results --

    def parts(self, axis: Axis) -> list[Size]:
        """The extents that an axis became, the outermost first; empty for an axis of extent 1."""
        size = self.tensors[axis[0]][axis[1]]
        if size == 1:
            return []
        cuts = self._ordered(axis)
        if not cuts:
            return [size]
        first = None if size is None else size // cuts[0]
        return [first, *(a // b for a, b in pairwise([*cuts, 1]))]

    def sizes(self, name: str) -> list[Size]:
        return [part for axis in range(len(self.tensors[name])) for part in self.parts((name, axis))]

    def numbered(self, name: str) -> list[list[int]]:
        """The numbers of the refined loops that each loop of `name` became."""
        found: list[list[int]] = []
        count = 0
        for axis in range(len(self.tensors[name])):
            parts = self.parts((name, axis))
            found.append(list(range(count, count + len(parts))))
            count += len(parts)
        return found

    def refined(self, name: str, kind: ir.Type) -> ReshapedTensor:
        original = ir.RankedTensorType(kind)
        unknown = ir.ShapedType.get_dynamic_size()
        groups = [self.parts((name, axis)) for axis in range(original.rank)]
        shape = [unknown if part is None else part for group in groups for part in group]
        return ReshapedTensor(ir.RankedTensorType.get(shape, original.element_type), original, tuple(map(len, groups)))


# -- reshapes --------------------------------------------------------------------------------------


def inward(value: ir.Value, tensor: ReshapedTensor) -> ir.Value:
    """`value`, of the original shape, in the refined one. Raises NoRefinement if that needs a division of dynamic
    extents."""
    counts = tensor.groups
    real = [axis for axis, count in enumerate(counts) if count]
    if len(real) < len(counts):
        shape = [tensor.original.shape[axis] for axis in real]
        value = _collapse(value, ir.RankedTensorType.get(shape, tensor.kind.element_type), _around(real, len(counts)))
    if any(count > 1 for count in counts):
        value = _expand(value, tensor.kind, _runs([counts[axis] for axis in real]))
    return value


def outward(value: ir.Value, tensor: ReshapedTensor) -> ir.Value:
    """`value`, of the refined shape, in the original one."""
    counts = tensor.groups
    real = [axis for axis, count in enumerate(counts) if count]
    if any(count > 1 for count in counts):
        shape = [tensor.original.shape[axis] for axis in real]
        groups = _runs([counts[axis] for axis in real])
        value = _collapse(value, ir.RankedTensorType.get(shape, tensor.kind.element_type), groups)
    if len(real) < len(counts):
        value = _expand(value, tensor.original, _around(real, len(counts)))
    return value


def _around(real: Sequence[int], count: int) -> list[list[int]]:
    """All axes in groups with one of `real` each; the others join the group before them, or the first."""
    starts = [0, *real[1:]]
    return [list(range(a, b)) for a, b in zip(starts, [*starts[1:], count], strict=True)] if real else []


def _runs(counts: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for count in counts:
        first = found[-1][-1] + 1 if found else 0
        found.append(list(range(first, first + count)))
    return found


def _collapse(value: ir.Value, kind: ir.RankedTensorType, groups: Sequence[Sequence[int]]) -> ir.Value:
    return ir.Operation.create(
        "tensor.collapse_shape", results=[kind], operands=[value],
        attributes={"reassociation": reassociation_attribute(groups)},
    ).results[0]


def _expand(value: ir.Value, kind: ir.RankedTensorType, groups: Sequence[Sequence[int]]) -> ir.Value:
    """An expansion; a dynamic extent is that of its group, whose other extents are 1."""
    dynamic: list[ir.Value] = []
    for axis, group in enumerate(groups):
        unknown = [a for a in group if kind.is_dynamic_dim(a)]
        if not unknown:
            continue
        if any(kind.shape[a] != 1 for a in group if a not in unknown):
            raise NoRefinement
        dynamic.append(extent_of(value, axis))
    return ir.Operation.create(
        "tensor.expand_shape", results=[kind], operands=[value, *dynamic],
        attributes={
            "reassociation": reassociation_attribute(groups),
            "static_output_shape": ir.DenseI64ArrayAttr.get(list(kind.shape)),
        },
    ).results[0]

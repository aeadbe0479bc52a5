"""lower-transposed-conv: rewrites convolutions of images with inserted zeros so that they do not read the zeros.

    %z = tensor.insert_slice %x into zeros … [1, 1, 2, 2]         y[n, f, h * 2 + p, w * 2 + r] +=
    %r = convolution of %z                                   →        x[n, c, h + i, w + j] * k'[p, r, f, c, i, j]
        y[n, f, h, w] += z[n, c, h + i, w + j] * k[f, c, i, j]

Points of the result whose distance is a multiple of the step use the same elements of the window; those of another
phase `p`, `r` use others. `k'` has the elements phase by phase, padded with zeros where a phase has fewer. The result
is a convolution with more filters, by the number of phases, and correspondingly smaller windows; if the window is as
long as the step, it is a product. Source: Shi et al., "Is the deconvolution layer the same as a convolutional layer?",
2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.affine import Affine
from motet.compiler.ir.nests import pad_with_zeros
from motet.compiler.kernels.roles import is_convolution, structure_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.normalise.repeating import IndexBody, gathered
from motet.compiler.passes.normalise.splitting import Split


@dataclass(frozen=True)
class LowerTransposedConv(FunctionPass):
    """Keeps convolutions with dynamic extents. Without `phases` it also keeps those of more than one phase, and only
    separates a zero border from the image: `transposed-conv-by-phases` computes the others on CPUs."""

    name = "lower-transposed-conv"
    phases: bool = True

    def run_on(self, function: ir.Operation) -> bool:
        found = False
        for block in function.regions[0].blocks:
            while (upsampling := _first(block, self.phases)) is not None:  # a rewriting erases other operations
                _rewrite(*upsampling)
                found = True
        return found


def _first(block: ir.Block, phases: bool) -> tuple[ir.Operation, _Upsampling] | None:
    for each in block.operations:
        found = _match(each.operation)
        if found is not None and (phases or all(axis.step == 1 for axis in found.axes)):
            return each.operation, found
    return None


@dataclass(frozen=True)
class _WindowAxis:
    """A spatial axis: its dimensions in the nest, the result, the window, and the image. Pixels are at `offset + step *
    i` among zeros. Point `step * q + phase` of the result reads pixels `q + first` to `q + first + taps - 1`, with the
    elements `step * tap + base - phase` of the window, which has `window` elements."""

    dim: int
    place: int
    axis: int
    step: int
    offset: int
    window: int
    extent: int  # of the result

    @property
    def first(self) -> int:
        return -(self.offset // self.step)

    @property
    def base(self) -> int:
        return self.step * self.first + self.offset

    @property
    def taps(self) -> int:
        return (self.step - 1 + self.window - 1 - self.offset) // self.step - self.first + 1

    @property
    def count(self) -> int:
        """The number of points of one phase."""
        return self.extent // self.step


@dataclass(frozen=True)
class _Upsampling:
    """`image` and `filters` are operands of the convolution, `source` the tensor between the zeros."""

    image: int
    filters: int
    source: ir.Value
    axes: tuple[_WindowAxis, ...]


# -- matching --------------------------------------------------------------------------------------


def _match(operation: ir.Operation) -> _Upsampling | None:
    if not is_convolution(operation):
        return None
    structure = structure_of(operation)
    tensors = all(isinstance(value.type, ir.RankedTensorType) for value in operation.operands)
    if structure is None or not tensors or not all(shape_of(value) for value in operation.operands):
        return None
    for image, filters in ((0, 1), (1, 0)):
        among = operation.operands[image]
        spread = None if isinstance(among.owner, ir.Block) else spread_of(among.owner.operation)
        if spread is None or any(entry.single is None for entry in structure.maps[filters]):
            continue
        axes = _axes(operation, image, filters, *spread)
        if axes is not None:
            return _Upsampling(image, filters, among.owner.operation.operands[0], axes)
    return None


def spread_of(insert: ir.Operation) -> tuple[list[int], list[int]] | None:
    """The offsets and steps with which a tensor is inserted among zeros; None for other operations."""
    if insert.name != "tensor.insert_slice" or len(insert.operands) != 2 or not is_zero(insert.operands[1]):
        return None
    offsets, sizes, steps = (
        list(ir.DenseI64ArrayAttr(insert.attributes[f"static_{name}"])) for name in ("offsets", "sizes", "strides")
    )
    return (offsets, steps) if sizes == shape_of(insert.operands[0]) else None


def is_zero(value: ir.Value) -> bool:
    """Whether all elements of a tensor are zero."""
    owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if owner is None or owner.name not in ("linalg.generic", "linalg.fill") or not owner.operands:
        return False
    scalar = owner.operands[0]
    if isinstance(scalar.owner, ir.Block) or scalar.owner.operation.name != "arith.constant":
        return False
    if owner.name == "linalg.generic":
        body = [each.operation for each in owner.regions[0].blocks[0].operations]
        if len(body) != 1 or body[0].operands[0] != owner.regions[0].blocks[0].arguments[0]:
            return False
    constant = scalar.owner.operation.attributes["value"]
    return isinstance(constant, ir.FloatAttr | ir.IntegerAttr) and constant.value == 0


def _axes(
    operation: ir.Operation, image: int, filters: int, offsets: Sequence[int], steps: Sequence[int]
) -> tuple[_WindowAxis, ...] | None:
    structure = structure_of(operation)
    if structure is None:
        return None
    result = structure.maps[-1]
    axes: list[_WindowAxis] = []
    for axis, entry in enumerate(structure.maps[image]):
        dims = [d for d, _ in entry.terms]
        if len(dims) == 1 and steps[axis] == 1 and offsets[axis] == 0 and entry.single is not None:
            continue
        inside = [d for d in dims if d in structure.reduced]
        outside = [d for d in dims if d not in structure.reduced]
        if len(inside) != 1 or len(outside) != 1 or entry.constant or any(factor != 1 for _, factor in entry.terms):
            return None
        extents = [shape_of(operation.results[0])[a] for a, out in enumerate(result) if out.single == outside[0]]
        windows = [shape_of(operation.operands[filters])[a] for a, own in enumerate(structure.maps[filters])
                   if own.single == inside[0]]
        if len(extents) != 1 or len(windows) != 1 or extents[0] % steps[axis]:
            return None
        found = _WindowAxis(outside[0], inside[0], axis, steps[axis], offsets[axis], windows[0], extents[0])
        if found.taps < 1:
            return None
        axes.append(found)
    return tuple(axes) or None


def shape_of(value: ir.Value) -> list[int]:
    """The extents of a tensor; empty if one is dynamic."""
    kind = ir.RankedTensorType(value.type)
    return list(kind.shape) if kind.has_static_shape else []


# -- rewriting -------------------------------------------------------------------------------------


def _rewrite(operation: ir.Operation, found: _Upsampling) -> None:
    at, context = ir.InsertionPoint(operation), operation.context
    split = _split(operation, found)
    with operation.location:
        operands = list(operation.operands)
        operands[found.image] = _bordered(found, at)
        if any(axis.step > 1 for axis in found.axes):
            operands[found.filters] = _by_phases(operation, found, at)
        operands[-1] = split.expanded(operands[-1], at)
        maps, iterators = _nest(operation, found)
        made = ir.Operation.create(
            "linalg.generic", results=[operands[-1].type], operands=operands,
            attributes={
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(each) for each in maps], context),
                "iterator_types": ir.ArrayAttr.get(iterators, context),
                "operandSegmentSizes": operation.attributes["operandSegmentSizes"],
            },
            regions=1, ip=at,
        )
    operation.regions[0].blocks[0].append_to(made.regions[0])
    split.take_along(operation, made.results[0])


def _split(operation: ir.Operation, found: _Upsampling) -> Split:
    structure = structure_of(operation)
    assert structure is not None
    phased = {axis.dim: axis for axis in found.axes if axis.step > 1}
    groups: list[tuple[int, ...]] = []
    shape: list[int] = []
    for entry, size in zip(structure.maps[-1], shape_of(operation.results[0]), strict=True):
        axis = phased.get(entry.single) if entry.single is not None else None
        own = [size] if axis is None else [axis.count, axis.step]
        groups.append(tuple(range(len(shape), len(shape) + len(own))))
        shape += own
    return Split(tuple(groups), tuple(shape))


def _bordered(found: _Upsampling, at: ir.InsertionPoint) -> ir.Value:
    """The image with a zero border as wide as windows extend."""
    shape = shape_of(found.source)
    low, high = [0] * len(shape), [0] * len(shape)
    for axis in found.axes:
        low[axis.axis] = -axis.first
        high[axis.axis] = max(0, axis.count + axis.taps - 1 + axis.first - shape[axis.axis])
    return padded(found.source, low, high, at)


def padded(value: ir.Value, low: Sequence[int], high: Sequence[int], at: ir.InsertionPoint) -> ir.Value:
    """`value` with a zero border."""
    if not any(low) and not any(high):
        return value
    kind = ir.RankedTensorType(value.type)
    extents = [size + sum(sides) for size, *sides in zip(kind.shape, low, high, strict=True)]
    with at:
        return pad_with_zeros(ir.RankedTensorType.get(extents, kind.element_type), [value], low, high)


def _by_phases(operation: ir.Operation, found: _Upsampling, at: ir.InsertionPoint) -> ir.Value:
    """The filters by phase: axes of phases, then those of the filters, with the window elements as pixels that a phase
    reads. Filters of one phase are contiguous, like channels of the result."""
    structure = structure_of(operation)
    filters = operation.operands[found.filters]
    shape = shape_of(filters)
    assert structure is not None
    own = {entry.single: axis for axis, entry in enumerate(structure.maps[found.filters])}
    low, high = [0] * len(shape), [0] * len(shape)
    for axis in found.axes:
        low[own[axis.place]] = max(0, axis.step - 1 - axis.base)
        high[own[axis.place]] = max(0, axis.step * (axis.taps - 1) + axis.base - (axis.window - 1))
    bordered = padded(filters, low, high, at)
    walked = {own[axis.place]: axis for axis in found.axes}
    phased = [axis for axis in found.axes if axis.step > 1]
    extents = [axis.step for axis in phased]
    extents += [walked[a].taps if a in walked else size for a, size in enumerate(shape)]

    def places(body: IndexBody) -> list[ir.Value]:
        indices: list[ir.Value] = []
        for a in range(len(shape)):
            place, axis = body.point(len(phased) + a), walked.get(a)
            if axis is not None:
                place = body.binary("arith.muli", place, body.number(axis.step))
                place = body.binary("arith.addi", place, body.number(axis.base + low[a]))
                if axis in phased:
                    place = body.binary("arith.subi", place, body.point(phased.index(axis)))
            indices.append(place)
        return indices

    return gathered(bordered, extents, places, at)


def _nest(operation: ir.Operation, found: _Upsampling) -> tuple[list[ir.AffineMap], list[ir.Attribute]]:
    """The maps and iterators of the convolution, with phase dimensions before its reductions, and without window
    dimensions of extent 1."""
    structure, context = structure_of(operation), operation.context
    assert structure is not None
    phased = [axis for axis in found.axes if axis.step > 1]
    gone = {axis.place for axis in found.axes if axis.taps == 1}
    begin = min(structure.reduced)
    kept = [d for d in range(len(structure.sizes)) if d not in gone]
    order: list[int | _WindowAxis] = [*(d for d in kept if d < begin), *phased, *(d for d in kept if d >= begin)]

    def expression(entry: Affine) -> ir.AffineExpr:
        result = ir.AffineExpr.get_constant(entry.constant, context)
        for d, factor in entry.terms:
            if d not in gone:
                result = result + ir.AffineExpr.get_dim(order.index(d), context) * factor
        return result

    maps: list[ir.AffineMap] = []
    for number, entries in enumerate(structure.maps):
        results = [expression(entry) for entry in entries]
        if number == found.filters:
            results = [*(ir.AffineExpr.get_dim(order.index(axis), context) for axis in phased), *results]
        elif number != found.image:
            phases = {axis.dim: ir.AffineExpr.get_dim(order.index(axis), context) for axis in phased}
            results = [
                each for result, entry in zip(results, entries, strict=True)
                for each in ([result, phases[entry.single]] if entry.single in phases else [result])
            ]
        maps.append(ir.AffineMap.get(len(order), 0, results, context))
    iterators = list(ir.ArrayAttr(operation.attributes["iterator_types"]))
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>", context)
    return maps, [parallel if isinstance(each, _WindowAxis) else iterators[each] for each in order]

"""settle-grouped-convolutions: in the `torch` dialect, writes grouped convolutions over three axes, for which the wheel
has no lowering, as one loop nest, and transposed ones of each channel in a form that it lowers.

    %1 = torch.aten.convolution %x, %w, %b, …, groups 2    →    %p = tensor.pad %x
        : [1,6,8,8,8], [4,3,3,3,3]                              %g = tensor.expand_shape %p : 1x2x3x10x10x10
                                                                %v = tensor.expand_shape %w : 2x2x3x3x3x3
                                                                %s = linalg.generic {%g · %v}
                                                                %1 = tensor.collapse_shape %s : 1x4x8x8x8

Products of 16-bit numbers are summed in f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.frontends.onnx.tensors import TorchKind, as_torch, builtin, kind_of, know_operations
from motet.compiler.frontends.torch.operands import known_integers
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import zero_attribute
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.nests import converted, loops, pad_with_zeros, widened
from motet.compiler.ir.sizes import constant_index, extent_of
from motet.compiler.operators.pointwise import merged, split

_AXES = 3
_FLOATS = ("bf16", "f16", "f32", "f64")


@dataclass(frozen=True)
class _Grouped:
    """A convolution over three axes: its tensors' types, and along each axis strides, pads and dilations."""

    op: ir.Operation
    image: TorchKind
    filters: TorchKind
    result: TorchKind
    groups: int
    strides: Sequence[int]
    pads: Sequence[int]
    dilations: Sequence[int]

    @property
    def sum(self) -> ir.Type:
        """The type of the sums."""
        return ir.F64Type.get() if self.image.element == "f64" else ir.F32Type.get()


def settle_grouped_convolutions(module: ir.Module) -> None:
    """Rewrites the module in place."""
    every = [(op, _read(op)) for op in find_operations(module, "torch.aten.convolution")]
    found = [(op, read) for op, read in every if read is not None or _is_each_channel_transposed(op)]
    if found:
        know_operations(module)
    for op, read in found:
        with op.context, op.location, ir.InsertionPoint(op):
            if read is None:
                _hide_channels(op)
                continue
            made = create("torch_c.from_builtin_tensor", op.results[0].type, [_lowered(read)])
        op.results[0].replace_all_uses_with(made)
        op.erase()


def _groups(op: ir.Operation) -> tuple[int, bool] | None:
    """The number of groups, and whether the convolution is transposed; None if they are no constants."""
    owners = [op.operands[number].owner for number in (8, 6)]
    if any(isinstance(owner, ir.Block) or "value" not in owner.attributes for owner in owners):
        return None
    count, transposed = (ir.IntegerAttr(owner.attributes["value"]).value for owner in owners)
    return count, bool(transposed)


def _read(op: ir.Operation) -> _Grouped | None:
    """`op` as a grouped convolution over three axes of known filters; None for others, and for transposed ones."""
    kinds = [kind_of(value) for value in (*op.operands[:2], op.results[0])]
    strides, pads, dilations = (known_integers(op.operands[number]) for number in (3, 4, 5))
    (image, filters, result), form = kinds, _groups(op)
    if image is None or filters is None or result is None or form is None:
        return None
    count, transposed = form
    known = DYNAMIC not in filters.extents and len(image.extents) == len(filters.extents) == _AXES + 2
    if count == 1 or transposed or not known or image.element not in _FLOATS or DYNAMIC in (image.extents[1:2]):
        return None
    if strides is None or pads is None or dilations is None or not len(strides) == len(pads) == len(dilations) == _AXES:
        return None
    return _Grouped(op, image, filters, result, count, strides, pads, dilations)


def _lowered(c: _Grouped) -> ir.Value:
    image, filters = (builtin(value) for value in c.op.operands[:2])
    initial = _initial(c, image)
    sums = _convolved(c, _expanded(_padded(c, image), 1, c.groups), _expanded(filters, 0, c.groups), initial)
    made = merged(sums, 1, 2)
    if c.sum != c.image.scalar:
        made = converted(c.op, made, c.image.scalar, lambda total: create("arith.truncf", c.image.scalar, [total]))
    return create("tensor.cast", c.result.builtin, [made]) if made.type != c.result.builtin else made


def _size(c: _Grouped, image: ir.Value, axis: int) -> ir.Value:
    """The extent of the result along a spatial axis."""
    index = ir.IndexType.get()
    reach = (c.filters.extents[axis + 2] - 1) * c.dilations[axis] + 1
    extent = extent_of(image, axis + 2)
    steps = create("arith.addi", index, [extent, constant_index(2 * c.pads[axis] - reach)])
    steps = create("arith.floordivsi", index, [steps, constant_index(c.strides[axis])])
    return create("arith.addi", index, [steps, constant_index(1)])


def _padded(c: _Grouped, image: ir.Value) -> ir.Value:
    if not any(c.pads):
        return image
    grown = [0, 0, *(2 * pad for pad in c.pads)]
    extents = [size if size == DYNAMIC else size + by for size, by in zip(c.image.extents, grown, strict=True)]
    border = [0, 0, *c.pads]
    return pad_with_zeros(ir.RankedTensorType.get(extents, c.image.scalar), [image], border, border)


def _zero(kind: ir.Type) -> ir.Value:
    return create("arith.constant", kind, [], {"value": zero_attribute(kind)})


def _expanded(value: ir.Value, axis: int, groups: int) -> ir.Value:
    """`value` with `axis` split into groups and what is in each."""
    kind = ir.RankedTensorType(value.type)
    shape = [*kind.shape[:axis], groups, kind.shape[axis] // groups, *kind.shape[axis + 1 :]]
    dynamic = [extent_of(value, old) for old in range(kind.rank) if kind.is_dynamic_dim(old)]
    return split(value, ir.RankedTensorType.get(shape, kind.element_type), axis, 2, dynamic)


def _initial(c: _Grouped, image: ir.Value) -> ir.Value:
    """The sums before the first product: the bias, or zeros."""
    extents = [c.result.extents[0], c.groups, c.filters.extents[0] // c.groups, *c.result.extents[2:]]
    batch = [extent_of(image, 0)] if extents[0] == DYNAMIC else []
    sizes = [_size(c, image, axis) for axis in range(_AXES) if extents[axis + 3] == DYNAMIC]
    empty = create("tensor.empty", ir.RankedTensorType.get(extents, c.sum), [*batch, *sizes])
    given = kind_of(c.op.operands[2])
    if given is None:
        return loops([], empty, [ir.AffineMap.get_identity(6)], lambda block: _zero(c.sum))
    bias = create("torch_c.to_builtin_tensor", given.builtin, [c.op.operands[2]])
    maps = [ir.AffineMap.get(6, 0, [ir.AffineExpr.get_dim(1), ir.AffineExpr.get_dim(2)]), ir.AffineMap.get_identity(6)]
    return loops([_expanded(bias, 0, c.groups)], empty, maps, lambda block: widened(block.arguments[0], c.sum))


def _convolved(c: _Grouped, image: ir.Value, filters: ir.Value, initial: ir.Value) -> ir.Value:
    n, g, f, *rest = (ir.AffineExpr.get_dim(position) for position in range(10))
    outs, channel, taps = rest[:_AXES], rest[_AXES], rest[_AXES + 1 :]
    read = [out * stride + tap * dilation
            for out, tap, stride, dilation in zip(outs, taps, c.strides, c.dilations, strict=True)]
    accesses = [[n, g, channel, *read], [g, f, channel, *taps], [n, g, f, *outs]]

    def body(block: ir.Block) -> ir.Value:
        *factors, total = block.arguments
        product = create("arith.mulf", c.sum, [widened(factor, c.sum) for factor in factors])
        return create("arith.addf", c.sum, [total, product])

    return loops([image, filters], initial, [ir.AffineMap.get(10, 0, entries) for entries in accesses], body)


def _is_each_channel_transposed(op: ir.Operation) -> bool:
    """Whether `op` is a transposed convolution whose groups have one channel each of image and result."""
    image, filters, form = kind_of(op.operands[0]), kind_of(op.operands[1]), _groups(op)
    if image is None or filters is None or form is None:
        return False
    count, transposed = form
    return transposed and list(filters.extents[:2]) == [count, 1]


def _hide_channels(op: ir.Operation) -> None:
    """Makes the number of channels unknown until upstream's canonicalisation, because the wheel takes a convolution of
    as many groups for one that is not transposed, and expects filters of another shape."""
    image = kind_of(op.operands[0])
    assert image is not None
    shape = [image.extents[0], DYNAMIC, *image.extents[2:]]
    unknown = create("tensor.cast", ir.RankedTensorType.get(shape, image.scalar), [builtin(op.operands[0])])
    op.operands[0] = as_torch(unknown, image.element)

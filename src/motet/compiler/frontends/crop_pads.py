"""crop-pads: splits a pad by negative amounts into a slice and a pad by non-negative amounts.

    %r = tensor.pad %x low[1] high[-1]        →   %s = tensor.extract_slice %x[0] [3] [1]
         : tensor<4xf32> to tensor<4xf32>         %r = tensor.pad %s low[1] high[0] : tensor<3xf32> to tensor<4xf32>

`tensor.pad` folds to its source if both have the same static type; that is wrong if one side grows by as much as the
other shrinks. Upstream cannot bufferize negative amounts. Pads by unknown amounts are protected from folding, and
refused if all extents are static. This pass must run before any folding; the oracle folds by the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.compiler.passes.base import ModulePass
from motet.errors import CompileError

_DYNAMIC = ir.ShapedType.get_dynamic_size()


@dataclass(frozen=True)
class CropPads(ModulePass):
    """Raises CompileError for pads whose amounts are dynamic although all extents are static."""

    name = "crop-pads"

    def run(self, module: ir.Module) -> None:
        with module.context:
            for pad in find_operations(module, "tensor.pad"):
                _visit(pad)


def _visit(pad: ir.Operation) -> None:
    low, high = _amounts(pad)
    source = ir.RankedTensorType(pad.operands[0].type)
    removed = [min(a, 0) + min(b, 0) if _DYNAMIC not in (a, b) else 0 for a, b in zip(low, high, strict=True)]
    if _DYNAMIC in (*low, *high):
        _refuse_shift(pad, source)
        pad.attributes["nofold"] = ir.UnitAttr.get()
    elif any(removed) and source.has_static_shape:
        _crop(pad, source, low, high)


def _refuse_shift(pad: ir.Operation, source: ir.RankedTensorType) -> None:
    """Raises CompileError for dynamic amounts, which may be negative, between static extents: the extents then do not
    determine which elements the result has."""
    if source.has_static_shape and ir.RankedTensorType(pad.results[0].type).has_static_shape:
        raise CompileError(
            "tensor.pad: amounts that a call decides, between tensors of static extents, are not supported; expected "
            "constants, or a result of dynamic extents", locate(pad.location),
        )


def _amounts(pad: ir.Operation) -> tuple[list[int], list[int]]:
    """The amounts added before and after each axis; constant operands count as static."""
    counts = list(ir.DenseI32ArrayAttr(pad.attributes["operandSegmentSizes"]))
    given = iter(list(pad.operands)[1 : 1 + counts[1] + counts[2]])
    sides = [list(ir.DenseI64ArrayAttr(pad.attributes[name])) for name in ("static_low", "static_high")]
    low, high = ([_constant(next(given)) if amount == _DYNAMIC else amount for amount in side] for side in sides)
    return low, high


def _constant(value: ir.Value) -> int:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return _DYNAMIC
    return ir.IntegerAttr(owner.attributes["value"]).value


def _crop(pad: ir.Operation, source: ir.RankedTensorType, low: Sequence[int], high: Sequence[int]) -> None:
    """Replaces a pad with static amounts; the extents of its result are static whatever its type says."""
    sizes = [
        max(0, size + min(0, before) + min(0, after))
        for size, before, after in zip(source.shape, low, high, strict=True)
    ]
    # An empty slice may begin anywhere, but bufferization requires an offset inside the source.
    offsets = [max(0, -before) if size else 0 for size, before in zip(sizes, low, strict=True)]
    added = [[max(0, amount) for amount in side] for side in (low, high)]
    for axis in (axis for axis, size in enumerate(sizes) if not size):
        added[1][axis], added[0][axis] = added[0][axis] + added[1][axis], 0
    kind = ir.RankedTensorType.get(sizes, source.element_type)
    cropped = ir.Operation.create(
        "tensor.extract_slice", results=[kind], operands=[pad.operands[0]], loc=pad.location, ip=ir.InsertionPoint(pad),
        attributes={
            "static_offsets": ir.DenseI64ArrayAttr.get(offsets), "static_sizes": ir.DenseI64ArrayAttr.get(sizes),
            "static_strides": ir.DenseI64ArrayAttr.get([1] * len(sizes)),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
        },
    ).result
    made = ir.Operation.create(
        "tensor.pad", results=[pad.results[0].type], operands=[cropped], regions=1, loc=pad.location,
        ip=ir.InsertionPoint(pad),
        attributes={
            "static_low": ir.DenseI64ArrayAttr.get(added[0]), "static_high": ir.DenseI64ArrayAttr.get(added[1]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0]),
        },
    )
    pad.regions[0].blocks[0].append_to(made.regions[0])
    pad.results[0].replace_all_uses_with(made.results[0])
    pad.erase()

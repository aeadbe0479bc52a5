"""crop-pads: a pad by negative amounts becomes a slice and a pad without.

    %r = tensor.pad %x low[1] high[-1]        →   %s = tensor.extract_slice %x[0] [3] [1]
         : tensor<4xf32> to tensor<4xf32>         %r = tensor.pad %s low[1] high[0] : tensor<3xf32> to tensor<4xf32>

`tensor.pad` folds to its source where both have the same static type, which what is added on one side and removed on
the other leave as it is; and nothing bufferizes one by negative amounts. Pads by amounts that are not known are kept
from folding. To be run before anything is folded: the oracle folds by the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations

_DYNAMIC = ir.ShapedType.get_dynamic_size()


def crop_pads(module: ir.Module) -> None:
    """In place."""
    with module.context:
        for pad in find_operations(module, "tensor.pad"):
            low, high = _amounts(pad)
            source = ir.RankedTensorType(pad.operands[0].type)
            removed = [min(a, 0) + min(b, 0) if _DYNAMIC not in (a, b) else 0 for a, b in zip(low, high, strict=True)]
            if _DYNAMIC in (*low, *high):
                pad.attributes["nofold"] = ir.UnitAttr.get()
            elif any(removed) and source.has_static_shape:
                _crop(pad, source, low, high)


def _amounts(pad: ir.Operation) -> tuple[list[int], list[int]]:
    """What is added before and after each axis; constants among the operands count as known."""
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
    """All of it is static, and so is the padded result, whatever its type says."""
    offsets = [min(size, max(0, -before)) for size, before in zip(source.shape, low, strict=True)]
    sizes = [
        max(0, size + min(0, before) + min(0, after))
        for size, before, after in zip(source.shape, low, high, strict=True)
    ]
    added = [[max(0, amount) for amount in side] for side in (low, high)]
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
